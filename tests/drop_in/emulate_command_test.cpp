// `cuvmm emulate` from outside: what it passes on, and what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Words = std::vector<std::string>;

ProgramResult shell(const std::string& line, Words options = {}, const Words& environment = {}) {
  options.insert(options.begin(), "emulate");
  options.insert(options.end(), {"--", "sh", "-c", line});
  return run_program(options, environment);
}

TEST(EmulateCommand, PassesTheExitStatusOn) {
  EXPECT_EQ(shell("exit 0").status, 0);
  EXPECT_EQ(shell("exit 7").status, 7);
  EXPECT_EQ(shell("exit 255").status, 255);
}

TEST(EmulateCommand, PassesOnWhichSignalEndedTheProgram) {
  EXPECT_EQ(shell("kill -KILL $$").status, 128 + 9);
  EXPECT_EQ(shell("kill -TERM $$").status, 128 + 15);
}

TEST(EmulateCommand, SendsSignalsOnToTheProgram) {
  for (const std::string signal : {"TERM", "INT", "HUP", "USR1"}) {
    std::string line = "trap 'exit 9' SIGNAL; kill -SIGNAL $PPID; while :; do sleep 0.05; done";
    for (std::size_t at = 0; (at = line.find("SIGNAL")) != std::string::npos;) line.replace(at, 6, signal);
    const ProgramResult result = shell(line);
    EXPECT_EQ(result.status, 9) << signal << result.errors;
  }
}

TEST(EmulateCommand, PassesArgumentsOnAsTheyAre) {
  const ProgramResult result =
      run_program({"emulate", "--", "printf", "%s,", "--devices", "tour", "--", "a b", "", "--help"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.output, "--devices,tour,--,a b,,--help,");
}

TEST(EmulateCommand, PutsItsLibraryBeforeOthers) {
  const ProgramResult alone = shell("printf %s \"$LD_LIBRARY_PATH\"", {}, {"LD_LIBRARY_PATH="});
  ASSERT_EQ(alone.status, 0) << alone.errors;
  EXPECT_TRUE(std::filesystem::exists(alone.output + "/libcuda.so.1")) << alone.output;
  const ProgramResult others = shell("printf %s \"$LD_LIBRARY_PATH\"", {}, {"LD_LIBRARY_PATH=/one:/two"});
  EXPECT_EQ(others.output, alone.output + ":/one:/two");
}

TEST(EmulateCommand, AddsItsOptionsToTheSettings) {
  const std::string print = "printf %s \"$CUVMM_EMULATOR\"";
  EXPECT_EQ(shell(print).output, "");
  EXPECT_EQ(shell(print, {}, {"CUVMM_EMULATOR=devices=3"}).output, "devices=3");
  EXPECT_EQ(shell(print, {"--devices", "2", "--strict"}, {"CUVMM_EMULATOR=devices=3"}).output, "devices=2,mode=strict");
  EXPECT_EQ(shell(print, {"--profile", "no-rdma", "--memory", "1GiB"}).output, "profile=no-rdma,memory=1GiB");
}

struct Refusal {
  Words options;
  Words mended;
  std::string said;
};

TEST(EmulateCommand, RefusesSettingsThatMakeNoMachine) {
  const Refusal refusals[] = {
      {{"--devices", "0"}, {"--devices", "1"}, "devices is '0' (from --devices); it may be"},
      {{"--devices", "33"}, {"--devices", "32"}, "devices is '33' (from --devices)"},
      {{"--memory", "lots"}, {"--memory", "8GiB"}, "memory is 'lots' (from --memory)"},
      {{"--memory", ""}, {"--memory", "8GiB"}, "memory is '' (from --memory)"},
      {{"--memory", "8GiB,devices=3"}, {"--memory", "8GiB"}, "memory is '8GiB,devices=3' (from --memory)"},
      {{"--memory", "8"}, {"--memory", "8GiB"}, "memory is 8 bytes; each device needs 528.8 MiB at least"},
      {{"--memory", "1000TiB"}, {"--memory", "200TiB"}, "memory is 1000 TiB; a device can have 256 TiB at most"},
      {{"--profile", "h100"}, {"--profile", "h200-580"}, "profile is 'h100' (from --profile)"},
  };
  for (const Refusal& refusal : refusals) {
    const ProgramResult refused = shell("echo ran", refusal.options);
    EXPECT_EQ(refused.status, 2);
    EXPECT_EQ(refused.output, "");
    EXPECT_NE(refused.errors.find(refusal.said), std::string::npos) << refused.errors;
    EXPECT_EQ(shell("echo ran", refusal.mended).output, "ran\n");
  }
}

TEST(EmulateCommand, HintsAtTheMarkBeforeTheProgram) {
  const ProgramResult refused = run_program({"emulate", "--devices", "2", "printf", "%s", "ran"}, {});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.output, "");
  EXPECT_EQ(refused.errors,
            "cuvmm emulate: 'printf' is no option. The program to run follows after --: cuvmm emulate [OPTIONS] -- "
            "printf %s ran\n");
  EXPECT_EQ(run_program({"emulate", "--devices", "2", "--", "printf", "%s", "ran"}, {}).output, "ran");
  const ProgramResult misspelled = run_program({"emulate", "--device", "2", "--", "true"}, {});
  EXPECT_EQ(misspelled.status, 2);
  EXPECT_EQ(misspelled.errors.find("follows after --"), std::string::npos) << misspelled.errors;
}

