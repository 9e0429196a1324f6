// Whatever can be replayed: files of each format, snapshots, what is served, what is drawn.
#include "traces/workload.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "traces/json_values.hpp"
#include "traces/memory_snapshot.hpp"
#include "traces/random_allocations.hpp"

namespace cuvmm::traces {
namespace {

std::string sample(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(std::string(CUVMM_TRACES) + "/" + name, std::ios::binary).rdbuf();
  return text.str();
}

AllocationTrace read(const std::string& content, const WorkloadSettings& settings = {}) {
  return read_workload(content, "trace", settings);
}

std::string refusal_of(const std::string& content, const WorkloadSettings& settings = {}) {
  try {
    static_cast<void>(read(content, settings));
  } catch (const TraceError& error) {
    return error.what();
  }
  return "nothing is refused";
}

bool begins(const std::string& text, const std::string& begin) {
  return text.rfind(begin, 0) == 0;
}

// Four files say the same, each in its own format, and the intervals almost.
TEST(Workload, TellsFormatsByTheirFirstBytes) {
  for (const char* name : {"history.csv", "rmm_log.csv", "snapshot.pickle", "snapshot_protocol2.pickle",
                           "snapshot.json", "intervals.csv"}) {
    const AllocationTrace trace = read(sample(name));
    ASSERT_EQ(trace.allocations.size(), 3U) << name;
    EXPECT_EQ(trace.allocations[0].bytes, 4U << 20) << name;
    EXPECT_EQ(trace.allocations[1].bytes, 2U << 20) << name;
    EXPECT_EQ(trace.allocations[2].bytes, 3U << 20) << name;
    EXPECT_EQ(most_live(trace).bytes, 6U << 20) << name;
    EXPECT_EQ(trace.streams, std::string(name) == "intervals.csv" ? 1U : 2U) << name;
  }
  EXPECT_EQ(read(sample("ten.csv")).format, "keys and values of requests, 131072 bytes a token");
  EXPECT_EQ(read(sample("ten.jsonl")).events.size(), read(sample("ten.csv")).events.size());
}

TEST(Workload, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(refusal_of(""), "'trace': it is empty.");
  EXPECT_EQ(refusal_of(" \n\n"), "'trace': it is empty.");
  EXPECT_TRUE(begins(refusal_of("\x1F\x8B\x08"), "'trace': it is compressed"));
  const std::string unknown = refusal_of("a,b,c\n1,2,3\n");
  for (const char* format : {"'a,b,c'", "PyTorch", "RMM", "MiniMalloc", "Azure", "Mooncake", "pickle"})
    EXPECT_NE(unknown.find(format), std::string::npos) << unknown;
  EXPECT_EQ(refusal_of("{\"device_traces\": [[}"), "'trace': at byte 21: it is no JSON.");
  EXPECT_TRUE(begins(refusal_of("[1, 2]"), "'trace': it is no memory snapshot of PyTorch"));
  EXPECT_TRUE(begins(refusal_of("\x80\x04N."), "'trace': it is no memory snapshot of PyTorch"));
}

AllocationTrace read_snapshot_text(const std::string& json, std::optional<std::size_t> device = {}) {
  const PlainValues values = read_json(json);
  return read_snapshot(values, device);
}

std::string snapshot_refusal(const std::string& json, std::optional<std::size_t> device = {}) {
  try {
    static_cast<void>(read_snapshot_text(json, device));
  } catch (const Broken& broken) {
    return broken.what();
  }
  return "nothing is refused";
}

TEST(Workload, PassesOverAByteOrderMark) {
  const std::string mark = "\xEF\xBB\xBF";
  for (const char* name : {"history.csv", "snapshot.json", "ten.jsonl"})
    EXPECT_EQ(as_history(read(mark + sample(name))), as_history(read(sample(name)))) << name;
  EXPECT_TRUE(begins(refusal_of(mark), "'trace': it is empty")) << refusal_of(mark);
}

TEST(Workload, TellsPicklesThatAreTooOld) {
  using namespace std::string_literals;
  for (const std::string& old : {"(dp0\nVdevice_traces\n"s, "}q\0X"s, "(lp0\n."s, "]q\0."s})
    EXPECT_NE(refusal_of(old).find("protocol 0 or 1: save it with one of 2 to 5"), std::string::npos)
        << refusal_of(old);
}

TEST(MemorySnapshot, NamesTheEventThatIsBroken) {
  const auto with = [](const std::string& event) {
    return R"({"device_traces": [[], [{"action": "alloc", "addr": 4096, "size": 1, "stream": 0}, )" + event + "]]}";
  };
  EXPECT_EQ(snapshot_refusal(with("5")), "device_traces[1][1]: it is no object");
  EXPECT_EQ(snapshot_refusal(with("{}")), "device_traces[1][1]: it has no text action");
  EXPECT_EQ(snapshot_refusal(with(R"({"action": 1})")), "device_traces[1][1]: it has no text action");
  EXPECT_EQ(snapshot_refusal(with(R"({"action": "alloc", "size": 1, "stream": 0})")),
            "device_traces[1][1]: addr is no number that is 0 or more");
  EXPECT_EQ(snapshot_refusal(with(R"({"action": "alloc", "addr": 1, "size": -1, "stream": 0})")),
            "device_traces[1][1]: size is no number that is 0 or more");
  EXPECT_EQ(snapshot_refusal(with(R"({"action": "alloc", "addr": 4096, "size": 1, "stream": 0})")),
            "device_traces[1][1]: the address 0x1000 is allocated already, and was not freed since");
  EXPECT_EQ(read_snapshot_text(with(R"({"action": "free", "addr": 4096})")).events.size(), 2U)
      << "as older ones have it";
}

TEST(MemorySnapshot, AsksWhichDeviceWhereThereAreSeveral) {
  const std::string event = R"({"action": "alloc", "addr": 0, "size": 1, "stream": 0})";
  const std::string two = R"({"device_traces": [[)" + event + "], [" + event + "]]}";
  EXPECT_EQ(snapshot_refusal(two),
            "it has events of 2 devices, 0 and 1 among them: choose one of them by --trace-device");
  EXPECT_EQ(read_snapshot_text(two, 1).events.size(), 1U);
  EXPECT_EQ(snapshot_refusal(two, 2), "it has no events of device 2, but of these: 0, 1");
  EXPECT_TRUE(begins(snapshot_refusal(R"({"device_traces": [[], []]})"), "it has no events: record one by"));
  EXPECT_EQ(snapshot_refusal(R"({"device_traces": [5]})"), "in device_traces is something that is no list of events");
}

TEST(MemorySnapshot, JsonMayBeNestedDeeply) {
  constexpr std::size_t deep = 100'000;
  EXPECT_TRUE(begins(snapshot_refusal(std::string(deep, '[') + std::string(deep, ']')), "it is no memory snapshot"));
  EXPECT_EQ(snapshot_refusal(std::string(deep, '[')), "at byte " + std::to_string(deep + 1) + ": it is no JSON");
}

TEST(ServedAllocations, GrowByTheTokensThatAreAskedFor) {
  const std::vector<Request> requests{{{}, 10, 5, {}}, {std::chrono::microseconds(60'000), 0, 1, {}}};
  Serving serving;
  serving.growth_tokens = 4;
  EXPECT_EQ(serving.token_bytes(), 131072U);
  const AllocationTrace trace = served_allocations(requests, serving);
  std::vector<std::uint64_t> tokens;
  for (const Allocation& each : trace.allocations) tokens.push_back(each.bytes / serving.token_bytes());
  EXPECT_EQ(tokens, (std::vector<std::uint64_t>{10, 4, 4, 4}));
  EXPECT_EQ(trace.events.size(), 8U) << "everything is freed in the end";
}

TEST(ServedAllocations, ServeNoMoreSequencesThanMayBe) {
  const std::vector<Request> requests(3, Request{{}, 10, 2, {}});
  Serving serving;
  const std::uint64_t prompt = 10 * serving.token_bytes();
  const std::uint64_t growth = serving.growth_tokens * serving.token_bytes();
  EXPECT_EQ(most_live(served_allocations(requests, serving)).bytes, 3 * (prompt + growth));
  serving.most_sequences = 1;
  EXPECT_EQ(most_live(served_allocations(requests, serving)).bytes, prompt + growth);
}

TEST(RandomAllocations, AreTheSameForTheSameSeed) {
  const RandomAllocations settings{.seed = 3, .count = 2000, .live_bytes = std::uint64_t{2} << 30};
  const AllocationTrace trace = random_allocations(settings);
  const AllocationTrace again = random_allocations(settings);
  ASSERT_EQ(trace.allocations.size(), 2000U);
  ASSERT_EQ(trace.events.size(), again.events.size());
  for (std::size_t i = 0; i < trace.allocations.size(); ++i)
    EXPECT_EQ(trace.allocations[i].bytes, again.allocations[i].bytes);
  const AllocationTrace other = random_allocations({.seed = 4, .count = 2000, .live_bytes = settings.live_bytes});
  EXPECT_NE(other.allocations[0].bytes, trace.allocations[0].bytes);
}

TEST(AllocationTraces, AreReadAgainAsTheyWereWritten) {
  for (const char* name : {"history.csv", "rmm_log.csv", "snapshot.pickle", "intervals.csv", "ten.jsonl"}) {
    const AllocationTrace trace = read(sample(name));
    const AllocationTrace again = read(as_history(trace));
    EXPECT_EQ(as_history(again), as_history(trace)) << name;
    EXPECT_EQ(most_live(again).bytes, most_live(trace).bytes) << name;
    EXPECT_EQ(again.streams, trace.streams) << name;
  }
}

TEST(RandomAllocations, KeepToTheirBounds) {
  const std::uint64_t live = std::uint64_t{4} << 30;
  const AllocationTrace trace = random_allocations({.seed = 5, .count = 5000, .live_bytes = live});
  std::size_t small = 0;
  for (const Allocation& each : trace.allocations) {
    EXPECT_TRUE(each.bytes >= least_random_bytes && each.bytes < most_random_bytes) << each.bytes;
    small += each.bytes < (1U << 23) ? 1 : 0;  // half of the doublings
  }
  EXPECT_NEAR(static_cast<double>(small), 2500, 200);
  EXPECT_LE(most_live(trace).bytes, live);
  EXPECT_GT(most_live(trace).bytes, live * 9 / 10);
  EXPECT_THROW(static_cast<void>(random_allocations({.seed = 5, .count = 1, .live_bytes = most_random_bytes - 1})),
               Broken);
}

}  // namespace
}  // namespace cuvmm::traces
