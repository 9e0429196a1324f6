#include "cuvmm/device.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "cuvmm/error.hpp"
#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_->on_cuDeviceGetAttribute = [this](int* value, CUdevice_attribute attribute, CUdevice device) {
      EXPECT_EQ(device, 1);
      const auto found = attributes_.find(attribute);
      if (found == attributes_.end()) return CUDA_ERROR_INVALID_VALUE;
      *value = found->second;
      return CUDA_SUCCESS;
    };
  }

  std::map<int, int> attributes_;
  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Driver driver_ = Driver::wrap(fake_);
  Device device_ = driver_.device(DeviceOrdinal{1});
};

TEST_F(DeviceTest, TellsWhatItIs) {
  fake_->on_cuDeviceGetName = [](char* name, int length, CUdevice) {
    std::strncpy(name, "A device", static_cast<std::size_t>(length));
    return CUDA_SUCCESS;
  };
  fake_->on_cuDeviceTotalMem = [](size_t* bytes, CUdevice) {
    *bytes = 3_GiB;
    return CUDA_SUCCESS;
  };
  fake_->on_cuDeviceGetUuid = [](CUuuid* uuid, CUdevice) {
    uuid->bytes[15] = 7;
    return CUDA_SUCCESS;
  };
  fake_->on_cuDeviceGetPCIBusId = [](char* id, int length, CUdevice) {
    std::strncpy(id, "0000:1b:00.0", static_cast<std::size_t>(length));
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(device_.ordinal(), DeviceOrdinal{1});
  EXPECT_EQ(device_.location(), Location::device(DeviceOrdinal{1}));
  EXPECT_EQ(device_.name(), "A device");
  EXPECT_EQ(device_.total_memory(), 3_GiB);
  EXPECT_EQ(device_.uuid()[15], std::byte{7});
  EXPECT_EQ(device_.pci_bus_id(), "0000:1b:00.0");
}

TEST_F(DeviceTest, EachFeatureIsItsOwnAttribute) {
  struct Case {
    int attribute;
    std::function<bool()> ask;
  };
  const std::vector<Case> cases{
      {102, [&] { return device_.supports_virtual_memory_management(); }},
      {103, [&] { return device_.supports_handle_type(HandleType::posix_file_descriptor); }},
      {104, [&] { return device_.supports_handle_type(HandleType::win32); }},
      {105, [&] { return device_.supports_handle_type(HandleType::win32_kmt); }},
      {107, [&] { return device_.supports_compression(); }},
      {110, [&] { return device_.supports_gpu_direct_rdma(); }},
      {128, [&] { return device_.supports_handle_type(HandleType::fabric); }},
      {132, [&] { return device_.supports_multicast(); }},
      {141, [&] { return device_.supports_host_numa_memory(); }},
      {145, [&] { return device_.supports_host_memory(); }},
  };
  for (const Case& one : cases) {
    attributes_.clear();
    EXPECT_FALSE(one.ask()) << "a driver that does not know attribute " << one.attribute;
    for (const Case& other : cases) attributes_[other.attribute] = 0;
    EXPECT_FALSE(one.ask()) << one.attribute;
    attributes_[one.attribute] = 1;
    for (const Case& other : cases) EXPECT_EQ(other.ask(), &other == &one) << other.attribute;
  }
}

TEST_F(DeviceTest, MulticastNeedsItsEntryPointsToo) {
  attributes_[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = 1;
  EXPECT_TRUE(device_.supports_multicast());
  fake_->missing = {EntryPoint::cuMulticastCreate};
  EXPECT_FALSE(device_.supports_multicast());
}

TEST_F(DeviceTest, AFailureOfTheDriverIsNoAnswer) {
  fake_->answer(EntryPoint::cuDeviceGetAttribute, CUDA_ERROR_DEINITIALIZED);
  EXPECT_THROW(static_cast<void>(device_.supports_multicast()), InvalidUse);
}

TEST_F(DeviceTest, AnUnknownAttributeIsRefusedWhenAskedByNumber) {
  EXPECT_THROW(static_cast<void>(device_.attribute(134)), InvalidUse);
  attributes_[134] = -1;
  EXPECT_EQ(device_.attribute(134), -1);
  EXPECT_EQ(device_.host_numa_node(), -1);
}

TEST_F(DeviceTest, GranularityIsAskedForThisDevice) {
  CUmemAllocationProp seen{};
  fake_->on_cuMemGetAllocationGranularity = [&](size_t* granularity, const CUmemAllocationProp* properties,
                                                CUmemAllocationGranularity_flags option) {
    seen = *properties;
    *granularity = option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED ? 2_MiB : 64_KiB;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(device_.granularity(), 64_KiB);
  EXPECT_EQ(seen.location.id, 1);
  EXPECT_EQ(
      device_.granularity(Granularity::recommended, {.location = Location::host(), .handle_types = HandleType::fabric}),
      2_MiB);
  EXPECT_EQ(seen.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(static_cast<int>(seen.requestedHandleTypes), 8);
}

TEST_F(DeviceTest, PeersAreAskedInTheRightOrder) {
  fake_->on_cuDeviceCanAccessPeer = [](int* can_access, CUdevice device, CUdevice peer) {
    *can_access = device == 1 && peer == 0;
    return CUDA_SUCCESS;
  };
  const Device other = driver_.device(DeviceOrdinal{0});
  EXPECT_TRUE(device_.can_access_peer(other));
  EXPECT_FALSE(other.can_access_peer(device_));
}

}  // namespace
}  // namespace cuvmm
