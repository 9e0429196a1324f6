// `cuvmm doctor` from outside: what it prints, and with which status it ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

// On the emulated machine with those settings.
ProgramResult doctor(const std::string& settings, const Words& more = {}, const Words& environment = {}) {
  Words words{"doctor", "--driver", "emulated"};
  words.insert(words.end(), more.begin(), more.end());
  Words variables{"CUVMM_EMULATOR=" + settings, "NCCL_NVLS_ENABLE=1"};
  variables.insert(variables.end(), environment.begin(), environment.end());
  return run_program(words, variables);
}

Json json_of(const std::string& settings, const Words& more = {}, int status = 0) {
  Words words{"--json"};
  words.insert(words.end(), more.begin(), more.end());
  const ProgramResult result = doctor(settings, words);
  EXPECT_EQ(result.status, status) << result.output << result.errors;
  EXPECT_EQ(result.errors, "");
  return Json::parse(result.output, nullptr, false);
}

std::string state(const Json& report, const std::string& feature) {
  return report["devices"][0]["features"][feature]["state"];
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DoctorCommand, PrintsAPage) {
  const ProgramResult result = doctor("devices=2");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
  for (const char* part : {"Driver: emulated", "Device 0: NVIDIA H200", "Device 1: NVIDIA H200", "all as device 0",
                           "fabric handles", "Peer access", "IMEX channel", "NCCL_NVLS_ENABLE=1", "leaves multicast on",
                           "granularity: device 0", "This machine, not the emulated one", "Nothing was tried"})
    EXPECT_TRUE(contains(result.output, part)) << part << " in\n" << result.output;
}

TEST(DoctorCommand, LooksAtAsManyDevicesAsAreAskedFor) {
  EXPECT_EQ(json_of("devices=2")["devices"].size(), 2U);
  EXPECT_EQ(json_of("devices=2", {"--devices", "1"})["devices"].size(), 1U);
  EXPECT_EQ(json_of("profile=h200-580", {"--devices", "3"})["devices"].size(), 3U);
  EXPECT_EQ(doctor("profile=h200-580", {"--devices", "0"}).status, 2);
}

TEST(DoctorCommand, SaysWhyTheExitStatusIs1) {
  const ProgramResult refused = doctor("devices=2", {"--probe"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.output, "The exit status is 1")) << refused.output;
  for (const char* part : {"\n  device 0: fabric handles\n", "\n  device 1: fabric handles\n"})
    EXPECT_TRUE(contains(refused.output, part)) << part << " in\n" << refused.output;
  const ProgramResult whole = doctor("profile=gb200", {"--probe"});
  EXPECT_EQ(whole.status, 0);
  EXPECT_FALSE(contains(whole.output, "The exit status")) << whole.output;
}

TEST(DoctorCommand, NothingIsTriedUnlessItIsAskedFor) {
  const Json asked = json_of("profile=h200-580");
  EXPECT_EQ(asked["probed"], false);
  for (const auto& [name, feature] : asked["devices"][0]["features"].items()) EXPECT_EQ(feature["trial"], "not_made");
  EXPECT_EQ(asked["devices"][0]["largest_reservation_bytes"], nullptr);
}

TEST(DoctorCommand, TellsOfMulticastAsTheMachineHasItAndTheEnvironmentLetsIt) {
  const auto multicast = [](const std::string& settings, const Words& environment = {}) {
    const ProgramResult result = doctor(settings, {"--json"}, environment);
    return Json::parse(result.output, nullptr, false)["devices"][1]["features"]["multicast"];
  };
  for (const char* const profile : {"h200-multicast", "h200-590"}) {
    const Json there = multicast(std::string("devices=2,profile=") + profile);
    EXPECT_EQ(there["state"], "yes") << profile;
    EXPECT_TRUE(contains(there["reason"], "Not tried")) << there;
    const Json off = multicast(std::string("devices=2,profile=") + profile, {"CUVMM_MULTICAST=0"});
    EXPECT_EQ(off["state"], "no") << profile;
    EXPECT_TRUE(contains(off["reason"], "turned off by CUVMM_MULTICAST=0")) << off;
  }
  const Json none = multicast("devices=2,profile=h200-580");
  EXPECT_EQ(none["state"], "no");
  EXPECT_TRUE(contains(none["reason"], "The device has no multicast")) << none;
}

