// Handles and ranges that pass between the owners and other code, on a machine that counts references.
#include <gtest/gtest.h>

#include <vector>

#include "cuvmm/address_reservation.hpp"
#include "cuvmm/mapping.hpp"
#include "cuvmm/physical_memory.hpp"
#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulated_machine.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

constexpr std::size_t one_granule = 2_MiB;
constexpr std::size_t whole_range = 8_MiB;

class RawHandlesTest : public testing::Test {
 protected:
  unsigned long long raw_memory(const MemoryProperties& properties = {}, std::size_t bytes = one_granule) {
    const CUmemAllocationProp converted = driver::to_abi(properties);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(raw().cuMemCreate(&handle, bytes, &converted, 0), CUDA_SUCCESS);
    return handle;
  }
  CUdeviceptr raw_range(std::size_t bytes = whole_range) {
    CUdeviceptr address = 0;
    EXPECT_EQ(raw().cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  [[nodiscard]] driver::Interface& raw() const { return driver_.interface(); }

  test::RecordingHandler clean_up_;
  test::EmulatedMachine machine_;
  std::shared_ptr<driver::CountingDriver> counting_ = std::make_shared<driver::CountingDriver>(machine_.interface());
  Driver driver_ = Driver::wrap(counting_);
};

TEST_F(RawHandlesTest, AdoptedMemoryIsReleasedByItsOwner) {
  const MemoryProperties properties{.handle_types = HandleType::posix_file_descriptor, .gpu_direct_rdma = true};
  const unsigned long long handle = raw_memory(properties, 4_MiB);
  {
    const auto memory = PhysicalMemory::adopt(driver_, handle, 4_MiB);
    EXPECT_EQ(memory.handle(), handle);
    EXPECT_EQ(memory.size(), 4_MiB);
    EXPECT_EQ(memory.properties(), properties) << "read from the handle";
    const auto addresses = AddressReservation::create(driver_, 4_MiB);
    const auto mapping = Mapping::create(addresses, 0, memory);
  }
  EXPECT_TRUE(machine_.nothing_live());
  EXPECT_TRUE(clean_up_.failures.empty());
}

TEST_F(RawHandlesTest, GivenPropertiesAreTakenAsTheyAreWithoutAsking) {
  const unsigned long long handle = raw_memory();
  const driver::CallCounts before = counting_->snapshot();
  const MemoryProperties given{.compression = true};
  const auto memory = PhysicalMemory::adopt(driver_, handle, given, 2_MiB);
  EXPECT_EQ(memory.properties(), given);
  EXPECT_EQ((counting_->snapshot() - before).total(), 0u);
}

TEST_F(RawHandlesTest, AHandleOrASizeOfZeroIsNotAdopted) {
  const unsigned long long handle = raw_memory();
  for (const auto& [wrong, bytes] : {std::pair<unsigned long long, std::size_t>{0, 2_MiB}, {handle, 0}}) {
    EXPECT_THROW(static_cast<void>(PhysicalMemory::adopt(driver_, wrong, bytes)), InvalidUse);
    EXPECT_THROW(static_cast<void>(PhysicalMemory::adopt(driver_, wrong, {}, bytes)), InvalidUse);
  }
  EXPECT_EQ(counting_->snapshot()[EntryPoint::cuMemRelease], 0u) << "the caller keeps the reference";
  static_cast<void>(PhysicalMemory::adopt(driver_, handle, 2_MiB));
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(RawHandlesTest, WhereThePropertiesCannotBeReadTheCallerKeepsTheReference) {
  const unsigned long long handle = raw_memory();
  const auto faulty = std::make_shared<driver::FaultInjectingDriver>(machine_.interface());
  faulty->inject({.entry_point = EntryPoint::cuMemGetAllocationPropertiesFromHandle, .result = CUDA_ERROR_UNKNOWN});
  EXPECT_THROW(static_cast<void>(PhysicalMemory::adopt(Driver::wrap(faulty), handle, 2_MiB)), Error);
  EXPECT_EQ(raw().cuMemRelease(handle), CUDA_SUCCESS) << "it is still there to be released";
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(RawHandlesTest, RetainedMemoryIsTheMemoryBehindTheAddress) {
  const MemoryProperties properties{.handle_types = HandleType::posix_file_descriptor};
  const unsigned long long handle = raw_memory(properties, 4_MiB);
  const CUdeviceptr range = raw_range();
  ASSERT_EQ(raw().cuMemMap(range + 2_MiB, 4_MiB, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(raw().cuMemRelease(handle), CUDA_SUCCESS);
  {
    const auto memory = PhysicalMemory::retain(driver_, DeviceAddress{range + 3_MiB});
    EXPECT_EQ(memory.size(), 4_MiB);
    EXPECT_EQ(memory.properties(), properties);
    ASSERT_EQ(raw().cuMemUnmap(range + 2_MiB, 4_MiB), CUDA_SUCCESS);
    ASSERT_EQ(raw().cuMemAddressFree(range, 8_MiB), CUDA_SUCCESS);
    EXPECT_FALSE(machine_.nothing_live()) << "the reference keeps it";
    const auto addresses = AddressReservation::create(driver_, 4_MiB);
    EXPECT_TRUE(Mapping::try_create(addresses, 0, memory)) << "it can be mapped again";
  }
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(RawHandlesTest, OnlyMappedMemoryOfCuMemCreateIsRetained) {
  const CUdeviceptr range = raw_range();
  for (const DeviceAddress nothing : {DeviceAddress{}, DeviceAddress{range}}) {
    const auto result = PhysicalMemory::try_retain(driver_, nothing);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
    EXPECT_THROW(static_cast<void>(PhysicalMemory::retain(driver_, nothing)), InvalidUse);
  }
  const unsigned long long handle = raw_memory();
  ASSERT_EQ(raw().cuMemMap(range, 2_MiB, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_TRUE(PhysicalMemory::try_retain(driver_, DeviceAddress{range}));
}

TEST_F(RawHandlesTest, ARetainThatFailsHalfwayGivesItsReferenceBack) {
  const unsigned long long handle = raw_memory();
  const CUdeviceptr range = raw_range();
  ASSERT_EQ(raw().cuMemMap(range, 2_MiB, 0, handle, 0), CUDA_SUCCESS);
  for (const EntryPoint entry :
       {EntryPoint::cuPointerGetAttributes, EntryPoint::cuMemGetAllocationPropertiesFromHandle}) {
    const auto faulty = std::make_shared<driver::FaultInjectingDriver>(machine_.interface());
    faulty->inject({.entry_point = entry, .result = CUDA_ERROR_UNKNOWN});
    EXPECT_FALSE(PhysicalMemory::try_retain(Driver::wrap(faulty), DeviceAddress{range}));
  }
  ASSERT_EQ(raw().cuMemUnmap(range, 2_MiB), CUDA_SUCCESS);
  ASSERT_EQ(raw().cuMemAddressFree(range, 8_MiB), CUDA_SUCCESS);
  ASSERT_EQ(raw().cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(RawHandlesTest, AHandleThatIsGivenOutIsTheCallers) {
  const auto addresses = AddressReservation::create(driver_, 2_MiB);
  {
    auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
    const unsigned long long handle = memory.handle();
    std::optional<Mapping> mapping = Mapping::create(addresses, 0, memory);
    const driver::CallCounts before = counting_->snapshot();
    EXPECT_EQ(memory.give_out(), handle);
    EXPECT_EQ((counting_->snapshot() - before).total(), 0u);
    mapping.reset();
    EXPECT_EQ(counting_->snapshot()[EntryPoint::cuMemUnmap], 1u);
    EXPECT_EQ(counting_->snapshot()[EntryPoint::cuMemRelease], 0u);
    EXPECT_EQ(raw().cuMemRelease(handle), CUDA_SUCCESS);
  }
  EXPECT_EQ(counting_->snapshot()[EntryPoint::cuMemRelease], 1u);
  EXPECT_TRUE(clean_up_.failures.empty());
}

TEST_F(RawHandlesTest, AnAdoptedRangeIsFreedByItsOwner) {
  const CUdeviceptr range = raw_range();
  {
    const auto addresses = AddressReservation::adopt(driver_, DeviceAddress{range}, 8_MiB);
    EXPECT_EQ(addresses.address(), DeviceAddress{range});
    EXPECT_EQ(addresses.size(), 8_MiB);
    const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
    const auto mapping = Mapping::create(addresses, 2_MiB, memory);
  }
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(RawHandlesTest, AnAddressOrASizeOfZeroIsNotAdopted) {
  const CUdeviceptr range = raw_range();
  EXPECT_THROW(static_cast<void>(AddressReservation::adopt(driver_, DeviceAddress{}, 8_MiB)), InvalidUse);
  EXPECT_THROW(static_cast<void>(AddressReservation::adopt(driver_, DeviceAddress{range}, 0)), InvalidUse);
  static_cast<void>(AddressReservation::adopt(driver_, DeviceAddress{range}, 8_MiB));
  EXPECT_TRUE(machine_.nothing_live());
}

TEST_F(RawHandlesTest, ARangeIsGivenOutOnceNothingIsMappedInIt) {
  auto addresses = AddressReservation::create(driver_, 8_MiB);
  const DeviceAddress address = addresses.address();
  const auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  {
    const auto mapping = Mapping::create(addresses, 0, memory);
    std::string refused;
    try {
      static_cast<void>(addresses.give_out());
    } catch (const InvalidUse& error) {
      refused = error.call();
    }
    EXPECT_EQ(refused, "AddressReservation::give_out") << "a mapping is left";
    EXPECT_EQ(addresses.address(), address) << "it still owns the range";
  }
  EXPECT_EQ(addresses.give_out(), address);
  EXPECT_EQ(counting_->snapshot()[EntryPoint::cuMemAddressFree], 0u);
  EXPECT_EQ(raw().cuMemAddressFree(address.value, 8_MiB), CUDA_SUCCESS) << "it is the caller's to free";
}

TEST_F(RawHandlesTest, C38_ReferencesBalanceOver64Buffers) {
  const std::size_t before = machine_.free_memory();
  for (int round = 0; round < 2; ++round) {
    std::vector<PhysicalMemory> buffers;
    std::vector<Mapping> mappings;
    for (int index = 0; index < 64; ++index) {
      const auto addresses = AddressReservation::create(driver_, 64_MiB);
      auto made = PhysicalMemory::create(driver_, {}, 64_MiB);
      mappings.push_back(Mapping::create(addresses, 0, made));
      // Through every door there is: out and in again, and a second owner from the address.
      buffers.push_back(PhysicalMemory::adopt(driver_, made.give_out(), 64_MiB));
      buffers.push_back(PhysicalMemory::retain(driver_, mappings.back().address()));
    }
    EXPECT_EQ(machine_.free_memory(), before - 64 * 64_MiB);
    mappings.clear();
    EXPECT_EQ(machine_.free_memory(), before - 64 * 64_MiB) << "the owners keep it";
    buffers.clear();
    EXPECT_EQ(machine_.free_memory(), before);
  }
  EXPECT_TRUE(machine_.nothing_live());
  EXPECT_TRUE(clean_up_.failures.empty());
}

TEST_F(RawHandlesTest, C46_MemoryOnANumaNodeThatIsNotThereIsATypedError) {
  const auto result = PhysicalMemory::try_create(driver_, {.location = Location::host_numa(7)}, 2_MiB);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, ErrorKind::invalid_use);
  EXPECT_NE(result.failure().rule.find("NUMA node 7"), std::string::npos) << result.failure().rule;
  EXPECT_NE(result.failure().way_out.find("has_memory"), std::string::npos) << result.failure().way_out;
  EXPECT_TRUE(PhysicalMemory::try_create(driver_, {.location = Location::host_numa(0)}, 2_MiB));
  const auto unaligned = PhysicalMemory::try_create(driver_, {.location = Location::host_numa(0)}, 5);
  ASSERT_FALSE(unaligned);
  EXPECT_EQ(unaligned.failure().rule.find("NUMA node"), std::string::npos) << "that is the size's fault";
}

TEST_F(RawHandlesTest, ASecondReleaseIsToldAsThat) {
  auto memory = PhysicalMemory::create(driver_, {}, 2_MiB);
  const auto handle = memory.give_out();
  auto owner = PhysicalMemory::adopt(driver_, handle, 2_MiB);
  EXPECT_NO_THROW(driver::call<driver::EntryPoint::cuMemRelease>(driver_.interface(), handle));
  try {
    owner.release();
    ADD_FAILURE() << "accepted";
  } catch (const InvalidUse& error) {
    EXPECT_EQ(error.failure().rule_ids, "HANDLE-LIVE");
    EXPECT_NE(error.rule().find("was released already"), std::string::npos) << error.what();
    EXPECT_EQ(error.rule().find("crash"), std::string::npos) << "a second release does not: " << error.what();
    EXPECT_NE(error.way_out().find("PhysicalMemory::adopt took over"), std::string::npos) << error.what();
  }
  static_cast<void>(owner.give_out());
  abi::CUmemAllocationProp properties{};
  EXPECT_NE(driver_.interface().cuMemGetAllocationPropertiesFromHandle(&properties, handle), abi::CUDA_SUCCESS);
  EXPECT_NE(driver_.interface().explanation().find("the real driver crashes the process here"), std::string::npos)
      << driver_.interface().explanation();
}

}  // namespace
}  // namespace cuvmm
