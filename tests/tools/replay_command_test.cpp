// `cuvmm replay` from outside, on the emulated driver.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "program.hpp"

namespace cuvmm::tests {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

ProgramResult replay(const Words& more) {
  Words words{"replay", "--driver", "emulated"};
  words.insert(words.end(), more.begin(), more.end());
  return run_program(words);
}

std::string sample(const std::string& name) {
  return std::string(CUVMM_TRACES) + "/" + name;
}

Json json_of(Words words) {
  words.emplace_back("--json");
  const ProgramResult result = replay(words);
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(result.errors, "");
  return Json::parse(result.output, nullptr, false);
}

// What it says to that, when it refuses it.
std::string refusal(const Words& words) {
  const ProgramResult result = replay(words);
  EXPECT_EQ(result.status, 2) << result.output;
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors.find("cuvmm replay: "), 0U) << result.errors;
  return result.errors;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ReplayCommand, ReplaysEachFormatThroughEachAllocator) {
  for (const char* name : {"history.csv", "rmm_log.csv", "snapshot.pickle", "snapshot_protocol2.pickle",
                           "snapshot.json", "intervals.csv"}) {
    const Json json = json_of({sample(name)});
    EXPECT_EQ(json["trace"]["peak_live_bytes"], 6 << 20) << name;
    ASSERT_GE(json["allocators"].size(), 3U) << name;
    for (const Json& each : json["allocators"]) {
      EXPECT_EQ(each["allocations"], 3) << name;
      EXPECT_GE(each["ratio"], 1.0) << name;
    }
  }
}

TEST(ReplayCommand, ServesRequests) {
  const Json json = json_of({sample("ten.jsonl")});
  const Json half = json_of({sample("ten.jsonl"), "--layers", "16"});
  EXPECT_EQ(json["trace"]["peak_live_bytes"], 2 * half["trace"]["peak_live_bytes"].get<std::uint64_t>());
  EXPECT_EQ(json_of({sample("ten.csv")})["trace"]["peak_live_bytes"], json["trace"]["peak_live_bytes"]);
  const Json alone = json_of({sample("ten_without_times.csv"), "--sequences", "1"});
  EXPECT_LT(alone["trace"]["peak_live_bytes"], json["trace"]["peak_live_bytes"]);
}

TEST(ReplayCommand, DrawsAtRandomWithinALimit) {
  const Words words{"--random", "7", "--allocations", "300", "--live-mib", "1024", "--limit-mib", "1100"};
  const Json json = json_of(words);
  EXPECT_EQ(json["trace"]["allocations"], 300);
  EXPECT_LE(json["trace"]["peak_live_bytes"], 1 << 30);
  EXPECT_GE(json["limit_bytes"], std::uint64_t{1100} << 20);
  EXPECT_LT(json["limit_bytes"], std::uint64_t{1102} << 20);
  for (const Json& each : json["allocators"]) EXPECT_LE(each["peak_physical_bytes"], json["limit_bytes"]);
  // The same for the same seed; what the driver's pool does depends on when its stream has run what was freed.
  const Json again = json_of(words);
  EXPECT_EQ(json["trace"], again["trace"]);
  for (const std::size_t deterministic : {0U, 2U})
    EXPECT_EQ(json["allocators"][deterministic], again["allocators"][deterministic]);
}

TEST(ReplayCommand, ReplaysThroughTheAllocatorThatIsNamed) {
  const Json json = json_of({sample("history.csv"), "--allocator", "caching"});
  ASSERT_EQ(json["allocators"].size(), 1U);
  EXPECT_EQ(json["allocators"][0]["name"], "caching");
  EXPECT_TRUE(contains(refusal({sample("history.csv"), "--allocator", "none"}), "there are: cuMemAlloc"));
  const ProgramResult list = run_program({"replay", "--list"});
  EXPECT_EQ(list.status, 0);
  EXPECT_TRUE(contains(list.output, "caching "));
}

TEST(ReplayCommand, FitsIntoWhatIsLiveAtMost) {
  const Json fit = json_of({sample("intervals.csv"), "--fit", "--scale", "2"})["fit"];
  EXPECT_EQ(fit["physical_bytes"], 12 << 20);
  EXPECT_EQ(fit["rounding_bytes"], 0);
  const ProgramResult page = replay({sample("intervals.csv"), "--fit"});
  EXPECT_TRUE(contains(page.output, "3 chunks of 2 MiB are enough, which is 100.0 %")) << page.output;
}

TEST(ReplayCommand, TellsWhatDoesNotFitIntoTheLimit) {
  const Words words{sample("intervals.csv"), "--fit", "--scale", "100", "--limit-mib", "100"};
  const Json json = json_of(words);
  EXPECT_EQ(json["fit"]["fits"], false);
  EXPECT_EQ(json["fit"]["physical_bytes"], 600 << 20);
  EXPECT_GE(json["allocators"].size(), 3U);
  const ProgramResult page = replay(words);
  EXPECT_EQ(page.status, 0) << page.errors;
  EXPECT_TRUE(contains(page.output, "300 chunks of 2 MiB are needed")) << page.output;
  EXPECT_TRUE(contains(page.output, "600 MiB does not fit in the limit of ")) << page.output;
  EXPECT_EQ(json_of({sample("intervals.csv"), "--fit", "--scale", "100", "--limit-mib", "600"})["fit"]["fits"], true);
}

