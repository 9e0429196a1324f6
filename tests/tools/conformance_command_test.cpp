// `cuvmm conformance` from outside: what it prints, what it records, and with which status it ends.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../sanitizers.hpp"
#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

ProgramResult conformance(const Words& more, const Words& environment = {}) {
  Words words{"conformance", "--driver", "emulated", "--jobs", "2"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words, environment);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ConformanceCommand, PrintsATableWhereNothingDiffers) {
  const ProgramResult result = conformance({"--match", "map."});
  EXPECT_EQ(result.status, 0) << result.output << result.errors;
  EXPECT_EQ(result.errors, "");
  for (const char* part : {"Driver: emulated", "Compared with: NVIDIA H200, driver 580", "\ngroup ", "\nmap ", "\nall ",
                           "map.handle_garbage\n    recorded  (signal 11)\n    answered  INVALID_VALUE",
                           "crash refused", "none different.\n"})
    EXPECT_TRUE(contains(result.output, part)) << part << " in\n" << result.output;
}

TEST(ConformanceCommand, TellsBothAnswersWhereTheyDiffer) {
  const ProgramResult result = conformance({"--match", "access.flag_3"}, {"CUVMM_EMULATOR=set-access-fails"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.output, "access.flag_3\n    recorded  OK OK/3\n    answered  UNKNOWN OK/0\n"))
      << result.output;
  EXPECT_TRUE(contains(result.output, "1 cases: 1 DIFFERENT.\n")) << result.output;
  EXPECT_EQ(conformance({"--match", "access.flag_3"}).status, 0);
}

TEST(ConformanceCommand, WritesJson) {
  const ProgramResult result = conformance({"--match", "props.", "--json"});
  EXPECT_EQ(result.status, 0) << result.errors;
  const Json report = Json::parse(result.output, nullptr, false);
  EXPECT_EQ(report["driver"]["emulated"], true);
  EXPECT_EQ(report["profile"], "h200-580");
  EXPECT_EQ(report["counts"]["different"], 0);
  EXPECT_EQ(report["counts"]["on_purpose"], 1);
  EXPECT_EQ(report["counts"]["cases"], report["cases"].size());
  EXPECT_EQ(report["cases"][0]["group"], "props");
}

TEST(ConformanceCommand, TellsWhatIsUnavailableAndWhy) {
  const ProgramResult result = conformance({"--match", "peer.access", "--devices", "1"});
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(contains(result.output, "Unavailable: needs 2 devices (1 cases)")) << result.output;
  EXPECT_FALSE(contains(conformance({"--match", "peer.access"}).output, "Unavailable")) << result.output;
}

TEST(ConformanceCommand, RecordsWhatIsAnswered) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("answers");
  EXPECT_EQ(conformance({"--match", "access.flag_", "--record", file}).status, 0);
  EXPECT_TRUE(contains(content_of(file), "access.flag_1\tOK OK/1\naccess.flag_2\tINVALID_VALUE OK/0\n"))
      << content_of(file);
}

TEST(ConformanceCommand, RunsAPartOfTheCases) {
  const TemporaryDirectory directory;
  const auto shard = [&](const std::string& which) {
    const std::string file = directory.path("answers");
    const ProgramResult result = conformance({"--match", "access.flag_", "--shard", which, "--record", file});
    EXPECT_EQ(result.status, 0) << result.errors;
    return content_of(file);
  };
  const std::string first = shard("1/2");
  const std::string second = shard("2/2");
  EXPECT_TRUE(contains(first + second, "access.flag_1\t")) << first << second;
  EXPECT_NE(contains(first, "access.flag_1\t"), contains(second, "access.flag_1\t")) << first << second;
  EXPECT_EQ(shard("1/1").size(), first.size() + second.size());
  for (const char* const wrong : {"0/2", "3/2", "1", "1/", "/2", "1/2x", "-1/2"}) {
    const ProgramResult result = conformance({"--match", "access.flag_", "--shard", wrong});
    EXPECT_EQ(result.status, 2) << wrong;
    EXPECT_TRUE(contains(result.errors, "take I/N with 1 <= I <= N")) << result.errors;
  }
  EXPECT_EQ(conformance({"--match", "access.flag_1", "--shard", "99/100"}).status, 2);
}

