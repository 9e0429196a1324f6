// Multicast objects in the model: teams alone, and the rules around them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emulator/model/multicast.hpp"
#include "emulator_model_machine.hpp"

namespace cuvmm::emulator::model {
namespace {

using namespace test;

constexpr TeamDevice first{0, 0}, second{0, 1}, elsewhere{1, 0};

std::vector<MulticastBinding> removed(MulticastTeams& teams, MulticastTeams::Id object) {
  std::vector<MulticastBinding> let_go;
  teams.remove(object, [&](const MulticastBinding& binding) { let_go.push_back(binding); });
  return let_go;
}

TEST(MulticastTeams, EachDeviceJoinsOnceUntilTheTeamIsComplete) {
  MulticastTeams teams(8);
  teams.add(7, 2);
  EXPECT_EQ(teams.missing(7), 2U);
  EXPECT_EQ(teams.join(7, first), JoinOutcome::joined);
  EXPECT_EQ(teams.join(7, first), JoinOutcome::joined_before);
  EXPECT_EQ(teams.missing(7), 1U);
  EXPECT_EQ(teams.join(7, elsewhere), JoinOutcome::joined) << "another node's device of the same number";
  EXPECT_EQ(teams.missing(7), 0U);
  EXPECT_EQ(teams.join(7, second), JoinOutcome::team_full);
  EXPECT_EQ(teams.team(7), (std::vector<TeamDevice>{first, elsewhere}));
}

TEST(MulticastTeams, BindsOnceTheTeamIsComplete) {
  MulticastTeams teams(8);
  teams.add(1, 2);
  const MulticastBinding binding{first, 0, 100, 55, 0};
  EXPECT_EQ(teams.join(1, first), JoinOutcome::joined);
  EXPECT_EQ(teams.bind(1, binding), BindOutcome::incomplete);
  EXPECT_FALSE(teams.is_bound(55));
  EXPECT_EQ(teams.join(1, second), JoinOutcome::joined);
  EXPECT_EQ(teams.bind(1, {elsewhere, 0, 100, 55, 0}), BindOutcome::not_in_team);
  EXPECT_EQ(teams.bind(1, binding), BindOutcome::bound);
  EXPECT_TRUE(teams.is_bound(55));
}

TEST(MulticastTeams, ADevicesBindsDoNotOverlap) {
  MulticastTeams teams(8);
  teams.add(1, 2);
  (void)teams.join(1, first);
  (void)teams.join(1, second);
  EXPECT_EQ(teams.bind(1, {first, 100, 100, 55, 0}), BindOutcome::bound);
  for (const auto& [offset, bytes] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{100, 100}, {50, 51}, {199, 1}, {0, 300}, {120, 10}})
    EXPECT_EQ(teams.bind(1, {first, offset, bytes, 55, 0}), BindOutcome::bound_before) << offset << " " << bytes;
  EXPECT_EQ(teams.bind(1, {first, 50, 50, 55, 0}), BindOutcome::bound);
  EXPECT_EQ(teams.bind(1, {first, 200, 1, 55, 0}), BindOutcome::bound);
  EXPECT_EQ(teams.bind(1, {second, 100, 100, 56, 0}), BindOutcome::bound) << "another device's are its own";
}

TEST(MulticastTeams, UnbindsExactlyWhatWasBound) {
  MulticastTeams teams(8);
  teams.add(1, 1);
  (void)teams.join(1, first);
  const MulticastBinding binding{first, 100, 50, 55, 10};
  ASSERT_EQ(teams.bind(1, binding), BindOutcome::bound);
  EXPECT_FALSE(teams.unbind(1, first, 100, 49));
  EXPECT_FALSE(teams.unbind(1, first, 99, 50));
  EXPECT_FALSE(teams.unbind(1, second, 100, 50));
  EXPECT_EQ(teams.unbind(1, first, 100, 50), binding);
  EXPECT_FALSE(teams.is_bound(55));
  EXPECT_FALSE(teams.unbind(1, first, 100, 50)) << "a second time";
  EXPECT_EQ(teams.bind(1, binding), BindOutcome::bound) << "there is room again";
}

TEST(MulticastTeams, ADeviceIsPartOfAsManyObjectsAsItHasSlots) {
  MulticastTeams teams(1);
  for (const MulticastTeams::Id object : {1, 2}) {
    teams.add(object, 2);
    (void)teams.join(object, first);
    (void)teams.join(object, second);
  }
  ASSERT_EQ(teams.bind(1, {first, 0, 10, 55, 0}), BindOutcome::bound);
  EXPECT_EQ(teams.bind(1, {first, 10, 10, 55, 10}), BindOutcome::bound) << "the same object";
  EXPECT_EQ(teams.bind(2, {first, 0, 10, 56, 0}), BindOutcome::no_slot);
  EXPECT_EQ(teams.bind(2, {second, 0, 10, 57, 0}), BindOutcome::bound) << "the other device has its own";
  ASSERT_TRUE(teams.unbind(1, first, 0, 10));
  EXPECT_EQ(teams.bind(2, {first, 0, 10, 56, 0}), BindOutcome::no_slot) << "something is bound still";
  ASSERT_TRUE(teams.unbind(1, first, 10, 10));
  EXPECT_EQ(teams.bind(2, {first, 0, 10, 56, 0}), BindOutcome::bound);
  EXPECT_EQ(removed(teams, 2).size(), 2U);
  EXPECT_EQ(teams.bind(1, {first, 0, 10, 55, 0}), BindOutcome::bound) << "an object that goes gives its slots back";
}

TEST(MulticastTeams, AnObjectThatGoesLetsAllGo) {
  MulticastTeams teams(8);
  teams.add(1, 2);
  (void)teams.join(1, first);
  (void)teams.join(1, second);
  ASSERT_EQ(teams.bind(1, {first, 0, 10, 55, 0}), BindOutcome::bound);
  ASSERT_EQ(teams.bind(1, {first, 10, 10, 55, 10}), BindOutcome::bound);
  ASSERT_EQ(teams.bind(1, {second, 0, 10, 56, 0}), BindOutcome::bound);
  EXPECT_EQ(removed(teams, 1).size(), 3U);
  EXPECT_FALSE(teams.contains(1));
  EXPECT_FALSE(teams.is_bound(55));
  EXPECT_FALSE(teams.is_bound(56));
}

TEST(MulticastTeams, TellsWhatIsBoundInARange) {
  MulticastTeams teams(8);
  teams.add(1, 2);
  (void)teams.join(1, second);
  (void)teams.join(1, first);
  for (const TeamDevice& device : {first, second})
    for (const std::uint64_t offset : {0, 10, 20}) {
      ASSERT_EQ(teams.bind(1, {device, offset, 10, 55, offset}), BindOutcome::bound);
    }
  const auto found = teams.bound_in(1, 5, 6);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0], (MulticastBinding{second, 0, 10, 55, 0})) << "in the order of the team";
  EXPECT_EQ(found[1], (MulticastBinding{second, 10, 10, 55, 10}));
  EXPECT_EQ(found[2].device, first);
  EXPECT_TRUE(teams.bound_in(1, 30, 100).empty());
}

