#include "traces/request_trace.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "temporary_directory.hpp"
#include "traces/synthetic_requests.hpp"

namespace cuvmm::traces {
namespace {

using std::chrono::microseconds;

std::vector<Request> read(const std::string& text) {
  std::istringstream stream(text);
  return read_requests(stream, "trace");
}

// The message, behind the trace's name and the line's number.
std::string refusal_of(const std::string& text, std::size_t line) {
  try {
    static_cast<void>(read(text));
  } catch (const TraceError& error) {
    EXPECT_EQ(error.line(), line);
    const std::string begin = line == 0 ? "'trace': " : "'trace', line " + std::to_string(line) + ": ";
    EXPECT_EQ(std::string(error.what()).substr(0, begin.size()), begin) << error.what();
    return std::string(error.what()).substr(begin.size());
  }
  return "nothing is refused";
}

constexpr auto azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST(RequestTrace, ReadsTimesContextAndGeneratedTokens) {
  const auto requests = read(std::string(azure) +
                             "2023-11-16 23:59:59.9799600,4808,10\r\n"
                             "\n"
                             "2023-11-17 00:00:00.0319601,3180,8\n"
                             "2023-11-17 00:00:01,7,0");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].arrival, microseconds(0));
  EXPECT_EQ(requests[0].input_tokens, 4808U);
  EXPECT_EQ(requests[0].output_tokens, 10U);
  EXPECT_TRUE(requests[0].blocks.empty());
  EXPECT_EQ(requests[1].arrival, microseconds(52'000));
  EXPECT_EQ(requests[2].arrival, microseconds(1'020'040));
  EXPECT_EQ(requests[2].input_tokens, 7U);
}

TEST(RequestTrace, ReadsColumnsInAnyOrderAndPassesOverOthers) {
  const auto requests =
      read("Model, GeneratedTokens ,TIMESTAMP,ContextTokens\nlarge,3, 2024-05-10 00:00:00.5+00:00 ,9\n");
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].input_tokens, 9U);
  EXPECT_EQ(requests[0].output_tokens, 3U);
}

TEST(RequestTrace, ReadsPrefillAndDecodeTokensWithoutTimes) {
  const auto requests =
      read("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n24560,390,24950,62.97\n5,6,11,0.8\n");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].input_tokens, 24560U);
  EXPECT_EQ(requests[1].output_tokens, 6U);
  EXPECT_EQ(requests[1].arrival, microseconds(0));
}

TEST(RequestTrace, ReadsObjectsWithTheirBlocks) {
  const auto requests =
      read(R"({"timestamp": 27482, "input_length": 6758, "output_length": 500, "hash_ids": [0, 14, 15]})"
           "\n"
           R"({"output_length": 1, "input_length": 2, "timestamp": 30000.5, "more": null})");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].arrival, microseconds(0));
  EXPECT_EQ(requests[0].input_tokens, 6758U);
  EXPECT_EQ(requests[0].output_tokens, 500U);
  EXPECT_EQ(requests[0].blocks, (std::vector<std::uint64_t>{0, 14, 15}));
  EXPECT_EQ(requests[1].arrival, microseconds(2'518'500));
  EXPECT_TRUE(requests[1].blocks.empty());
}

TEST(RequestTrace, OrdersByArrival) {
  const auto requests =
      read(std::string(azure) + "2023-11-16 18:17:05,1,1\n2023-11-16 18:17:03,2,2\n2023-11-16 18:17:05,3,3\n");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].input_tokens, 2U);
  EXPECT_EQ(requests[0].arrival, microseconds(0));
  EXPECT_EQ(requests[1].input_tokens, 1U);
  EXPECT_EQ(requests[2].input_tokens, 3U);
  EXPECT_EQ(requests[2].arrival, microseconds(2'000'000));
}

TEST(RequestTrace, NamesTheLineThatIsBroken) {
  const std::string first = std::string(azure) + "2023-11-16 18:17:03,1,1\n\n";
  const std::string tokens = "; it has to be a number of tokens from 0 to 16777216.";
  EXPECT_EQ(refusal_of(first + "2023-11-16 18:17:04,-1,1\n", 4), "ContextTokens is '-1'" + tokens);
  EXPECT_EQ(refusal_of(first + "2023-11-16 18:17:04,1,one\n", 4), "GeneratedTokens is 'one'" + tokens);
  EXPECT_EQ(refusal_of(first + "2023-11-16 18:17:04,1,\n", 4), "GeneratedTokens is ''" + tokens);
  EXPECT_EQ(refusal_of(first + "2023-11-16 18:17:04,16777217,1\n", 4), "ContextTokens is '16777217'" + tokens);
  EXPECT_EQ(read(first + "2023-11-16 18:17:04,16777216,1\n").size(), 2U);
  EXPECT_EQ(refusal_of(first + "2023-11-16 18:17:04,1\n", 4), "it has 2 columns, where the first line names 3.");
  EXPECT_EQ(refusal_of(first + "2023-11-16 18:17:04,1,1,1\n", 4), "it has 4 columns, where the first line names 3.");
  EXPECT_EQ(refusal_of(first + "{\"timestamp\": 1}\n", 4), "it has 1 columns, where the first line names 3.");
}