TEST(ConformanceCommand, RefusesWhatItCannotDo) {
  const ProgramResult no_case = conformance({"--match", "no such case"});
  EXPECT_EQ(no_case.status, 2);
  EXPECT_TRUE(contains(no_case.errors, "cuvmm conformance: No case has 'no such case' in its name")) << no_case.errors;
  const ProgramResult no_profile = conformance({"--profile", "gb200"});
  EXPECT_EQ(no_profile.status, 2);
  EXPECT_TRUE(contains(no_profile.errors, "there are: h200-580")) << no_profile.errors;
  EXPECT_EQ(conformance({"--match", "init.", "--profile", "h200-580"}).status, 0);
  EXPECT_EQ(conformance({"--match", "init.", "--record", "/no/such/folder/file"}).status, 2);
  EXPECT_EQ(conformance({"--seed", "1"}).status, 2);  // without --sequences
  EXPECT_EQ(conformance({"--devices", "3"}).status, 2);
  EXPECT_EQ(run_program({"conformance", "--driver", "cuda"}, {"CUDA_VISIBLE_DEVICES="}).status, 2);
}

TEST(ConformanceCommand, RefusesWhatIsNoRecording) {
  const Words sequences{"--sequences", "1", "--sequences-file"};
  const auto with = [&](const std::string& file) {
    Words words = sequences;
    words.push_back(file);
    return conformance(words);
  };
  for (const char* const file : {"/tmp", "/dev/zero", "/no/such/file", CUVMM_PROGRAM}) {
    const ProgramResult result = with(file);
    EXPECT_EQ(result.status, 2) << file << result.output;
    EXPECT_TRUE(contains(result.errors, file)) << result.errors;
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
  }
  const TemporaryDirectory directory;
  EXPECT_EQ(conformance({"--sequences", "1", "--record", directory.path("file")}).status, 0);
  EXPECT_EQ(with(directory.path("file")).status, 0);
}

TEST(ConformanceCommand, RefusesSeedsThatThereAreNot) {
  for (const char* const seed : {"18446744073709551616", "-1", "1.5", "0x1", "", "a"}) {
    const ProgramResult result = conformance({"--sequences", "1", "--seed", seed});
    EXPECT_EQ(result.status, 2) << seed << result.output;
    EXPECT_TRUE(contains(result.errors, "is no seed")) << seed << result.errors;
  }
  EXPECT_EQ(conformance({"--sequences", "2", "--seed", "18446744073709551615"}).status, 2);
  EXPECT_EQ(conformance({"--sequences", "1", "--seed", "18446744073709551615"}).status, 0);
}

TEST(ConformanceCommand, RefusesAMatchForSequences) {
  const ProgramResult both = conformance({"--sequences", "1", "--match", "map."});
  EXPECT_EQ(both.status, 2) << both.output;
  EXPECT_TRUE(contains(both.errors, "--match")) << both.errors;
  EXPECT_EQ(conformance({"--sequences", "1"}).status, 0);
}

TEST(ConformanceCommand, LosesNoRecord) {
  for (const char* const asked : {"cases", "sequences"}) {
    const bool cases = std::string(asked) == "cases";
    const Words first = cases ? Words{"--match", "init."} : Words{"--sequences", "1"};
    const auto recording_to = [&](const std::string& file) {
      Words words = first;
      words.insert(words.end(), {"--record", file});
      return conformance(words);
    };
    const ProgramResult full = recording_to("/dev/full");
    EXPECT_EQ(full.status, 2) << asked << full.output;
    EXPECT_TRUE(contains(full.errors, "'/dev/full' cannot be written (No space left on device).")) << full.errors;
    EXPECT_EQ(recording_to("/tmp").status, 2) << asked;
    EXPECT_EQ(recording_to("/dev/null").status, 0) << asked;
  }
}

