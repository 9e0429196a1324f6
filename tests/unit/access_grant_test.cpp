#include "cuvmm/access_grant.hpp"

#include <gtest/gtest.h>

#include <array>

#include "scripted_driver.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;

class AccessGrantTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_->on_cuMemSetAccess = [this](CUdeviceptr pointer, size_t size, const CUmemAccessDesc* descriptors,
                                      size_t count) {
      EXPECT_EQ(pointer, mapping_.address().value);
      EXPECT_EQ(size, mapping_.size());
      seen_.assign(descriptors, descriptors + count);
      return count == 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    };
  }

  void expect_seen(std::size_t index, CUmemLocationType type, int id, CUmemAccess_flags flags) {
    EXPECT_EQ(seen_.at(index).location.type, type);
    EXPECT_EQ(seen_.at(index).location.id, id);
    EXPECT_EQ(seen_.at(index).flags, flags);
  }

  std::shared_ptr<test::FakeDriver> fake_ = test::scripted_driver();
  Driver driver_ = Driver::wrap(fake_);
  AddressReservation range_ = AddressReservation::create(driver_, 8_MiB);
  PhysicalMemory memory_ = PhysicalMemory::create(driver_, {}, 2_MiB);
  Mapping mapping_ = Mapping::create(range_, 2_MiB, memory_);
  std::vector<CUmemAccessDesc> seen_;
};

