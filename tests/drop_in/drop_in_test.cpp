// Programs that know nothing of cuvmm, run under `cuvmm emulate` on the emulated driver in the CUDA driver's place.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Words = std::vector<std::string>;

// The driver is there until the process is gone, and so are its threads, which the thread sanitizer is not to report.
std::string sanitizer_options() {
  const char* const given = std::getenv("TSAN_OPTIONS");
  return "TSAN_OPTIONS=" + std::string(given == nullptr ? "" : given) + ":report_thread_leaks=0";
}

ProgramResult emulate(const Words& command, Words environment = {}) {
  environment.push_back(sanitizer_options());
  Words words{"emulate", "--devices", "2", "--"};
  words.insert(words.end(), command.begin(), command.end());
  return run_program(words, environment);
}

std::size_t lines_with(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

class LinkedClient : public ::testing::TestWithParam<const char*> {};

TEST_P(LinkedClient, Runs) {
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, GetParam()});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
}

INSTANTIATE_TEST_SUITE_P(OnTheDropIn, LinkedClient,
                         ::testing::Values("life_cycle", "before_initialisation", "user_objects_before_initialisation",
                                           "per_thread_stream_forms", "many_threads", "forked", "late_calls",
                                           "exceptions"),
                         [](const auto& tested) { return std::string(tested.param); });

class LoadingClient : public ::testing::TestWithParam<const char*> {};

TEST_P(LoadingClient, Runs) {
  const ProgramResult result = emulate({CUVMM_LOADING_CLIENT, GetParam()});
  EXPECT_EQ(result.status, 0) << result.errors;
}

INSTANTIATE_TEST_SUITE_P(OnTheDropIn, LoadingClient,
                         ::testing::Values("by_name", "closed_and_opened_again", "opened_by_many_threads", "looked_up",
                                           "looked_up_in_13_1"),
                         [](const auto& tested) { return std::string(tested.param); });

// The test of the tests: without `cuvmm emulate` the linked program has no driver, or a real one with other devices.
TEST(LinkedClientAlone, DoesNotFindTheDropIn) {
  const std::string line =
      "LD_LIBRARY_PATH= ldd " + quoted_for_shell(CUVMM_LINKED_CLIENT) + " | grep -q cuvmm/emulated";
  EXPECT_NE(std::system(line.c_str()), 0);
}

TEST(DropIn, NamesEachEntryPointThatItDoesNotHaveOnce) {
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, "not_offered"});
  EXPECT_EQ(result.status, 0) << result.errors;
  for (const char* const name : {"cuCtxResetPersistingL2Cache (CUDA 11.0)", "cuGLInit (CUDA 2.0)", "cuGetExportTable"})
    EXPECT_EQ(lines_with(result.errors,
                         std::string("cuvmm emulated driver: ") + name + " answers CUDA_ERROR_NOT_SUPPORTED: "),
              1U)
        << result.errors;
  EXPECT_EQ(lines_with(result.errors, "\n"), 3U) << result.errors;
}

TEST(DropIn, SaysThatItRunsNoDeviceCode) {
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, "device_code"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(lines_with(result.errors, "cuModuleLoadData of device code"), 1U) << result.errors;
  EXPECT_EQ(lines_with(result.errors, "cuModuleGetFunction of a kernel of the program's own"), 1U) << result.errors;
  EXPECT_EQ(lines_with(result.errors, "\n"), 2U) << result.errors;
}

TEST(DropIn, HasTheFormsOfTodaysHeaders) {
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, "newer_forms"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(lines_with(result.errors, "cuCtxCreate_v4"), 1U) << result.errors;
}

TEST(DropIn, HasTheOtherFormsOfStreamsContextsAndGraphs) {
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, "other_forms"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(lines_with(result.errors, "\n"), 0U) << result.errors;
}

TEST(DropIn, TakesItsSettingsWhenItIsInitialised) {
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, "environment"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(lines_with(result.errors, "devices is 'none' (from CUVMM_EMULATOR)"), 1U) << result.errors;
}

TEST(DropIn, CanBeForkedWhileItIsInitialised) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("settings.json");
  std::string pairs = "\"0-1\"";
  for (int number = 0; number < 50000; ++number) pairs += ", \"0-1\"";
  std::ofstream(file) << "{\"no-peer\": [" << pairs << "]}";
  const ProgramResult result = emulate({CUVMM_LINKED_CLIENT, "forked_meanwhile"}, {"CUVMM_EMULATOR_CONFIG=" + file});
  EXPECT_EQ(result.status, 0) << result.errors;
}

// The same program, unmodified, that tours real GPUs.
TEST(DropIn, CarriesTheWholeTour) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("file");
  std::ofstream(file, std::ios::binary) << std::string(3000000, 'x') << "end";
  const ProgramResult result = emulate({CUVMM_PROGRAM, "tour", file, "--driver", "cuda", "--devices", "2"},
                                       {"CUVMM_EMULATOR=profile=h200-multicast,devices=2,imex-channels=1"});
  EXPECT_EQ(result.status, 0) << result.output << result.errors;
  EXPECT_NE(result.output.find("Driver: CUDA driver 13.0 (libcuda.so.1)"), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("19 passed, 0 failed, 0 unavailable."), std::string::npos) << result.output;
}

}  // namespace
}  // namespace cuvmm::tests
