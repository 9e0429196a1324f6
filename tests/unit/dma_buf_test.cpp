#include "cuvmm/dma_buf.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/context.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/mapping.hpp"
#include "driver/decorator.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulated_machine.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;
using test::machine;

// Notes the ranges that are exported.
class ExportWatch final : public driver::Decorator<ExportWatch> {
 public:
  using Decorator::Decorator;
  CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr pointer, size_t size, CUmemRangeHandleType type,
                                         unsigned long long flags) override {
    ranges.emplace_back(pointer, size);
    last_flags = flags;
    return next().cuMemGetHandleForAddressRange(handle, pointer, size, type, flags);
  }
  std::vector<std::pair<CUdeviceptr, std::size_t>> ranges;
  unsigned long long last_flags = 0;
};

class DmaBufTest : public testing::Test {
 protected:
  explicit DmaBufTest(const emulator::Configuration& configuration = machine()) : machine_(configuration) {}

  // Chunks of 2 and 4 MiB that follow each other; no device was granted access.
  void map_chunks() {
    for (const std::size_t bytes : {2_MiB, 4_MiB}) {
      const auto memory = PhysicalMemory::create(driver_, {}, bytes);
      mappings_.push_back(Mapping::create(addresses_, bytes == 2_MiB ? 0 : 2_MiB, memory));
    }
  }

  test::EmulatedMachine machine_;
  std::shared_ptr<driver::FaultInjectingDriver> faulty_ =
      std::make_shared<driver::FaultInjectingDriver>(machine_.interface());
  std::shared_ptr<ExportWatch> watch_ = std::make_shared<ExportWatch>(faulty_);
  Driver driver_ = Driver::wrap(watch_);
  CurrentContext context_{driver_.device(DeviceOrdinal{0})};
  AddressReservation addresses_ = AddressReservation::create(driver_, 8_MiB);
  DeviceAddress base_ = addresses_.address();
  std::vector<Mapping> mappings_;
};

using Ranges = std::vector<std::pair<CUdeviceptr, std::size_t>>;

TEST_F(DmaBufTest, C42_ARangeOverTwoAllocationsAtOddOffsetsIsAPageAlignedExportOfEach) {
  map_chunks();
  const std::size_t first = 2_MiB - 5000;
  const auto all = dma_bufs(driver_, base_ + first, 5000 + 4097);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(watch_->ranges, (Ranges{{base_.value + 2_MiB - 8192, 8192}, {base_.value + 2_MiB, 8192}}));
  EXPECT_EQ(all[0].offset, 8192u - 5000);
  EXPECT_EQ(all[0].length, 5000u);
  EXPECT_EQ(all[0].address, base_ + first);
  EXPECT_EQ(all[1].offset, 0u);
  EXPECT_EQ(all[1].length, 4097u);
  EXPECT_EQ(all[1].address, base_ + 2_MiB);
  EXPECT_NE(all[0].descriptor.get(), all[1].descriptor.get());
  EXPECT_EQ(watch_->last_flags, 0u);
}

TEST_F(DmaBufTest, ARangeInsideOneAllocationIsOne) {
  map_chunks();
  EXPECT_EQ(dma_bufs(driver_, base_ + 2_MiB, 4_MiB).size(), 1u);
  EXPECT_EQ(dma_bufs(driver_, base_ + 1, 1).size(), 1u);
  EXPECT_EQ(watch_->ranges, (Ranges{{base_.value + 2_MiB, 4_MiB}, {base_.value, 4096}}));
}

TEST_F(DmaBufTest, MemoryOfCuMemAllocHasThemToo) {
  CUdeviceptr allocated = 0;
  ASSERT_EQ(driver_.interface().cuMemAlloc(&allocated, 4_MiB), CUDA_SUCCESS);
  const auto all = dma_bufs(driver_, DeviceAddress{allocated + 100}, 5000);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].offset, 100u);
  EXPECT_EQ(driver_.interface().cuMemFree(allocated), CUDA_SUCCESS);
}

TEST_F(DmaBufTest, TheDescriptorKeepsTheMemoryUntilItIsClosed) {
  map_chunks();
  auto all = dma_bufs(driver_, base_, 1);
  mappings_.clear();
  EXPECT_FALSE(machine_.nothing_live());
  const std::size_t free = machine_.free_memory();
  all.clear();
  addresses_.free();
  EXPECT_TRUE(machine_.nothing_live());
  EXPECT_EQ(machine_.free_memory(), free + 2_MiB);
}