TEST(EmulateCommand, RefusesAnEnvironmentThatMakesNoMachine) {
  const ProgramResult refused = shell("echo ran", {}, {"CUVMM_EMULATOR=colour=blue"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.output, "");
  EXPECT_NE(refused.errors.find("cuvmm emulate: emulated driver: there is no setting 'colour' (from CUVMM_EMULATOR"),
            std::string::npos)
      << refused.errors;
}

TEST(EmulateCommand, BlamesTheNodeAndNotWhatItHasSetItself) {
  const ProgramResult refused = shell("exit 0", {}, {"CUVMM_EMULATOR=node=5"});
  EXPECT_EQ(refused.status, 2);
  for (const char* const part : {"node is 5 and nodes is 1", "--nodes", "(from CUVMM_EMULATOR"})
    EXPECT_NE(refused.errors.find(part), std::string::npos) << refused.errors;
  EXPECT_EQ(refused.errors.find("CUVMM_EMULATOR_MACHINE"), std::string::npos) << refused.errors;
  EXPECT_EQ(shell("exit 0", {"--nodes", "6"}, {"CUVMM_EMULATOR=node=5"}).status, 0);
}

TEST(EmulateCommand, IsToldOfByTheToolsThatRunOnIt) {
  const std::string doctor = quoted_for_shell(CUVMM_PROGRAM) + " doctor --driver cuda";
  const std::string line = "CUDA driver 13.0 (libcuda.so.1), which is cuvmm's emulated driver";
  EXPECT_NE(shell(doctor).output.find("Driver: " + line), std::string::npos) << shell(doctor).output;
  EXPECT_NE(shell(doctor + " --json").output.find("\"description\": \"" + line), std::string::npos);
}

TEST(EmulateCommand, ExplainsRefusalsToProgramsThatDoNot) {
  const std::string refused = quoted_for_shell(CUVMM_PROGRAM) + " doctor --driver cuda --probe";
  const std::string line = "cuvmm emulated driver: cuMemCreate answers CUDA_ERROR_NOT_PERMITTED: CREATE-FABRIC-IMEX: ";
  EXPECT_NE(shell(refused, {"--explain"}).errors.find(line), std::string::npos) << shell(refused, {"--explain"}).errors;
  EXPECT_EQ(shell(refused).errors.find(line), std::string::npos);
}

// Remedies are settings of the emulated machine, and nothing that is done to this one.
TEST(EmulateCommand, HasToolsNameItsSettingsAsRemedies) {
  const std::string doctor = quoted_for_shell(CUVMM_PROGRAM) + " doctor --driver cuda --probe";
  const std::string page = shell(doctor).output;
  EXPECT_NE(page.find("imex-channels=1"), std::string::npos) << page;
  EXPECT_EQ(page.find("NVreg_CreateImexChannel0"), std::string::npos) << page;
  EXPECT_EQ(shell(doctor, {"--profile", "gb200"}).output.find("imex-channels=1"), std::string::npos);
}

TEST(EmulateCommand, HasProgramsOfTheLibraryOpenItsDriver) {
  const std::string print = "printf %s \"$CUVMM_DRIVER\"";
  EXPECT_EQ(shell(print, {}, {"CUVMM_DRIVER=emulated"}).output, "cuda");
  EXPECT_EQ(shell(print, {}, {"CUVMM_DRIVER="}).output, "");
}

TEST(EmulateCommand, NeedsACommand) {
  for (const Words& words :
       {Words{"emulate"}, Words{"emulate", "--"}, Words{"emulate", "--strict", "--"}, Words{"emulate", "--", ""}}) {
    const ProgramResult result = run_program(words);
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.errors.find("cuvmm emulate [OPTIONS] -- CMD ARG..."), std::string::npos) << result.errors;
  }
  EXPECT_EQ(run_program({"emulate", "true"}).status, 2);
  EXPECT_EQ(run_program({"emulate", "--", "true"}).status, 0);
}

