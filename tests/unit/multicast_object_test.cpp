#include "cuvmm/multicast_object.hpp"

#include <gtest/gtest.h>

#include <optional>

#include "cuvmm/cuvmm.hpp"
#include "cuvmm/sharing/shareable_handle.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulated_machine.hpp"
#include "environment.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using namespace literals;
using driver::EntryPoint;
using sharing::ShareableHandle;

constexpr std::size_t unit = 2_MiB;

template <class T>
void expect_refusal(const Result<T>& result, ErrorKind kind, const std::string& words) {
  ASSERT_FALSE(result) << "accepted, instead of " << words;
  EXPECT_EQ(result.failure().kind, kind) << result.failure().message();
  const std::string told = result.failure().message() + " " + result.failure().rule_ids;
  EXPECT_NE(told.find(words), std::string::npos) << words << " is not in: " << told;
}

class MulticastObjectTest : public testing::Test {
 protected:
  void SetUp() override {
    own_.emplace("CUVMM_MULTICAST", nullptr);
    nccl_.emplace("NCCL_NVLS_ENABLE", nullptr);
    torch_.emplace("TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr);
    nvshmem_.emplace("NVSHMEM_DISABLE_NVLS", nullptr);
    if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out: see ABuildWithoutItRefusesIt";
    make("h200-multicast", 2);
  }

  void make(const char* profile, int devices, const std::optional<int>& slots = {}) {
    auto configuration = test::machine(profile, devices);
    configuration.multicast_slots = slots;
    machine_.emplace(configuration);
    faults_ = std::make_shared<driver::FaultInjectingDriver>(machine_->interface());
    counts_ = std::make_shared<driver::CountingDriver>(faults_);
    driver_.emplace(Driver::wrap(counts_));
  }

  [[nodiscard]] Device device(int ordinal) const { return driver_->device(DeviceOrdinal(ordinal)); }
  [[nodiscard]] SharedPhysicalMemory memory(int ordinal, std::size_t bytes = unit, HandleTypes types = {}) const {
    return SharedPhysicalMemory(PhysicalMemory::create(
        *driver_, {.location = Location::device(DeviceOrdinal(ordinal)), .handle_types = types}, bytes));
  }
  // For both devices, which are added.
  [[nodiscard]] MulticastObject object(std::size_t bytes = unit, HandleTypes types = {}) const {
    auto made = MulticastObject::create(*driver_, {.devices = 2, .bytes = bytes, .handle_types = types});
    for (const int ordinal : {0, 1}) made.add_device(device(ordinal));
    return made;
  }
  [[nodiscard]] std::uint64_t calls(EntryPoint entry) const { return counts_->snapshot()[entry]; }

  std::optional<test::EnvironmentVariable> own_, nccl_, torch_, nvshmem_;
  std::optional<test::EmulatedMachine> machine_;
  std::shared_ptr<driver::FaultInjectingDriver> faults_;
  std::shared_ptr<driver::CountingDriver> counts_;
  std::optional<Driver> driver_;
};

// Runs in every build: in one with multicast the same call is accepted.
TEST(MulticastObjectOfABuild, ABuildWithoutItRefusesIt) {
  const test::EnvironmentVariable own("CUVMM_MULTICAST", nullptr);
  const test::EnvironmentVariable nccl("NCCL_NVLS_ENABLE", nullptr);
  const test::EnvironmentVariable torch("TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr);
  const test::EnvironmentVariable nvshmem("NVSHMEM_DISABLE_NVLS", nullptr);
  const auto counts =
      std::make_shared<driver::CountingDriver>(test::EmulatedMachine(test::machine("h200-multicast")).interface());
  const auto created = MulticastObject::try_create(Driver::wrap(counts), {.devices = 1, .bytes = unit});
  ASSERT_EQ(static_cast<bool>(created), static_cast<bool>(CUVMM_RESOLVE_MULTICAST));
  if (created) return;
  EXPECT_NE(created.failure().reason.find("CUVMM_RESOLVE_MULTICAST=OFF"), std::string::npos);
  for (const auto& [entry, count] : counts->snapshot().called())
    EXPECT_NE(driver::info(entry).group, driver::EntryPointGroup::multicast) << driver::name(entry);
}

TEST_F(MulticastObjectTest, IsMadeBoundMappedAndGivenBackInAnyOrder) {
  for (const char* const profile : {"h200-multicast", "h200-590"}) {
    make(profile, 2);
    const bool names_device = driver_->interface().has(EntryPoint::cuMulticastBindMem_v2);
    EXPECT_EQ(names_device, std::string(profile) == "h200-590");
    {
      auto reservation = AddressReservation::create(*driver_, 2 * unit);
      auto one = object(2 * unit);
      for (const int ordinal : {0, 1}) {
        const auto both = memory(ordinal, 2 * unit);
        one.bind(0, both, unit, unit);  // two parts of one allocation, the other way round
        one.bind(unit, both, 0, unit);
      }
      EXPECT_EQ(one.bindings(), 4u);
      auto mapping = one.map(reservation);
      EXPECT_EQ(mapping.size(), 2 * unit);
      EXPECT_TRUE(one.is_mapped());
      const AccessGrant grants[] = {{device(0).location()}, {device(1).location()}};
      mapping.grant(grants);
      const MulticastObject gone(std::move(one));  // goes before the mapping, which keeps it
    }
    EXPECT_EQ(calls(names_device ? EntryPoint::cuMulticastBindMem_v2 : EntryPoint::cuMulticastBindMem), 4u);
    EXPECT_EQ(calls(EntryPoint::cuMulticastUnbind), 4u);
    EXPECT_TRUE(machine_->nothing_live()) << "the strict machine refuses what goes in the wrong order";
  }
}

TEST_F(MulticastObjectTest, PropertiesAreCheckedWithTheRule) {
  const auto made = [&](const MulticastProperties& properties) {
    return MulticastObject::try_create(*driver_, properties);
  };
  expect_refusal(made({.devices = 0, .bytes = unit}), ErrorKind::invalid_use, "MULTICAST-PROPERTIES");
  expect_refusal(made({.devices = 2, .bytes = 0}), ErrorKind::invalid_use, "MULTICAST-PROPERTIES");
  expect_refusal(made({.devices = 2, .bytes = unit + 1}), ErrorKind::invalid_use, "MULTICAST-SIZE-GRANULARITY");
  expect_refusal(made({.devices = 2, .bytes = unit, .handle_types = HandleType::win32}), ErrorKind::not_supported,
                 "CREATE-HANDLE-TYPE");
  EXPECT_EQ(calls(EntryPoint::cuMulticastCreate), 0u) << "refused before the driver was asked";
  expect_refusal(made({.devices = 2, .bytes = unit, .handle_types = HandleType::fabric}), ErrorKind::not_permitted,
                 "fabric handles");
  expect_refusal(made({.devices = 2, .bytes = std::size_t{1} << 63}), ErrorKind::invalid_use, "RANGE-FITS");
  EXPECT_TRUE(made({.devices = 2, .bytes = unit, .handle_types = HandleType::posix_file_descriptor}));
  EXPECT_TRUE(machine_->nothing_live());
}

TEST_F(MulticastObjectTest, DevicesJoinOnceAndNoMoreThanThereIsRoomFor) {
  auto one = MulticastObject::create(*driver_, {.devices = 1, .bytes = unit});
  one.add_device(device(1));
  expect_refusal(one.try_add_device(device(1)), ErrorKind::invalid_use, "MULTICAST-JOIN-ONCE");
  expect_refusal(one.try_add_device(device(0)), ErrorKind::invalid_use, "MULTICAST-JOIN-ONCE");
  const test::EmulatedMachine other(test::machine("h200-multicast"));
  expect_refusal(one.try_add_device(other.driver().device(DeviceOrdinal(0))), ErrorKind::invalid_use, "same driver");
  EXPECT_EQ(calls(EntryPoint::cuMulticastAddDevice), 1u);
  one.bind(0, memory(1), 0, unit);
}

TEST_F(MulticastObjectTest, BindsAreCheckedWithTheRule) {
  auto one = object(2 * unit);
  const auto own = memory(0, 2 * unit);
  const auto refused = [&](std::size_t offset, std::size_t memory_offset, std::size_t bytes, const char* rule) {
    expect_refusal(one.check_bind(offset, own, memory_offset, bytes), ErrorKind::invalid_use, rule);
    expect_refusal(one.try_bind(offset, own, memory_offset, bytes), ErrorKind::invalid_use, rule);
  };
  refused(0, 0, 0, "MULTICAST-BIND-RANGE");
  refused(1, 0, unit, "MULTICAST-BIND-RANGE");
  refused(0, 1, unit, "MULTICAST-BIND-RANGE");
  refused(0, 0, unit + 1, "MULTICAST-BIND-RANGE");
  refused(0, unit, 2 * unit, "MULTICAST-BIND-RANGE");
  refused(unit, 0, 2 * unit, "MULTICAST-BIND-RANGE");
  refused(SIZE_MAX / unit * unit, 0, unit, "MULTICAST-BIND-RANGE");
  const SharedPhysicalMemory of_host(PhysicalMemory::create(*driver_, {.location = Location::host_numa(0)}, unit));
  expect_refusal(one.try_bind(0, of_host, 0, unit), ErrorKind::invalid_use, "MULTICAST-BIND-MEMORY");
  EXPECT_TRUE(one.check_bind(0, own, 0, unit));
  EXPECT_EQ(calls(EntryPoint::cuMulticastBindMem), 0u);
  one.bind(0, own, 0, unit);
  refused(0, unit, unit, "MULTICAST-BIND-ONCE");
  refused(0, 0, 2 * unit, "MULTICAST-BIND-ONCE");
  one.bind(unit, own, unit, unit);
  EXPECT_EQ(calls(EntryPoint::cuMulticastBindMem), 2u);
  EXPECT_EQ(one.bindings(), 2u);
}

TEST_F(MulticastObjectTest, ToASharedObjectOnlyShareableMemoryIsBound) {
  auto one = object(unit, HandleType::posix_file_descriptor);
  expect_refusal(one.try_bind(0, memory(0), 0, unit), ErrorKind::invalid_use, "MULTICAST-BIND-SHAREABLE");
  EXPECT_EQ(calls(EntryPoint::cuMulticastBindMem), 0u);
  one.bind(0, memory(0, unit, HandleType::posix_file_descriptor), 0, unit);
}

TEST_F(MulticastObjectTest, MemoryIsBoundByItsAddressToo) {
  for (const char* const profile : {"h200-multicast", "h200-590"}) {
    make(profile, 2);
    {
      auto one = object(unit);
      auto reservation = AddressReservation::create(*driver_, 2 * unit);
      {
        const auto both = memory(1, 2 * unit);
        const auto mapped = Mapping::create(reservation, 0, both.memory());
        expect_refusal(one.try_bind_address(0, mapped.address() + unit, 2 * unit), ErrorKind::invalid_use,
                       "MULTICAST-BIND-RANGE");
        one.bind_address(0, mapped.address() + unit, unit);
      }
      EXPECT_EQ(one.bindings(), 1u) << "the owner keeps the memory";
      EXPECT_FALSE(one.try_bind_address(0, reservation.address(), unit)) << "nothing is mapped there";
      one.unbind(device(1), 0, unit);
    }
    EXPECT_TRUE(machine_->nothing_live());
  }
}

TEST_F(MulticastObjectTest, UnbindsExactlyWhatWasBoundAndNotWhileItIsMapped) {
  auto one = object(2 * unit);
  for (const int ordinal : {0, 1}) one.bind(0, memory(ordinal, 2 * unit), 0, 2 * unit);
  expect_refusal(one.try_unbind(device(0), 0, unit), ErrorKind::invalid_use, "MULTICAST-UNBIND-EXACT");
  const auto reservation = AddressReservation::create(*driver_, 2 * unit);
  auto mapping = one.map(reservation);
  expect_refusal(one.try_unbind(device(0), 0, 2 * unit), ErrorKind::invalid_use, "MULTICAST-UNBIND-AFTER-UNMAP");
  expect_refusal(one.try_close(), ErrorKind::invalid_use, "MULTICAST-UNBIND-AFTER-UNMAP");
  EXPECT_EQ(calls(EntryPoint::cuMulticastUnbind), 0u);
  const AccessGrant to_host[] = {{Location::host()}};
  expect_refusal(mapping.try_grant(to_host), ErrorKind::invalid_use, "MULTICAST-GRANT-TEAM");
  mapping.unmap();
  expect_refusal(mapping.try_grant({}), ErrorKind::invalid_use, "owns nothing");
  one.unbind(device(0), 0, 2 * unit);
  expect_refusal(one.try_unbind(device(0), 0, 2 * unit), ErrorKind::invalid_use, "MULTICAST-UNBIND-EXACT");
  one.close();
  expect_refusal(one.try_close(), ErrorKind::invalid_use, "owns nothing");
}

TEST_F(MulticastObjectTest, C15_AnUnbindThatFailsOnceIsToldAndDoneAgain) {
  auto one = object();
  for (const int ordinal : {0, 1}) one.bind(0, memory(ordinal), 0, unit);
  faults_->inject({.entry_point = EntryPoint::cuMulticastUnbind});
  expect_refusal(one.try_close(), ErrorKind::driver_failure, "cuMulticastUnbind");
  EXPECT_EQ(one.bindings(), 1u) << "the other one is unbound";
  one.close();
  EXPECT_TRUE(machine_->nothing_live());
}

TEST_F(MulticastObjectTest, ADestructorReportsWhatItCouldNotUnbind) {
  const test::RecordingHandler reports;
  {
    auto one = object();
    one.bind(0, memory(0), 0, unit);
    faults_->inject({.entry_point = EntryPoint::cuMulticastUnbind});
  }
  ASSERT_EQ(reports.failures.size(), 1u);
  EXPECT_EQ(reports.failures.front().call, "cuMulticastUnbind");
}

TEST_F(MulticastObjectTest, ABindThatFailsLeavesNothingBound) {
  make("h200-multicast", 2, 1);
  auto one = object();
  auto other = object();
  one.bind(0, memory(0), 0, unit);
  expect_refusal(other.try_bind(0, memory(0), 0, unit), ErrorKind::out_of_multicast_slots, "MULTICAST-SLOTS");
  EXPECT_EQ(other.bindings(), 0u);
  one.close();
  other.bind(0, memory(0), 0, unit);
}

TEST_F(MulticastObjectTest, IsExportedAndAdopted) {
  {
    const MulticastProperties properties{
        .devices = 2, .bytes = unit, .handle_types = HandleType::posix_file_descriptor};
    auto root = MulticastObject::create(*driver_, properties);
    const auto handle = ShareableHandle::export_from(root.shareable().memory(), HandleType::posix_file_descriptor);
    const auto import = [&] { return handle.import_into(*driver_, {.bytes = unit, .properties = MemoryProperties{}}); };
    expect_refusal(MulticastObject::try_adopt(import(), {.devices = 2, .bytes = 2 * unit}), ErrorKind::invalid_use,
                   "MULTICAST-PROPERTIES");
    auto other = MulticastObject::adopt(import(), properties);
    root.add_device(device(0));
    other.add_device(device(1));
    root.bind(0, memory(0, unit, HandleType::posix_file_descriptor), 0, unit);
    expect_refusal(other.try_bind(0, memory(1), 0, unit), ErrorKind::invalid_use, "MULTICAST-BIND-SHAREABLE");
    other.bind(0, memory(1, unit, HandleType::posix_file_descriptor), 0, unit);
    EXPECT_EQ(root.handle() != 0 && other.handle() != 0, true);
  }
  EXPECT_TRUE(machine_->nothing_live());
}

TEST_F(MulticastObjectTest, C13_WhatIsFittedIsTakenForEverySize) {
  for (const Granularity which : {Granularity::minimum, Granularity::recommended})
    for (const std::size_t bytes : {std::size_t{1}, 2_MiB - 1, 2_MiB, 2_MiB + 1, 100_MiB, 512_MiB, 513_MiB, 1_GiB}) {
      const MemoryProperties memory{.location = Location::device(DeviceOrdinal(0))};
      const GranularFit fit = MulticastObject::fitted(*driver_, {.devices = 1, .bytes = bytes}, memory, which);
      EXPECT_GE(fit.bytes, bytes);
      EXPECT_LT(fit.bytes - bytes, fit.granularity);
      const bool large = which == Granularity::recommended && bytes > 256_MiB;
      if (which == Granularity::minimum || large) {
        EXPECT_EQ(fit.granularity, large ? 512_MiB : 2_MiB);
      }
      auto one = MulticastObject::create(*driver_, {.devices = 1, .bytes = fit.bytes});
      one.add_device(device(0));
      one.bind(0, SharedPhysicalMemory(PhysicalMemory::create(*driver_, memory, fit.bytes)), 0, fit.bytes);
      const auto reservation = AddressReservation::create(*driver_, fit.bytes, fit.alignment);
      EXPECT_TRUE(is_aligned(reservation.address().value, fit.alignment));
      const auto mapping = one.map(reservation);
    }
  EXPECT_TRUE(machine_->nothing_live());
}

TEST_F(MulticastObjectTest, ASwitchRefusesEverythingBeforeAnyCall) {
  auto one = object();
  const auto own = memory(0);
  const auto reservation = AddressReservation::create(*driver_, unit);
  const auto before = counts_->snapshot();
  {
    const test::EnvironmentVariable off("CUVMM_MULTICAST", "0");
    constexpr auto kind = ErrorKind::not_supported;
    const std::string words = "CUVMM_MULTICAST=0";
    expect_refusal(MulticastObject::try_create(*driver_, {.devices = 1, .bytes = unit}), kind, words);
    expect_refusal(one.try_bind(0, own, 0, unit), kind, words);
    expect_refusal(one.try_bind_address(0, DeviceAddress(unit), unit), kind, words);
    expect_refusal(one.try_map(reservation), kind, words);
    expect_refusal(one.try_add_device(device(0)), kind, "Remove the switch");
    EXPECT_THROW(static_cast<void>(MulticastObject::granularity(*driver_, {.devices = 1, .bytes = unit})),
                 NotSupported);
    for (const driver::EntryPointInfo& each : driver::entry_points)
      EXPECT_TRUE(each.group != driver::EntryPointGroup::multicast ||
                  counts_->snapshot()[each.entry_point] == before[each.entry_point])
          << each.name;
  }
  const test::EnvironmentVariable on("CUVMM_MULTICAST", "1");
  one.bind(0, own, 0, unit);
}

TEST_F(MulticastObjectTest, AMachineWithoutMulticastSaysSo) {
  make("h200-580", 2);
  expect_refusal(MulticastObject::try_create(*driver_, {.devices = 2, .bytes = unit}), ErrorKind::not_supported,
                 "MULTICAST-SUPPORTED");
}

TEST_F(MulticastObjectTest, AMovedFromOneIsRefused) {
  auto one = object();
  auto taken = std::move(one);
  // NOLINTBEGIN(bugprone-use-after-move, clang-analyzer-cplusplus.Move)
  expect_refusal(one.try_add_device(device(0)), ErrorKind::invalid_use, "owns nothing");
  expect_refusal(one.try_bind(0, memory(0), 0, unit), ErrorKind::invalid_use, "owns nothing");
  EXPECT_THROW(static_cast<void>(one.properties()), InvalidUse);
  // NOLINTEND(bugprone-use-after-move, clang-analyzer-cplusplus.Move)
  expect_refusal(taken.try_bind(0, {}, 0, unit), ErrorKind::invalid_use, "owns nothing");
}

}  // namespace
}  // namespace cuvmm
