// At the limits of the operating system: the library tells the driver's own kind of error, what was there is as before,
// and unmapping and releasing still work.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "../sanitizers.hpp"
#include "cuvmm/cuvmm.hpp"
#include "emulator/api/emulated_driver.hpp"
#include "emulator/child.hpp"
#include "emulator/configuration.hpp"
#include "emulator/system_limits.hpp"
#include "temporary_directory.hpp"

namespace cuvmm::test {
namespace {

using emulator::test::address_space_in_use;
using emulator::test::descriptors_in_use;
using emulator::test::Limit;
using emulator::test::succeeds_in_child;

const Location device0 = Location::device(DeviceOrdinal(0));

// As many mappings as the process may have, for as long as it lives: every other page of a region has other rights.
class AllMappings {
 public:
  AllMappings() {
    region_ = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (std::size_t at = 4096; at < bytes && !full_; at += std::size_t{2} * 4096)
      full_ = ::mprotect(static_cast<char*>(region_) + at, 4096, PROT_READ) != 0 && errno == ENOMEM;
    // The last split takes two, so that one may be left.
    for (void*& single : singles_) single = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  }
  AllMappings(const AllMappings&) = delete;
  AllMappings& operator=(const AllMappings&) = delete;
  ~AllMappings() {
    for (void* single : singles_)
      if (single != MAP_FAILED) ::munmap(single, 4096);
    ::munmap(region_, bytes);
  }
  [[nodiscard]] bool full() const { return full_; }

 private:
  static constexpr std::size_t bytes = std::size_t{16} << 30;
  void* region_ = nullptr;
  std::array<void*, 2> singles_{};
  bool full_ = false;
};

// The failure with which the call ends, or nothing.
template <class Call>
std::optional<Failure> failure_of(Call&& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error.failure();
  }
}

bool is_memory(const Failure& failure) {
  return failure.kind == ErrorKind::out_of_device_memory || failure.kind == ErrorKind::out_of_host_memory;
}

struct Subject {
  std::shared_ptr<emulator::api::EmulatedDriver> emulated;
  std::optional<Driver> driver;
  std::optional<CurrentContext> context;
  std::optional<MappedRange> range;       // of device memory of which no byte was touched
  std::optional<MappedRange> host_range;  // that the host may touch

  Subject() {
    emulator::Configuration configuration;
    configuration.mode = emulator::Mode::strict;
    emulated = std::make_shared<emulator::api::EmulatedDriver>(configuration);
    (void)emulated->cuInit(0);
    driver = Driver::wrap(emulated);
    context.emplace(driver->device(DeviceOrdinal(0)));
    range = MappedRange::create(*driver, {.capacity = 1_GiB, .memory = {.location = device0}});
    range->append(4_MiB);
    host_range = MappedRange::create(*driver, {.capacity = 1_GiB, .memory = {.location = Location::host()}});
    host_range->append(4_MiB);
  }

