#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "doctor/findings.hpp"

namespace cuvmm::doctor {
namespace {

DeviceFindings device(int ordinal) {
  DeviceFindings found;
  found.name = "A device";
  found.memory_bytes = 1024;
  found.pci_bus_id = "0000:1b:00.0";
  found.capabilities.device = DeviceOrdinal{ordinal};
  for (const Feature feature : all_features()) found.capabilities[feature].state = FeatureState::yes;
  found.capabilities.peers = {FeatureState::yes, FeatureState::no};
  if (ordinal == 1) found.capabilities.peers = {FeatureState::unknown, FeatureState::yes};
  found.capabilities.granularities = {{{.handle_types = HandleType::fabric}, 64_KiB, 2_MiB}};
  return found;
}

Findings findings() {
  Findings found;
  found.driver = "a driver";
  found.cuda_version = 13000;
  found.devices = {device(0), device(1)};
  found.imex_channels = {{4, "/somewhere/channel4", false}};
  found.multicast_switches = {{"NCCL_NVLS_ENABLE", "0", true}};
  return found;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DoctorFindings, ThePageSaysWhyAndWhatToDo) {
  Findings found = findings();
  Capability& fabric = found.devices[0].capabilities[Feature::fabric_handles];
  fabric = {FeatureState::refused, 1, TrialResult::failed, "There is no channel", "Make one"};
  found.devices[0].capabilities[Feature::compression].trial = TrialResult::worked;
  found.devices[0].capabilities[Feature::read_only_access] = {FeatureState::unknown, std::nullopt,
                                                              TrialResult::not_made, "No attribute", "Ask"};
  const std::string page = as_page(found);
  for (const char* part :
       {"Driver: a driver\n", "Device 0: A device, 1,024 bytes, PCI 0000:1b:00.0\n", "advertised but refused\n",
        "why: There is no channel\n", "do:  Make one\n", "yes, tried\n", "not tried\n", "64 KiB, recommended 2 MiB\n",
        "device 0, fabric handles", "/somewhere/channel4, which this process may not open", "NCCL_NVLS_ENABLE=0",
        "turns multicast off", "The exit status is 1", "\n  device 0: fabric handles\n"})
    EXPECT_TRUE(contains(page, part)) << part << " in\n" << page;
}

TEST(DoctorFindings, AnnouncedFabricHandlesWithoutAChannelAreNoYes) {
  Findings found = findings();
  found.devices.pop_back();
  Capability& fabric = found.devices[0].capabilities[Feature::fabric_handles];
  const std::string label = "  fabric handles                                  ";
  fabric = {FeatureState::unknown, 1, TrialResult::not_made, "There is no channel", "Make one"};
  EXPECT_TRUE(contains(as_page(found), label + "announced; no IMEX channel\n")) << as_page(found);
  fabric = {FeatureState::yes, 1, TrialResult::not_made, "", ""};
  EXPECT_TRUE(contains(as_page(found), label + "yes\n")) << "a real machine with a channel";
  found.emulated = true;
  EXPECT_TRUE(contains(as_page(found), label + "announced; a trial tells of the IMEX channel\n")) << as_page(found);
  fabric.trial = TrialResult::worked;
  EXPECT_TRUE(contains(as_page(found), label + "yes, tried\n"));
  fabric = {FeatureState::unknown, std::nullopt, TrialResult::not_made, "No answer", ""};
  EXPECT_TRUE(contains(as_page(found), label + "not tried\n"));
}

TEST(DoctorFindings, TheLastSectionSaysWhichMachineItIsAbout) {
  Findings found = findings();
  EXPECT_TRUE(contains(as_page(found), "\nThis machine\n"));
  found.emulated = true;
  EXPECT_TRUE(contains(as_page(found), "\nThis machine, not the emulated one\n"));
}

TEST(DoctorFindings, TheHandlesOfWindowsAreLastAndToldOnceIfTheyAreAlike) {
  Findings found = findings();
  found.devices.pop_back();
  const std::string together = "  Win32 handles, Win32 KMT handles                ";
  std::string page = as_page(found);
  EXPECT_TRUE(contains(page, together)) << page;
  EXPECT_GT(page.find(together), page.find("stream waits by NOR"));
  found.devices[0].capabilities[Feature::win32_kmt_handles].state = FeatureState::no;
  page = as_page(found);
  EXPECT_FALSE(contains(page, together)) << page;
  EXPECT_TRUE(contains(page, "  Win32 handles                                   yes\n")) << page;
  EXPECT_TRUE(contains(page, "  Win32 KMT handles                               no\n")) << page;
}

TEST(DoctorFindings, DevicesThatAreAlikeAreToldOnce) {
  Findings found = findings();
  EXPECT_TRUE(contains(as_page(found), "all as device 0\n"));
  found.devices[1].capabilities[Feature::compression].state = FeatureState::no;
  EXPECT_FALSE(contains(as_page(found), "all as device 0\n"));
}

TEST(DoctorFindings, ThePeerMatrixIsThereForSeveralDevices) {
  Findings found = findings();
  const std::string page = as_page(found);
  EXPECT_TRUE(contains(page, "    0  yes   no\n    1    ?  yes\n")) << page;
  found.devices.pop_back();
  EXPECT_FALSE(contains(as_page(found), "Peer access"));
}

TEST(DoctorFindings, OnlyWhatSomebodyCanMendNeedsAction) {
  Findings found = findings();
  EXPECT_FALSE(needs_action(found));
  found.devices[1].capabilities[Feature::win32_handles].state = FeatureState::no;
  found.devices[1].capabilities[Feature::fabric_handles].state = FeatureState::unknown;
  EXPECT_FALSE(needs_action(found)) << "a machine need not have everything";
  for (const TrialResult trial : {TrialResult::failed, TrialResult::inconclusive}) {
    Findings worse = found;
    worse.devices[1].capabilities[Feature::gpu_direct_rdma].trial = trial;
    EXPECT_TRUE(needs_action(worse));
  }
  found.devices[1].capabilities[Feature::virtual_memory_management].state = FeatureState::no;
  EXPECT_TRUE(needs_action(found));
}

TEST(DoctorFindings, TheJsonHasTheFieldsThatAreDocumented) {
  Findings found = findings();
  found.devices[0].capabilities[Feature::fabric_handles] = {FeatureState::refused, 1, TrialResult::failed, "r", "d"};
  found.devices[0].capabilities.largest_reservation_bytes = 64_TiB;
  const auto json = nlohmann::json::parse(as_json(found));
  EXPECT_EQ(json["schema"], 1);
  EXPECT_EQ(
      json["driver"],
      (nlohmann::json{{"description", "a driver"}, {"cuda_version", 13000}, {"emulated", false}, {"remark", ""}}));
  EXPECT_EQ(json["probed"], false);
  EXPECT_EQ(json["needs_action"], true);
  const auto& first = json["devices"][0];
  EXPECT_EQ(
      first["features"]["fabric_handles"],
      (nlohmann::json{{"state", "refused"}, {"attribute", 1}, {"trial", "failed"}, {"reason", "r"}, {"remedy", "d"}}));
  EXPECT_EQ(first["features"]["compression"]["attribute"], nullptr);
  EXPECT_EQ(first["features"].size(), feature_count);
  EXPECT_EQ(first["granularities"][0], (nlohmann::json{{"location", "device 0"},
                                                       {"handle_types", {"fabric"}},
                                                       {"compression", false},
                                                       {"gpu_direct_rdma", false},
                                                       {"minimum_bytes", 65536},
                                                       {"recommended_bytes", 2097152}}));
  EXPECT_EQ(first["largest_reservation_bytes"], 70368744177664);
  EXPECT_EQ(json["devices"][1]["largest_reservation_bytes"], nullptr);
  EXPECT_EQ(json["devices"][1]["peers"], (nlohmann::json{"unknown", "yes"}));
  EXPECT_EQ(json["imex_channels"][0],
            (nlohmann::json{{"number", 4}, {"path", "/somewhere/channel4"}, {"accessible", false}}));
  EXPECT_EQ(json["multicast_switches"][0],
            (nlohmann::json{{"variable", "NCCL_NVLS_ENABLE"}, {"value", "0"}, {"off", true}}));
}

}  // namespace
}  // namespace cuvmm::doctor
