// Programs that know nothing of cuvmm share a machine as the processes of real hardware do.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Words = std::vector<std::string>;

ProgramResult emulate(const Words& options, const Words& command, const Words& environment = {}) {
  Words words{"emulate"};
  words.insert(words.end(), options.begin(), options.end());
  words.push_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return run_program(words, environment);
}

TEST(DropInSharing, OfAParentAndItsChild) {
  for (const std::string how : {"fork", "exec"}) {
    const ProgramResult result = emulate({}, {CUVMM_SHARING_CLIENT, how});
    EXPECT_EQ(result.status, 0) << how << result.errors;
    EXPECT_EQ(result.errors, "") << how;
  }
}

TEST(DropInSharing, WorksWithoutTheCommand) {
  const TemporaryDirectory runtime;
  const ProgramResult result =
      emulate({}, {"env", "-u", "CUVMM_EMULATOR_MACHINE", "XDG_RUNTIME_DIR=" + runtime.path("."),
                   "LD_LIBRARY_PATH=" CUVMM_DROP_IN_FOLDER, CUVMM_SHARING_CLIENT, "exec"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(std::filesystem::exists(runtime.path("cuvmm"))) << "that is where the machine was";
}

#ifdef CUVMM_SHARING_PUBLISHER
// Programs of the library, which do not know that their CUDA driver is none: it tells them the node all the same.
TEST(DropInSharing, C19_TheLibraryKnowsOnWhichNodeItIs) {
  const TemporaryDirectory directory;
  const std::string socket = directory.path("private") + "/socket";
  const std::string both =
      "\"$1\" \"$3\" text & publisher=$!; CUVMM_EMULATOR=$4 \"$2\" \"$3\"; status=$?; "
      "kill $publisher 2>/dev/null; wait $publisher; exit $status";
  const auto attach_on = [&](const std::string& node) {
    return emulate({"--nodes", "2", "--profile", "gb200"},
                   {"sh", "-c", both, "sh", CUVMM_SHARING_PUBLISHER, CUVMM_SHARING_ATTACHER, socket, node});
  };
  const ProgramResult other = attach_on("node=1");
  EXPECT_EQ(other.status, 1) << other.output;
  for (const std::string part :
       {"not supported", "on node 0 of the emulated machine", "on node 1 of the emulated machine"})
    EXPECT_NE(other.errors.find(part), std::string::npos) << part << " in\n" << other.errors;
  const ProgramResult same = attach_on("node=0");
  EXPECT_EQ(same.status, 0) << same.errors;
  EXPECT_NE(same.output.find("text\n"), std::string::npos) << same.output;
}
#endif

TEST(EmulateCommand, MakesAMachineOfItsOwnForTheCommand) {
  const std::string print = "printf %s \"$CUVMM_EMULATOR_MACHINE\"";
  const std::string one = emulate({"--nodes", "2", "--devices", "3"}, {"sh", "-c", print}).output;
  const std::string other = emulate({}, {"sh", "-c", print}).output;
  EXPECT_NE(one.find(",node=0,"), std::string::npos) << one;
  EXPECT_NE(one.find(",nodes=2,"), std::string::npos) << one;
  EXPECT_NE(one.find("devices=3,"), std::string::npos) << one;
  EXPECT_NE(one.substr(0, one.find(',')), other.substr(0, other.find(',')));
}

TEST(EmulateCommand, LeavesTheNodeToTheSettings) {
  const auto started = [](const Words& options, const std::string& settings) {
    return emulate(options, {"sh", "-c", "CUVMM_EMULATOR=" + settings + " exec " CUVMM_SHARING_CLIENT " start"}).output;
  };
  EXPECT_EQ(started({"--nodes", "2"}, "node=1"), "0\n");
  EXPECT_EQ(started({"--nodes", "2"}, "node=2"), "100\n") << "NO_DEVICE: there is no such node";
  EXPECT_EQ(started({}, "node=1"), "100\n");
}

TEST(EmulateCommand, RefusesNodesThatThereCannotBe) {
  for (const std::string nodes : {"0", "65", "two"}) {
    const ProgramResult refused = emulate({"--nodes", nodes}, {"true"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.errors.find("nodes is '" + nodes + "' (from --nodes)"), std::string::npos) << refused.errors;
  }
  EXPECT_EQ(emulate({"--nodes", "64"}, {"true"}).status, 0);
}

TEST(DropIn, SaysWhyItCannotJoinAMachine) {
  const ProgramResult result = emulate({}, {CUVMM_SHARING_CLIENT, "start"}, {"CUVMM_EMULATOR_BROKER=/no/such/program"});
  EXPECT_EQ(result.output, "304\n") << "OPERATING_SYSTEM";
  EXPECT_NE(result.errors.find("cuvmm emulated driver: cannot start the broker of the emulated machine, "
                               "'/no/such/program'"),
            std::string::npos)
      << result.errors;
}

TEST(DeadHandles, CrashWhereTheRealDriverDoesIfThatIsAskedFor) {
  const ProgramResult refused = emulate({}, {CUVMM_SHARING_CLIENT, "dead-handle"});
  EXPECT_EQ(refused.status, 0);
  EXPECT_NE(refused.errors.find("code 1\n"), std::string::npos) << refused.errors;
  const ProgramResult crashed =
      emulate({}, {CUVMM_SHARING_CLIENT, "dead-handle"}, {"CUVMM_EMULATOR=crash-on-dead-handles"});
  EXPECT_EQ(crashed.status, 128 + SIGSEGV) << crashed.errors;
}

}  // namespace
}  // namespace cuvmm::tests
