#include "cuvmm/capabilities.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "../tools/temporary_directory.hpp"
#include "call_watch.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulated_machine.hpp"
#include "environment.hpp"
#include "recording_handler.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using driver::EntryPoint;
using test::EnvironmentVariable;
using test::machine;

const CapabilityOptions with_trials{.trials = true};

Capabilities of(const std::shared_ptr<driver::Interface>& interface, const CapabilityOptions& options = {},
                int device = 0) {
  return Capabilities::of(Driver::wrap(interface).device(DeviceOrdinal{device}), options);
}

Capabilities of(const emulator::Configuration& configuration, const CapabilityOptions& options = {}) {
  return of(test::EmulatedMachine(configuration).interface(), options);
}

// A driver that is not known to be emulated.
class Disguised final : public driver::Decorator<Disguised> {
 public:
  using Decorator::Decorator;
  [[nodiscard]] bool emulated() const noexcept override { return false; }
  [[nodiscard]] std::optional<driver::EmulatedPlace> emulated_place() const override { return std::nullopt; }
};

// An emulated driver under the CUDA driver's name, as programs find it under cuvmm emulate.
class DropIn final : public driver::Decorator<DropIn> {
 public:
  using Decorator::Decorator;
  [[nodiscard]] bool emulated() const noexcept override { return false; }
};

// What a driver of that version knows of an H200: calls for later attributes fail.
emulator::Configuration older(int version, int last_attribute) {
  emulator::Configuration configuration = machine();
  configuration.profile.driver_version = version;
  auto& attributes = configuration.profile.attributes;
  attributes.erase(attributes.upper_bound(last_attribute), attributes.end());
  if (version < 12030) attributes.erase(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  return configuration;
}

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Capabilities, C29_NoCallFailsUnlessTrialsAreAskedFor) {
  std::vector<emulator::Configuration> machines;
  for (const std::string& profile : emulator::profile_names()) machines.push_back(machine(profile, 3));
  for (const auto& [version, last] : std::map<int, int>{
           {10020, 105}, {11000, 112}, {11020, 115}, {11070, 124}, {12010, 132}, {12030, 134}, {12090, 143}})
    machines.push_back(older(version, last));
  machines.back().peer_access = false;
  for (const emulator::Configuration& each : machines) {
    const test::EmulatedMachine emulated(each);
    const auto watch = std::make_shared<test::CallWatch>(emulated.interface());
    for (int device = 0; device < each.devices; ++device) static_cast<void>(of(watch, {}, device));
    EXPECT_EQ(watch->failing, std::vector<std::string>{}) << each.profile.name << " " << each.profile.driver_version;
    EXPECT_TRUE(emulated.nothing_live());
    EXPECT_GT(watch->calls.size(), 10u);
  }
  const auto watch = std::make_shared<test::CallWatch>(test::EmulatedMachine(machine()).interface());
  static_cast<void>(of(watch, with_trials));
  EXPECT_NE(std::find(watch->failing.begin(), watch->failing.end(), "cuMemCreate"), watch->failing.end())
      << "a trial of fabric handles is refused where there is no IMEX channel";
}

TEST(Capabilities, WhatIsAnnouncedIsYesAndTheRestNoWithReasonAndRemedy) {
  const Capabilities found = of(machine());
  EXPECT_EQ(found[Feature::compression].state, FeatureState::yes);
  EXPECT_EQ(found[Feature::compression].attribute, 1);
  EXPECT_EQ(found[Feature::compression].trial, TrialResult::not_made);
  EXPECT_TRUE(found.has(Feature::compression));
  EXPECT_EQ(found[Feature::win32_handles].state, FeatureState::no);
  EXPECT_EQ(found[Feature::win32_handles].attribute, 0);
  EXPECT_FALSE(found.has(Feature::win32_handles));
  for (const Feature feature : all_features()) {
    EXPECT_FALSE(identifier(feature).empty());
    EXPECT_FALSE(to_string(feature).empty());
    if (found.has(feature)) continue;
    EXPECT_NE(found[feature].reason, "") << to_string(feature);
    EXPECT_NE(found[feature].remedy, "") << to_string(feature);
  }
}