TEST(ConformanceCommand, RecordsTheSameWhereItsOutputIsClosed) {
  for (const Words& asked : {Words{"--match", "access.flag_"}, Words{"--sequences", "3", "--seed", "1"}}) {
    const TemporaryDirectory directory;
    Words words = asked;
    words.insert(words.end(), {"--record", directory.path("open")});
    EXPECT_EQ(conformance(words).status, 0);
    for (const std::string closing : {">&-", "<&- >&- 2>&-"}) {
      std::string line = quoted_for_shell(CUVMM_PROGRAM) + " conformance --driver emulated";
      for (const std::string& word : asked) line += " " + word;
      line += " --record " + quoted_for_shell(directory.path("closed")) + " " + closing;
      const int status = std::system(line.c_str());
      EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 2) << "the report is lost";
      EXPECT_EQ(content_of(directory.path("closed")), content_of(directory.path("open"))) << closing;
    }
  }
}

TEST(ConformanceCommand, TellsTheFirstStepOfASequenceThatDiffers) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("sequences");
  EXPECT_EQ(conformance({"--sequences", "30", "--seed", "1", "--record", file}).status, 0);
  const Words compared{"--sequences", "30", "--sequences-file", file};
  const ProgramResult result = conformance(compared, {"CUVMM_EMULATOR=set-access-fails"});
  EXPECT_EQ(result.status, 1) << result.errors;
  for (const char* part : {"Different, at the first step that is:", ": cuMemSetAccess(space=", "    recorded  OK\n",
                           "    answered  UNKNOWN\n", " DIFFERENT.\n"})
    EXPECT_TRUE(contains(result.output, part)) << part << " in\n" << result.output;
  Words json = compared;
  json.emplace_back("--json");
  const Json report = Json::parse(conformance(json, {"CUVMM_EMULATOR=set-access-fails"}).output, nullptr, false);
  EXPECT_EQ(report["differences"][0]["answer"], "UNKNOWN");
}

TEST(ConformanceCommand, RecordsSequencesAndComparesThemWithTheFile) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("sequences");
  const ProgramResult recorded = conformance({"--sequences", "20", "--seed", "70001", "--record", file});
  EXPECT_EQ(recorded.status, 0) << recorded.errors;
  EXPECT_TRUE(contains(recorded.output, "20 not recorded, none different.\n")) << recorded.output;
  const ProgramResult compared = conformance({"--sequences", "20", "--sequences-file", file});
  EXPECT_EQ(compared.status, 0) << compared.output << compared.errors;
  EXPECT_TRUE(contains(compared.output, " 20 equal, none different.\n")) << compared.output;
  EXPECT_EQ(conformance({"--sequences", "20", "--sequences-file", file, "--devices", "1"}).status, 2);
}

TEST(ConformanceCommand, NoticesThatTheGeneratorHasChanged) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("sequences");
  EXPECT_EQ(conformance({"--sequences", "1", "--seed", "5", "--record", file}).status, 0);
  std::string text = content_of(file);
  char& last_digit = text[text.size() - 2];  // of the checksum of the calls
  last_digit = last_digit == '0' ? '1' : '0';
  std::ofstream{file} << text;
  const ProgramResult changed = conformance({"--sequences", "1", "--sequences-file", file});
  EXPECT_EQ(changed.status, 2);
  EXPECT_TRUE(contains(changed.errors, "Record again")) << changed.errors;
}

TEST(ConformanceCommand, TellsWhatSequencesConsistOf) {
  const TemporaryDirectory directory;
  const std::string file = directory.path("sequences");
  EXPECT_EQ(conformance({"--sequences", "50", "--seed", "1", "--record", file}).status, 0);
  const Words asked{"--sequences", "50", "--sequences-file", file, "--statistics"};
  const ProgramResult result = conformance(asked);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_TRUE(contains(result.output, "cuMemMap")) << result.output;
  EXPECT_TRUE(contains(result.output, "\n50 sequences of ")) << result.output;
  Words with_json = asked;
  with_json.emplace_back("--json");
  const Json json = Json::parse(conformance(with_json).output, nullptr, false);
  EXPECT_EQ(json["sequences"], 50);
  EXPECT_GT(json["by_call"]["cuMemMap"]["answers"]["OK"], 0);
}