TEST_F(DmaBufTest, AnEmptyOrEndlessRangeIsRefused) {
  map_chunks();
  for (const std::size_t bytes : {std::size_t{0}, SIZE_MAX}) {
    const auto result = try_dma_bufs(driver_, base_, bytes);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
    EXPECT_EQ(result.failure().call, "dma_bufs");
  }
  EXPECT_TRUE(try_dma_bufs(driver_, base_, 1));
}

TEST_F(DmaBufTest, AHoleIsRefusedWithItsAddress) {
  map_chunks();
  const auto result = try_dma_bufs(driver_, base_, 6_MiB + 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
  char hole[32] = {};
  std::snprintf(hole, sizeof hole, "0x%llx", base_.value + 6_MiB);
  EXPECT_NE(result.failure().rule.find(hole), std::string::npos) << result.failure().rule;
  EXPECT_TRUE(try_dma_bufs(driver_, base_, 6_MiB));
}

TEST_F(DmaBufTest, ADriverThatTellsNoSizeIsNotAskedForEver) {
  const auto fake = test::scripted_driver();
  std::size_t size = 0;
  // The parameters are the call's. NOLINTNEXTLINE(readability-non-const-parameter)
  fake->on_cuPointerGetAttributes = [&](unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr) {
    for (unsigned index = 0; index < count; ++index) {
      auto& word = *static_cast<unsigned long long*>(data[index]);
      if (attributes[index] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) word = CU_MEMORYTYPE_DEVICE;
      if (attributes[index] == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) word = 4096;
      if (attributes[index] == CU_POINTER_ATTRIBUTE_MAPPING_SIZE) word = size;
    }
    return CUDA_SUCCESS;
  };
  EXPECT_FALSE(try_dma_bufs(Driver::wrap(fake), DeviceAddress{4096}, 1));
  size = 4096;
  EXPECT_TRUE(try_dma_bufs(Driver::wrap(fake), DeviceAddress{4096}, 1));
}

TEST_F(DmaBufTest, C42_NothingIsLeftOpenWhicheverCallFails) {
  map_chunks();
  for (const EntryPoint entry : {EntryPoint::cuPointerGetAttributes, EntryPoint::cuMemGetHandleForAddressRange})
    for (const std::uint64_t call : {1U, 2U}) {
      faulty_->inject({.entry_point = entry, .call = call, .result = CUDA_ERROR_UNKNOWN});
      const auto result = try_dma_bufs(driver_, base_, 6_MiB);
      ASSERT_FALSE(result);
      EXPECT_EQ(result.failure().call, driver::name(entry));
    }
  EXPECT_TRUE(try_dma_bufs(driver_, base_, 6_MiB));
  mappings_.clear();
  addresses_.free();
  EXPECT_TRUE(machine_.nothing_live()) << "an open descriptor would keep its memory";
}

TEST_F(DmaBufTest, WithoutAContextItIsRefused) {
  map_chunks();
  CUcontext popped = nullptr;
  ASSERT_EQ(driver_.interface().cuCtxPopCurrent(&popped), CUDA_SUCCESS);
  const auto result = try_dma_bufs(driver_, base_, 1);
  ASSERT_EQ(driver_.interface().cuCtxPushCurrent(popped), CUDA_SUCCESS);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
  EXPECT_TRUE(try_dma_bufs(driver_, base_, 1));
}

TEST_F(DmaBufTest, ThePcieMappingIsAskedForByItsFlag) {
  map_chunks();
  const auto result = try_dma_bufs(driver_, base_, 1, DmaBufMapping::pcie);
  EXPECT_EQ(watch_->last_flags, 1u);
  ASSERT_FALSE(result) << "an H200 has none";
  EXPECT_EQ(result.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(result.failure().feature, "dma-buf export through PCIe");
  EXPECT_NE(result.failure().reason, "");
}

TEST_F(DmaBufTest, HostMemoryHasNone) {
  const auto memory = PhysicalMemory::create(driver_, {.location = Location::host_numa(0)}, 2_MiB);
  const auto mapping = Mapping::create(addresses_, 0, memory);
  try {
    static_cast<void>(dma_bufs(driver_, mapping.address(), 1));
    FAIL() << "accepted";
  } catch (const NotSupported& error) {
    EXPECT_EQ(error.failure().feature, "dma-buf export of host memory");
    EXPECT_NE(error.failure().reason, "");
  }
}

TEST_F(DmaBufTest, MemoryOfOtherKindsHasNoneAndIsNamed) {
  driver::Interface& api = driver_.interface();
  const auto refused_for = [&](CUdeviceptr pointer, std::size_t bytes) {
    const auto result = try_dma_bufs(driver_, DeviceAddress{pointer}, bytes);
    if (result) return std::string("nothing");
    EXPECT_EQ(result.failure().kind, ErrorKind::not_supported);
    EXPECT_FALSE(result.failure().reason.empty());
    EXPECT_FALSE(result.failure().way_out.empty());
    return std::string(result.failure().feature);
  };
  CUdeviceptr pointer = 0;
  ASSERT_EQ(api.cuMemAllocManaged(&pointer, 2_MiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(refused_for(pointer, 2_MiB), "dma-buf export of managed memory");
  EXPECT_EQ(api.cuMemFree(pointer), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemAlloc(&pointer, 100), CUDA_SUCCESS);
  EXPECT_EQ(refused_for(pointer, 100), "dma-buf export of a part of a page");
  EXPECT_EQ(api.cuMemFree(pointer), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemAlloc(&pointer, 4_KiB), CUDA_SUCCESS);
  EXPECT_EQ(refused_for(pointer, 100), "nothing");
  EXPECT_EQ(api.cuMemFree(pointer), CUDA_SUCCESS);
}

// As recorded: the driver exports a pool's memory from the beginning of an allocation, as far as the pool goes.
TEST_F(DmaBufTest, OfAPoolsMemoryBeginWithItsAllocationAndEndWithinIt) {
  driver::Interface& api = driver_.interface();
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(api.cuMemAllocAsync(&first, 2_MiB, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemAllocAsync(&second, 5000, nullptr), CUDA_SUCCESS);
  const auto whole = dma_bufs(driver_, DeviceAddress{first}, 2_MiB);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].offset, 0u);
  EXPECT_EQ(whole[0].length, 2_MiB);
  const auto inside = dma_bufs(driver_, DeviceAddress{first + 9000}, 100);
  ASSERT_EQ(inside.size(), 1u);
  EXPECT_EQ(inside[0].offset, 9000u);
  EXPECT_EQ(inside[0].length, 100u);
  EXPECT_EQ(watch_->ranges, (Ranges{{first, 2_MiB}, {first, 12288}}));
  const auto shared_page = try_dma_bufs(driver_, DeviceAddress{second}, 5000);
  ASSERT_FALSE(shared_page);
  EXPECT_EQ(shared_page.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(shared_page.failure().feature, "dma-buf export of a part of a page");
  EXPECT_EQ(watch_->ranges.size(), 2u) << "the driver would give the other allocations' bytes of that page as well";
  EXPECT_TRUE(try_dma_bufs(driver_, DeviceAddress{second}, 4096));
  EXPECT_EQ(api.cuMemFreeAsync(first, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemFreeAsync(second, nullptr), CUDA_SUCCESS);
}

// As recorded: an H200's driver ends the process that asks for one.
TEST_F(DmaBufTest, TheDriverIsNotAskedForThoseOfAPoolsManagedMemory) {
  driver::Interface& api = driver_.interface();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CUdeviceptr managed = 0;
  ASSERT_EQ(api.cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(api.cuMemAllocFromPoolAsync(&managed, 2_MiB, pool, nullptr), CUDA_SUCCESS);
  const auto result = try_dma_bufs(driver_, DeviceAddress{managed}, 2_MiB);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(result.failure().feature, "dma-buf export of managed memory");
  EXPECT_TRUE(watch_->ranges.empty());
  EXPECT_EQ(api.cuMemFreeAsync(managed, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(api.cuMemPoolDestroy(pool), CUDA_SUCCESS);
}

TEST_F(DmaBufTest, CompressibleMemoryHasNone) {
  const auto compressible = PhysicalMemory::create(driver_, {.compression = true}, 2_MiB);
  const auto plain = PhysicalMemory::create(driver_, {.compression = true, .gpu_direct_rdma = true}, 2_MiB);
  const auto first = Mapping::create(addresses_, 0, compressible);
  const auto second = Mapping::create(addresses_, 2_MiB, plain);
  EXPECT_TRUE(try_dma_bufs(driver_, second.address(), 2_MiB));
  const auto result = try_dma_bufs(driver_, first.address(), 2_MiB);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(result.failure().code, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(result.failure().feature, "dma-buf export of compressible memory");
}

class NoDmaBufTest : public DmaBufTest {
 protected:
  NoDmaBufTest() : DmaBufTest(machine("no-rdma")) {}
};

TEST_F(NoDmaBufTest, IsNotSupportedWithFeatureAndReason) {
  map_chunks();
  const auto result = try_dma_bufs(driver_, base_, 6_MiB);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(result.failure().feature, "dma-buf export");
  EXPECT_NE(result.failure().reason, "");
  EXPECT_NE(result.failure().way_out, "");
}

}  // namespace
}  // namespace cuvmm
