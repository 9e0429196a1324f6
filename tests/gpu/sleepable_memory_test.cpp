// Memory that sleeps, on a GPU: content, addresses and rights come back, and nothing sleeps under a running kernel.
#include "cuvmm/sleepable_memory.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using namespace std::chrono_literals;
using driver::call;
using driver::EntryPoint;

class SleepableMemoryOnGpu : public test::OnGpu {
 protected:
  bool holds(const MappedRange& range, std::size_t offset, const std::vector<std::byte>& content) {
    std::vector<std::byte> seen(content.size());
    copy_bytes_from_device(driver_, seen, range.address() + offset);
    return std::memcmp(seen.data(), content.data(), seen.size()) == 0;
  }
  std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    call<EntryPoint::cuMemGetInfo>(api(), &free, &total);
    return free;
  }
};

TEST_F(SleepableMemoryOnGpu, KeepsContentInEachOfItsPlaces) {
  const auto content = test::pattern(70_MiB, 7);
  for (const SleepingContent kind : {SleepingContent::pinned, SleepingContent::pageable, SleepingContent::file}) {
    auto memory = SleepableMemory::create(driver_);
    auto mapped = MappedRange::create(driver_, {.capacity = 1_GiB});
    mapped.append(200_MiB);
    copy_bytes_to_device(driver_, mapped.address() + 100_MiB, content);
    auto range = memory.add("group", std::move(mapped), {.content = kind, .keep_backup = true});
    for (int round = 0; round < 3; ++round) {
      const std::size_t before = free_bytes();
      const auto slept = memory.sleep("group");
      EXPECT_GE(slept.bytes_given_back, 200_MiB);
      // The driver keeps a little for the streams that copied.
      EXPECT_GE(free_bytes() + 16_MiB, before + slept.bytes_given_back);
      EXPECT_TRUE(memory.wake("group").lost.empty());
      EXPECT_TRUE(holds(range.range(), 100_MiB, content)) << to_string(kind) << ", round " << round;
    }
  }
}

TEST_F(SleepableMemoryOnGpu, C01_NothingSleepsUnderASpinningKernelAndItsBytesAreKept) {
  auto memory = SleepableMemory::create(driver_);
  auto mapped = MappedRange::create(driver_, {.capacity = 1_GiB});
  mapped.append(1_GiB);
  auto flag = MappedRange::create(driver_, {.capacity = 2_MiB});
  flag.append(2_MiB);
  const unsigned zero = 0, one = 1;
  copy_bytes_to_device(driver_, flag.address(), std::as_bytes(std::span(&zero, 1)));
  const CUstream spinning = stream();
  mapped.used_on(spinning);
  spin(flag.address(), spinning);
  call<EntryPoint::cuMemsetD8Async>(api(), mapped.address().value, static_cast<unsigned char>(0x5A), 1_GiB, spinning);
  auto range = memory.add("group", std::move(mapped), {.content = SleepingContent::pinned});
  std::thread opener([&] {
    std::this_thread::sleep_for(50ms);
    const CurrentContext context(device_);
    const CUstream other = stream();
    call<EntryPoint::cuMemcpyHtoDAsync>(api(), flag.address().value, &one, sizeof one, other);
    call<EntryPoint::cuStreamSynchronize>(api(), other);
  });
  memory.sleep("group");
  opener.join();
  memory.wake("group");
  EXPECT_TRUE(holds(range.range(), 1_GiB - 1_MiB, std::vector<std::byte>(1_MiB, std::byte{0x5A})));
  range.range().no_longer_used_on(spinning);
  call<EntryPoint::cuStreamDestroy>(api(), spinning);
}

}  // namespace
}  // namespace cuvmm