TEST(DoctorCommand, TheH200sFabricHandlesAreAdvertisedAndRefused) {
  const Json probed = json_of("profile=h200-580", {"--probe"}, 1);
  EXPECT_EQ(probed["needs_action"], true);
  EXPECT_EQ(state(probed, "fabric_handles"), "refused");
  EXPECT_TRUE(contains(probed["devices"][0]["features"]["fabric_handles"]["reason"], "IMEX channel"));
  EXPECT_EQ(state(probed, "gpu_direct_rdma"), "yes");
  EXPECT_EQ(state(probed, "read_only_access"), "yes");
  EXPECT_GE(probed["devices"][0]["largest_reservation_bytes"], 1 << 30);
  const ProgramResult page = doctor("profile=h200-580", {"--probe"});
  EXPECT_EQ(page.status, 1);
  EXPECT_TRUE(contains(page.output, "advertised but refused")) << page.output;
  EXPECT_TRUE(contains(page.output, "do:  Emulate IMEX channels (CUVMM_EMULATOR=imex-channels=1, or profile=gb200)"))
      << page.output;
}

TEST(DoctorCommand, AMachineThatHasEverythingNeedsNoAction) {
  const Json probed = json_of("profile=gb200", {"--probe"}, 0);
  EXPECT_EQ(probed["needs_action"], false);
  for (const char* feature : {"fabric_handles", "host_numa_multinode_ipc", "host_memory", "dma_buf", "compression"})
    EXPECT_EQ(state(probed, feature), "yes") << feature;
  const ProgramResult page = doctor("profile=gb200", {"--probe"});
  EXPECT_TRUE(contains(page.output, "\nEverything that was tried works.\n")) << page.output;
}

TEST(DoctorCommand, EachProfileLacksWhatItIsNamedAfter) {
  const std::map<std::string, std::string> lacks{{"no-descriptors", "posix_file_descriptor_handles"},
                                                 {"no-compression", "compression"},
                                                 {"no-rdma", "gpu_direct_rdma"}};
  for (const auto& [profile, feature] : lacks) {
    const Json asked = json_of("profile=" + profile);
    EXPECT_EQ(state(asked, feature), "no") << profile;
    EXPECT_NE(asked["devices"][0]["features"][feature]["remedy"], "");
    EXPECT_EQ(state(json_of("profile=h200-580"), feature), "yes");
  }
  const Json none = json_of("profile=no-vmm", {}, 1);
  EXPECT_EQ(state(none, "virtual_memory_management"), "no");
  EXPECT_TRUE(none["devices"][0]["granularities"].empty());
}

TEST(DoctorCommand, C30_ARefusalAtTheEndOfTheChainIsSeen) {
  const Json probed = json_of("profile=gb200,set-access-fails-on-rdma-memory", {"--probe"}, 1);
  EXPECT_EQ(state(probed, "gpu_direct_rdma"), "refused");
  EXPECT_EQ(state(probed, "compression"), "yes");
}

TEST(DoctorCommand, ALackOfMemoryIsNotALackOfAFeature) {
  const Json probed = json_of("profile=gb200,fabric-creation-out-of-memory", {"--probe"}, 1);
  EXPECT_EQ(state(probed, "fabric_handles"), "unknown");
  EXPECT_EQ(probed["devices"][0]["features"]["fabric_handles"]["trial"], "inconclusive");
}

TEST(DoctorCommand, ASwitchThatTurnsMulticastOffIsNamed) {
  for (const char* const off : {"NVSHMEM_DISABLE_NVLS=1", "CUVMM_MULTICAST=0"}) {
    const ProgramResult result = doctor("profile=h200-580", {}, {off});
    EXPECT_TRUE(contains(result.output, "turns multicast off")) << result.output;
    EXPECT_TRUE(contains(result.output, off)) << result.output;
  }
  const ProgramResult on = doctor("profile=h200-580", {}, {"CUVMM_MULTICAST=1"});
  EXPECT_TRUE(contains(on.output, "CUVMM_MULTICAST=1")) << on.output;
  EXPECT_FALSE(contains(on.output, "turns multicast off")) << on.output;
}

TEST(DoctorCommand, FallsBackToTheEmulatedDriverAndSaysSo) {
  // With no device left visible it does not matter whether there is a CUDA driver.
  const ProgramResult result = run_program({"doctor"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(contains(result.output, "The emulated driver is used.\nDriver: emulated")) << result.output;
  const ProgramResult json = run_program({"doctor", "--json"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_NE(Json::parse(json.output)["driver"]["remark"], "");
}

TEST(DoctorCommand, EndsWithStatus2WhereItCannotReport) {
  const ProgramResult cuda = run_program({"doctor", "--driver", "cuda"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(cuda.status, 2);
  EXPECT_EQ(cuda.output, "");
  EXPECT_TRUE(contains(cuda.errors, "cuvmm doctor: ")) << cuda.errors;
  EXPECT_EQ(run_program({"doctor", "--driver", "emulated"}, {}, "/dev/full").status, 2);
  EXPECT_EQ(run_program({"doctor", "--driver", "emulated"}, {}, "/dev/null").status, 0);
  EXPECT_EQ(run_program({"doctor", "--driver", "vulkan"}).status, 2);
  EXPECT_EQ(run_program({"doctor", "file"}).status, 2);
}

}  // namespace
}  // namespace cuvmm::tests