TEST(Capabilities, EachProfileLacksWhatItIsNamedAfter) {
  const std::map<std::string, Feature> lacks{{"no-vmm", Feature::virtual_memory_management},
                                             {"no-descriptors", Feature::posix_file_descriptor_handles},
                                             {"no-compression", Feature::compression},
                                             {"no-rdma", Feature::gpu_direct_rdma}};
  for (const auto& [profile, feature] : lacks)
    for (const bool trials : {false, true}) {
      EXPECT_EQ(of(machine(profile), {.trials = trials})[feature].state, FeatureState::no) << profile;
      EXPECT_EQ(of(machine(), {.trials = trials})[feature].state, FeatureState::yes) << profile;
    }
}

TEST(Capabilities, OnADriverThatIsTooOldOnlyATrialTells) {
  const Capabilities asked = of(older(12010, 132));
  EXPECT_EQ(asked[Feature::host_memory].state, FeatureState::unknown);
  EXPECT_EQ(asked[Feature::host_memory].attribute, std::nullopt);
  EXPECT_TRUE(mentions(asked[Feature::host_memory].reason, "CUDA 12.1"));
  EXPECT_TRUE(mentions(asked[Feature::host_memory].reason, "CUDA 13.0"));
  EXPECT_EQ(asked.host_numa_node, -1);

  // The emulated machine takes a missing attribute for a missing feature.
  EXPECT_EQ(of(older(12010, 132), with_trials)[Feature::host_memory].state, FeatureState::no);
  EXPECT_EQ(of(older(12010, 132), with_trials)[Feature::read_only_access].state, FeatureState::yes);
  EXPECT_EQ(asked[Feature::read_only_access].state, FeatureState::unknown) << "there is no attribute at all";
}

TEST(Capabilities, ATrialProvesEveryFeatureOfAMachineThatHasThem) {
  const Capabilities found = of(machine("gb200"), with_trials);
  for (const Feature feature :
       {Feature::virtual_memory_management, Feature::posix_file_descriptor_handles, Feature::fabric_handles,
        Feature::compression, Feature::gpu_direct_rdma, Feature::dma_buf, Feature::host_memory,
        Feature::host_numa_memory, Feature::host_numa_multinode_ipc, Feature::read_only_access}) {
    EXPECT_EQ(found[feature].state, FeatureState::yes) << to_string(feature) << found[feature].reason;
    EXPECT_EQ(found[feature].trial, TrialResult::worked) << to_string(feature);
    EXPECT_EQ(found[feature].reason, "");
    EXPECT_EQ(found[feature].remedy, "");
  }
}

TEST(Capabilities, C30_RdmaIsTriedThroughTheWholeChain) {
  emulator::Configuration configuration = machine();
  EXPECT_EQ(of(configuration, with_trials)[Feature::gpu_direct_rdma].trial, TrialResult::worked);

  configuration.profile.behaviour.fail_set_access_on_rdma_memory = true;
  const Capability rdma = of(configuration, with_trials)[Feature::gpu_direct_rdma];
  EXPECT_EQ(rdma.state, FeatureState::refused);
  EXPECT_EQ(to_string(rdma.state), "advertised but refused");
  EXPECT_EQ(rdma.attribute, 1);
  EXPECT_EQ(rdma.trial, TrialResult::failed);
  EXPECT_TRUE(mentions(rdma.reason, "cuMemSetAccess answered CUDA_ERROR_UNKNOWN")) << rdma.reason;
  EXPECT_TRUE(mentions(rdma.remedy, "without the RDMA flag")) << rdma.remedy;
  EXPECT_EQ(of(configuration)[Feature::gpu_direct_rdma].state, FeatureState::yes) << "nobody tried";
}

TEST(Capabilities, WhatIsAcceptedAndNotGivenIsReadBack) {
  emulator::Configuration configuration = machine();
  configuration.profile.behaviour.withhold_compression = true;
  configuration.profile.behaviour.withhold_rdma = true;
  const Capabilities withheld = of(configuration, with_trials);
  for (const Feature feature : {Feature::compression, Feature::gpu_direct_rdma}) {
    EXPECT_EQ(withheld[feature].state, FeatureState::refused);
    EXPECT_TRUE(mentions(withheld[feature].reason, "its properties say that it is not")) << withheld[feature].reason;
    EXPECT_EQ(of(machine(), with_trials)[feature].state, FeatureState::yes);
  }
}

