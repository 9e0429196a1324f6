// Ranges on a GPU: memory comes back, growth reaches every device, nothing is unmapped under a running kernel.
#include "cuvmm/mapped_range.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using namespace std::chrono_literals;
using driver::call;
using driver::EntryPoint;

class MappedRangeOnGpu : public test::OnGpu {
 protected:
  std::vector<std::byte> read(const MappedRange& range, std::size_t offset, std::size_t bytes) {
    std::vector<std::byte> content(bytes);
    copy_bytes_from_device(driver_, content, range.address() + offset);
    return content;
  }

  static MappedRangeOptions chunks_of(std::size_t bytes) {
    MappedRangeOptions options;
    options.capacity = 2_GiB;
    options.chunks = ChunkPolicy::fixed(bytes);
    return options;
  }
};

TEST_F(MappedRangeOnGpu, C38_MemoryIsBackAfterManyRanges) {
  std::size_t before = 0, after = 0, total = 0;
  {
    auto first = MappedRange::create(driver_, chunks_of(64_MiB));  // what the driver keeps for itself, it keeps now
    first.append(64_MiB);
  }
  call<EntryPoint::cuMemGetInfo>(api(), &before, &total);
  for (int i = 0; i < 64; ++i) {
    auto range = MappedRange::create(driver_, chunks_of(64_MiB));
    range.append(64_MiB);
  }
  call<EntryPoint::cuMemGetInfo>(api(), &after, &total);
  EXPECT_EQ(after, before);
}

TEST_F(MappedRangeOnGpu, C01_NothingIsUnmappedUnderASpinningKernel) {
  const CUstream spinning = stream(), other = stream();
  for (int round = 0; round < 200; ++round) {
    auto range = MappedRange::create(driver_, chunks_of(2_MiB));
    range.append(8_MiB);
    call<EntryPoint::cuMemsetD8>(api(), range.address().value, static_cast<unsigned char>(0), range.size());
    call<EntryPoint::cuCtxSynchronize>(api());
    range.used_on(spinning);
    spin(range.address(), spinning);
    std::thread ends([&] { range.unmap(0, 8_MiB); });  // from a thread that has no context
    ASSERT_EQ(api().cuStreamQuery(spinning), CUDA_ERROR_NOT_READY);
    call<EntryPoint::cuMemsetD32Async>(api(), range.address().value, 1U, std::size_t{1}, other);
    ends.join();
    ASSERT_EQ(api().cuStreamSynchronize(spinning), CUDA_SUCCESS) << "round " << round;
    ASSERT_EQ(range.mapped_bytes(), 0u);
    call<EntryPoint::cuStreamSynchronize>(api(), other);
  }
}

TEST_F(MappedRangeOnGpu, ContentSurvivesGrowthExchangeAndAliases) {
  auto range = MappedRange::create(driver_, chunks_of(2_MiB));
  std::vector<std::byte> all;
  for (unsigned i = 0; i < 8; ++i) {
    const auto more = test::pattern(1'500'000, i);
    const std::size_t at = range.append(more.size());
    copy_bytes_to_device(driver_, range.address() + at, more);
    all.insert(all.end(), more.begin(), more.end());
  }
  EXPECT_EQ(read(range, 0, all.size()), all);
  const auto fresh = range.source()->acquire({}, 2_MiB);
  const auto old = range.replace(2_MiB, fresh);
  copy_bytes_to_device(driver_, range.address() + 2_MiB, test::pattern(2_MiB, 99));
  range.replace(2_MiB, old);
  EXPECT_EQ(read(range, 0, all.size()), all) << "the old chunk came back with its bytes";
  auto alias = MappedRange::create(driver_, chunks_of(2_MiB));
  for (const ChunkInfo& chunk : range.chunks()) alias.append(range.memory_at(chunk.offset));
  range.close();
  EXPECT_EQ(read(alias, 0, all.size()), all);
}

TEST_F(MappedRangeOnGpu, C24_TheSecondDeviceReachesPagesMappedLater) {
  if (driver_.device_count() < 2) {
    std::puts("[ note ] one device only: that a second one reaches pages mapped later was not tried");
    return;
  }
  MappedRangeOptions options = chunks_of(4_MiB);
  options.grants = {{device_.location(), AccessRights::read_write},
                    {Location::device(DeviceOrdinal(1)), AccessRights::read_write}};
  auto range = MappedRange::create(driver_, options);
  for (int i = 0; i < 3; ++i) range.append(4_MiB);
  range.append(4_MiB, Location::device(DeviceOrdinal(1)));
  const auto content = test::pattern(4096, 5);
  {
    const CurrentContext second(driver_.device(DeviceOrdinal(1)));
    copy_bytes_to_device(driver_, range.address() + (12_MiB - 4096), content);
    copy_bytes_to_device(driver_, range.address() + (16_MiB - 4096), content);
  }
  EXPECT_EQ(read(range, 12_MiB - 4096, 4096), content);
  EXPECT_EQ(read(range, 16_MiB - 4096, 4096), content);
}

TEST_F(MappedRangeOnGpu, FeaturesAreAskedForAndToldOf) {
  for (const auto& [compression, rdma] : {std::pair{true, false}, {false, true}, {true, true}}) {
    MappedRangeOptions options = chunks_of(2_MiB);
    options.memory.compression = compression;
    options.memory.gpu_direct_rdma = rdma;
    auto range = MappedRange::create(driver_, options);
    range.append(4_MiB);
    const MemoryProperties& got = range.properties();
    std::printf("[ note ] compression and GPUDirect RDMA: asked %d %d, got %d %d\n", static_cast<int>(compression),
                static_cast<int>(rdma), static_cast<int>(got.compression), static_cast<int>(got.gpu_direct_rdma));
    EXPECT_TRUE(rdma || got.compression == device_.supports_compression());
    EXPECT_TRUE(compression || got.gpu_direct_rdma == device_.supports_gpu_direct_rdma());
  }
}

TEST_F(MappedRangeOnGpu, HostMemoryIsSharedWithTheCpu) {
  MappedRangeOptions options = chunks_of(2_MiB);
  options.memory.location = Location::host_numa(0);
  options.grants = {{Location::host_numa(0), AccessRights::read_write}, {device_.location(), AccessRights::read_write}};
  auto range = MappedRange::create(driver_, options);
  range.append(3_MiB);
  const auto content = test::pattern(3_MiB, 8);
  std::copy(content.begin(), content.end(), range.address().as_pointer<std::byte>());
  EXPECT_EQ(read(range, 0, content.size()), content);
}

}  // namespace
}  // namespace cuvmm
