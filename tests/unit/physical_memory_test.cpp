#include "cuvmm/physical_memory.hpp"

#include <gtest/gtest.h>

#include "recording_handler.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

class PhysicalMemoryTest : public testing::Test {
 protected:
  test::RecordingHandler clean_up_;
  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Driver driver_ = Driver::wrap(fake_);
};

TEST_F(PhysicalMemoryTest, IsCreatedWithOneCallAndReleasedWithOne) {
  {
    const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
    EXPECT_EQ(memory.size(), 2_MiB);
    EXPECT_EQ(memory.handle(), 1u);
    EXPECT_EQ(memory.driver(), driver_);
    EXPECT_EQ(fake_->calls, std::vector<EntryPoint>{EntryPoint::cuMemCreate});
  }
  EXPECT_EQ(fake_->calls, (std::vector<EntryPoint>{EntryPoint::cuMemCreate, EntryPoint::cuMemRelease}));
}

TEST_F(PhysicalMemoryTest, PassesItsPropertiesOn) {
  CUmemAllocationProp seen{};
  fake_->on_cuMemCreate = [&](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp* properties,
                              unsigned long long) {
    seen = *properties;
    return CUDA_SUCCESS;
  };
  const MemoryProperties properties{.location = Location::host_numa(3),
                                    .handle_types = HandleType::posix_file_descriptor | HandleType::fabric,
                                    .compression = true,
                                    .gpu_direct_rdma = true};
  const auto memory = PhysicalMemory::create(driver_, properties, 2_MiB);
  EXPECT_EQ(memory.properties(), properties);
  EXPECT_EQ(seen.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(seen.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EXPECT_EQ(seen.location.id, 3);
  EXPECT_EQ(static_cast<int>(seen.requestedHandleTypes), 9);
  EXPECT_EQ(seen.allocFlags.compressionType, 1);
  EXPECT_EQ(seen.allocFlags.gpuDirectRDMACapable, 1);

  const auto plain = PhysicalMemory::create(driver_, {.location = Location::device(DeviceOrdinal{1})}, 2_MiB);
  EXPECT_EQ(seen.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(seen.location.id, 1);
  EXPECT_EQ(static_cast<int>(seen.requestedHandleTypes), 0);
  EXPECT_EQ(seen.allocFlags.compressionType, 0);
  EXPECT_EQ(seen.allocFlags.gpuDirectRDMACapable, 0);
}

TEST_F(PhysicalMemoryTest, AnUnalignedSizeIsRefusedWithTheGranularityAndTheSizeThatWouldDo) {
  fake_->on_cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp*,
                             unsigned long long) {
    *handle = 1;
    return size != 0 && size % 64_KiB == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, 64_KiB + 1}) {
    const auto result = PhysicalMemory::try_create(driver_, {}, bytes);
    ASSERT_FALSE(result) << bytes;
    EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
    EXPECT_NE(result.failure().rule.find("65536 bytes (64 KiB)"), std::string::npos) << result.failure().rule;
    const std::size_t mended = PhysicalMemory::rounded_up(driver_, {}, bytes);
    EXPECT_EQ(result.failure().rounded_bytes, mended);
    EXPECT_NE(result.failure().way_out.find(std::to_string(mended)), std::string::npos) << result.failure().way_out;
    EXPECT_TRUE(PhysicalMemory::try_create(driver_, {}, mended));
  }
}

TEST_F(PhysicalMemoryTest, AnotherInvalidValueIsNotBlamedOnTheSize) {
  fake_->answer(EntryPoint::cuMemCreate, CUDA_ERROR_INVALID_VALUE, "the driver knows why");
  const auto result = PhysicalMemory::try_create(driver_, {}, 64_KiB);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().rule, "the driver knows why");
}

TEST_F(PhysicalMemoryTest, RunningOutTellsAskedAndFreeOfTheRightDevice) {
  fake_->answer(EntryPoint::cuMemCreate, CUDA_ERROR_OUT_OF_MEMORY);
  fake_->on_cuCtxGetDevice = [](CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  fake_->on_cuMemGetInfo = [](size_t* free, size_t* total) {
    *free = 1_MiB;
    *total = 1_GiB;
    return CUDA_SUCCESS;
  };
  try {
    static_cast<void>(PhysicalMemory::create(driver_, {}, 2_MiB));
    FAIL() << "did not throw";
  } catch (const OutOfDeviceMemory& error) {
    EXPECT_EQ(error.failure().asked_bytes, 2_MiB);
    EXPECT_EQ(error.failure().free_bytes, 1_MiB);
  }
  const auto elsewhere = PhysicalMemory::try_create(driver_, {.location = Location::device(DeviceOrdinal{1})}, 2_MiB);
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.failure().free_bytes, std::nullopt) << "the current context is another device's";
  EXPECT_THROW(static_cast<void>(PhysicalMemory::create(driver_, {.location = Location::host()}, 2_MiB)),
               OutOfHostMemory);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 0u) << "what was not created is not released";
}