Configuration with_multicast(Mode mode = Mode::strict) {
  Configuration configuration = model_configuration(mode);
  const std::uint64_t host_memory = configuration.profile.host_memory;
  configuration.profile = *find_profile("h200-multicast");
  configuration.profile.host_memory = host_memory;
  return configuration;
}

CUmulticastObjectProp object_of(unsigned devices, std::uint64_t bytes = 2 * granule, unsigned long long handles = 0) {
  CUmulticastObjectProp properties{};
  properties.numDevices = devices;
  properties.size = bytes;
  properties.handleTypes = handles;
  return properties;
}

class MulticastModelTest : public testing::Test {
 protected:
  CUmemGenericAllocationHandle object(const CUmulticastObjectProp& properties) {
    CUmemGenericAllocationHandle handle = 0;
    expect_ok(machine_.memory.create_multicast(&handle, &properties));
    return handle;
  }
  CUmemGenericAllocationHandle team_of_two(std::uint64_t bytes = 2 * granule, unsigned long long handles = 0) {
    const CUmemGenericAllocationHandle handle = object(object_of(2, bytes, handles));
    expect_ok(machine_.memory.join(handle, 0));
    expect_ok(machine_.memory.join(handle, 1));
    return handle;
  }
  CUmemGenericAllocationHandle memory_of(int device, std::uint64_t bytes = granule, int handles = 0) {
    return machine_.create(at(CU_MEM_LOCATION_TYPE_DEVICE, device, handles), bytes);
  }
  Answer bind(CUmemGenericAllocationHandle object, CUmemGenericAllocationHandle memory, std::uint64_t offset = 0,
              std::uint64_t bytes = granule, std::uint64_t memory_offset = 0) {
    return machine_.memory.bind({object, {}, offset, bytes, 0, memory, memory_offset, 0, false}, true);
  }