  // Takes away what is there; answers whether nothing is left.
  bool give_back() {
    range->truncate(0);
    host_range->truncate(0);
    return emulated->machine().live_objects().mappings == 0;
  }
  // Grows both, and touches them.
  bool works() {
    range->append(2_MiB);
    host_range->append(2_MiB);
    copy_to_device(*range, 0, std::array{1, 2, 3});
    std::array<int, 3> values{};
    copy_from_device(values, *range, 0);
    *reinterpret_cast<volatile int*>(host_range->address().value) = 1;
    return values == std::array{1, 2, 3};
  }
};

TEST(Limits, WithoutDescriptorsTellOfDescriptorsAndUnmap) {
  if (address_sanitizer) {
    // UBSan asks by a pipe whether an exception's memory can be read, and takes a lack of descriptors for a no.
    std::puts("not tried with the address and undefined behaviour sanitizers, which need descriptors themselves");
    return;
  }
  EXPECT_TRUE(succeeds_in_child([] {
    Subject subject;
    {
      const Limit limit(RLIMIT_NOFILE, descriptors_in_use());
      const auto touched = failure_of([&] { copy_to_device(*subject.range, 0, std::array{1}); });
      CHILD_CHECK(touched && touched->kind == ErrorKind::out_of_descriptors);
      const auto exported = failure_of([&] { (void)dma_bufs(*subject.driver, subject.range->address(), 4096); });
      CHILD_CHECK(exported && exported->kind == ErrorKind::out_of_descriptors);
      CHILD_CHECK(subject.range->size() == 4_MiB && subject.range->mapped_bytes() == 4_MiB);
      CHILD_CHECK(subject.give_back());
    }
    CHILD_CHECK(subject.works());
    return 0;
  }));
}

TEST(Limits, WithoutAddressSpaceTellOfTheOperatingSystemAndUnmap) {
  EXPECT_TRUE(succeeds_in_child([] {
    Subject subject;
    {
      const Limit limit(RLIMIT_AS, address_space_in_use() + 256_MiB);  // for the process's own needs
      const auto touched = failure_of([&] { copy_to_device(*subject.range, 0, std::array{1}); });
      CHILD_CHECK(touched && touched->code == abi::CUDA_ERROR_OPERATING_SYSTEM && !is_memory(*touched));
      const auto grown = failure_of([&] { subject.host_range->append(512_MiB); });  // which the host is to see
      CHILD_CHECK(grown && grown->code == abi::CUDA_ERROR_OPERATING_SYSTEM && !is_memory(*grown));
      CHILD_CHECK(subject.host_range->size() == 4_MiB && subject.host_range->quarantined().empty());
      subject.range->append(512_MiB);  // memory of a device is no address space of the process
      CHILD_CHECK(subject.give_back());
    }
    CHILD_CHECK(subject.works());
    return 0;
  }));
}

TEST(Limits, WithAllMappingsTakenTellOfTheOperatingSystemAndUnmap) {
  if (sanitized) {
    std::puts("not tried with sanitizers, which need mappings themselves");
    return;
  }
  EXPECT_TRUE(succeeds_in_child([] {
    Subject subject;
    {
      const AllMappings taken;
      CHILD_CHECK(taken.full());
      const auto touched = failure_of([&] { copy_to_device(*subject.range, 0, std::array{1}); });
      CHILD_CHECK(touched && touched->code == abi::CUDA_ERROR_OPERATING_SYSTEM && !is_memory(*touched));
      const auto grown = failure_of([&] { subject.host_range->append(2_MiB); });
      CHILD_CHECK(grown && grown->code == abi::CUDA_ERROR_OPERATING_SYSTEM && !is_memory(*grown));
      CHILD_CHECK(subject.host_range->size() == 4_MiB && subject.host_range->quarantined().empty());
      for (int round = 0; round < 1000; ++round) {  // mappings of devices are no mappings of the process
        subject.range->append(2_MiB);
        subject.range->truncate(4_MiB);
      }
      CHILD_CHECK(subject.give_back());
    }
    CHILD_CHECK(subject.works());
    return 0;
  }));
}

// Without a handler for SIGXFSZ, which would end the process.
TEST(Limits, OfFilesTellWhichAndUnmap) {
  EXPECT_TRUE(succeeds_in_child([] {
    (void)std::signal(SIGXFSZ, SIG_DFL);
    Subject subject;
    {
      const Limit limit(RLIMIT_FSIZE, 1_MiB);
      const auto touched = failure_of([&] { copy_to_device(*subject.range, 0, std::array{1}); });
      CHILD_CHECK(touched && touched->message().find("RLIMIT_FSIZE") != std::string::npos);
      const auto grown = failure_of([&] { subject.host_range->append(2_GiB); });
      CHILD_CHECK(grown && grown->message().find("RLIMIT_FSIZE") != std::string::npos);
      CHILD_CHECK(subject.host_range->size() == 4_MiB && subject.host_range->quarantined().empty());
      CHILD_CHECK(subject.give_back());
    }
    CHILD_CHECK(subject.works());
    return 0;
  }));
}

// Limits of processes are a user's, of all that are there; root heeds none. Becomes a user of whom there is no other
// process, where that can be.
bool become_another_user() {
  if (::geteuid() != 0) return true;
  const auto id = static_cast<uid_t>(20'000 + ::getpid() % 40'000);
  return ::setgroups(0, nullptr) == 0 && ::setresgid(id, id, id) == 0 && ::setresuid(id, id, id) == 0 &&
         ::prctl(PR_SET_DUMPABLE, 1) == 0;
}

bool a_thread_starts() {
  try {
    std::thread([] {}).join();
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(Limits, OfThreadsLetWorkAdvanceWithinCallsAndByItselfOnceTheyAreLifted) {
  EXPECT_TRUE(succeeds_in_child([] {
    CHILD_CHECK(become_another_user());
    std::optional<Subject> subject;
    abi::CUstream stream = nullptr;
    std::atomic<int> called = 0;
    const auto call = [](void* number) { ++*static_cast<std::atomic<int>*>(number); };
    {
      const Limit none(RLIMIT_NPROC, 1);  // this process itself
      CHILD_CHECK(!a_thread_starts());
      subject.emplace();
      emulator::api::EmulatedDriver& driver = *subject->emulated;
      CHILD_CHECK(subject->works());
      const auto before = driver.machine().live_objects();
      CHILD_CHECK(driver.cuStreamCreate(&stream, abi::CU_STREAM_NON_BLOCKING) == abi::CUDA_SUCCESS);
      CHILD_CHECK(driver.cuMemsetD8Async(subject->range->address().value, 7, 64, stream) == abi::CUDA_SUCCESS);
      CHILD_CHECK(driver.cuLaunchHostFunc(stream, call, &called) == abi::CUDA_SUCCESS);
      CHILD_CHECK(driver.cuStreamSynchronize(stream) == abi::CUDA_SUCCESS && called == 1);
      CHILD_CHECK(driver.cuLaunchHostFunc(stream, call, &called) == abi::CUDA_SUCCESS);
      abi::CUresult query = abi::CUDA_ERROR_NOT_READY;
      while (query == abi::CUDA_ERROR_NOT_READY) query = driver.cuStreamQuery(stream);
      CHILD_CHECK(query == abi::CUDA_SUCCESS && called == 2);
      CHILD_CHECK(driver.machine().live_objects() == before);
    }
    CHILD_CHECK(a_thread_starts());
    CHILD_CHECK(subject->emulated->cuLaunchHostFunc(stream, call, &called) == abi::CUDA_SUCCESS);
    while (called < 3) std::this_thread::yield();  // nobody asks: a thread does it; the child is ended if none does
    CHILD_CHECK(subject->emulated->cuStreamDestroy(stream) == abi::CUDA_SUCCESS);
    CHILD_CHECK(subject->give_back());
    return 0;
  }));
}

// What a process on a machine that processes share needs of the file system, open to another user.
class MachineForAll {
 public:
  MachineForAll() {
    std::filesystem::copy_file(CUVMM_BROKER, broker());
    std::filesystem::permissions(folder_.path("."), std::filesystem::perms::all);
  }
  void use() const {
    ::setenv("CUVMM_EMULATOR_BROKER", broker().c_str(), 1);
    ::setenv("CUVMM_EMULATOR", ("memory=1GiB,machine=" + machine()).c_str(), 1);
  }
  [[nodiscard]] std::string machine() const { return folder_.path("machine"); }

 private:
  [[nodiscard]] std::string broker() const { return folder_.path("broker"); }
  tests::TemporaryDirectory folder_;
};

TEST(Limits, OfProcessesTellThatNoBrokerStarts) {
  const MachineForAll all;
  all.use();
  EXPECT_TRUE(succeeds_in_child([&] {
    // Then nobody else counts; a sanitizer's runtime ends a process that can start no thread.
    const bool alone = ::geteuid() == 0 && !sanitized;
    CHILD_CHECK(become_another_user());
    const std::size_t descriptors = open_descriptors();
    // None can be started; or one can, and that one can start none itself.
    for (const rlim_t most : alone ? std::vector<rlim_t>{1, 2} : std::vector<rlim_t>{1}) {
      const Limit few(RLIMIT_NPROC, most);
      const auto failed = failure_of([] { (void)Driver::emulated(); });
      CHILD_CHECK(failed && failed->kind == ErrorKind::driver_unavailable);
      CHILD_CHECK(failed->message().find("RLIMIT_NPROC") != std::string::npos);
      CHILD_CHECK(!std::filesystem::exists(all.machine()));
      CHILD_CHECK(open_descriptors() == descriptors);
    }
    {
      const Driver driver = Driver::emulated();
      const CurrentContext context(driver.device(DeviceOrdinal(0)));
      auto range = MappedRange::create(driver, {.capacity = 1_GiB, .memory = {.location = device0}});
      range.append(2_MiB);
      copy_to_device(range, 0, std::array{1});
    }
    while (std::filesystem::exists(all.machine())) std::this_thread::yield();
    return 0;
  }));
  ::unsetenv("CUVMM_EMULATOR_BROKER");
  ::unsetenv("CUVMM_EMULATOR");
}

}  // namespace
}  // namespace cuvmm::test
