#include <gtest/gtest.h>

#include <set>

#include "conformance/cases/drivers.hpp"
#include "conformance/cases/process_pool.hpp"
#include "conformance/sequences/generator.hpp"
#include "conformance/sequences/play.hpp"
#include "driver/decorator.hpp"

namespace cuvmm::conformance {

namespace {

// The calls of a seed where every call is answered so.
std::vector<std::string> calls_of(std::uint64_t seed, CUresult answer) {
  std::vector<std::string> calls;
  Generator generator{seed, 2};
  while (const auto call = generator.next()) {
    calls.push_back(text(*call));
    generator.answered(answer);
  }
  return calls;
}

TEST(Generator, DrawsTheSameCallsForTheSameSeedAndCodes) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    EXPECT_EQ(calls_of(seed, CUDA_ERROR_UNKNOWN), calls_of(seed, CUDA_ERROR_INVALID_VALUE));
    EXPECT_NE(calls_of(seed, CUDA_ERROR_UNKNOWN), calls_of(seed + 1, CUDA_ERROR_UNKNOWN));
  }
}

TEST(Generator, DrawsLengthsOfTheStatedDistribution) {
  std::size_t sum = 0;
  std::size_t longest = 0;
  constexpr std::size_t sequences = 2000;
  for (std::uint64_t seed = 1; seed <= sequences; ++seed) {
    const std::size_t length = calls_of(seed, CUDA_ERROR_UNKNOWN).size();
    sum += length;
    longest = std::max(longest, length);
    EXPECT_GE(length, 1U);
  }
  EXPECT_NEAR(static_cast<double>(sum) / sequences, Generator::mean_length, 5);
  EXPECT_LE(longest, std::size_t{Generator::most_length});
}

TEST(Generator, EveryCallCountsInTheChecksumByWhichAChangeIsNoticed) {
  Generator generator{1, 2};
  std::set<std::uint32_t> sums{generator.checksum().value()};
  std::size_t calls = 0;
  while (generator.next()) {
    ++calls;
    sums.insert(generator.checksum().value());
    generator.answered(CUDA_SUCCESS);
  }
  EXPECT_EQ(sums.size(), calls + 1);
}

// Passes calls on, and notes the first that is made with a handle that was released. A real driver would crash of it.
class HandleWatch final : public driver::Decorator<HandleWatch> {
 public:
  using Decorator::Decorator;

  CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t size, const CUmemAllocationProp* properties,
                       unsigned long long flags) override {
    return taken(handle, next().cuMemCreate(handle, size, properties, flags));
  }
  CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) override {
    return taken(handle, next().cuMemRetainAllocationHandle(handle, address));
  }
  CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                          CUmemAllocationHandleType type) override {
    return taken(handle, next().cuMemImportFromShareableHandle(handle, os_handle, type));
  }
  CUresult cuMemRelease(CUmemGenericAllocationHandle handle) override {
    check("cuMemRelease", handle);
    const CUresult result = next().cuMemRelease(handle);
    if (result == CUDA_SUCCESS) live_.erase(live_.find(handle));
    return result;
  }
  CUresult cuMemMap(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags) override {
    check("cuMemMap", handle);
    return next().cuMemMap(address, size, offset, handle, flags);
  }
  CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                        unsigned long long flags) override {
    check("cuMemExportToShareableHandle", handle);
    return next().cuMemExportToShareableHandle(out, handle, type, flags);
  }
  CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                  CUmemGenericAllocationHandle handle) override {
    check("cuMemGetAllocationPropertiesFromHandle", handle);
    return next().cuMemGetAllocationPropertiesFromHandle(properties, handle);
  }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  [[nodiscard]] std::size_t live() const { return live_.size(); }

 private:
  CUresult taken(const CUmemGenericAllocationHandle* handle, CUresult result) {
    if (result == CUDA_SUCCESS) live_.insert(*handle);
    return result;
  }
  void check(const char* call, CUmemGenericAllocationHandle handle) {
    if (handle != 0 && live_.count(handle) == 0) complaint_ = std::string{call} + " of a dead handle";
  }

  std::multiset<CUmemGenericAllocationHandle> live_;
  std::string complaint_;
};

// In a process of its own, as the driver's contexts are a process's.
std::string played_with_watch(std::uint64_t first, std::uint64_t count) {
  std::string said;
  const Task task{[=](int descriptor) {
    const auto watch = std::make_shared<HandleWatch>(emulated_driver()());
    Player player{watch, 2};
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      const RecordedSequence sequence = play(seed, 2, player);
      if (!sequence.end.empty() || !watch->complaint().empty() || watch->live() != 0)
        write_to(descriptor, std::to_string(seed) + sequence.end + ' ' + watch->complaint() + ' ' +
                                 std::to_string(watch->live()) + " handles left\n");
    }
    write_to(descriptor, "done");
  }};
  run_tasks({task}, {std::chrono::seconds{240}, 1},
            [&](std::size_t, const Ended& ended) { said = ended.output + ended.complaint(); });
  return said;
}

TEST(Sequences, NeverUseADeadHandleAndLeaveNothingBehind) {
  EXPECT_EQ(played_with_watch(1, 300), "done");
}

TEST(Sequences, NeverBreakTheContext) {
  std::string said;
  const Task task{[](int descriptor) {
    const auto driver = emulated_driver()();
    Player player{driver, 2};
    for (std::uint64_t seed = 1; seed <= 300; ++seed)
      for (const Step& step : play(seed, 2, player).steps)
        if (step.code == CUDA_ERROR_ILLEGAL_ADDRESS || step.code == CUDA_ERROR_LAUNCH_FAILED)
          write_to(descriptor, std::to_string(seed) + ' ');
    write_to(descriptor, result_name(driver->cuCtxSynchronize()));
  }};
  run_tasks({task}, {std::chrono::seconds{240}, 1},
            [&](std::size_t, const Ended& ended) { said = ended.output + ended.complaint(); });
  EXPECT_EQ(said, "OK");
}

}  // namespace

}  // namespace cuvmm::conformance