TEST(EmulateCommand, SaysWhyACommandDoesNotRun) {
  const ProgramResult absent = run_program({"emulate", "--", "/no/such/program"});
  EXPECT_EQ(absent.status, 127);
  EXPECT_EQ(absent.errors, "cuvmm emulate: '/no/such/program' cannot be run: No such file or directory.\n");
  const ProgramResult folder = run_program({"emulate", "--", "/"});
  EXPECT_EQ(folder.status, 126);
  EXPECT_EQ(folder.errors, "cuvmm emulate: '/' cannot be run: Permission denied.\n");
}

// A parent that ignores the end of its children hands that on.
TEST(EmulateCommand, PassesTheExitStatusOnWhereChildrenAreIgnored) {
  const ProgramResult result = run_program(
      {"emulate", "--", "env", "--ignore-signal=CHLD", CUVMM_PROGRAM, "emulate", "--", "sh", "-c", "exit 7"});
  EXPECT_EQ(result.status, 7) << result.errors;
}

TEST(EmulateCommand, RefusesAFolderThatCannotBeNamed) {
  for (const auto& [name, status] : {std::pair{"one:two", 2}, std::pair{"one$two", 2}, std::pair{"one two", 0}}) {
    const TemporaryDirectory directory;
    const std::filesystem::path root = directory.path(name);
    const std::filesystem::path library = (root / "bin" / CUVMM_DROP_IN_FROM_PROGRAM).lexically_normal();
    std::filesystem::create_directories(root / "bin");
    std::filesystem::create_directories(library);
    std::filesystem::copy_file(CUVMM_PROGRAM, root / "bin/cuvmm");
    std::filesystem::copy_file(CUVMM_DROP_IN, library / "libcuda.so.1");
    const ProgramResult result = run_program({"emulate", "--", root / "bin/cuvmm", "emulate", "--", "true"});
    EXPECT_EQ(result.status, status) << result.errors;
    EXPECT_EQ(result.errors.find("cannot be named in LD_LIBRARY_PATH") == std::string::npos, status == 0);
  }
}

// The command finds the library from where it lies itself.
TEST(EmulateCommand, SaysThatItsLibraryIsNotThere) {
  const TemporaryDirectory directory;
  const std::string copy = directory.path("cuvmm");
  std::filesystem::copy_file(CUVMM_PROGRAM, copy);
  const ProgramResult result = run_program({"emulate", "--", copy, "emulate", "--", "echo", "ran"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.output, "");
  EXPECT_NE(result.errors.find("libcuda.so.1' is not there or cannot be read"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace cuvmm::tests