TEST_F(AccessGrantTest, GrantsToOneLocation) {
  grant(mapping_, Location::device(DeviceOrdinal{1}), AccessRights::read);
  ASSERT_EQ(seen_.size(), 1u);
  expect_seen(0, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

TEST_F(AccessGrantTest, GrantsToSeveralLocationsInOneCall) {
  const std::array grants{AccessGrant{Location::device(DeviceOrdinal{0}), AccessRights::read_write},
                          AccessGrant{Location::device(DeviceOrdinal{1}), AccessRights::read}};
  grant(mapping_, grants);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 1u);
  ASSERT_EQ(seen_.size(), 2u);
  expect_seen(0, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  expect_seen(1, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);

  const auto reservation = AddressReservation::create(driver_, 2_MiB);
  const auto mapping =
      Mapping::create(reservation, 0, PhysicalMemory::create(driver_, {.location = Location::host()}, 2_MiB));
  fake_->on_cuMemSetAccess = [this](CUdeviceptr, size_t, const CUmemAccessDesc* descriptors, size_t count) {
    seen_.assign(descriptors, descriptors + count);
    return CUDA_SUCCESS;
  };
  const std::array locations{Location::host(), Location::device(DeviceOrdinal{2})};
  grant(mapping, locations, AccessRights::read_write);
  ASSERT_EQ(seen_.size(), 2u);
  expect_seen(0, CU_MEM_LOCATION_TYPE_HOST, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  expect_seen(1, CU_MEM_LOCATION_TYPE_DEVICE, 2, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST_F(AccessGrantTest, TakesListsInBraces) {
  const Location first = Location::device(DeviceOrdinal{0});
  const Location second = Location::device(DeviceOrdinal{1});
  grant(mapping_, {{first, AccessRights::read}, {second, AccessRights::read_write}});
  ASSERT_EQ(seen_.size(), 2u);
  expect_seen(1, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  grant(mapping_, {{first, AccessRights::read}});
  EXPECT_EQ(seen_.size(), 1u);
  grant(mapping_, {first, second}, AccessRights::read);
  EXPECT_EQ(seen_.size(), 2u);
  EXPECT_TRUE(try_grant(mapping_, {{second, AccessRights::read}}));
  expect_seen(0, CU_MEM_LOCATION_TYPE_DEVICE, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

TEST_F(AccessGrantTest, C26_ADeviceThatCannotReachIsToldAsThat) {
  EXPECT_EQ(mapping_.location(), Location::device(DeviceOrdinal{0}));
  fake_->answer(EntryPoint::cuMemSetAccess, CUDA_ERROR_INVALID_DEVICE);
  fake_->on_cuDeviceGetCount = [](int* count) {
    *count = 2;
    return CUDA_SUCCESS;
  };
  int can_reach = 0;
  fake_->on_cuDeviceCanAccessPeer = [&](int* can_access, CUdevice, CUdevice) {
    *can_access = can_reach;
    return CUDA_SUCCESS;
  };
  const AccessGrant other{Location::device(DeviceOrdinal{1}), AccessRights::read};
  const auto apart = try_grant(mapping_, {other});
  ASSERT_FALSE(apart);
  EXPECT_EQ(apart.failure().kind, ErrorKind::not_supported);
  EXPECT_EQ(apart.failure().rule_ids, "ACCESS-PEER");
  EXPECT_EQ(apart.failure().reason, "device 1 cannot reach device 0");
  EXPECT_EQ(apart.failure().code, CUDA_ERROR_INVALID_DEVICE);
  const auto none = try_grant(mapping_, {{Location::device(DeviceOrdinal{5}), AccessRights::read}});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.failure().kind, ErrorKind::invalid_use) << "there is no such device";
  can_reach = 1;
  const auto together = try_grant(mapping_, {other});
  ASSERT_FALSE(together);
  EXPECT_EQ(together.failure().kind, ErrorKind::invalid_use) << "that is not why";
}

TEST_F(AccessGrantTest, RevokesByGrantingNothing) {
  revoke(mapping_, Location::device(DeviceOrdinal{0}));
  ASSERT_EQ(seen_.size(), 1u);
  expect_seen(0, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(AccessGrantTest, AnEmptyListIsRefused) {
  EXPECT_THROW(grant(mapping_, std::span<const AccessGrant>()), InvalidUse);
  const auto result = try_grant(mapping_, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().call, "cuvmm::grant");
  EXPECT_EQ(result.failure().rule_ids, "ACCESS-DESCRIPTORS");
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 0u) << "found before the driver is asked";
}

TEST_F(AccessGrantTest, WhatNoDriverTakesIsNamedBeforeItIsAsked) {
  const struct {
    AccessGrant grant;
    std::string_view rule_id;
  } table[] = {{{Location::device(DeviceOrdinal{0}), AccessRights(2)}, "ACCESS-DESCRIPTORS"},
               {{Location{LocationKind(9), 0}, AccessRights::read}, "ACCESS-DESCRIPTORS"},
               {{Location::host(), AccessRights::read}, "ACCESS-HOST-LOCATION"},
               {{Location::host_numa(1), AccessRights::read}, "ACCESS-HOST-LOCATION"}};
  for (const auto& [one, rule_id] : table) {
    const auto refused = try_grant(mapping_, {one});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().kind, ErrorKind::invalid_use) << refused.failure().message();
    EXPECT_EQ(refused.failure().rule_ids, rule_id) << refused.failure().message();
  }
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 0u);
  EXPECT_TRUE(try_grant(mapping_, {{Location::device(DeviceOrdinal{0}), AccessRights::read}}));
  // Rights that are taken away are for the driver to know; its NOT_SUPPORTED is told as the same misuse.
  fake_->answer(EntryPoint::cuMemSetAccess, CUDA_ERROR_NOT_SUPPORTED);
  const auto taken = try_grant(mapping_, {{Location::host(), AccessRights::none}});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.failure().kind, ErrorKind::invalid_use);
  EXPECT_EQ(taken.failure().rule_ids, "ACCESS-HOST-LOCATION");
  const auto to_read = try_grant(mapping_, {{Location::device(DeviceOrdinal{0}), AccessRights::read}});
  ASSERT_FALSE(to_read);
  EXPECT_EQ(to_read.failure().kind, ErrorKind::not_supported) << "that is the device's lack";
}

TEST_F(AccessGrantTest, AsksForTheRightsOfALocation) {
  fake_->on_cuMemGetAccess = [&](unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) {
    EXPECT_EQ(pointer, mapping_.address().value);
    *flags = location->id == 0 ? 3 : 1;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(access(mapping_, Location::device(DeviceOrdinal{0})), AccessRights::read_write);
  EXPECT_EQ(access(mapping_, Location::device(DeviceOrdinal{1})), AccessRights::read);
}

TEST_F(AccessGrantTest, ALocationByItselfIsToReadAndWrite) {
  grant(mapping_, {AccessGrant{Location::device(DeviceOrdinal{0})}});
  ASSERT_EQ(seen_.size(), 1u);
  expect_seen(0, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  grant(mapping_, {AccessGrant{Location::device(DeviceOrdinal{0}), AccessRights::none}});
  expect_seen(0, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

TEST_F(AccessGrantTest, ADeviceThatThereIsNotIsNamed) {
  for (const CUresult code : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE}) {
    fake_->answer(EntryPoint::cuMemSetAccess, code);
    const auto missing = try_grant(mapping_, {{Location::device(DeviceOrdinal{5})}});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.failure().kind, ErrorKind::invalid_use);
    EXPECT_EQ(missing.failure().rule, "There is no device 5: the driver shows 2 devices, numbered from 0");
    EXPECT_EQ(missing.failure().rule_ids, "ACCESS-DESCRIPTORS");
    const auto there = try_grant(mapping_, {{Location::device(DeviceOrdinal{1})}});
    ASSERT_FALSE(there);
    EXPECT_EQ(there.failure().rule.find("There is no device"), std::string::npos) << there.failure().message();
  }
}

TEST_F(AccessGrantTest, TakingRightsFromThoseThatHaveNoneDoesNothing) {
  fake_->answer(EntryPoint::cuMemSetAccess, CUDA_ERROR_INVALID_DEVICE);
  unsigned long long rights = 0;
  fake_->on_cuMemGetAccess = [&](unsigned long long* flags, const CUmemLocation*, CUdeviceptr) {
    *flags = rights;
    return CUDA_SUCCESS;
  };
  EXPECT_NO_THROW(revoke(mapping_, Location::device(DeviceOrdinal{1})));
  EXPECT_NO_THROW(revoke(mapping_, Location::host())) << "which never has any to memory of a device";
  rights = 1;
  EXPECT_THROW(revoke(mapping_, Location::device(DeviceOrdinal{1})), Error) << "it has rights, and keeps them";
}

}  // namespace
}  // namespace cuvmm