  ModelMachine machine_{with_multicast()};
};

TEST_F(MulticastModelTest, PropertiesAreWellFormed) {
  const CUmulticastObjectProp good = object_of(2);
  std::size_t granularity = 0;
  CUmemGenericAllocationHandle handle = 0;
  const auto both = [&](const CUmulticastObjectProp& properties) {
    const Answer asked =
        machine_.memory.multicast_granularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM);
    const Answer made = machine_.memory.create_multicast(&handle, &properties);
    EXPECT_EQ(asked.code, made.code);
    EXPECT_EQ(asked.rule, made.rule);
    return made;
  };
  expect_ok(both(good));
  for (const auto& spoil : std::vector<void (*)(CUmulticastObjectProp&)>{
           [](CUmulticastObjectProp& p) { p.numDevices = 0; }, [](CUmulticastObjectProp& p) { p.size = 0; },
           [](CUmulticastObjectProp& p) { p.flags = 1; }, [](CUmulticastObjectProp& p) { p.handleTypes = 2; }}) {
    CUmulticastObjectProp bad = good;
    spoil(bad);
    expect_answer(both(bad), CUDA_ERROR_INVALID_VALUE, Rule::multicast_properties);
  }
  expect_answer(machine_.memory.create_multicast(nullptr, &good), CUDA_ERROR_INVALID_VALUE, Rule::output_pointer);
  expect_answer(machine_.memory.create_multicast(&handle, nullptr), CUDA_ERROR_INVALID_VALUE, Rule::output_pointer);
  expect_answer(machine_.memory.multicast_granularity(nullptr, &good, CU_MULTICAST_GRANULARITY_MINIMUM),
                CUDA_ERROR_INVALID_VALUE, Rule::output_pointer);
  expect_answer(
      machine_.memory.multicast_granularity(&granularity, &good, static_cast<CUmulticastGranularity_flags>(2)),
      CUDA_ERROR_INVALID_VALUE, Rule::granularity_option);
}

TEST_F(MulticastModelTest, TheRecommendedGranularityGrowsWithTheObject) {
  const std::uint64_t mebibyte = 1 << 20;
  const std::pair<std::uint64_t, std::uint64_t> expected[] = {{1, 2},    {2, 2},     {3, 4},      {64, 64},
                                                              {65, 128}, {512, 512}, {1024, 512}, {1 << 20, 512}};
  for (const auto& [size, recommended] : expected) {
    std::size_t granularity = 0;
    const CUmulticastObjectProp properties = object_of(2, size * mebibyte);
    expect_ok(machine_.memory.multicast_granularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_RECOMMENDED));
    EXPECT_EQ(granularity, recommended * mebibyte) << size;
    expect_ok(machine_.memory.multicast_granularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM));
    EXPECT_EQ(granularity, 2 * mebibyte) << size;
  }
}

TEST_F(MulticastModelTest, TheSizeIsAMultipleOfTheMinimumGranularity) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmulticastObjectProp odd = object_of(2, granule + 4096), even = object_of(2, 3 * granule);
  expect_answer(machine_.memory.create_multicast(&handle, &odd), CUDA_ERROR_INVALID_VALUE, Rule::multicast_size);
  expect_ok(machine_.memory.create_multicast(&handle, &even));
}

TEST_F(MulticastModelTest, WithoutMulticastEveryCallIsRefused) {
  ModelMachine plain;
  CUmemGenericAllocationHandle handle = 0;
  std::size_t granularity = 0;
  const CUmulticastObjectProp properties = object_of(2);
  const CUmemGenericAllocationHandle memory = plain.create(at(CU_MEM_LOCATION_TYPE_DEVICE));
  for (const Answer& answer :
       {plain.memory.create_multicast(&handle, &properties),
        plain.memory.multicast_granularity(&granularity, &properties, CU_MULTICAST_GRANULARITY_MINIMUM),
        plain.memory.join(memory, 0), plain.memory.bind({memory, {}, 0, granule, 0, memory, 0, 0, false}, true),
        plain.memory.unbind(memory, 0, 0, granule)})
    expect_answer(answer, CUDA_ERROR_NOT_SUPPORTED, Rule::multicast_supported);
}

