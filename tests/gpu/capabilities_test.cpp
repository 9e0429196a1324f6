// What the CUDA driver of this machine tells of itself and of addresses.
#include <gtest/gtest.h>

#include <cuvmm/cuvmm.hpp>

#include "../unit/call_watch.hpp"

namespace cuvmm {
namespace {

class CapabilitiesOnGpu : public testing::Test {
 protected:
  Driver driver_ = Driver::cuda();
  Device device_ = driver_.device(DeviceOrdinal{0});
  CurrentContext context_{device_};
  std::size_t granule_ = device_.granularity();

  [[nodiscard]] std::size_t free_memory() const {
    std::size_t free = 0;
    EXPECT_EQ(driver_.interface().cuMemGetInfo(&free, nullptr), abi::CUDA_SUCCESS);
    return free;
  }
};

TEST_F(CapabilitiesOnGpu, C29_NoCallFailsUnlessTrialsAreAskedFor) {
  const auto watch = std::make_shared<test::CallWatch>(driver_.shared_interface());
  for (const Device& each : Driver::wrap(watch).devices()) static_cast<void>(Capabilities::of(each));
  EXPECT_EQ(watch->failing, std::vector<std::string>{});
}

TEST_F(CapabilitiesOnGpu, TrialsAgreeWithUse) {
  const std::size_t free = free_memory();
  const Capabilities found = Capabilities::of(device_, {.trials = true});
  EXPECT_EQ(free_memory(), free);
  EXPECT_EQ(found[Feature::virtual_memory_management].trial, TrialResult::worked);
  EXPECT_EQ(found[Feature::multicast].trial, TrialResult::not_made);
  EXPECT_GE(found.largest_reservation_bytes.value_or(0), 1_GiB);
  const auto fabric = PhysicalMemory::try_create(
      driver_, {.location = device_.location(), .handle_types = HandleType::fabric}, granule_);
  EXPECT_EQ(found.has(Feature::fabric_handles), fabric.has_value());
}

TEST_F(CapabilitiesOnGpu, AddressesAreDescribed) {
  const auto addresses = AddressReservation::create(driver_, 2 * granule_);
  const auto memory = PhysicalMemory::create(driver_, {.location = device_.location()}, granule_);
  const auto mapping = Mapping::create(addresses, granule_, memory);
  grant(mapping, device_.location(), AccessRights::read);
  const PointerInfo info = describe(driver_, mapping.address() + 7);
  EXPECT_EQ(info.kind, PointerKind::mapping);
  EXPECT_EQ(info.base, mapping.address());
  EXPECT_EQ(info.size, granule_);
  EXPECT_EQ(info.offset, 7u);
  EXPECT_EQ(info.reservation_base, addresses.address());
  EXPECT_EQ(info.reservation_size, 2 * granule_);
  EXPECT_EQ(info.location, device_.location());
  EXPECT_EQ(info.rights.front(), (AccessGrant{device_.location(), AccessRights::read}));
  EXPECT_FALSE(info.legacy_ipc_capable);
  EXPECT_EQ(describe(addresses, 0).kind, PointerKind::reserved);

  abi::CUdeviceptr allocated = 0;
  ASSERT_EQ(driver_.interface().cuMemAlloc(&allocated, granule_), abi::CUDA_SUCCESS);
  EXPECT_EQ(describe(driver_, DeviceAddress{allocated}).kind, PointerKind::device_allocation);
  EXPECT_TRUE(describe(driver_, DeviceAddress{allocated}).legacy_ipc_capable);
  void* locked = nullptr;
  ASSERT_EQ(driver_.interface().cuMemHostAlloc(&locked, 4096, 0), abi::CUDA_SUCCESS);
  EXPECT_EQ(describe(driver_, DeviceAddress{reinterpret_cast<std::uintptr_t>(locked)}).kind,
            PointerKind::page_locked_host);
  EXPECT_EQ(driver_.interface().cuMemFreeHost(locked), abi::CUDA_SUCCESS);
  EXPECT_EQ(driver_.interface().cuMemFree(allocated), abi::CUDA_SUCCESS);
}

TEST_F(CapabilitiesOnGpu, C42_DmaBufsOfTwoAllocations) {
  const auto addresses = AddressReservation::create(driver_, 2 * granule_);
  const auto first = PhysicalMemory::create(driver_, {.location = device_.location()}, granule_);
  const auto second = PhysicalMemory::create(driver_, {.location = device_.location()}, granule_);
  const auto low = Mapping::create(addresses, 0, first);
  const auto high = Mapping::create(addresses, granule_, second);
  const auto all = try_dma_bufs(driver_, addresses.address() + (granule_ - 100), 300);
  if (Capabilities::of(device_).has(Feature::dma_buf)) {
    ASSERT_TRUE(all) << all.failure().message();
    ASSERT_EQ(all->size(), 2u);
    EXPECT_EQ((*all)[0].length, 100u);
    EXPECT_EQ((*all)[1].length, 200u);
    EXPECT_EQ((*all)[1].offset, 0u);
  } else {
    ASSERT_FALSE(all);
    EXPECT_EQ(all.failure().kind, ErrorKind::not_supported);
  }
}

TEST_F(CapabilitiesOnGpu, C38_ReferencesBalanceOver64Buffers) {
  const std::size_t before = free_memory();
  {
    std::vector<PhysicalMemory> buffers;
    std::vector<Mapping> mappings;
    for (int index = 0; index < 64; ++index) {
      const auto addresses = AddressReservation::create(driver_, 64_MiB);
      auto made = PhysicalMemory::create(driver_, {.location = device_.location()}, 64_MiB);
      mappings.push_back(Mapping::create(addresses, 0, made));
      buffers.push_back(PhysicalMemory::adopt(driver_, made.give_out(), 64_MiB));
      buffers.push_back(PhysicalMemory::retain(driver_, mappings.back().address()));
    }
    EXPECT_LE(free_memory(), before - 64 * 64_MiB);
  }
  EXPECT_EQ(free_memory(), before);
}

}  // namespace
}  // namespace cuvmm