TEST(ReplayCommand, WritesAPicture) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("memory.html");
  const ProgramResult result = replay({sample("history.csv"), "--picture", path});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_EQ(content_of(path).find("<!DOCTYPE html>"), 0U);
  EXPECT_TRUE(
      contains(refusal({sample("history.csv"), "--picture", directory.path("none/x.html")}), "cannot be written"));
}

TEST(ReplayCommand, WritesTheTraceAsItIsReplayed) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("history.csv");
  const Json json = json_of({sample("ten.csv"), "--scale", "2", "--history", path});
  const Json again = json_of({path});
  EXPECT_EQ(again["trace"]["peak_live_bytes"], json["trace"]["peak_live_bytes"]);
  EXPECT_EQ(again["allocators"][2], json["allocators"][2]);
  EXPECT_TRUE(contains(refusal({sample("ten.csv"), "--history", directory.path("none/x")}), "cannot be written"));
}

TEST(ReplayCommand, KeepsTheTraceAndEachResult) {
  const TemporaryDirectory directory;
  const std::string trace = directory.path("trace.csv");
  std::filesystem::copy_file(sample("history.csv"), trace);
  const std::string before = content_of(trace);
  const std::string link = directory.path("link"), hard_link = directory.path("hard_link");
  std::filesystem::create_symlink(trace, link);
  std::filesystem::create_hard_link(trace, hard_link);
  for (const std::string& path : {trace, directory.path("./trace.csv"), link, hard_link})
    for (const char* option : {"--history", "--picture"}) {
      const std::string text = refusal({trace, option, path});
      EXPECT_TRUE(contains(text, option)) << text;
      EXPECT_TRUE(contains(text, "the file of the trace, which would be lost: name another one")) << text;
      EXPECT_EQ(content_of(trace), before) << option << " " << path;
    }
  const std::string result = directory.path("result");
  EXPECT_TRUE(contains(refusal({trace, "--history", result, "--picture", directory.path("./result")}),
                       "--history '" + result + "' is the file of --picture"));
  EXPECT_FALSE(std::filesystem::exists(result));
  EXPECT_EQ(replay({trace, "--history", result, "--picture", directory.path("other")}).status, 0);
  EXPECT_EQ(replay({trace, "--history", "/dev/null", "--picture", "/dev/null"}).status, 0) << "no file, nothing lost";
}

TEST(ReplayCommand, NamesTheBrokenLine) {
  EXPECT_TRUE(contains(refusal({sample("broken_history.csv")}), "broken_history.csv', line 3: action is 'allot'"));
  EXPECT_TRUE(contains(refusal({sample("broken.jsonl")}), "broken.jsonl', line 2: output_length is missing"));
  EXPECT_TRUE(contains(refusal({sample("calls_code.pickle")}), "stands for code of a program"));
}

TEST(ReplayCommand, RefusesFilesThatAreNoTraces) {
  const TemporaryDirectory directory;
  const std::string empty = directory.path("empty");
  std::ofstream(empty).flush();
  EXPECT_TRUE(contains(refusal({empty}), "it is empty"));
  EXPECT_TRUE(contains(refusal({directory.path(".")}), "is a directory"));
  EXPECT_TRUE(contains(refusal({directory.path("none")}), "cannot be read"));
  const std::string pipe = directory.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(contains(refusal({pipe}), "is no regular file"));
  const std::string huge = directory.path("huge");
  std::ofstream(huge).flush();
  std::filesystem::resize_file(huge, (std::uintmax_t{1} << 30) + 1);
  EXPECT_TRUE(contains(refusal({huge}), "1,073,741,824 bytes at most"));
}

TEST(ReplayCommand, RefusesOptionsThatSayNothingOfTheTrace) {
  EXPECT_TRUE(contains(refusal({}), "A trace is needed"));
  EXPECT_TRUE(contains(refusal({sample("history.csv"), "--random", "1"}), "one or the other"));
  EXPECT_TRUE(contains(refusal({sample("history.csv"), "--live-mib", "2048"}), "--live-mib is for --random"));
  EXPECT_TRUE(contains(refusal({sample("history.csv"), "--allocations", "5"}), "--allocations is for --random"));
  EXPECT_TRUE(contains(refusal({sample("history.csv"), "--layers", "5"}), "--layers is for traces of requests"));
  EXPECT_TRUE(
      contains(refusal({sample("history.csv"), "--trace-device", "0"}), "--trace-device is for memory snapshots"));
  EXPECT_NE(replay({"--random", "-1"}).status, 0) << "no seed is less than 0";
  EXPECT_NE(run_program({"replay", "--list", "--json"}).status, 0);
  EXPECT_TRUE(contains(refusal({"--random", "1", "--layers", "5"}), "not for --random"));
  EXPECT_TRUE(contains(refusal({sample("snapshot.json"), "--trace-device", "1"}), "no events of device 1"));
  EXPECT_EQ(replay({sample("snapshot.json"), "--trace-device", "0"}).status, 0);
  EXPECT_TRUE(contains(refusal({sample("history.csv"), "--scale", "4294967296"}), "too large to be scaled"));
  EXPECT_TRUE(
      contains(refusal({sample("history.csv"), "--limit-mib", "16777216"}), "A limit of 16 TiB cannot be kept"));
}

}  // namespace
}  // namespace cuvmm::tests