TEST_F(MulticastModelTest, ADeviceJoinsOnceAndIfItReachesTheOthers) {
  const CUmemGenericAllocationHandle handle = object(object_of(2));
  expect_answer(machine_.memory.join(handle, 2), CUDA_ERROR_INVALID_DEVICE, Rule::device_exists);
  expect_ok(machine_.memory.join(handle, 1));
  expect_answer(machine_.memory.join(handle, 1), CUDA_ERROR_INVALID_VALUE, Rule::multicast_join);
  expect_ok(machine_.memory.join(handle, 0));
  expect_answer(machine_.memory.join(object(object_of(1)), 5), CUDA_ERROR_INVALID_DEVICE, Rule::device_exists);
  const CUmemGenericAllocationHandle single = object(object_of(1));
  expect_ok(machine_.memory.join(single, 0));
  expect_answer(machine_.memory.join(single, 1), CUDA_ERROR_INVALID_VALUE, Rule::multicast_join);
  expect_answer(machine_.memory.join(memory_of(0), 0), CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle);
  expect_answer(machine_.memory.join(0x777, 0), CUDA_ERROR_INVALID_VALUE, Rule::handle_live);

  Configuration apart = with_multicast();
  apart.no_peer_access = {{0, 1}};
  ModelMachine divided(apart);
  CUmemGenericAllocationHandle wide = 0;
  const CUmulticastObjectProp properties = object_of(2);
  expect_ok(divided.memory.create_multicast(&wide, &properties));
  expect_ok(divided.memory.join(wide, 0));
  expect_answer(divided.memory.join(wide, 1), CUDA_ERROR_INVALID_DEVICE, Rule::multicast_reach);
}

TEST_F(MulticastModelTest, BindingAndMappingWaitForTheTeam) {
  const CUmemGenericAllocationHandle handle = object(object_of(2, granule));
  const CUmemGenericAllocationHandle memory = memory_of(0);
  const CUdeviceptr address = machine_.reserve();
  expect_ok(machine_.memory.join(handle, 0));
  const MulticastBind wanted{handle, {}, 0, granule, 0, memory, 0, 0, false};
  // Another thread may add the device; or another process.
  expect_answer(machine_.memory.bind(wanted, false), CUDA_ERROR_NOT_READY, Rule::multicast_team_complete);
  expect_answer(machine_.memory.map(address, granule, 0, handle, 0, false), CUDA_ERROR_NOT_READY,
                Rule::multicast_team_complete);
  machine_.store.supply.others = true;
  expect_answer(machine_.memory.bind(wanted, true), CUDA_ERROR_NOT_READY, Rule::multicast_team_complete);
  // Nobody can.
  machine_.store.supply.others = false;
  expect_answer(machine_.memory.bind(wanted, true), CUDA_ERROR_TIMEOUT, Rule::multicast_team_complete);
  expect_answer(machine_.memory.map(address, granule, 0, handle, 0, true), CUDA_ERROR_TIMEOUT,
                Rule::multicast_team_complete);
  EXPECT_EQ(machine_.memory.live_mappings(), 0U);
  machine_.store.supply.others = true;
  machine_.store.supply.devices_in_reach = 1;
  expect_answer(machine_.memory.bind(wanted, false), CUDA_ERROR_TIMEOUT, Rule::multicast_team_complete);

  expect_ok(machine_.memory.join(handle, 1));
  expect_ok(machine_.memory.bind(wanted, true));
  expect_ok(machine_.memory.map(address, granule, 0, handle, 0, true));
}

TEST_F(MulticastModelTest, ArgumentsAreLookedAtBeforeACallWaits) {
  const CUmemGenericAllocationHandle handle = object(object_of(2, granule));
  const CUmemGenericAllocationHandle memory = memory_of(0);
  expect_answer(machine_.memory.bind({handle, {}, 0, granule, 1, memory, 0, 0, false}, false), CUDA_ERROR_INVALID_VALUE,
                Rule::flags_zero);
  expect_answer(machine_.memory.bind({handle, {}, 0, granule + 1, 0, memory, 0, 0, false}, false),
                CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_range);
  expect_answer(machine_.memory.map(machine_.reserve(), granule, granule, handle, 0, false), CUDA_ERROR_NOT_SUPPORTED,
                Rule::map_whole_allocation);
}