TEST_F(PhysicalMemoryTest, FabricWithoutPermissionNamesTheFeature) {
  fake_->answer(EntryPoint::cuMemCreate, CUDA_ERROR_NOT_PERMITTED);
  try {
    static_cast<void>(PhysicalMemory::create(driver_, {.handle_types = HandleType::fabric}, 2_MiB));
    FAIL() << "did not throw";
  } catch (const NotPermitted& error) {
    EXPECT_EQ(error.failure().feature, "fabric handles");
    EXPECT_NE(error.way_out().find("imex"), std::string::npos) << error.what();
  }
}

TEST_F(PhysicalMemoryTest, RoundsUpToEitherGranularity) {
  EXPECT_EQ(PhysicalMemory::granularity(driver_, {}), 64_KiB);
  EXPECT_EQ(PhysicalMemory::granularity(driver_, {}, Granularity::recommended), 2_MiB);
  EXPECT_EQ(PhysicalMemory::rounded_up(driver_, {}, 0), 64_KiB);
  EXPECT_EQ(PhysicalMemory::rounded_up(driver_, {}, 64_KiB), 64_KiB);
  EXPECT_EQ(PhysicalMemory::rounded_up(driver_, {}, 64_KiB + 1), 128_KiB);
  EXPECT_EQ(PhysicalMemory::rounded_up(driver_, {}, 1, Granularity::recommended), 2_MiB);
  EXPECT_THROW(static_cast<void>(PhysicalMemory::rounded_up(driver_, {}, SIZE_MAX)), InvalidUse);
}

TEST_F(PhysicalMemoryTest, AGranularityOfNothingIsTheDriversFault) {
  std::size_t answered = 0;
  fake_->on_cuMemGetAllocationGranularity = [&](size_t* granularity, const CUmemAllocationProp*,
                                                CUmemAllocationGranularity_flags) {
    *granularity = answered;
    return CUDA_SUCCESS;
  };
  try {
    static_cast<void>(PhysicalMemory::rounded_up(driver_, {}, 1));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().kind, ErrorKind::driver_failure);
    EXPECT_EQ(error.failure().call, "cuMemGetAllocationGranularity");
  }
  answered = 2_MiB;
  EXPECT_EQ(PhysicalMemory::rounded_up(driver_, {}, 1), 2_MiB);
}

TEST_F(PhysicalMemoryTest, ASizeThatNothingHasIsNotAdopted) {
  EXPECT_THROW(static_cast<void>(PhysicalMemory::adopt(driver_, 1, {}, SIZE_MAX - 2_MiB + 1)), InvalidUse);
  EXPECT_THROW(static_cast<void>(PhysicalMemory::adopt(driver_, 1, SIZE_MAX / 2 + 1)), InvalidUse);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 0u) << "the handle is still the caller's";
  EXPECT_EQ(PhysicalMemory::adopt(driver_, 1, {}, SIZE_MAX / 2).size(), SIZE_MAX / 2);
}

TEST_F(PhysicalMemoryTest, MovingLeavesOneOwner) {
  auto first = PhysicalMemory::create(driver_, {}, 2_MiB);
  PhysicalMemory second = std::move(first);
  EXPECT_EQ(second.handle(), 1u);
  first = PhysicalMemory::create(driver_, {}, 2_MiB);
  second = std::move(first);
  EXPECT_EQ(second.handle(), 2u);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "the one that was assigned to";
}

TEST_F(PhysicalMemoryTest, ReleasesEarlyOnDemand) {
  {
    auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
    memory.release();
    EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u);
  }
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u);
}

TEST_F(PhysicalMemoryTest, AFailedReleaseThrowsOnDemandAndIsReportedByTheDestructor) {
  fake_->answer(EntryPoint::cuMemRelease, CUDA_ERROR_INVALID_VALUE);
  {
    auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
    EXPECT_THROW(memory.release(), InvalidUse);
    EXPECT_TRUE(clean_up_.failures.empty());
  }
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_EQ(clean_up_.failures[0].call, "cuMemRelease");
}

TEST(PhysicalMemoryLocation, ADeviceThatThereIsNotIsNamed) {
  const auto fake = test::scripted_driver();
  const Driver driver = Driver::wrap(fake);
  fake->answer(driver::EntryPoint::cuMemCreate, abi::CUDA_ERROR_INVALID_DEVICE);
  fake->answer(driver::EntryPoint::cuMemGetAllocationGranularity, abi::CUDA_ERROR_INVALID_VALUE);
  const auto text_of = [&](int ordinal) {
    const auto created =
        PhysicalMemory::try_create(driver, {.location = Location::device(DeviceOrdinal(ordinal))}, 2_MiB);
    return created ? std::string() : created.failure().rule;
  };
  EXPECT_EQ(text_of(7), "There is no device 7: the driver shows 2 devices, numbered from 0");
  EXPECT_EQ(text_of(1).find("There is no device"), std::string::npos) << text_of(1);
  try {
    static_cast<void>(PhysicalMemory::granularity(driver, {.location = Location::device(DeviceOrdinal(7))}));
    FAIL() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_NE(error.rule().find("no device 7"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace cuvmm
