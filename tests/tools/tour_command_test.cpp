// `cuvmm tour` from outside: what it prints, and with which status it ends.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "program.hpp"
#include "temporary_directory.hpp"

namespace cuvmm::tests {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

class TourCommand : public ::testing::Test {
 protected:
  // A file of that many bytes that repeat nowhere.
  std::string file(std::size_t size) {
    std::mt19937_64 random(size);
    std::string content(size, '\0');
    std::generate(content.begin(), content.end(), [&] { return static_cast<char>(random()); });
    std::string path = directory_.path("file-" + std::to_string(size));
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  // The tour of that file on the emulated driver; its JSON.
  static Json tour(const std::string& path, const Words& more = {}, const Words& environment = {}, int status = 0) {
    Words words{"tour", path, "--driver", "emulated", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_program(words, environment);
    EXPECT_EQ(result.status, status) << result.output << result.errors;
    // With that lie the library may unmap too early, which the driver beneath the lie notices.
    const bool lies =
        std::find(environment.begin(), environment.end(), "CUVMM_LIE=report_events_done") != environment.end();
    const bool warned = lies && result.errors.find("UNMAP-NOT-WHILE-IN-USE") != std::string::npos;
    EXPECT_EQ(warned ? "" : result.errors, "");
    return Json::parse(result.output, nullptr, false);
  }

  static const Json& stop(const Json& report, const std::string& id) {
    for (const Json& one : report["stops"]) {
      if (one["id"] == id) return one;
    }
    throw std::runtime_error("no stop " + id);
  }

  static Words with_status(const Json& report, const std::string& status) {
    Words ids;
    for (const Json& one : report["stops"]) {
      if (one["status"] == status) ids.push_back(one["id"]);
    }
    return ids;
  }

  static bool has_check(const Json& one_stop, const std::string& part) {
    const Json& checks = one_stop["checks"];
    return std::any_of(checks.begin(), checks.end(), [&](const Json& check) {
      return check["statement"].get<std::string>().find(part) != std::string::npos;
    });
  }

  // Ends with status 2, one line on standard error that has that part, and nothing on standard output.
  static void expect_refused(const Words& words, const std::string& part) {
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << result.errors;
  }

  TemporaryDirectory directory_;
  // Whether the check that has that part was left out for a reason that has that part.
  static bool left_out(const Json& one_stop, const std::string& part, const std::string& reason) {
    const Json& checks = one_stop["checks"];
    return std::any_of(checks.begin(), checks.end(), [&](const Json& check) {
      return check["statement"].get<std::string>().find(part) != std::string::npos && check["passed"].is_null() &&
             check["left_out"].get<std::string>().find(reason) != std::string::npos;
    });
  }

  // With the lines that the table wraps as one again.
  static std::string unwrapped(std::string output) {
    for (std::size_t at = 0; (at = output.find("\n   ", at)) != std::string::npos;)
      output.replace(at, output.find_first_not_of(' ', at + 1) - at, " ");
    return output;
  }

  // What a stop shows, from the table.
  static std::string shown(const Words& words, const std::string& id, const Words& environment = {}) {
    const std::string output = run_program(words, environment).output;
    const std::size_t line = output.find("\n" + id);
    const std::size_t begin = output.find('\n', line + 1) + 1;
    return output.substr(begin, output.find('\n', begin) - begin);
  }

  const Words all_stops_{"4.16.1.2", "4.16.2",   "4.16.3.1", "4.16.3.2", "4.16.3.3", "4.16.3.4", "4.16.3.5",
                         "4.16.4.1", "4.16.4.2", "4.16.4.3", "4.16.4.4", "4.16.5.1", "4.16.5.2", "4.16.5.3",
                         "4.16.5.4", "vector",   "ring",     "stitched", "sleep"};
  // Those that map memory.
  const Words mapping_stops_{all_stops_.begin() + 1, all_stops_.end()};
  // Those that need handles of memory.
  const Words exporting_stops_{"4.16.3.1", "4.16.3.2", "4.16.5.4"};
  // Those that need several devices with multicast.
  const Words multicast_stops_{"4.16.4.1", "4.16.4.2", "4.16.4.3", "4.16.4.4"};

  // Large enough for a process to be found at work.
  [[nodiscard]] std::string large_file() const {
    std::string path = directory_.path("large");
    std::ofstream(path) << "some bytes";
    std::filesystem::resize_file(path, std::uint64_t{1} << 30);
    return path;
  }

  [[nodiscard]] Words all_but(const Words& left_out) const {
    Words rest;
    std::copy_if(all_stops_.begin(), all_stops_.end(), std::back_inserter(rest), [&](const std::string& id) {
      return std::find(left_out.begin(), left_out.end(), id) == left_out.end();
    });
    return rest;
  }
};

TEST_F(TourCommand, EveryStopPassesAndMovesTheWholeFile) {
  const Json report = tour(file(100'003));
  EXPECT_EQ(with_status(report, "passed"), all_stops_);
  EXPECT_EQ(report["devices"].size(), 1U);
  EXPECT_NE(report["driver"].get<std::string>().find("emulated"), std::string::npos);
  for (const Json& one : report["stops"]) {
    EXPECT_EQ(one["bytes"], 100'003) << one["id"];
    EXPECT_EQ(one["reason"], "");
    EXPECT_FALSE(one["checks"].empty());
    for (const Json& check : one["checks"]) {
      if (!check.contains("left_out")) {
        EXPECT_EQ(check["passed"], true) << check["statement"];
      }
    }
  }
}

TEST_F(TourCommand, CountsTheCallsOfEachStop) {
  const Json report = tour(file(10));
  const Json& calls = stop(report, "4.16.2")["calls"];
  for (const char* call : {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                           "cuMemRelease", "cuMemAddressFree"}) {
    EXPECT_GE(calls.value(call, 0), 1) << call;
  }
  EXPECT_GE(stop(report, "4.16.1.2")["calls"].value("cuDeviceGetAttribute", 0), 7);
  EXPECT_FALSE(stop(report, "4.16.1.2")["calls"].contains("cuMemMap"));
}

TEST_F(TourCommand, ShowsTheFeaturesWithAnEmptyFileAndWithOneByte) {
  for (const std::size_t size : {0, 1}) {
    const Json report = tour(file(size));
    EXPECT_EQ(with_status(report, "passed"), all_stops_) << size;
    for (const Json& one : report["stops"]) EXPECT_EQ(one["bytes"], size);
  }
}

TEST_F(TourCommand, MovesALargeFileInPieces) {
  // More than the 64 MiB of device memory that a stop may hold; only a few places of the file are written.
  const std::string path = directory_.path("large");
  constexpr std::uint64_t size = (std::uint64_t{150} << 20) + 3;
  {
    std::ofstream stream(path, std::ios::binary);
    for (const std::uint64_t place : {std::uint64_t{1000}, size / 2, size - 5}) {
      stream.seekp(static_cast<std::streamoff>(place));
      stream << "bytes";
    }
  }
  ASSERT_EQ(std::filesystem::file_size(path), size);
  const Json report = tour(path, {"--stop", "4.16.2"});
  EXPECT_EQ(with_status(report, "passed"), Words{"4.16.2"});
  EXPECT_EQ(stop(report, "4.16.2")["bytes"], size);
  EXPECT_EQ(stop(report, "4.16.2")["calls"].value("cuMemcpyDtoH", 0), 3);
  EXPECT_EQ(stop(report, "4.16.2")["calls"].value("cuMemCreate", 0), 2);  // one is refused
}

TEST_F(TourCommand, ShowsTheSecondDevice) {
  const std::string path = file(5000);
  const Json one = tour(path);
  EXPECT_FALSE(has_check(stop(one, "4.16.3.4"), "device 1"));
  const Json two = tour(path, {"--devices", "2"});
  EXPECT_EQ(with_status(two, "passed"), all_stops_);
  EXPECT_EQ(two["devices"].size(), 2U);
  EXPECT_TRUE(has_check(stop(two, "4.16.3.4"), "device 1"));
  EXPECT_TRUE(has_check(stop(two, "4.16.1.2"), "device 1"));
  EXPECT_TRUE(left_out(stop(one, "4.16.3.3"), "memory of several devices", "ask for --devices 2"));
  EXPECT_TRUE(has_check(stop(two, "4.16.3.3"), "memory of several devices lies behind one pointer: a kernel reads"));
  EXPECT_TRUE(has_check(stop(two, "4.16.3.3"), "the chunk that was appended for device 1 lies there"));
}

TEST_F(TourCommand, VisitsTheStopsThatAreAskedForInTheGuidesOrder) {
  const Json report = tour(file(10), {"--stop", "4.16.3.4", "--stop", "4.16.1.2"});
  EXPECT_EQ(with_status(report, "passed"), (Words{"4.16.1.2", "4.16.3.4"}));
}

TEST_F(TourCommand, PrintsATableForPeople) {
  const ProgramResult result = run_program({"tour", file(1234), "--driver", "emulated"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.errors, "");
  for (const char* part : {"Driver: emulated", "Device 0: ", "Section", "4.16.1.2", "4.16.2 ", "4.16.3.4", "4.16.5.3",
                           "vector", "1,234", " passed, 0 failed, 0 unavailable."}) {
    EXPECT_NE(result.output.find(part), std::string::npos) << part << " in\n" << result.output;
  }
  EXPECT_NE(result.output.find(std::to_string(all_stops_.size()) + " passed, "), std::string::npos) << result.output;
}

TEST_F(TourCommand, FallsBackToTheEmulatedDriverAndSaysSo) {
  // With no device left visible it does not matter whether there is a CUDA driver.
  const ProgramResult result = run_program({"tour", file(10), "--stop", "4.16.1.2"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.errors.find("emulated"), std::string::npos) << result.errors;
  EXPECT_NE(result.output.find("Driver: emulated"), std::string::npos) << result.output;
}

TEST_F(TourCommand, DoesNotFallBackWhereTheCudaDriverIsAskedFor) {
  const ProgramResult result = run_program({"tour", file(10), "--driver", "cuda"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors, "");
}

TEST_F(TourCommand, RefusesWhatIsNoOrdinaryFile) {
  const std::string pipe = directory_.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused({"tour", directory_.path("missing")}, "does not exist");
  expect_refused({"tour", directory_.path("")}, "is a directory");
  expect_refused({"tour", pipe}, "is a pipe");
  expect_refused({"tour", "/dev/zero"}, "is a device");
}

TEST_F(TourCommand, RefusesWrongUsage) {
  expect_refused({"tour"}, "needs a FILE");
  expect_refused({"tour", file(10), "--stop", "4.16.99"}, "4.16.1.2, 4.16.2, 4.16.3.1, 4.16.3.2, 4.16.3.3");
  expect_refused({}, "a subcommand is needed; there are: tour, doctor");
  expect_refused({"detour"}, "there is no subcommand 'detour'; there are: tour, doctor");
  expect_refused({"--list"}, "there is no subcommand '--list'; there are: tour, doctor");
  const ProgramResult driver = run_program({"tour", file(10), "--driver", "vulkan"});
  EXPECT_EQ(driver.status, 2);
  EXPECT_NE(driver.errors.find("there is no driver 'vulkan'; there are: auto, cuda, emulated"), std::string::npos)
      << driver.errors;
  EXPECT_EQ(run_program({"tour", file(10), "--devices", "0"}).status, 2);
}

TEST_F(TourCommand, ListsItsStops) {
  const ProgramResult result = run_program({"tour", "--list"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), std::ssize(all_stops_)) << result.output;
  for (const std::string& id : all_stops_) EXPECT_NE(result.output.find(id), std::string::npos);
}

TEST_F(TourCommand, MovesAFileLargerThanTheDevicesMemory) {
  // Of 580 MiB the driver keeps all but some 50 for itself.
  const std::string path = file(std::size_t{60} << 20);
  const Json report = tour(path, {}, {"CUVMM_EMULATOR=memory=580MiB"});
  EXPECT_EQ(with_status(report, "passed"), all_stops_);
  for (const Json& one : report["stops"]) EXPECT_EQ(one["bytes"], std::size_t{60} << 20) << one["id"];
  EXPECT_GT(stop(report, "4.16.2")["calls"].value("cuMemcpyDtoH", 0), 1);
}

TEST_F(TourCommand, SaysWhatIsUnavailableWithoutVirtualMemory) {
  const Json report = tour(file(10), {}, {"CUVMM_EMULATOR=profile=no-vmm"});
  EXPECT_EQ(with_status(report, "passed"), Words{"4.16.1.2"});
  EXPECT_EQ(with_status(report, "unavailable"), mapping_stops_);
  for (const std::string& id : mapping_stops_) {
    EXPECT_EQ(stop(report, id)["reason"], "device 0 has no virtual memory management");
  }
}

TEST_F(TourCommand, PassesOnEveryKindOfMachine) {
  const std::string path = file(4321);
  for (const char* machine : {"mode=strict", "withhold-compression,withhold-rdma", "scheduler=stepped,seed=7",
                              "mode=strict,scheduler=stepped", "profile=h200-590,devices=4"}) {
    const Json report = tour(path, {"--devices", "2"}, {std::string("CUVMM_EMULATOR=") + machine});
    EXPECT_EQ(with_status(report, "passed"), all_stops_) << machine;
  }
  for (const char* profile : {"no-compression", "no-rdma", "gb200", "h200-580"}) {
    const Json report = tour(path, {"--devices", "2"}, {std::string("CUVMM_EMULATOR=profile=") + profile});
    EXPECT_EQ(with_status(report, "passed"), all_but(multicast_stops_)) << profile;
    EXPECT_EQ(with_status(report, "unavailable"), multicast_stops_) << profile;
  }
  const Json without = tour(path, {"--devices", "2"}, {"CUVMM_EMULATOR=profile=no-descriptors"});
  Words lacking{"4.16.3.1", "4.16.3.2"};
  lacking.insert(lacking.end(), multicast_stops_.begin(), multicast_stops_.end());
  lacking.emplace_back("4.16.5.4");
  EXPECT_EQ(with_status(without, "passed"), all_but(lacking));
  EXPECT_EQ(with_status(without, "unavailable"), lacking);
  for (const std::string& id : exporting_stops_)
    EXPECT_EQ(stop(without, id)["reason"], "device 0 has no descriptors of memory");
}

TEST_F(TourCommand, SaysWhatIsUnavailableWithTooLittleMemory) {
  const std::string path = file(10);
  const Json little = tour(path, {}, {"CUVMM_EMULATOR=memory=532MiB"});
  EXPECT_EQ(with_status(little, "unavailable"), mapping_stops_);
  EXPECT_NE(stop(little, "4.16.2")["reason"].get<std::string>().find("it takes 6,291,456 bytes of free device memory"),
            std::string::npos);
  // Each process that takes part needs a granule for itself.
  const Json enough = tour(path, {}, {"CUVMM_EMULATOR=memory=534MiB"});
  const Words with_others{"4.16.3.2", "4.16.5.4"};
  EXPECT_EQ(with_status(enough, "passed"), all_but(with_others));
  EXPECT_EQ(with_status(enough, "unavailable"), with_others);
  EXPECT_NE(stop(enough, "4.16.3.2")["reason"].get<std::string>().find("it takes 8,388,608 bytes"), std::string::npos);
  EXPECT_TRUE(left_out(stop(enough, "4.16.3.5"), "goes with its last user", "it takes 10,485,760 bytes"));
  const Json more = tour(path, {}, {"CUVMM_EMULATOR=memory=540MiB"});
  EXPECT_EQ(with_status(more, "passed"), all_stops_);
  EXPECT_FALSE(left_out(stop(more, "4.16.3.5"), "goes with its last user", ""));
}

TEST_F(TourCommand, TellsWhatTheTrialsTold) {
  const Words words{"tour", file(10), "--driver", "emulated", "--stop", "4.16.1.2"};
  const std::string withheld =
      unwrapped(run_program(words, {"CUVMM_EMULATOR=profile=h200-580,withhold-compression,withhold-rdma"}).output);
  EXPECT_NE(withheld.find("fabric handles yes (no IMEX channel), compression yes (not given), "
                          "GPUDirect RDMA yes (not given), multicast"),
            std::string::npos)
      << withheld;
  const std::string given = unwrapped(run_program(words).output);
  EXPECT_NE(given.find("compression yes, GPUDirect RDMA yes, "), std::string::npos) << given;
}

TEST_F(TourCommand, ObeysTheEnvironmentsDriver) {
  const Words words{"tour", file(10), "--stop", "4.16.1.2"};
  const ProgramResult emulated = run_program(words, {"CUVMM_DRIVER=emulated"});
  EXPECT_EQ(emulated.status, 0);
  EXPECT_EQ(emulated.errors, "");
  EXPECT_NE(emulated.output.find("Driver: emulated"), std::string::npos) << emulated.output;
  const ProgramResult cuda = run_program(words, {"CUVMM_DRIVER=cuda", "CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(cuda.status, 2);
  EXPECT_NE(cuda.errors.find("take --driver emulated"), std::string::npos) << cuda.errors;
  const ProgramResult neither = run_program(words, {"CUVMM_DRIVER=vulkan"});
  EXPECT_EQ(neither.status, 2);
  EXPECT_NE(neither.errors.find("'vulkan'"), std::string::npos) << neither.errors;
}

TEST_F(TourCommand, LeavesOutADeviceThatCannotReachTheFirst) {
  const Json three = tour(file(10), {"--devices", "3"}, {"CUVMM_EMULATOR=no-peer=0-1"});
  EXPECT_EQ(with_status(three, "passed"), all_stops_);
  EXPECT_TRUE(has_check(stop(three, "4.16.3.4"), "device 2"));
  const Json report = tour(file(10), {"--devices", "2"}, {"CUVMM_EMULATOR=devices=2,no-peer=0-1"});
  EXPECT_EQ(with_status(report, "passed"), all_but(multicast_stops_));
  for (const std::string& id : multicast_stops_)
    EXPECT_EQ(stop(report, id)["reason"], "no other device reaches device 0");
  EXPECT_FALSE(has_check(stop(report, "4.16.3.4"), "device 1"));
  EXPECT_TRUE(left_out(stop(report, "4.16.3.3"), "memory of device 1 beside that of device 0", "cannot reach"));
  EXPECT_FALSE(has_check(stop(report, "4.16.3.3"), "a kernel reads that of"));
  EXPECT_TRUE(left_out(stop(three, "4.16.3.3"), "memory of device 1 beside that of device 0", "cannot reach"));
  EXPECT_TRUE(has_check(stop(three, "4.16.3.3"), "a kernel reads that of 2"));
}

TEST_F(TourCommand, TellsWhatBecameOfCompression) {
  const Words words{"tour", file(10), "--driver", "emulated", "--stop", "4.16.5.2"};
  EXPECT_NE(shown(words, "4.16.5.2").find("compression offered, asked for, given"), std::string::npos);
  EXPECT_NE(shown(words, "4.16.5.2", {"CUVMM_EMULATOR=withhold-compression"})
                .find("compression offered, asked for, not given"),
            std::string::npos);
  EXPECT_NE(shown(words, "4.16.5.2", {"CUVMM_EMULATOR=profile=no-compression"})
                .find("compression not offered, asked for, not given"),
            std::string::npos);
  const std::string refused = "growing is refused as not supported";
  const Words only{"--stop", "4.16.5.2"};
  EXPECT_FALSE(has_check(stop(tour(words[1], only), "4.16.5.2"), refused));
  EXPECT_TRUE(has_check(stop(tour(words[1], only, {"CUVMM_EMULATOR=withhold-compression"}), "4.16.5.2"), refused));
}

TEST_F(TourCommand, SharesExtendedMemoryWhereThereIsSomeAndSaysWhyNotElsewhere) {
  const std::string path = file(1000);
  const Words only{"--stop", "4.16.5.1"};
  const Json without = stop(tour(path, only), "4.16.5.1");
  EXPECT_TRUE(left_out(without, "extended GPU memory", "the device does not offer it"));
  EXPECT_FALSE(has_check(without, "EGM: the CPU reads"));
  const Json with = stop(tour(path, only, {"CUVMM_EMULATOR=profile=gb200"}), "4.16.5.1");
  EXPECT_TRUE(has_check(with, "EGM: a kernel reads what the CPU stored"));
  EXPECT_TRUE(has_check(with, "EGM: the CPU reads what a kernel stored"));
  for (const Json& both : {without, with}) {
    EXPECT_TRUE(has_check(both, "host: the CPU reads what a kernel stored"));
    EXPECT_TRUE(has_check(both, "host NUMA node 0: a kernel reads what the CPU stored"));
  }
}

TEST_F(TourCommand, ReleasesADescriptorLastWhereThereAreDescriptors) {
  const Words only{"--stop", "4.16.3.5"};
  const std::string statement = "memory stays as long as a descriptor of it is open";
  EXPECT_TRUE(has_check(stop(tour(file(10), only), "4.16.3.5"), "with the descriptor closed the memory comes back"));
  const Json without = stop(tour(file(10), only, {"CUVMM_EMULATOR=profile=no-descriptors"}), "4.16.3.5");
  EXPECT_TRUE(left_out(without, statement, "the device has no descriptors"));
}

TEST_F(TourCommand, ExportsDescriptorsAndFabricHandlesWhereThereAreSome) {
  const std::string path = file(5000);
  const Words only{"--stop", "4.16.3.1"};
  const std::string fabric = "a fabric handle, is the same memory";
  const Json without = stop(tour(path, only, {"CUVMM_EMULATOR=profile=h200-580"}), "4.16.3.1");
  EXPECT_TRUE(has_check(without, "a kernel sees the input through the second descriptor"));
  EXPECT_TRUE(has_check(without, "the library names what was missing when it was created"));
  EXPECT_TRUE(left_out(without, fabric, "no IMEX channel that this process may use: emulate a machine that has one"));
  const Json with = stop(tour(path, only, {"CUVMM_EMULATOR=profile=gb200"}), "4.16.3.1");
  EXPECT_TRUE(has_check(with, fabric));
  EXPECT_FALSE(left_out(with, fabric, ""));
}

TEST_F(TourCommand, ImportsInOtherProcessesOnOtherDevicesAndOnAnotherNode) {
  const std::string path = file(5000);
  const Words only{"--stop", "4.16.3.2"};
  const std::string on_device_1 = "a kernel of importer 2, on device 1 sees the input";
  const std::string on_node_1 = "a kernel of importer 3, on device 0 of node 1 sees the input";
  const std::string second_device = "the memory of one device in a process that uses another";
  const std::string other_node = "the memory of one node in a process of another";
  const Json one = stop(tour(path, only, {"CUVMM_EMULATOR=profile=h200-580"}), "4.16.3.2");
  EXPECT_TRUE(has_check(one, "a kernel of importer 2, on device 0 sees the input"));
  EXPECT_TRUE(has_check(one, "a kernel here sees what an importer stored"));
  EXPECT_TRUE(left_out(one, second_device, "ask for --devices 2"));
  EXPECT_TRUE(left_out(one, other_node, "no IMEX channel that this process may use: emulate a machine that has one"));
  const Json two =
      stop(tour(path, {"--stop", "4.16.3.2", "--devices", "2"}, {"CUVMM_EMULATOR=profile=gb200"}), "4.16.3.2");
  EXPECT_TRUE(has_check(two, on_device_1));
  EXPECT_TRUE(has_check(two, on_node_1));
  EXPECT_FALSE(left_out(two, "", ""));
  const Json apart =
      stop(tour(path, {"--stop", "4.16.3.2", "--devices", "2"}, {"CUVMM_EMULATOR=devices=2,no-peer=0-1"}), "4.16.3.2");
  EXPECT_TRUE(left_out(apart, second_device, "device 1 cannot reach device 0"));
  // A machine that has a name, and one node.
  const std::string machine = "CUVMM_EMULATOR=profile=gb200,machine=" + directory_.path("machine");
  EXPECT_TRUE(left_out(stop(tour(path, only, {machine}), "4.16.3.2"), other_node, "emulate a machine of two"));
}

TEST_F(TourCommand, SharesHostMemoryByFabricHandleWithAnotherProcessAndAnotherNode) {
  const std::string path = file(5000);
  const Words only{"--stop", "4.16.5.4"};
  const Json without = stop(tour(path, only), "4.16.5.4");
  EXPECT_TRUE(has_check(without, "device memory, by a descriptor that was sent: a kernel there sees the input"));
  EXPECT_TRUE(left_out(without, "extended GPU memory", "the device does not offer them"));
  const Json with = stop(tour(path, only, {"CUVMM_EMULATOR=profile=gb200"}), "4.16.5.4");
  EXPECT_TRUE(has_check(with, "host memory, by a fabric handle, in another process: a kernel there sees the input"));
  EXPECT_TRUE(has_check(with, "host memory, by a fabric handle, on another node: a kernel there sees the input"));
  const Json no_channel = stop(tour(path, only, {"CUVMM_EMULATOR=profile=gb200,imex-channels=0"}), "4.16.5.4");
  EXPECT_TRUE(left_out(no_channel, "extended GPU memory", "no IMEX channel"));
}

TEST_F(TourCommand, TellsWhyThereIsNoMulticastAndMakesNoCallOfIt) {
  struct Case {
    const char* setting;
    const char* reason;
  };
  for (const auto& [setting, reason] :
       {Case{"NCCL_NVLS_ENABLE=0", "NCCL_NVLS_ENABLE=0"},
        Case{"TORCH_SYMM_MEM_DISABLE_MULTICAST=1", "TORCH_SYMM_MEM_DISABLE_MULTICAST=1"},
        Case{"NVSHMEM_DISABLE_NVLS=1", "NVSHMEM_DISABLE_NVLS=1"}, Case{"CUVMM_MULTICAST=0", "CUVMM_MULTICAST=0"},
        Case{"CUVMM_EMULATOR=profile=h200-580,devices=2", "device 0 has no multicast: emulate a machine that has it"},
        Case{"CUVMM_EMULATOR=profile=h200-multicast", "the machine has one device: emulate more"}}) {
    const Json report = tour(file(10), {}, {setting});
    EXPECT_EQ(with_status(report, "unavailable"), multicast_stops_) << setting;
    EXPECT_EQ(with_status(report, "passed"), all_but(multicast_stops_)) << setting;
    for (const std::string& id : multicast_stops_) {
      const Json& one = stop(report, id);
      EXPECT_NE(one["reason"].get<std::string>().find(reason), std::string::npos) << one["reason"];
      for (const auto& [call, count] : one["calls"].items()) EXPECT_EQ(call.find("cuMulticast"), std::string::npos);
    }
  }
}

TEST_F(TourCommand, MakesTeamsOfTwoFourAndEight) {
  const std::string path = file(5000);
  const Words only{"--stop", "4.16.4.4"};
  const Json eight = stop(tour(path, only), "4.16.4.4");
  for (const int ranks : {2, 4, 8})
    for (const int rank : {0, ranks - 1}) {
      const std::string team = "a team of " + std::to_string(ranks) + ": ";
      const std::string device = "device " + std::to_string(rank);
      const auto has = [&](std::string_view before, std::string_view behind) {
        return has_check(eight, std::string(team).append(before).append(device).append(behind));
      };
      EXPECT_TRUE(has("what ", " stores is in the memory of device 0"));
      EXPECT_TRUE(has("the sum of all shares is the input on ", ""));
      EXPECT_TRUE(has("that sum, stored to all, is the input on ", ""));
      EXPECT_TRUE(has("shares that all add in memory are the input on ", ""));
      EXPECT_TRUE(has("all have come when ", " leaves the barrier"));
    }
  for (const std::string touch : {"ordinary store to", "ordinary load from", "a copy to", "a memset of"})
    EXPECT_TRUE(has_check(eight, touch + " a multicast address faults")) << touch;
  const Json three = stop(tour(path, only, {"CUVMM_EMULATOR=profile=h200-multicast,devices=3"}), "4.16.4.4");
  EXPECT_TRUE(has_check(three, "a team of 2: granting access to a device that is not of it is refused"));
  EXPECT_FALSE(has_check(three, "a team of 4"));
}

TEST_F(TourCommand, ReducesInProcessesAndOverTwoNodes) {
  const std::string path = file(5000);
  const Words only{"--stop", "4.16.4.4"};
  const std::string on_nodes = "the ranks of a team are on two nodes";
  const Json all = stop(tour(path, only), "4.16.4.4");
  EXPECT_TRUE(has_check(all, "processes: rank 3, on device 3 sums all shares to the input"));
  EXPECT_TRUE(has_check(all, "two nodes: rank 0, on device 0 has the sum that all ranks added in memory"));
  EXPECT_TRUE(has_check(all, "two nodes: rank 3, on device 1 of node 1 has the sum that rank 0 stored to all"));
  const Json no_channel = stop(tour(path, only, {"CUVMM_EMULATOR=profile=h200-multicast,devices=2"}), "4.16.4.4");
  EXPECT_TRUE(has_check(no_channel, "processes: rank 1, on device 1 sums all shares to the input"));
  EXPECT_TRUE(left_out(no_channel, on_nodes, "no IMEX channel"));
  const Json alone = stop(tour(path, only, {"CUVMM_EMULATOR_BROKER=/bin/false"}), "4.16.4.4");
  EXPECT_TRUE(left_out(alone, "each rank of a team is a process of its own", "/bin/false"));
}

TEST_F(TourCommand, GivesMemoryBackWithItsLastUserInEveryOrder) {
  const Json last = stop(tour(file(10), {"--stop", "4.16.3.5"}), "4.16.3.5");
  const Words users{"the exporter", "the first importer", "the second importer"};
  Words order = users;
  std::sort(order.begin(), order.end());
  do {
    EXPECT_TRUE(has_check(
        last, order[0] + ", " + order[1] + ", " + order[2] + ": with " + order[2] + " the memory comes back"));
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_TRUE(has_check(last, "when the exporter was killed, the second importer still sees the bytes"));
}

// The processes whose command lines have both words.
std::vector<pid_t> processes_with(const std::string& one, const std::string& other) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string words = content_of(entry.path() / "cmdline");
    const auto has = [&](const std::string& word) { return words.find('\0' + word + '\0') != std::string::npos; };
    if (has(one) && has(other)) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

// Those that a tour on that machine has started.
std::vector<pid_t> others_of_tour(const std::string& machine) {
  return processes_with("tour-party", machine);
}

template <class Condition>
bool becomes_true(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_F(TourCommand, TakesSeveralNodesForItsOwnMachine) {
  for (const char* const nodes : {"nodes=2", "nodes=3,node=2"}) {
    const Json report = tour(file(1000), {"--stop", "4.16.3.2", "--stop", "4.16.3.4"},
                             {std::string("CUVMM_EMULATOR=profile=gb200,") + nodes});
    EXPECT_EQ(with_status(report, "passed").size(), 2U) << report.dump(2);
    EXPECT_NE(report.dump().find("of node 1"), std::string::npos) << report.dump(2);
  }
}

TEST_F(TourCommand, LeavesNoProcessAndNoMachine) {
  const std::string machine = directory_.path("machine");
  const Json report =
      tour(file(1000), {"--devices", "2"},
           {"CUVMM_EMULATOR=profile=h200-multicast,devices=4,imex-channels=1,nodes=2,machine=" + machine});
  EXPECT_EQ(with_status(report, "passed"), all_stops_);
  EXPECT_TRUE(others_of_tour(machine).empty());
  EXPECT_TRUE(becomes_true([&] { return !std::filesystem::exists(machine); })) << "its broker ends by itself";
}

TEST_F(TourCommand, FailsInASentenceWhereAnotherProcessIsKilled) {
  const std::string path = large_file();
  const std::string machine = directory_.path("machine");
  std::thread killer([&] {
    std::vector<pid_t> others;
    EXPECT_TRUE(becomes_true([&] { return !(others = others_of_tour(machine)).empty(); }));
    if (!others.empty()) ::kill(others.front(), SIGKILL);
  });
  const ProgramResult result = run_program({"tour", path, "--driver", "emulated", "--json", "--stop", "4.16.3.2"},
                                           {"CUVMM_EMULATOR=machine=" + machine});
  killer.join();
  EXPECT_EQ(result.status, 1);
  const Json report = Json::parse(result.output, nullptr, false);
  EXPECT_EQ(with_status(report, "failed"), Words{"4.16.3.2"});
  const std::string reason = stop(report, "4.16.3.2")["reason"];
  EXPECT_NE(reason.find("importer "), std::string::npos) << reason;
  EXPECT_NE(reason.find(", was ended by signal 9 when it was to "), std::string::npos) << reason;
  EXPECT_TRUE(others_of_tour(machine).empty());
}

TEST_F(TourCommand, LeavesNoProcessWhereItIsKilledItself) {
  const std::string path = large_file();
  const std::string machine = directory_.path("machine");
  std::thread killer([&] {
    EXPECT_TRUE(becomes_true([&] { return !others_of_tour(machine).empty(); }));
    for (const pid_t each : processes_with("tour", path)) ::kill(each, SIGKILL);
  });
  const ProgramResult result =
      run_program({"tour", path, "--driver", "emulated", "--stop", "4.16.3.2"}, {"CUVMM_EMULATOR=machine=" + machine});
  killer.join();
  EXPECT_NE(result.status, 0);
  EXPECT_TRUE(becomes_true([&] { return others_of_tour(machine).empty(); }));
  EXPECT_TRUE(becomes_true([&] { return !std::filesystem::exists(machine); }));
}

TEST_F(TourCommand, SaysWhyOtherProcessesCannotTakePart) {
  // A program that is no broker: the machine is the process's own then.
  const Json report = tour(file(10), {}, {"CUVMM_EMULATOR_BROKER=/bin/false"});
  const Words with_others{"4.16.3.2", "4.16.5.4"};
  EXPECT_EQ(with_status(report, "passed"), all_but(with_others));
  EXPECT_EQ(with_status(report, "unavailable"), with_others);
  EXPECT_NE(stop(report, "4.16.3.2")["reason"].get<std::string>().find("/bin/false"), std::string::npos);
  EXPECT_TRUE(left_out(stop(report, "4.16.3.5"), "goes with its last user", "/bin/false"));
}

TEST_F(TourCommand, UsesAsManyDevicesAsAreAskedForOfThoseThereAre) {
  const std::string path = file(10);
  EXPECT_EQ(tour(path, {}, {"CUVMM_EMULATOR=devices=3"})["devices"].size(), 1U);
  EXPECT_EQ(tour(path, {"--devices", "2"}, {"CUVMM_EMULATOR=devices=3"})["devices"].size(), 2U);
}

TEST_F(TourCommand, RefusesAWrongConfiguration) {
  const ProgramResult result = run_program({"tour", file(10), "--driver", "emulated"}, {"CUVMM_EMULATOR=colour=red"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors.find("colour"), std::string::npos) << result.errors;
}

// A driver that is wrong in one way, by the environment, and the only stop that may fail then.
struct WrongDriver {
  std::string setting;
  std::string stop;
  std::string reason;                       // a part of it
  std::string machine = "CUVMM_EMULATOR=";  // that it takes
};

void PrintTo(const WrongDriver& wrong, std::ostream* stream) {
  *stream << wrong.setting;
}

class TourWithWrongDriver : public TourCommand, public ::testing::WithParamInterface<WrongDriver> {
 protected:
  void expect_only_that_stop_fails() {
    for (const char* devices : {"1", "2"}) {
      const Json report = tour(file(20'001), {"--devices", devices}, {GetParam().setting, GetParam().machine}, 1);
      EXPECT_EQ(with_status(report, "failed"), Words{GetParam().stop}) << devices << " devices";
      const Json& failed = stop(report, GetParam().stop);
      EXPECT_NE(failed["reason"].get<std::string>().find(GetParam().reason), std::string::npos) << failed["reason"];
      EXPECT_EQ(failed["checks"].back()["passed"], false);
    }
  }
};

TEST_P(TourWithWrongDriver, FailsAtTheStopThatWatchesIt) {
  expect_only_that_stop_fails();
}

// What a fault injected into the n-th call hits depends on the stops before it; a lie does not.
class TourWithLyingDriver : public TourWithWrongDriver {};

TEST_P(TourWithLyingDriver, FailsAtTheStopThatWatchesIt) {
  expect_only_that_stop_fails();
}

TEST_P(TourWithLyingDriver, PassesWithoutThatStop) {
  Words others;
  for (const std::string& id : all_stops_) {
    if (id == GetParam().stop) continue;
    others.push_back("--stop");
    others.push_back(id);
  }
  Words left_out = GetParam().machine == "CUVMM_EMULATOR=" ? Words{} : multicast_stops_;  // no such machine has both
  left_out.push_back(GetParam().stop);
  EXPECT_EQ(with_status(tour(file(20'001), others, {GetParam().setting, GetParam().machine}), "passed"),
            all_but(left_out));
}

INSTANTIATE_TEST_SUITE_P(
    Lies, TourWithLyingDriver,
    ::testing::Values(
        WrongDriver{"CUVMM_LIE=flip_copied_byte", "4.16.2", "read back from the mapped memory"},
        WrongDriver{"CUVMM_LIE=repeat_chunk", "4.16.3.3", "each chunk is memory of its own"},
        WrongDriver{"CUVMM_LIE=keep_replaced_memory", "4.16.3.3", "is not in the former memory"},
        WrongDriver{"CUVMM_LIE=ignore_read_only", "4.16.3.4", "a copy into a read-only mapping is refused"},
        WrongDriver{"CUVMM_LIE=ignore_second_grant", "4.16.3.4", "a grant to read"},
        WrongDriver{"CUVMM_LIE=keep_released_memory", "4.16.3.5",
                    "first the handle, then the mapping: the memory comes back"},
        WrongDriver{"CUVMM_LIE=report_events_done", "4.16.3.5", "unmapping a range waits for the kernel that uses it"},
        WrongDriver{"CUVMM_LIE=ignore_host_grant", "4.16.5.1", "host, for the CPU: the driver says read and write"},
        WrongDriver{"CUVMM_LIE=claim_compression", "4.16.5.2", "that it has no compression"},
        WrongDriver{"CUVMM_LIE=separate_aliases", "4.16.5.3", "the other two took no memory"},
        WrongDriver{"CUVMM_LIE=ignore_read_only_alias", "4.16.5.3", "a copy through the read-only pointer is refused"},
        WrongDriver{"CUVMM_LIE=separate_moved_memory", "vector", "with the same bytes behind it: they are others"},
        WrongDriver{"CUVMM_LIE=separate_ring", "ring", "a ring takes its memory once"},
        WrongDriver{"CUVMM_LIE=gather_places", "stitched", "that they lie where they are to"},
        WrongDriver{"CUVMM_LIE=keep_sleeping_memory", "sleep", "memory that falls asleep is the device's again"},
        WrongDriver{"CUVMM_LIE=flip_streamed_byte", "sleep", "a kernel reads the bytes that slept at the same pointer"},
        WrongDriver{"CUVMM_LIE=renew_second_export", "4.16.3.1", "what a descriptor stands for is the same memory"},
        WrongDriver{"CUVMM_LIE=repeat_import", "4.16.3.2", "importer 1, on device 0 has both memories"},
        WrongDriver{"CUVMM_LIE=keep_imported_memory", "4.16.3.5", "with the second importer the memory comes back"},
        WrongDriver{"CUVMM_LIE=round_multicast_sizes", "4.16.4.1", "a size that is no multiple of the minimum"},
        WrongDriver{"CUVMM_LIE=accept_device_twice", "4.16.4.2", "adding a device twice is refused"},
        WrongDriver{"CUVMM_LIE=misplace_bind", "4.16.4.3", "bound by its handle the other way round"},
        WrongDriver{"CUVMM_LIE=lose_replica", "4.16.4.4", "what device 0 stores is in the memory of device 1"},
        WrongDriver{"CUVMM_LIE=skip_barriers", "4.16.4.4", "stays in the barrier until the last rank has come"},
        WrongDriver{"CUVMM_LIE=accept_windows_handles", "4.16.5.4", "creating memory with handles of Windows (win32)"},
        WrongDriver{"CUVMM_LIE=flip_host_fabric_handle", "4.16.5.4",
                    "importing host memory from its fabric handle in another process is accepted",
                    "CUVMM_EMULATOR=profile=gb200"}));

INSTANTIATE_TEST_SUITE_P(Faults, TourWithWrongDriver,
                         ::testing::Values(WrongDriver{"CUVMM_INJECT_FAULT=cuMemExportToShareableHandle:1:UNKNOWN",
                                                       "4.16.1.2", "descriptors: the device says yes"},
                                           WrongDriver{"CUVMM_INJECT_FAULT=cuMemUnmap:2:UNKNOWN", "4.16.2",
                                                       "unmapping the whole mapping is accepted"}));

TEST_F(TourCommand, ADriverThatLiesAboutAnEmptyFileIsCaughtAsWell) {
  const std::string path = file(0);
  for (const auto& [lie, id] : std::map<std::string, std::string>{{"repeat_chunk", "4.16.3.3"},
                                                                  {"keep_replaced_memory", "4.16.3.3"},
                                                                  {"report_events_done", "4.16.3.5"},
                                                                  {"renew_second_export", "4.16.3.1"},
                                                                  {"repeat_import", "4.16.3.2"},
                                                                  {"keep_imported_memory", "4.16.3.5"},
                                                                  {"accept_windows_handles", "4.16.5.4"},
                                                                  {"round_multicast_sizes", "4.16.4.1"},
                                                                  {"accept_device_twice", "4.16.4.2"},
                                                                  {"misplace_bind", "4.16.4.3"},
                                                                  {"lose_replica", "4.16.4.4"},
                                                                  {"skip_barriers", "4.16.4.4"},
                                                                  {"ignore_host_grant", "4.16.5.1"},
                                                                  {"separate_aliases", "4.16.5.3"},
                                                                  {"separate_moved_memory", "vector"},
                                                                  {"separate_ring", "ring"},
                                                                  {"gather_places", "stitched"},
                                                                  {"keep_sleeping_memory", "sleep"},
                                                                  {"flip_streamed_byte", "sleep"}})
    EXPECT_EQ(with_status(tour(path, {}, {"CUVMM_LIE=" + lie}, 1), "failed"), Words{id}) << lie;
}

TEST_F(TourCommand, ARefusalForAnotherReasonIsNone) {
  // The first mapping and the first unmapping are of a part. Other stops have first ones too.
  for (const std::string fault : {"cuMemMap:1:OUT_OF_MEMORY", "cuMemUnmap:1:UNKNOWN"}) {
    const Json report = tour(file(10), {"--stop", "4.16.2"}, {"CUVMM_INJECT_FAULT=" + fault}, 1);
    const std::string answer = "the driver answered CUDA_ERROR_" + fault.substr(fault.rfind(':') + 1);
    EXPECT_NE(stop(report, "4.16.2")["reason"].get<std::string>().find(answer), std::string::npos) << fault;
  }
}

TEST_F(TourCommand, AFeatureThatIsAnnouncedAndRefusedIsToldWithTheReason) {
  const Json report = tour(file(10), {"--stop", "4.16.1.2"}, {"CUVMM_EMULATOR=descriptor-limit=0"}, 1);
  const std::string reason = stop(report, "4.16.1.2")["reason"];
  for (const char* const part : {"descriptors: the device says yes", "the trial was refused", "DESCRIPTOR-LIMIT",
                                 "descriptor-limit allows no more", "Close descriptors"})
    EXPECT_NE(reason.find(part), std::string::npos) << part << ": " << reason;
  tour(file(10), {"--stop", "4.16.1.2"}, {"CUVMM_EMULATOR=descriptor-limit=1"}, 0);
}

TEST_F(TourCommand, FailsWhereACleanUpFails) {
  const std::string path = file(10);
  // The reference's plain memory is freed by the stop, the module by the end of the tour.
  const Json report = tour(path, {}, {"CUVMM_INJECT_FAULT=cuMemFree:1:UNKNOWN"}, 1);
  EXPECT_EQ(with_status(report, "failed"), Words{"4.16.1.2"});
  EXPECT_NE(stop(report, "4.16.1.2")["reason"].get<std::string>().find("cuMemFree"), std::string::npos);

  const ProgramResult result = run_program({"tour", path, "--driver", "emulated", "--stop", "4.16.2"},
                                           {"CUVMM_INJECT_FAULT=cuModuleUnload:1:UNKNOWN"});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.output.find("1 passed"), std::string::npos) << result.output;
  EXPECT_NE(result.errors.find("a clean-up failed: cuModuleUnload"), std::string::npos) << result.errors;
}

TEST_F(TourCommand, SaysThatItsOutputIsLost) {
  const std::string path = file(10);
  for (const Words& words :
       {Words{"tour", path, "--driver", "emulated"}, Words{"tour", path, "--driver", "emulated", "--json"},
        Words{"tour", "--list"}, Words{"--version"}, Words{"--help"}}) {
    const ProgramResult result = run_program(words, {}, "/dev/full");
    EXPECT_EQ(result.status, 2) << words.back();
    EXPECT_NE(result.errors.find("Standard output cannot be written to"), std::string::npos) << result.errors;
  }
}

TEST_F(TourCommand, RefusesALieThatIsNone) {
  const ProgramResult result = run_program({"tour", file(10), "--driver", "emulated"}, {"CUVMM_LIE=white"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors.find("white"), std::string::npos) << result.errors;
}

TEST_F(TourCommand, TellsItsVersionAndItsOptions) {
  EXPECT_EQ(run_program({"--version"}).output, "cuvmm " CUVMM_VERSION "\n");
  EXPECT_EQ(run_program({"tour", "--version"}).output, "cuvmm " CUVMM_VERSION "\n");
  const ProgramResult help = run_program({"tour", "--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_NE(help.output.find("--devices"), std::string::npos);
  EXPECT_EQ(run_program({"--help"}).output.find("-probe"), std::string::npos);
}

}  // namespace
}  // namespace cuvmm::tests
