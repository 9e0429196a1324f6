#include "cuvmm/pointer_info.hpp"

#include <gtest/gtest.h>

#include <array>

#include "cuvmm/context.hpp"
#include "cuvmm/physical_memory.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulated_machine.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;
using test::machine;

class PointerInfoTest : public testing::Test {
 protected:
  // A mapping of 4 MiB, 2 MiB into a reservation of 8 MiB.
  void map(const MemoryProperties& properties) {
    memory_.emplace(PhysicalMemory::create(driver_, properties, 4_MiB));
    mapping_.emplace(Mapping::create(addresses_, 2_MiB, *memory_));
  }
  [[nodiscard]] PointerInfo described(std::size_t offset = 0) const {
    return describe(driver_, mapping_->address() + offset);
  }

  test::EmulatedMachine machine_{machine("gb200", 2)};
  std::shared_ptr<driver::CountingDriver> counting_ = std::make_shared<driver::CountingDriver>(machine_.interface());
  Driver driver_ = Driver::wrap(counting_);
  Device device_ = driver_.device(DeviceOrdinal{0});
  MemoryProperties plain_{.location = device_.location()};
  AddressReservation addresses_ = AddressReservation::create(driver_, 8_MiB);
  std::optional<PhysicalMemory> memory_;
  std::optional<Mapping> mapping_;
};

TEST_F(PointerInfoTest, TellsAllOfAMapping) {
  const MemoryProperties properties{.location = device_.location(),
                                    .handle_types = HandleType::posix_file_descriptor | HandleType::fabric,
                                    .gpu_direct_rdma = true};
  map(properties);
  grant(*mapping_, Location::device(DeviceOrdinal{1}), AccessRights::read);
  const PointerInfo info = described(123);
  EXPECT_EQ(info.kind, PointerKind::mapping);
  EXPECT_EQ(info.address, mapping_->address() + 123);
  EXPECT_EQ(info.base, mapping_->address());
  EXPECT_EQ(info.size, 4_MiB);
  EXPECT_EQ(info.offset, 123u);
  EXPECT_EQ(info.reservation_base, addresses_.address());
  EXPECT_EQ(info.reservation_size, 8_MiB);
  EXPECT_EQ(info.location, device_.location());
  EXPECT_EQ(info.properties, properties);
  EXPECT_EQ(info.rights, (std::vector<AccessGrant>{{Location::device(DeviceOrdinal{0}), AccessRights::none},
                                                   {Location::device(DeviceOrdinal{1}), AccessRights::read},
                                                   {Location::host(), AccessRights::none}}));
  EXPECT_EQ(info.exportable_as, properties.handle_types);
  EXPECT_FALSE(info.legacy_ipc_capable);
  EXPECT_TRUE(info.rdma_capable);
}

TEST_F(PointerInfoTest, WhatWasNotAskedForIsNotThere) {
  map(plain_);
  const PointerInfo info = described();
  EXPECT_EQ(info.properties, plain_);
  EXPECT_TRUE(info.exportable_as.empty());
  EXPECT_FALSE(info.rdma_capable);
}

TEST_F(PointerInfoTest, PropertiesAreAsTheyWereGot) {
  emulator::Configuration configuration = machine();
  configuration.profile.behaviour.withhold_compression = true;
  const Driver driver = test::EmulatedMachine(configuration).driver();
  const auto memory = PhysicalMemory::create(driver, {.compression = true}, 2_MiB);
  const auto addresses = AddressReservation::create(driver, 2_MiB);
  const auto mapping = Mapping::create(addresses, 0, memory);
  EXPECT_TRUE(memory.properties().compression);
  EXPECT_FALSE(describe(driver, mapping.address()).properties->compression);
}

TEST_F(PointerInfoTest, AMappingOfHostMemoryTellsItsNode) {
  map({.location = Location::host_numa(1)});
  grant(*mapping_, Location::host(), AccessRights::read_write);
  const PointerInfo info = described();
  EXPECT_EQ(info.kind, PointerKind::mapping);
  EXPECT_EQ(info.location, Location::host_numa(1));
  EXPECT_EQ(info.rights.back(), (AccessGrant{Location::host(), AccessRights::read_write}));
}

TEST_F(PointerInfoTest, AMappingTakesTheCallsThatItNeedsAndGivesItsReferenceBack) {
  map(plain_);
  const driver::CallCounts before = counting_->snapshot();
  static_cast<void>(described());
  const driver::CallCounts calls = counting_->snapshot() - before;
  EXPECT_EQ(calls[EntryPoint::cuPointerGetAttributes], 1u);
  EXPECT_EQ(calls[EntryPoint::cuMemRetainAllocationHandle], 1u);
  EXPECT_EQ(calls[EntryPoint::cuMemGetAllocationPropertiesFromHandle], 1u);
  EXPECT_EQ(calls[EntryPoint::cuDeviceGetCount], 1u);
  EXPECT_EQ(calls[EntryPoint::cuMemGetAccess], 2u) << "two devices; the host never reaches device memory";
  EXPECT_EQ(calls[EntryPoint::cuMemRelease], 1u);
  EXPECT_EQ(calls.total(), 7u);
}

