#include "emulator/configuration.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "emulator/configuration_settings.hpp"
#include "emulator/emulated_driver.hpp"

namespace cuvmm::emulator {
namespace {

// Sets both variables for as long as it lives.
class Environment {
 public:
  Environment(const char* list, const char* file) {
    set("CUVMM_EMULATOR", list);
    set("CUVMM_EMULATOR_CONFIG", file);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    ::unsetenv("CUVMM_EMULATOR");
    ::unsetenv("CUVMM_EMULATOR_CONFIG");
  }

 private:
  static void set(const char* name, const char* value) {
    if (value == nullptr)
      ::unsetenv(name);
    else
      ::setenv(name, value, 1);
  }
};

// A file with that content, which goes with it.
class File {
 public:
  explicit File(const std::string& content)
      : path_(::testing::TempDir() + "cuvmm_configuration_" + std::to_string(::getpid()) + ".json") {
    std::ofstream(path_) << content;
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { std::remove(path_.c_str()); }
  [[nodiscard]] const char* path() const { return path_.c_str(); }

 private:
  std::string path_;
};

Configuration from(const char* list, const char* file = nullptr) {
  const Environment environment(list, file);
  return Configuration::from_environment();
}

Configuration from_json(const std::string& content, const char* list = nullptr) {
  const File file(content);
  return from(list, file.path());
}

std::string refusal(const char* list, const char* file = nullptr) {
  try {
    (void)from(list, file);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << (list == nullptr ? "" : list);
  return {};
}

std::string json_refusal(const std::string& content) {
  const File file(content);
  return refusal(nullptr, file.path());
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

void expect_all_changed(const Configuration& configuration) {
  EXPECT_EQ(configuration.profile.name, "gb200");
  EXPECT_EQ(configuration.mode, Mode::strict);
  EXPECT_EQ(configuration.devices, 4);
  EXPECT_EQ(configuration.device_memory, std::uint64_t{8} << 30);
  EXPECT_EQ(configuration.address_base, 0x1'0000'0000U);
  EXPECT_EQ(configuration.address_bytes, std::uint64_t{1} << 40);
  EXPECT_EQ(configuration.descriptor_limit, 12U);
  EXPECT_FALSE(configuration.peer_access);
  EXPECT_EQ(configuration.no_peer_access, (std::vector<std::pair<int, int>>{{0, 1}, {2, 3}}));
  EXPECT_EQ(configuration.scheduler, Scheduler::stepped);
  EXPECT_EQ(configuration.seed, 7U);
  const Behaviour& behaviour = configuration.profile.behaviour;
  EXPECT_TRUE(behaviour.ignore_address_hints);
  EXPECT_TRUE(behaviour.withhold_compression);
  EXPECT_TRUE(behaviour.withhold_rdma);
  EXPECT_TRUE(behaviour.fail_set_access_on_rdma_memory);
  EXPECT_TRUE(behaviour.fail_set_access);
  EXPECT_TRUE(behaviour.fabric_creation_out_of_memory);
}

TEST(ConfigurationFromEnvironment, IsTheDefaultWhereNothingIsSet) {
  for (const char* nothing : {static_cast<const char*>(nullptr), "", "  "}) {
    const Configuration configuration = from(nothing);
    EXPECT_EQ(configuration.profile.name, "h200-580");
    EXPECT_EQ(configuration.mode, Mode::faithful);
    EXPECT_EQ(configuration.devices, 1);
    EXPECT_FALSE(configuration.device_memory);
  }
}

TEST(ConfigurationFromEnvironment, ReachesEverySettingByTheList) {
  expect_all_changed(
      from("set-access-fails, profile=gb200, mode = strict,devices=4,memory=8GiB,address-base=0x100000000,"
           "address-bytes=1TiB,descriptor-limit=12,peers=none,no-peer=0-1,no-peer=2-3,scheduler=stepped,seed=7,"
           "ignore-address-hints,withhold-compression,withhold-rdma=true,set-access-fails-on-rdma-memory,"
           "fabric-creation-out-of-memory"));
}

TEST(ConfigurationFromEnvironment, ReachesEverySettingByTheFile) {
  expect_all_changed(from_json(R"({"set-access-fails": true, "profile": "gb200", "mode": "strict", "devices": 4,
      "memory": "8GiB", "address-base": 4294967296, "address-bytes": "1024GiB", "descriptor-limit": 12,
      "peers": "none", "no-peer": ["0-1", "2-3"], "scheduler": "stepped", "seed": 7, "ignore-address-hints": true,
      "withhold-compression": true, "withhold-rdma": true, "set-access-fails-on-rdma-memory": true,
      "fabric-creation-out-of-memory": "true"})"));
}

TEST(ConfigurationFromEnvironment, SaysHowMulticastBehaves) {
  const Configuration configuration = from(
      "devices=4,profile=h200-multicast,multicast-slots=3,multicast-wait=250,multicast-bind-fails=3:not-ready:2,"
      "multicast-bind-fails=0:illegal-state,multicast-bind-fails=0:out-of-memory:1");
  EXPECT_EQ(configuration.multicast_slot_count(), 3);
  EXPECT_EQ(configuration.multicast_wait, 250);
  ASSERT_EQ(configuration.multicast_failures.size(), 3U);
  const MulticastFailure& first = configuration.multicast_failures[0];
  EXPECT_EQ(first.device, 3);
  EXPECT_EQ(first.kind, MulticastFailure::Kind::not_ready);
  EXPECT_EQ(first.times, 2);
  EXPECT_EQ(configuration.multicast_failures[1].kind, MulticastFailure::Kind::illegal_state);
  EXPECT_EQ(configuration.multicast_failures[1].times, 0);
  EXPECT_EQ(configuration.multicast_failures[2].kind, MulticastFailure::Kind::out_of_memory);
  EXPECT_EQ(from("profile=h200-multicast").multicast_slot_count(), 128);
  for (const char* const bad : {"0", "0:", "x:not-ready", "-1:not-ready", "0:broken", "0:not-ready:", "0:not-ready:0",
                                "0:not-ready:x", "0:not-ready:1:2", "0not-ready"})
    expect_parts(refusal((std::string("multicast-bind-fails=") + bad).c_str()), {"multicast-bind-fails", "not-ready"});
  expect_parts(refusal("devices=2,multicast-bind-fails=2:not-ready"), {"device 2", "2 devices"});
  EXPECT_EQ(from("devices=3,multicast-bind-fails=2:not-ready").multicast_failures.size(), 1U);
}

TEST(ConfigurationFromEnvironment, HasTheListOverTheFile) {
  const Configuration configuration =
      from_json(R"({"devices": 4, "seed": 3, "withhold-rdma": true, "withhold-compression": true})",
                "devices=2,profile=no-vmm,withhold-rdma=false");
  EXPECT_EQ(configuration.devices, 2);
  EXPECT_EQ(configuration.seed, 3U);
  EXPECT_EQ(configuration.profile.name, "no-vmm");
  EXPECT_FALSE(configuration.profile.behaviour.withhold_rdma);
  EXPECT_TRUE(configuration.profile.behaviour.withhold_compression) << "a later profile takes nothing back";
}

TEST(ConfigurationFromEnvironment, RefusesWhatThereIsNotAndSaysWhatThereIs) {
  expect_parts(refusal("speed=7"), {"'speed'", "'7'", "CUVMM_EMULATOR", "devices", "set-access-fails"});
  expect_parts(refusal("=7"), {"without a name", "CUVMM_EMULATOR"});
  expect_parts(refusal("devices=2,"), {"without a name"});
  EXPECT_EQ(from("devices=2").devices, 2);
}

TEST(ConfigurationFromEnvironment, RefusesBadValuesAndSaysWhatIsAllowed) {
  const char* const bad[][2] = {
      {"profile=h300", "no-descriptors"},
      {"mode=lax", "faithful or strict"},
      {"devices=0", "1 to 32"},
      {"devices=33", "1 to 32"},
      {"devices=two", "1 to 32"},
      {"devices=2x", "1 to 32"},
      {"devices", "1 to 32"},
      {"memory=8GB", "8GiB"},
      {"memory=-1", "8GiB"},
      {"memory=16777216TiB", "8GiB"},
      {"memory=", "8GiB"},
      {"address-base=0xzz", "0x80000000"},
      {"descriptor-limit=-3", "whole"},
      {"multicast-slots=-1", "0 to 100000"},
      {"multicast-slots=100001", "0 to 100000"},
      {"multicast-wait=0", "1 to 3600000"},
      {"multicast-wait=1s", "milliseconds"},
      {"peers=some", "all or none"},
      {"no-peer=0", "such as 0-1"},
      {"no-peer=0-", "such as 0-1"},
      {"no-peer=0--1", "such as 0-1"},
      {"scheduler=fair", "threaded"},
      {"seed=18446744073709551616", "whole"},
      {"set-access-fails=yes", "true or false"},
  };
  for (const auto& [list, allowed] : bad) {
    const std::string text = refusal(list);
    expect_parts(text, {std::string(list).substr(0, std::string(list).find('=')), "from CUVMM_EMULATOR", allowed});
  }
  EXPECT_EQ(from("seed=18446744073709551615").seed, ~std::uint64_t{0});
  EXPECT_EQ(from("address-base=0x200000").address_base, std::uint64_t{2} << 20);
}

TEST(ConfigurationFromEnvironment, RefusesSettingsThatDoNotGoTogether) {
  expect_parts(refusal("no-peer=0-1"), {"no_peer_access", "(0, 1)", "from CUVMM_EMULATOR"});
  EXPECT_FALSE(from("no-peer=0-1,devices=2").can_access_peer(1, 0));
  expect_parts(refusal("memory=1MiB"), {"memory is 1 MiB", "528.8 MiB at least", "such as 8GiB"});
  expect_parts(refusal("memory=8"), {"memory is 8 bytes"});
  expect_parts(refusal("memory=512TiB"), {"memory is 512 TiB", "256 TiB at most"});
  expect_parts(refusal("address-base=1MiB"), {"address_base"});
  expect_parts(refusal("address-base=0xffffffffffe00000,address-bytes=4MiB"), {"address_base", "2^62"});
}

TEST(ConfigurationFromEnvironment, RefusesASettingThatStandsTwiceInOnePlace) {
  for (const char* const list :
       {"machine=z,machine=y", "devices=2,mode=strict,devices=2", "set-access-fails,set-access-fails"})
    EXPECT_NE(refusal(list).find("is given twice (from CUVMM_EMULATOR)"), std::string::npos) << refusal(list);
  EXPECT_NE(json_refusal(R"({"devices": 2, "devices": 3})").find("devices is given twice"), std::string::npos);
  EXPECT_NE(json_refusal(R"({"devices": [2, 3]})").find("devices is given twice"), std::string::npos);
  EXPECT_EQ(from("no-peer=0-1,no-peer=1-2,devices=3").no_peer_access.size(), 2U);
  EXPECT_EQ(from_json(R"({"devices": 3, "no-peer": ["0-1", "1-2"]})").no_peer_access.size(), 2U);
  EXPECT_EQ(from_json(R"({"devices": 2})", "devices=3").devices, 3) << "in two places the list counts";
}

TEST(ConfigurationFromEnvironment, SaysWhatTheNameOfAMachineMayBe) {
  for (const char* const list : {"machine=.hidden", "machine=...", "machine=a/b", "machine="})
    EXPECT_NE(refusal(list).find("the first of which is no '.'"), std::string::npos) << refusal(list);
  EXPECT_EQ(from("machine=a.b").machine, "a.b");
}

TEST(SettingsList, GoesOnWithoutTheSettingsOfAName) {
  EXPECT_EQ(list_without("devices=2,mode=strict,devices", "devices"), "mode=strict");
  EXPECT_EQ(list_without(" devices = 2 , mode=strict", "mode"), " devices = 2 ");
  EXPECT_EQ(list_without("mode=strict", "devices"), "mode=strict");
  EXPECT_EQ(list_without("", "devices"), "");
}

TEST(ConfigurationFromEnvironment, RefusesFilesThatAreNoSettings) {
  expect_parts(refusal(nullptr, "/nonexistent/cuvmm.json"),
               {"/nonexistent/cuvmm.json", "CUVMM_EMULATOR_CONFIG", "cannot be read", "No such file"});
  expect_parts(refusal(nullptr, "/"), {"'/'", "CUVMM_EMULATOR_CONFIG"});
  expect_parts(json_refusal("{\"devices\": 2"), {"not JSON", "cuvmm_configuration_"});
  expect_parts(json_refusal(""), {"not JSON"});
  expect_parts(json_refusal("[1]"), {"not an object"});
  expect_parts(json_refusal(R"({"devices": null})"), {"devices is null", "cuvmm_configuration_"});
  expect_parts(json_refusal(R"({"devices": {"a": 1}})"), {"devices", "a string, a number"});
  expect_parts(json_refusal(R"({"devices": 2.5})"), {"'2.5'", "1 to 32"});
  expect_parts(json_refusal(R"({"no-peer": [[0, 1]]})"), {"no-peer is [0,1]"});
  expect_parts(json_refusal(R"({"speed": 1})"), {"'speed'", "cuvmm_configuration_"});
  EXPECT_EQ(from_json(R"({"devices": 2})").devices, 2);
  EXPECT_EQ(from_json("{}").devices, 1);
}

// What might never end, never begin, or take all memory or stack.
TEST(ConfigurationFromEnvironment, RefusesFilesThatHaveNoEndOrAreNoFiles) {
  expect_parts(refusal(nullptr, "/"), {"'/'", "CUVMM_EMULATOR_CONFIG", "directory", "1048576"});
  expect_parts(refusal(nullptr, "/dev/zero"), {"'/dev/zero'", "no regular file", "1048576"});
  const std::string fifo = ::testing::TempDir() + "cuvmm_configuration_" + std::to_string(::getpid()) + ".fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  expect_parts(refusal(nullptr, fifo.c_str()), {fifo, "no regular file", "1048576"});
  std::remove(fifo.c_str());
  const std::string settings = R"({"devices": 2})";
  const std::size_t most = std::size_t{1} << 20;
  expect_parts(json_refusal(settings + std::string(most - settings.size() + 1, ' ')), {"larger", "1048576"});
  EXPECT_EQ(from_json(settings + std::string(most - settings.size(), ' ')).devices, 2);
}

TEST(ConfigurationFromEnvironment, RefusesJsonThatIsNestedDeeply) {
  for (const std::size_t depth : {std::size_t{9}, std::size_t{400000}})
    expect_parts(json_refusal(R"({"no-peer": )" + std::string(depth, '[') + std::string(depth, ']') + "}"),
                 {"nested more than 8 deep", "cuvmm_configuration_", "lists"});
  std::string objects;
  for (int level = 0; level < 100000; ++level) objects += R"({"a":)";
  expect_parts(json_refusal(objects + "1" + std::string(100000, '}')), {"nested more than 8 deep"});
  expect_parts(json_refusal(R"({"no-peer": [[[["0-1"]]]]})"), {"no-peer is"});
  EXPECT_EQ(from_json(R"({"devices": 2, "no-peer": ["0-1"]})").devices, 2);
}

TEST(ConfigurationFromEnvironment, QuotesLongContentShortened) {
  const std::string nothing(100000, 'x');
  EXPECT_LT(json_refusal(nothing).size(), 1000U);
  EXPECT_LT(json_refusal(R"({"devices": {"a": ")" + nothing + "\"}}").size(), 1000U);
  EXPECT_LT(json_refusal(R"({"devices": ")" + nothing + "\"}").size(), 1000U);
  EXPECT_LT(json_refusal("{\"" + nothing + "\": 1}").size(), 1000U);
}

TEST(Configuration, RefusesWhatNoMachineCanBe) {
  const auto refused = [](auto&& change) {
    Configuration configuration;
    configuration.validate();
    change(configuration);
    EXPECT_THROW((void)make_emulated_driver(configuration), std::invalid_argument);
  };
  refused([](Configuration& c) { c.devices = 0; });
  refused([](Configuration& c) { c.devices = 33; });
  refused([](Configuration& c) { c.profile.granularity = 3 << 20; });
  refused([](Configuration& c) { c.profile.granularity = 1 << 20; });
  refused([](Configuration& c) { c.device_memory = std::uint64_t{1} << 49; });
  refused([](Configuration& c) { c.profile.host_memory = std::uint64_t{1} << 49; });
  refused([](Configuration& c) { c.address_bytes = 0; });
  refused([](Configuration& c) { c.address_bytes = ~std::uint64_t{0} - (std::uint64_t{2} << 20) + 1; });
  refused([](Configuration& c) { c.no_peer_access = {{0, 0}}; });
  refused([](Configuration& c) { c.kernels = {HostKernel{"nothing", {}, {}, {}}}; });
}

std::string file_content(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

TEST(EmulatorDocumentation, ListsExactlyTheProfilesAndSettingsThatThereAre) {
  const std::string document = file_content(CUVMM_SOURCE_FOLDER "/docs/emulator.md");
  std::string profiles = "| profile | what it is |\n| --- | --- |\n";
  for (const std::string& name : profile_names())
    profiles += "| `" + name + "` | " + find_profile(name)->summary + " |\n";
  EXPECT_NE(document.find(profiles + "\n"), std::string::npos) << "docs/emulator.md must have:\n" << profiles;
  std::string table = "| setting | what it may be | meaning |\n| --- | --- | --- |\n";
  for (const Setting& setting : settings())
    table += "| `" + setting.name + "` | " + setting.values + " | " + setting.meaning + " |\n";
  EXPECT_NE(document.find(table + "\n"), std::string::npos) << "docs/emulator.md must have:\n" << table;
}

}  // namespace
}  // namespace cuvmm::emulator