TEST(RequestTrace, NamesTheLineWhoseTimeIsBroken) {
  for (const std::string time :
       {"", "now", "2023-11-16", "2023-13-16 18:17:03", "2023-02-29 18:17:03", "2023-11-16 24:00:00",
        "2023-11-16 18:60:00", "2023-11-16 18:17:61", "2023-11-16 18:17:03.", "2023-11-16 18:17:03.x",
        "2023-11-16 18:17:03+01:00", "2023-11-16T18:17:03", "2023-1-16 18:17:03"})
    EXPECT_EQ(refusal_of(azure + time + ",1,1\n", 2),
              "TIMESTAMP is '" + time + "'; a time is written 2023-11-16 18:17:03.97.");
  EXPECT_EQ(read(std::string(azure) + "2024-02-29 18:17:03.123456789,1,1\n").size(), 1U);
}

TEST(RequestTrace, NamesTheObjectThatIsBroken) {
  const std::string good = R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]})"
                           "\n";
  const auto refused = [&](const std::string& line) { return refusal_of(good + line + "\n", 2); };
  EXPECT_EQ(refused(R"({"timestamp": 0)"), R"('{"timestamp": 0' is no JSON object.)");
  EXPECT_EQ(refused("[]"), "'[]' is no JSON object.");
  EXPECT_EQ(refused("TIMESTAMP,ContextTokens,GeneratedTokens"),
            "'TIMESTAMP,ContextTokens,GeneratedTokens' is no JSON object.");
  EXPECT_EQ(refused(R"({"input_length": 1, "output_length": 1})"), "timestamp is missing.");
  EXPECT_EQ(refused(R"({"timestamp": 0, "output_length": 1})"), "input_length is missing.");
  EXPECT_EQ(refused(R"({"timestamp": 0, "input_length": 1})"), "output_length is missing.");
  EXPECT_EQ(refused(R"({"timestamp": -1, "input_length": 1, "output_length": 1})"),
            "timestamp is '-1'; it has to be a number of milliseconds.");
  EXPECT_EQ(refused(R"({"timestamp": [], "input_length": 1, "output_length": 1})"),
            "timestamp is an array; it has to be a number of milliseconds.");
  EXPECT_NE(refused(R"({"timestamp": 0, "input_length": 1.5, "output_length": 1})").find("input_length is '1.5'"),
            std::string::npos);
  EXPECT_NE(refused(R"({"timestamp": 0, "input_length": 1, "output_length": -1})").find("output_length is '-1'"),
            std::string::npos);
  EXPECT_EQ(refused(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": 5})"),
            "hash_ids is no list.");
  EXPECT_EQ(refused(R"({"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]})"),
            "hash_ids has '\"a\"', which is no number of a block.");
  EXPECT_EQ(read(good + good).size(), 2U);
}

TEST(RequestTrace, TellsWhichFormatsThereAre) {
  const std::string refused = refusal_of("time,in,out\n1,2,3\n", 1);
  EXPECT_NE(refused.find("the columns are 'time,in,out'"), std::string::npos) << refused;
  for (const char* known : {"ContextTokens", "num_prefill_tokens", "input_length"})
    EXPECT_NE(refused.find(known), std::string::npos) << refused;
}

TEST(RequestTrace, RefusesATraceWithoutRequests) {
  EXPECT_EQ(refusal_of("", 0), "it has no requests.");
  EXPECT_EQ(refusal_of("\n\n", 0), "it has no requests.");
  EXPECT_EQ(refusal_of(azure, 0), "it has no requests.");
}

TEST(RequestTrace, ReadsFilesAndTellsWhereItCannot) {
  const tests::TemporaryDirectory directory;
  const std::string path = directory.path("trace.csv");
  std::ofstream(path) << azure << "2023-11-16 18:17:03,1,2\n";
  EXPECT_EQ(read_request_file(path).size(), 1U);
  for (const std::string& none : {directory.path("none"), directory.path(".")}) {
    try {
      static_cast<void>(read_request_file(none));
      ADD_FAILURE() << none;
    } catch (const TraceError& error) {
      EXPECT_EQ(error.line(), 0U);
      EXPECT_NE(std::string(error.what()).find("'" + none + "': it cannot be "), std::string::npos) << error.what();
    }
  }
}

TEST(SyntheticRequests, AreTheSameForTheSameSeed) {
  const auto requests = synthetic_requests(1000, 7);
  const auto again = synthetic_requests(1000, 7);
  const auto others = synthetic_requests(1000, 8);
  ASSERT_EQ(requests.size(), 1000U);
  bool differs = false;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& each = requests[i];
    EXPECT_TRUE(each.input_tokens >= 16 && each.input_tokens <= 8192) << each.input_tokens;
    EXPECT_TRUE(each.output_tokens >= 8 && each.output_tokens <= 1024) << each.output_tokens;
    EXPECT_TRUE(i == 0 || each.arrival >= requests[i - 1].arrival);
    EXPECT_EQ(each.input_tokens, again[i].input_tokens);
    EXPECT_EQ(each.arrival, again[i].arrival);
    differs = differs || each.input_tokens != others[i].input_tokens;
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace cuvmm::traces