TEST_F(PointerInfoTest, ForeignMemoryIsToldFromMappings) {
  const CurrentContext context(device_);
  driver::Interface& raw = driver_.interface();
  CUdeviceptr allocated = 0;
  void* locked = nullptr;
  alignas(4096) static std::array<char, 8192> pages{};
  ASSERT_EQ(raw.cuMemAlloc(&allocated, 4_MiB), CUDA_SUCCESS);
  ASSERT_EQ(raw.cuMemHostAlloc(&locked, 4096, 0), CUDA_SUCCESS);
  ASSERT_EQ(raw.cuMemHostRegister(pages.data(), pages.size(), 0), CUDA_SUCCESS);

  const driver::CallCounts before = counting_->snapshot();
  const PointerInfo device = describe(driver_, DeviceAddress{allocated + 5});
  EXPECT_EQ((counting_->snapshot() - before).total(), 1u);
  EXPECT_EQ(device.kind, PointerKind::device_allocation);
  EXPECT_EQ(device.base, DeviceAddress{allocated});
  EXPECT_EQ(device.size, 4_MiB);
  EXPECT_EQ(device.offset, 5u);
  EXPECT_EQ(device.location, device_.location());
  EXPECT_TRUE(device.legacy_ipc_capable);
  EXPECT_TRUE(device.rdma_capable);
  EXPECT_EQ(device.properties, std::nullopt);
  EXPECT_EQ(device.reservation_size, 0u);

  for (const void* host : {static_cast<const void*>(locked), static_cast<const void*>(pages.data())}) {
    const PointerInfo info = describe(driver_, DeviceAddress{reinterpret_cast<std::uintptr_t>(host)});
    EXPECT_EQ(info.kind, PointerKind::page_locked_host);
    EXPECT_EQ(info.location, Location::host());
    EXPECT_FALSE(info.legacy_ipc_capable);
  }
  EXPECT_EQ(raw.cuMemHostUnregister(pages.data()), CUDA_SUCCESS);
  EXPECT_EQ(raw.cuMemFreeHost(locked), CUDA_SUCCESS);
  EXPECT_EQ(raw.cuMemFree(allocated), CUDA_SUCCESS);
  EXPECT_EQ(describe(driver_, DeviceAddress{allocated}).kind, PointerKind::unknown) << "it is freed";
}