TEST(Capabilities, AReadOnlyGrantThatGivesMoreIsNotOne) {
  class Generous final : public driver::Decorator<Generous> {
   public:
    using Decorator::Decorator;
    CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr pointer) override {
      const CUresult result = next().cuMemGetAccess(flags, location, pointer);
      *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      return result;
    }
  };
  const test::EmulatedMachine emulated;
  EXPECT_EQ(of(std::make_shared<Generous>(emulated.interface()), with_trials)[Feature::read_only_access].state,
            FeatureState::no);
  EXPECT_EQ(of(emulated.interface(), with_trials)[Feature::read_only_access].state, FeatureState::yes);
}

TEST(Capabilities, C28_FabricHandlesWithoutPermissionNameTheImexChannel) {
  const tests::TemporaryDirectory directory;
  const CapabilityOptions options{.trials = true, .imex_directory = directory.path("channels")};
  const auto real = std::make_shared<Disguised>(test::EmulatedMachine(machine()).interface());
  const Capability fabric = of(real, options)[Feature::fabric_handles];
  EXPECT_EQ(fabric.state, FeatureState::refused);
  EXPECT_TRUE(mentions(fabric.reason, "CUDA_ERROR_NOT_PERMITTED")) << fabric.reason;
  EXPECT_TRUE(mentions(fabric.reason, "there is none in " + directory.path("channels"))) << fabric.reason;
  EXPECT_TRUE(mentions(fabric.remedy, "/channel0 created")) << fabric.remedy;
  const auto drop_in = std::make_shared<DropIn>(test::EmulatedMachine(machine()).interface());
  const Capability emulated = of(drop_in, options)[Feature::fabric_handles];
  EXPECT_EQ(emulated.state, FeatureState::refused);
  EXPECT_TRUE(mentions(emulated.remedy, "imex-channels=1")) << emulated.remedy;
  EXPECT_FALSE(mentions(emulated.remedy, "/channel0")) << emulated.remedy;
  EXPECT_EQ(of(machine("gb200"), options)[Feature::fabric_handles].state, FeatureState::yes);
}

TEST(Capabilities, C28_TheChannelsOfAnEmulatedMachineAreASetting) {
  const Capability fabric = of(machine(), with_trials)[Feature::fabric_handles];
  EXPECT_EQ(fabric.state, FeatureState::refused);
  EXPECT_TRUE(mentions(fabric.remedy, "imex-channels=1")) << fabric.remedy;
  EXPECT_TRUE(mentions(fabric.remedy, "profile=gb200")) << fabric.remedy;
  EXPECT_FALSE(mentions(fabric.remedy, "/dev/") || mentions(fabric.reason, "/dev/")) << fabric.reason << fabric.remedy;
  emulator::Configuration configuration = machine();
  configuration.imex_channels = 1;
  EXPECT_EQ(of(configuration, with_trials)[Feature::fabric_handles].state, FeatureState::yes);
}

TEST(Capabilities, C28_ALackOfMemoryIsReportedAsThat) {
  emulator::Configuration configuration = machine("gb200");
  configuration.profile.behaviour.fabric_creation_out_of_memory = true;
  const Capability fabric = of(configuration, with_trials)[Feature::fabric_handles];
  EXPECT_EQ(fabric.state, FeatureState::unknown);
  EXPECT_EQ(fabric.trial, TrialResult::inconclusive);
  EXPECT_TRUE(mentions(fabric.reason, "out of device memory")) << fabric.reason;
  EXPECT_FALSE(mentions(fabric.reason, "IMEX")) << fabric.reason;

  const auto full = std::make_shared<driver::FaultInjectingDriver>(test::EmulatedMachine().interface());
  full->inject({.entry_point = EntryPoint::cuMemCreate, .result = CUDA_ERROR_OUT_OF_MEMORY, .lasting = true});
  const Capabilities found = of(full, with_trials);
  for (const Feature feature : all_features()) {
    EXPECT_NE(found[feature].state, FeatureState::refused) << to_string(feature);
    EXPECT_NE(found[feature].trial, TrialResult::failed) << to_string(feature);
  }
  EXPECT_EQ(found[Feature::host_memory].trial, TrialResult::inconclusive);
  EXPECT_TRUE(mentions(found[Feature::host_memory].reason, "out of host memory"));
}