// The processes of that parent.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  std::istringstream numbers(
      content_of("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children"));
  for (pid_t child = 0; numbers >> child;) found.push_back(child);
  return found;
}

// Stops the first process of a case that is seen, which then never ends by itself.
bool stop_a_case(pid_t command) {
  while (::kill(command, 0) == 0) {
    for (const pid_t child : children_of(command))
      if (contains(content_of("/proc/" + std::to_string(child) + "/cmdline"), "conformance-case"))
        return ::kill(child, SIGSTOP) == 0;
    if (::waitpid(command, nullptr, WNOHANG) != 0) return false;
  }
  return false;
}

TEST(ConformanceCommand, KillsACaseThatHangsAndNamesIt) {
  const TemporaryDirectory directory;
  const std::string output = directory.path("output");
  const pid_t command = ::fork();
  if (command == 0) {
    if (std::freopen(output.c_str(), "w", stdout) == nullptr) ::_exit(99);
    ::execl(CUVMM_PROGRAM, "cuvmm", "conformance", "--driver", "emulated", "--shard", "1/10", "--time-limit", "2",
            "--json", nullptr);
    ::_exit(98);
  }
  ASSERT_TRUE(stop_a_case(command)) << content_of(output);
  int status = 0;
  ASSERT_EQ(::waitpid(command, &status, 0), command);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1);
  const Json report = Json::parse(content_of(output), nullptr, false);
  EXPECT_GE(report["counts"]["timed_out"], 1) << content_of(output);
}

TEST(ConformanceCommand, LetsKernelsEndInEveryMode) {
  for (const char* const settings :
       {"mode=faithful", "mode=strict", "scheduler=stepped", "mode=strict,scheduler=stepped"}) {
    const ProgramResult result =
        conformance({"--match", "under", "--json"}, {std::string("CUVMM_EMULATOR=") + settings});
    const Json report = Json::parse(result.output, nullptr, false);
    EXPECT_EQ(report["counts"]["timed_out"], 0) << result.output;
    const bool strict = contains(settings, "strict");
    EXPECT_EQ(report["counts"]["different"], strict ? 1 : 0) << settings << '\n' << result.output;
    EXPECT_EQ(contains(result.output, "NOT_READY INVALID_VALUE OK OK"), strict) << settings;
  }
}

// Which of the cases are run by the hundreds: each is a process, which takes a quarter of a second with a sanitizer.
constexpr const char* shard_of_many = test::sanitized ? "1/10" : "1/1";

// Those that would wait for themselves are left out; of others every seed answers the same.
TEST(ConformanceCommand, DiffersNowhereWithTheSteppedScheduler) {
  for (const char* const seed : {"2", "6"})
    for (const char* const match : {"stream", "event", "graph", "external"}) {
      const ProgramResult result = conformance({"--match", match, "--shard", shard_of_many, "--time-limit", "60"},
                                               {std::string("CUVMM_EMULATOR=scheduler=stepped,seed=") + seed});
      EXPECT_EQ(result.status, 0) << seed << '\n' << result.output << result.errors;
    }
  const ProgramResult stepped = conformance({"--match", "stream.query_busy"}, {"CUVMM_EMULATOR=scheduler=stepped"});
  EXPECT_TRUE(contains(stepped.output, "take the setting scheduler=threaded (1 cases)")) << stepped.output;
  const ProgramResult threaded = conformance({"--match", "stream.query_busy"}, {"CUVMM_EMULATOR=scheduler=threaded"});
  EXPECT_TRUE(contains(threaded.output, "1 cases: 1 equal")) << threaded.output;
}

// The emulated driver as a library, found where programs look for the CUDA driver's.
TEST(ConformanceCommand, RunsUnderCuvmmEmulate) {
  const ProgramResult result = run_program({"emulate", "--devices", "2", "--", CUVMM_PROGRAM, "conformance", "--driver",
                                            "cuda", "--jobs", "2", "--match", "access."});
  EXPECT_EQ(result.status, 0) << result.output << result.errors;
  EXPECT_TRUE(contains(result.output, "none different.\n")) << result.output;
}

}  // namespace
}  // namespace cuvmm::tests