TEST_F(PointerInfoTest, PoolsAndManagedMemoryAreToldByTheirAttributes) {
  const auto fake = test::scripted_driver();
  bool managed = false;
  // The parameters are the call's. NOLINTNEXTLINE(readability-non-const-parameter)
  fake->on_cuPointerGetAttributes = [&](unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr) {
    for (unsigned index = 0; index < count; ++index) {
      auto& word = *static_cast<unsigned long long*>(data[index]);
      if (attributes[index] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) word = CU_MEMORYTYPE_DEVICE;
      if (attributes[index] == CU_POINTER_ATTRIBUTE_IS_MANAGED) word = managed ? 1 : 0;
      if (attributes[index] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) word = managed ? 0 : 0x1000;
    }
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(describe(Driver::wrap(fake), DeviceAddress{1}).kind, PointerKind::pool_allocation);
  managed = true;
  EXPECT_EQ(describe(Driver::wrap(fake), DeviceAddress{1}).kind, PointerKind::managed);
  EXPECT_EQ(fake->count(EntryPoint::cuMemRetainAllocationHandle), 0u) << "such memory has no handle to retain";
}

TEST_F(PointerInfoTest, MemoryWithoutAHandleIsNoMapping) {
  // As a mapping it has no context, and yet it was not made by cuMemCreate.
  const auto fake = test::scripted_driver();
  fake->on_cuPointerGetAttributes = [&](unsigned, CUpointer_attribute*, void** data, CUdeviceptr) {
    *static_cast<unsigned long long*>(data[0]) = CU_MEMORYTYPE_DEVICE;
    return CUDA_SUCCESS;
  };
  fake->answer(EntryPoint::cuMemRetainAllocationHandle, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(describe(Driver::wrap(fake), DeviceAddress{1}).kind, PointerKind::device_allocation);
  EXPECT_EQ(fake->count(EntryPoint::cuMemRelease), 0u);
  fake->answer(EntryPoint::cuMemRetainAllocationHandle, CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(static_cast<void>(describe(Driver::wrap(fake), DeviceAddress{1})), Error);
  fake->answer(EntryPoint::cuMemRetainAllocationHandle, CUDA_SUCCESS);
  EXPECT_EQ(describe(Driver::wrap(fake), DeviceAddress{1}).kind, PointerKind::mapping);
}

TEST_F(PointerInfoTest, NothingMappedIsReservedForItsReservationAndUnknownOtherwise) {
  EXPECT_EQ(describe(driver_, addresses_.address()).kind, PointerKind::unknown);
  const PointerInfo info = describe(addresses_, 1_MiB);
  EXPECT_EQ(info.kind, PointerKind::reserved);
  EXPECT_EQ(info.reservation_base, addresses_.address());
  EXPECT_EQ(info.reservation_size, 8_MiB);
  EXPECT_EQ(info.size, 0u);
  map(plain_);
  EXPECT_EQ(describe(addresses_, 1_MiB).kind, PointerKind::reserved);
  EXPECT_EQ(describe(addresses_, 3_MiB).kind, PointerKind::mapping);
  for (const DeviceAddress nowhere : {DeviceAddress{}, DeviceAddress{0x1234}})
    EXPECT_EQ(describe(driver_, nowhere).kind, PointerKind::unknown);
}

TEST_F(PointerInfoTest, AnOffsetBehindTheReservationIsRefused) {
  EXPECT_THROW(static_cast<void>(describe(addresses_, 8_MiB)), InvalidUse);
  EXPECT_EQ(describe(addresses_, 8_MiB - 1).kind, PointerKind::reserved);
}

TEST_F(PointerInfoTest, C22_LegacyIpcOfAMappingIsRefusedWithWhatToUseInstead) {
  map({.location = device_.location(), .handle_types = HandleType::posix_file_descriptor});
  try {
    require_legacy_ipc(described());
    FAIL() << "accepted";
  } catch (const NotSupported& error) {
    EXPECT_EQ(error.failure().feature, "legacy IPC");
    EXPECT_NE(error.failure().reason.find("cuMemCreate"), std::string::npos) << error.what();
    EXPECT_NE(error.way_out().find("cuMemExportToShareableHandle"), std::string::npos) << error.what();
  }
  mapping_.reset();
  map(plain_);
  try {
    require_legacy_ipc(described());
    FAIL() << "accepted";
  } catch (const NotSupported& error) {
    EXPECT_NE(error.way_out().find("Name a handle type"), std::string::npos) << error.what();
  }
  const CurrentContext context(device_);
  CUdeviceptr allocated = 0;
  ASSERT_EQ(driver_.interface().cuMemAlloc(&allocated, 4_MiB), CUDA_SUCCESS);
  EXPECT_NO_THROW(require_legacy_ipc(describe(driver_, DeviceAddress{allocated})));
  EXPECT_EQ(driver_.interface().cuMemFree(allocated), CUDA_SUCCESS);
  EXPECT_THROW(require_legacy_ipc(describe(driver_, DeviceAddress{allocated})), NotSupported);
}

TEST_F(PointerInfoTest, TheTextTellsAll) {
  map({.location = device_.location(), .handle_types = HandleType::posix_file_descriptor, .compression = true});
  EXPECT_NE(to_string(described()).find("nobody may access it"), std::string::npos);
  grant(*mapping_, device_.location(), AccessRights::read_write);
  const std::string text = to_string(described(16));
  for (const char* part : {"mapping, 16 bytes into 4 MiB at 0x", "in a reservation of 8 MiB at 0x",
                           "memory of device 0, compressible", "read and write for device 0",
                           "exportable as POSIX file descriptor", "legacy IPC does not take it", "may not reach it"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  EXPECT_NE(to_string(describe(addresses_, 0)).find("reserved, nothing mapped, in a reservation of 8 MiB"),
            std::string::npos);
  EXPECT_NE(to_string(describe(driver_, DeviceAddress{})).find("unknown to the driver"), std::string::npos);
}

TEST_F(PointerInfoTest, TheReferenceIsGivenBackWhicheverCallFails) {
  map(plain_);
  const auto free = machine_.free_memory();
  for (const EntryPoint entry :
       {EntryPoint::cuPointerGetAttributes, EntryPoint::cuMemRetainAllocationHandle,
        EntryPoint::cuMemGetAllocationPropertiesFromHandle, EntryPoint::cuDeviceGetCount, EntryPoint::cuMemGetAccess}) {
    const auto faulty = std::make_shared<driver::FaultInjectingDriver>(machine_.interface());
    faulty->inject({.entry_point = entry, .result = CUDA_ERROR_UNKNOWN});
    const auto result = try_describe(Driver::wrap(faulty), mapping_->address());
    ASSERT_FALSE(result) << driver::name(entry);
    EXPECT_EQ(result.failure().call, driver::name(entry));
    EXPECT_TRUE(try_describe(Driver::wrap(faulty), mapping_->address()));
  }
  mapping_.reset();
  memory_.reset();
  EXPECT_EQ(machine_.free_memory(), free + 4_MiB);
}

}  // namespace
}  // namespace cuvmm