TEST(Capabilities, WithoutAnImexChannelTheAttributeAloneIsNotBelieved) {
  const tests::TemporaryDirectory directory;
  const auto real = std::make_shared<Disguised>(test::EmulatedMachine(machine("gb200")).interface());
  const CapabilityOptions options{.imex_directory = directory.path("")};
  const Capability without = of(real, options)[Feature::fabric_handles];
  EXPECT_EQ(without.state, FeatureState::unknown);
  EXPECT_EQ(without.attribute, 1);
  EXPECT_TRUE(mentions(without.reason, "IMEX channel")) << without.reason;
  std::filesystem::create_symlink(directory.path("gone"), directory.path("channel1"));
  EXPECT_EQ(of(real, options)[Feature::fabric_handles].state, FeatureState::unknown) << "it cannot be opened";
  std::ofstream(directory.path("channel0")) << "";
  EXPECT_EQ(of(real, options)[Feature::fabric_handles].state, FeatureState::yes);
  EXPECT_EQ(of(real, options)[Feature::host_numa_multinode_ipc].state, FeatureState::yes);
}

TEST(Capabilities, ImexChannelsAreListedByNumber) {
  const tests::TemporaryDirectory directory;
  EXPECT_TRUE(imex_channels(directory.path("none")).empty());
  for (const char* name : {"channel10", "channel2", "channel", "channelx", "channel1x", "other0"})
    std::ofstream(directory.path(name)) << "";
  std::filesystem::create_symlink(directory.path("gone"), directory.path("channel3"));
  const std::vector<ImexChannel> expected{{2, directory.path("channel2"), true},
                                          {3, directory.path("channel3"), false},
                                          {10, directory.path("channel10"), true}};
  auto found = imex_channels(directory.path(""));
  for (ImexChannel& each : found) each.path = std::filesystem::path(each.path).lexically_normal().string();
  EXPECT_EQ(found, expected);
}

TEST(Capabilities, C46_ANumaNodeWithoutMemoryIsAReasonAndNoCrash) {
  emulator::Configuration configuration = machine();
  EXPECT_EQ(of(configuration, with_trials)[Feature::host_numa_memory].state, FeatureState::yes);
  configuration.profile.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = 5;
  const Capabilities found = of(configuration, with_trials);
  EXPECT_EQ(found.host_numa_node, 5);
  EXPECT_EQ(found[Feature::host_numa_memory].state, FeatureState::refused);
  EXPECT_TRUE(mentions(found[Feature::host_numa_memory].reason, "NUMA node 5 of the host"));
  EXPECT_TRUE(mentions(found[Feature::host_numa_memory].remedy, "has memory"));
  EXPECT_EQ(found[Feature::host_memory].state, FeatureState::yes);
  configuration.profile.attributes[CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID] = -1;
  EXPECT_EQ(of(configuration, with_trials)[Feature::host_numa_memory].state, FeatureState::yes)
      << "where no node is nearest, the first one is tried";
}