TEST_F(MulticastModelTest, WhatIsBoundFitsInMultiplesOfTheGranularity) {
  const CUmemGenericAllocationHandle handle = team_of_two(2 * granule);
  const CUmemGenericAllocationHandle memory = memory_of(0, 2 * granule);
  const auto refused = [&](std::uint64_t offset, std::uint64_t bytes, std::uint64_t memory_offset) {
    expect_answer(bind(handle, memory, offset, bytes, memory_offset), CUDA_ERROR_INVALID_VALUE,
                  Rule::multicast_bind_range);
  };
  refused(0, 0, 0);
  refused(4096, granule, 0);
  refused(0, granule + 4096, 0);
  refused(0, granule, 4096);
  refused(0, 3 * granule, 0);
  refused(granule, 2 * granule, 0);
  refused(0, 2 * granule, granule);
  refused(~std::uint64_t{0} - granule + 1, granule, 0);
  refused(0, granule, ~std::uint64_t{0} - granule + 1);
  expect_ok(bind(handle, memory, granule, granule, granule));
}

TEST_F(MulticastModelTest, ADeviceBindsAtAnOffsetOnceAndUnbindsExactlyThat) {
  const CUmemGenericAllocationHandle handle = team_of_two();
  const CUmemGenericAllocationHandle memory = memory_of(0, 2 * granule);
  expect_ok(bind(handle, memory, 0));
  expect_answer(bind(handle, memory, 0), CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_once);
  expect_ok(bind(handle, memory, granule));
  expect_answer(machine_.memory.unbind(handle, 0, 0, 2 * granule), CUDA_ERROR_INVALID_VALUE,
                Rule::multicast_unbind_exact);
  expect_answer(machine_.memory.unbind(handle, 1, 0, granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_unbind_exact);
  expect_answer(machine_.memory.unbind(handle, 2, 0, granule), CUDA_ERROR_INVALID_DEVICE, Rule::device_exists);
  expect_answer(machine_.memory.unbind(memory, 0, 0, granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle);
  expect_ok(machine_.memory.unbind(handle, 0, 0, granule));
  expect_answer(machine_.memory.unbind(handle, 0, 0, granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_unbind_exact);
  expect_ok(bind(handle, memory, 0));
}

TEST_F(MulticastModelTest, WhatIsBoundIsMemoryOfADeviceOfTheTeam) {
  const CUmemGenericAllocationHandle single = object(object_of(1));
  expect_ok(machine_.memory.join(single, 1));
  expect_answer(bind(single, memory_of(0)), CUDA_ERROR_INVALID_DEVICE, Rule::multicast_bind_memory);
  expect_answer(bind(single, machine_.create(at(CU_MEM_LOCATION_TYPE_HOST))), CUDA_ERROR_INVALID_VALUE,
                Rule::multicast_bind_memory);
  expect_answer(bind(single, single), CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle);
  expect_answer(bind(single, 0x777), CUDA_ERROR_INVALID_VALUE, Rule::handle_live);
  const CUmemGenericAllocationHandle memory = memory_of(1);
  const auto named = [&](int device) {
    return machine_.memory.bind({single, device, 0, granule, 0, memory, 0, 0, false}, true);
  };
  expect_answer(named(0), CUDA_ERROR_INVALID_DEVICE, Rule::multicast_bind_memory);
  expect_ok(named(1));
}

TEST_F(MulticastModelTest, MemoryIsBoundByItsAddressToo) {
  const CUmemGenericAllocationHandle handle = team_of_two();
  const CUdeviceptr address = machine_.mapped(at(CU_MEM_LOCATION_TYPE_DEVICE, 0), 2 * granule);
  const auto by_address = [&](CUdeviceptr from, std::uint64_t bytes) {
    return machine_.memory.bind({handle, {}, 0, bytes, 0, 0, 0, from, true}, true);
  };
  expect_answer(by_address(address + 2 * granule, granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_memory);
  expect_answer(by_address(address + granule, 2 * granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_range);
  expect_answer(by_address(address + 64, granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_range);
  expect_ok(by_address(address + granule, granule));
}

TEST_F(MulticastModelTest, AnObjectThatCanBeExportedTakesMemoryThatCan) {
  const auto descriptors = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemGenericAllocationHandle handle = team_of_two(2 * granule, descriptors);
  expect_answer(bind(handle, memory_of(0)), CUDA_ERROR_INVALID_VALUE, Rule::multicast_bind_shareable);
  expect_ok(bind(handle, memory_of(0, granule, descriptors)));
  expect_ok(bind(team_of_two(), memory_of(0)));
}

TEST_F(MulticastModelTest, SlotsRunOut) {
  // The supply has two for each device.
  const CUmemGenericAllocationHandle memory = memory_of(0, granule);
  std::vector<CUmemGenericAllocationHandle> objects;
  for (int count = 0; count < 3; ++count) objects.push_back(team_of_two());
  expect_ok(bind(objects[0], memory));
  expect_ok(bind(objects[1], memory));
  expect_answer(bind(objects[2], memory), CUDA_ERROR_OUT_OF_MEMORY, Rule::multicast_slots);
  expect_ok(machine_.memory.release(objects[0]));
  expect_ok(bind(objects[2], memory));
}

TEST_F(MulticastModelTest, BindsFailAsTheConfigurationSays) {
  Configuration configuration = with_multicast();
  configuration.multicast_failures = {{0, MulticastFailure::Kind::not_ready, 2},
                                      {0, MulticastFailure::Kind::illegal_state, 1},
                                      {1, MulticastFailure::Kind::out_of_memory, 0}};
  ModelMachine machine(configuration);
  CUmemGenericAllocationHandle handle = 0;
  const CUmulticastObjectProp properties = object_of(2);
  expect_ok(machine.memory.create_multicast(&handle, &properties));
  expect_ok(machine.memory.join(handle, 0));
  expect_ok(machine.memory.join(handle, 1));
  const auto bound = [&](int device) {
    const CUmemGenericAllocationHandle memory = machine.create(at(CU_MEM_LOCATION_TYPE_DEVICE, device));
    return machine.memory.bind({handle, {}, 0, granule, 0, memory, 0, 0, false}, true);
  };
  expect_answer(bound(0), CUDA_ERROR_SYSTEM_NOT_READY, Rule::rights_on_behaviour);
  expect_answer(bound(0), CUDA_ERROR_SYSTEM_NOT_READY, Rule::rights_on_behaviour);
  expect_answer(bound(0), CUDA_ERROR_ILLEGAL_STATE, Rule::rights_on_behaviour);
  expect_ok(bound(0));
  for (int count = 0; count < 3; ++count) expect_answer(bound(1), CUDA_ERROR_OUT_OF_MEMORY, Rule::multicast_slots);
}

TEST_F(MulticastModelTest, GrantsAreForTheTeamAndPlainAccessesForNobody) {
  const CUmemGenericAllocationHandle handle = object(object_of(1, granule));
  expect_ok(machine_.memory.join(handle, 0));
  const CUdeviceptr address = machine_.reserve();
  expect_ok(machine_.memory.map(address, granule, 0, handle, 0));
  const auto grant = [&](const CUmemLocation& location) {
    const CUmemAccessDesc access{location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return machine_.memory.set_access(address, granule, &access, 1);
  };
  expect_answer(grant(device_1), CUDA_ERROR_INVALID_DEVICE, Rule::multicast_grant);
  expect_answer(grant(the_host), CUDA_ERROR_NOT_SUPPORTED, Rule::access_host_location);
  expect_ok(grant(device_0));
  EXPECT_EQ(machine_.access(address, device_0), 3U);
  std::vector<Segment> segments;
  expect_answer(machine_.memory.resolve(address, 64, Accessor::device(0), false, segments), CUDA_ERROR_ILLEGAL_ADDRESS,
                Rule::multicast_multimem_only);
  EXPECT_TRUE(segments.empty());
  Segment segment;
  expect_ok(machine_.memory.resolve_multicast(address + 64, 128, Accessor::device(0), true, &segment));
  EXPECT_EQ(segment.offset, 64U);
  expect_answer(machine_.memory.resolve_multicast(address, 128, Accessor::device(1), true, &segment),
                CUDA_ERROR_ILLEGAL_ADDRESS, Rule::multimem_address);
  expect_answer(machine_.memory.resolve_multicast(address + granule - 64, 128, Accessor::device(0), true, &segment),
                CUDA_ERROR_ILLEGAL_ADDRESS, Rule::multimem_address);
  const CUdeviceptr memory = machine_.mapped(at(CU_MEM_LOCATION_TYPE_DEVICE, 0));
  expect_answer(machine_.memory.resolve_multicast(memory, 128, Accessor::device(0), true, &segment),
                CUDA_ERROR_ILLEGAL_ADDRESS, Rule::multimem_address);
}

TEST_F(MulticastModelTest, CallsOnMemoryTakeNoObject) {
  const CUmemGenericAllocationHandle handle = object(object_of(1));
  CUmemAllocationProp properties{};
  expect_answer(machine_.memory.properties(&properties, handle), CUDA_ERROR_INVALID_VALUE, Rule::multicast_handle);
  expect_ok(machine_.memory.properties(&properties, memory_of(0)));
}

TEST_F(MulticastModelTest, MemoryIsUnboundBeforeItGoes) {
  const CUmemGenericAllocationHandle handle = team_of_two();
  const CUmemGenericAllocationHandle memory = memory_of(0);
  expect_ok(bind(handle, memory));
  expect_answer(machine_.memory.release(memory), CUDA_ERROR_INVALID_VALUE, Rule::multicast_unbind_first);
  const CUdeviceptr address = machine_.reserve();
  expect_ok(machine_.memory.map(address, granule, 0, memory, 0));
  expect_ok(machine_.memory.release(memory));
  expect_answer(machine_.memory.unmap(address, granule), CUDA_ERROR_INVALID_VALUE, Rule::multicast_unbind_first);
  expect_ok(machine_.memory.unbind(handle, 0, 0, granule));
  expect_ok(machine_.memory.unmap(address, granule));
  EXPECT_EQ(machine_.store.live_allocations(), 1U) << "the object";
}

TEST_F(MulticastModelTest, AnObjectIsUnmappedBeforeItIsUnbound) {
  const CUmemGenericAllocationHandle handle = team_of_two(granule);
  const CUmemGenericAllocationHandle memory = memory_of(0);
  expect_ok(bind(handle, memory));
  const CUdeviceptr address = machine_.reserve();
  expect_ok(machine_.memory.map(address, granule, 0, handle, 0));
  expect_answer(machine_.memory.unbind(handle, 0, 0, granule), CUDA_ERROR_INVALID_VALUE,
                Rule::multicast_unbind_unmapped);
  expect_ok(machine_.memory.unmap(address, granule));
  expect_ok(machine_.memory.unbind(handle, 0, 0, granule));
}

TEST_F(MulticastModelTest, TheFaithfulModeWarnsInstead) {
  ModelMachine machine(with_multicast(Mode::faithful));
  CUmemGenericAllocationHandle handle = 0;
  const CUmulticastObjectProp properties = object_of(1, granule);
  expect_ok(machine.memory.create_multicast(&handle, &properties));
  expect_ok(machine.memory.join(handle, 0));
  const CUmemGenericAllocationHandle memory = machine.create(at(CU_MEM_LOCATION_TYPE_DEVICE, 0));
  expect_ok(machine.memory.bind({handle, {}, 0, granule, 0, memory, 0, 0, false}, true));
  const CUdeviceptr address = machine.reserve();
  expect_ok(machine.memory.map(address, granule, 0, handle, 0));
  expect_ok(machine.memory.release(memory));
  expect_ok(machine.memory.unbind(handle, 0, 0, granule));
  EXPECT_EQ(machine.warnings, (std::vector<Rule>{Rule::multicast_unbind_first, Rule::multicast_unbind_unmapped}));
}

TEST_F(MulticastModelTest, AnObjectLivesAsLongAsAHandleOrAMapping) {
  const CUmemGenericAllocationHandle handle = team_of_two(granule);
  const CUdeviceptr address = machine_.reserve();
  expect_ok(machine_.memory.map(address, granule, 0, handle, 0));
  expect_ok(machine_.memory.release(handle));
  EXPECT_EQ(machine_.store.supply.teams.objects(), 1U);
  CUmemGenericAllocationHandle again = 0;
  expect_ok(machine_.memory.retain(&again, address));
  EXPECT_EQ(again, handle);
  expect_ok(machine_.memory.unmap(address, granule));
  expect_ok(machine_.memory.release(again));
  EXPECT_EQ(machine_.store.supply.teams.objects(), 0U);
}

}  // namespace
}  // namespace cuvmm::emulator::model
