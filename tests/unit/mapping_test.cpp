#include "cuvmm/mapping.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "cuvmm/access_grant.hpp"
#include "recording_handler.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

class MappingTest : public testing::Test {
 protected:
  // The calls since the last time that this was asked.
  std::vector<EntryPoint> calls() { return std::exchange(fake_->calls, {}); }

  test::RecordingHandler clean_up_;
  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Driver driver_ = Driver::wrap(fake_);
};

TEST_F(MappingTest, MapsTheWholeAllocationAtTheOffset) {
  std::vector<unsigned long long> seen;
  fake_->on_cuMemMap = [&](CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags) {
    seen = {pointer, size, offset, handle, flags};
    return CUDA_SUCCESS;
  };
  const auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  calls();
  const auto mapping = Mapping::create(range, 4_MiB, memory);
  EXPECT_EQ(calls(), std::vector<EntryPoint>{EntryPoint::cuMemMap});
  EXPECT_EQ(seen, (std::vector<unsigned long long>{0x10000000 + 4_MiB, 2_MiB, 0, memory.handle(), 0}));
  EXPECT_EQ(mapping.address(), range.address() + 4_MiB);
  EXPECT_EQ(mapping.size(), 2_MiB);
  EXPECT_EQ(mapping.driver(), driver_);
}

TEST_F(MappingTest, IsRefusedWhereItWouldRunPastTheReservation) {
  const auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(driver_, {}, 4_MiB);
  for (const std::size_t offset : {4_MiB + 64_KiB, 8_MiB, 8_MiB + 1, SIZE_MAX, SIZE_MAX - 2_MiB + 1}) {
    const auto result = Mapping::try_create(range, offset, memory);
    ASSERT_FALSE(result) << offset;
    EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
    EXPECT_NE(result.failure().rule.find("end inside its reservation"), std::string::npos);
  }
  EXPECT_EQ(fake_->count(EntryPoint::cuMemMap), 0u);
  EXPECT_TRUE(Mapping::try_create(range, 4_MiB, memory));
}

TEST_F(MappingTest, OwnersThatOwnNothingAreRefused) {
  auto range = AddressReservation::create(driver_, 8_MiB);
  auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  auto mapping = Mapping::create(range, 0, memory);
  mapping.unmap();
  EXPECT_THROW(mapping.unmap(), InvalidUse);
  EXPECT_THROW(grant(mapping, Location::host(), AccessRights::read), InvalidUse);
  memory.release();
  EXPECT_THROW(memory.release(), InvalidUse);
  EXPECT_THROW(static_cast<void>(Mapping::create(range, 0, memory)), InvalidUse);
  range.free();
  EXPECT_THROW(range.free(), InvalidUse);
  memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  EXPECT_THROW(static_cast<void>(Mapping::create(range, 0, memory)), InvalidUse);
  range = AddressReservation::create(driver_, 8_MiB);
  EXPECT_NO_THROW(static_cast<void>(Mapping::create(range, 0, memory)));
}

TEST_F(MappingTest, IsRefusedAcrossDrivers) {
  const Driver other = Driver::wrap(test::scripted_driver());
  const auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(other, {}, 2_MiB);
  EXPECT_THROW(static_cast<void>(Mapping::create(range, 0, memory)), InvalidUse);
  EXPECT_TRUE(Mapping::try_create(range, 0, PhysicalMemory::create(driver_, {}, 2_MiB)));
}

TEST_F(MappingTest, IsTornDownInTheOnlyLegalOrderWhateverIsDestroyedFirst) {
  std::optional<AddressReservation> range = AddressReservation::create(driver_, 8_MiB);
  std::optional<PhysicalMemory> memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  std::optional<Mapping> mapping = Mapping::create(*range, 0, *memory);
  calls();
  range.reset();
  memory.reset();
  EXPECT_EQ(calls(), std::vector<EntryPoint>{}) << "the mapping keeps both";
  mapping.reset();
  const std::vector<EntryPoint> all = calls();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], EntryPoint::cuMemUnmap);
  EXPECT_EQ(std::count(all.begin(), all.end(), EntryPoint::cuMemAddressFree), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), EntryPoint::cuMemRelease), 1);
  EXPECT_TRUE(clean_up_.failures.empty());
}

TEST_F(MappingTest, OneAllocationMayHaveSeveralMappings) {
  const auto range = AddressReservation::create(driver_, 8_MiB);
  std::optional<PhysicalMemory> memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  std::optional<Mapping> first = Mapping::create(range, 0, *memory);
  std::optional<Mapping> second = Mapping::create(range, 2_MiB, *memory);
  memory.reset();
  first.reset();
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 0u);
  second.reset();
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u);
}

TEST_F(MappingTest, AHandleMayBeReleasedWhileMapped) {
  const auto range = AddressReservation::create(driver_, 8_MiB);
  auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  std::optional<Mapping> mapping = Mapping::create(range, 0, memory);
  memory.release();
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u);
  mapping.reset();
  EXPECT_EQ(fake_->count(EntryPoint::cuMemUnmap), 1u);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "released once";
}

TEST_F(MappingTest, AssigningUnmapsThePreviousOne) {
  const auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  Mapping mapping = Mapping::create(range, 0, memory);
  mapping = Mapping::create(range, 2_MiB, memory);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemUnmap), 1u);
  EXPECT_EQ(mapping.address(), range.address() + 2_MiB);
  Mapping& itself = mapping;
  mapping = std::move(itself);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemUnmap), 1u) << "assigned to itself it stays";
}

TEST_F(MappingTest, AFailedUnmapThrowsOnDemandAndIsReportedByTheDestructor) {
  const auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  fake_->answer(EntryPoint::cuMemUnmap, CUDA_ERROR_INVALID_VALUE);
  {
    auto mapping = Mapping::create(range, 0, memory);
    EXPECT_THROW(mapping.unmap(), InvalidUse);
    EXPECT_TRUE(clean_up_.failures.empty());
  }
  ASSERT_EQ(clean_up_.failures.size(), 1u);
  EXPECT_EQ(clean_up_.failures[0].call, "cuMemUnmap");
}

TEST_F(MappingTest, AFailedMapOwnsNothing) {
  const auto range = AddressReservation::create(driver_, 8_MiB);
  const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  fake_->answer(EntryPoint::cuMemMap, CUDA_ERROR_INVALID_VALUE);
  EXPECT_THROW(static_cast<void>(Mapping::create(range, 0, memory)), InvalidUse);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemUnmap), 0u);
}

}  // namespace
}  // namespace cuvmm