TEST(Capabilities, MulticastIsNeverTried) {
  emulator::Configuration configuration = machine("gb200");
  configuration.profile.attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = 1;
  const EnvironmentVariable own("CUVMM_MULTICAST", nullptr);
  const EnvironmentVariable nvls("NCCL_NVLS_ENABLE", nullptr);
  const EnvironmentVariable torch("TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr);
  const EnvironmentVariable nvshmem("NVSHMEM_DISABLE_NVLS", nullptr);
  const auto counting = std::make_shared<driver::CountingDriver>(test::EmulatedMachine(configuration).interface());
  const Capability multicast = of(counting, with_trials)[Feature::multicast];
  for (const auto& [entry, count] : counting->snapshot().called())
    EXPECT_NE(driver::info(entry).group, driver::EntryPointGroup::multicast) << driver::name(entry);
  EXPECT_EQ(multicast.trial, TrialResult::not_made);
  EXPECT_TRUE(mentions(multicast.reason, "Not tried")) << multicast.reason;
  EXPECT_EQ(multicast.state, CUVMM_RESOLVE_MULTICAST ? FeatureState::yes : FeatureState::no);
}

TEST(Capabilities, MulticastIsThereWhereTheProfileHasIt) {
  const EnvironmentVariable own("CUVMM_MULTICAST", nullptr);
  const EnvironmentVariable nvls("NCCL_NVLS_ENABLE", nullptr);
  const EnvironmentVariable torch("TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr);
  const EnvironmentVariable nvshmem("NVSHMEM_DISABLE_NVLS", nullptr);
  const auto state = [](const char* profile) { return of(machine(profile))[Feature::multicast].state; };
  for (const char* const profile : {"h200-multicast", "h200-590"})
    EXPECT_EQ(state(profile), CUVMM_RESOLVE_MULTICAST ? FeatureState::yes : FeatureState::no) << profile;
  for (const char* const profile : {"h200-580", "gb200"}) EXPECT_EQ(state(profile), FeatureState::no) << profile;
}

TEST(Capabilities, ASwitchInTheEnvironmentTurnsMulticastOff) {
  emulator::Configuration configuration = machine();
  configuration.profile.attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = 1;
  const EnvironmentVariable own("CUVMM_MULTICAST", nullptr);
  const EnvironmentVariable nvls("NCCL_NVLS_ENABLE", "1");
  const EnvironmentVariable torch("TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr);
  EnvironmentVariable nvshmem("NVSHMEM_DISABLE_NVLS", nullptr);
  EXPECT_EQ(multicast_switches(), (std::vector<MulticastSwitch>{{"NCCL_NVLS_ENABLE", "1", false}}));
  EXPECT_EQ(of(configuration)[Feature::multicast].state,
            CUVMM_RESOLVE_MULTICAST ? FeatureState::yes : FeatureState::no);
  const EnvironmentVariable off("NVSHMEM_DISABLE_NVLS", "1");
  EXPECT_EQ(multicast_switches().back(), (MulticastSwitch{"NVSHMEM_DISABLE_NVLS", "1", true}));
  const Capability multicast = of(configuration)[Feature::multicast];
  EXPECT_EQ(multicast.state, FeatureState::no);
  EXPECT_EQ(multicast.attribute, 1) << "the device's answer is told all the same";
  const char* const why = CUVMM_RESOLVE_MULTICAST ? "NVSHMEM_DISABLE_NVLS=1" : "CUVMM_RESOLVE_MULTICAST=OFF";
  EXPECT_TRUE(mentions(multicast.reason, why)) << multicast.reason;
}

TEST(Capabilities, OfItsOwnSwitchEveryValueButOneTurnsMulticastOff) {
  const EnvironmentVariable nvls("NCCL_NVLS_ENABLE", nullptr);
  const EnvironmentVariable torch("TORCH_SYMM_MEM_DISABLE_MULTICAST", nullptr);
  const EnvironmentVariable nvshmem("NVSHMEM_DISABLE_NVLS", nullptr);
  for (const char* const value : {"0", "off", "", "01"}) {
    const EnvironmentVariable own("CUVMM_MULTICAST", value);
    EXPECT_EQ(multicast_switches(), (std::vector<MulticastSwitch>{{"CUVMM_MULTICAST", value, true}}));
    EXPECT_EQ(of(machine("h200-multicast"))[Feature::multicast].state, FeatureState::no) << value;
  }
  const EnvironmentVariable own("CUVMM_MULTICAST", "1");
  EXPECT_EQ(multicast_switches(), (std::vector<MulticastSwitch>{{"CUVMM_MULTICAST", "1", false}}));
  EXPECT_EQ(of(machine("h200-multicast"))[Feature::multicast].state,
            CUVMM_RESOLVE_MULTICAST ? FeatureState::yes : FeatureState::no);
}

TEST(Capabilities, WithoutVirtualMemoryNothingIsTried) {
  const auto counting = std::make_shared<driver::CountingDriver>(test::EmulatedMachine(machine("no-vmm")).interface());
  const Capabilities found = of(counting, with_trials);
  EXPECT_EQ(counting->snapshot()[EntryPoint::cuMemCreate], 0u);
  EXPECT_EQ(counting->snapshot()[EntryPoint::cuMemGetAllocationGranularity], 0u);
  EXPECT_TRUE(found.granularities.empty());
  EXPECT_EQ(found.largest_reservation_bytes, std::nullopt);
}

TEST(Capabilities, GranularitiesAreThoseOfEachKindThatTheDeviceHas) {
  const auto all = of(machine()).granularities;
  EXPECT_EQ(all.size(), 7u);
  for (const MemoryGranularity& each : all) {
    EXPECT_EQ(each.minimum, 2_MiB);
    EXPECT_EQ(each.recommended, 2_MiB);
  }
  const auto fewer = of(machine("no-compression")).granularities;
  EXPECT_EQ(fewer.size(), 6u);
  for (const MemoryGranularity& each : fewer) EXPECT_FALSE(each.properties.compression);
}

TEST(Capabilities, PeersAreByOrdinal) {
  emulator::Configuration configuration = machine("h200-580", 3);
  configuration.no_peer_access = {{0, 2}};
  const test::EmulatedMachine emulated(configuration);
  constexpr auto yes = FeatureState::yes;
  constexpr auto no = FeatureState::no;
  EXPECT_EQ(of(emulated.interface(), {}, 0).peers, (std::vector<FeatureState>{yes, yes, no}));
  EXPECT_EQ(of(emulated.interface(), {}, 1).peers, (std::vector<FeatureState>{yes, yes, yes}));
  EXPECT_EQ(of(emulated.interface(), {}, 2).peers, (std::vector<FeatureState>{no, yes, yes}));
}

TEST(Capabilities, TheLargestReservationIsFoundByTrial) {
  emulator::Configuration configuration = machine();
  configuration.address_bytes = 3_GiB;
  EXPECT_EQ(of(configuration).largest_reservation_bytes, std::nullopt);
  EXPECT_EQ(of(configuration, with_trials).largest_reservation_bytes, 2_GiB);
}

TEST(Capabilities, AQuestionThatFailsMakesThatFeatureUnknown) {
  const auto faulty = std::make_shared<driver::FaultInjectingDriver>(test::EmulatedMachine().interface());
  faulty->inject({.entry_point = EntryPoint::cuDeviceGetAttribute, .result = CUDA_ERROR_UNKNOWN, .lasting = true});
  const Capabilities found = of(faulty);
  for (const Feature feature : all_features()) EXPECT_NE(found[feature].state, FeatureState::yes) << to_string(feature);
  EXPECT_EQ(found[Feature::compression].state, FeatureState::unknown);
  EXPECT_TRUE(mentions(found[Feature::compression].reason, "cuDeviceGetAttribute"))
      << found[Feature::compression].reason;
}

TEST(Capabilities, NothingIsLeftBehindWhicheverCallFails) {
  const std::set<EntryPoint> gives_back{EntryPoint::cuMemRelease, EntryPoint::cuMemUnmap, EntryPoint::cuMemAddressFree,
                                        EntryPoint::cuCtxPopCurrent, EntryPoint::cuDevicePrimaryCtxRelease};
  const auto watch = std::make_shared<test::CallWatch>(test::EmulatedMachine(machine("gb200")).interface());
  static_cast<void>(of(watch, with_trials));
  const auto& calls = watch->calls;
  ASSERT_GT(calls.size(), 100u);
  for (std::size_t index = 0; index < calls.size(); ++index) {
    test::RecordingHandler clean_up;
    const test::EmulatedMachine emulated(machine("gb200"));
    const auto faulty = std::make_shared<driver::FaultInjectingDriver>(emulated.interface());
    const bool back = gives_back.contains(calls[index]);
    // What is to give back is done before it is said to have failed: else the fault itself would leave something.
    faulty->inject({.entry_point = {},
                    .call = index + 1,
                    .result = CUDA_ERROR_UNKNOWN,
                    .timing = back ? driver::FaultTiming::after : driver::FaultTiming::instead});
    try {
      static_cast<void>(of(faulty, with_trials));
    } catch (const Error& error) {
      EXPECT_TRUE(error.call() == "cuDriverGetVersion" || error.call() == "cuDeviceGetCount" ||
                  error.call() == "cuDeviceGet")
          << error.what();
    }
    EXPECT_EQ(faulty->injected(), 1u) << index;
    EXPECT_TRUE(emulated.nothing_live()) << driver::name(calls[index]) << ", call " << index + 1;
    EXPECT_EQ(clean_up.failures.size(), back ? 1u : 0u) << driver::name(calls[index]) << ", call " << index + 1;
  }
}

}  // namespace
}  // namespace cuvmm
