// The recorded sequences, replayed: the emulated driver answers the same code and shows the same bytes at each step.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "conformance/cases/drivers.hpp"
#include "conformance/recordings.hpp"
#include "conformance/sequences/generator.hpp"
#include "conformance/sequences/play.hpp"
#include "conformance/sequences/sequence_findings.hpp"

namespace cuvmm::conformance {

namespace {

constexpr std::size_t parts = 10;

// Of the sequences in a part every fifth is replayed, or each.
std::size_t stride() {
  return std::getenv("CUVMM_TEST_LONG") != nullptr ? parts : 5 * parts;
}

const Recording& recording() {
  static const Recording parsed = parse_recording(find_recordings("h200-580")->sequences, "the recorded sequences");
  return parsed;
}

// The sequences of a part, in a process of their own: what differs.
std::string replay(std::size_t part) {
  std::string said;
  const Task task{[part](int descriptor) {
    const std::vector<RecordedSequence>& all = recording().sequences;
    Player player{emulated_driver()(), recording().devices};
    for (std::size_t index = part; index < all.size(); index += stride()) {
      const SequenceComparison comparison =
          compare(play(all[index].seed, recording().devices, player), &all[index], recording().devices);
      if (comparison.verdict == Verdict::equal) continue;
      write_to(descriptor, "seed " + std::to_string(comparison.seed) + ", step " + std::to_string(comparison.step) +
                               ": " + comparison.call + ": recorded " + comparison.recorded + ", answered " +
                               comparison.answered + '\n');
    }
    write_to(descriptor, "done");
  }};
  run_tasks({task}, {std::chrono::seconds{280}, 1},
            [&](std::size_t, const Ended& ended) { said = ended.output + ended.complaint(); });
  return said;
}

class RecordedSequences : public testing::TestWithParam<std::size_t> {};

TEST_P(RecordedSequences, AreAnsweredByTheEmulatedDriverAsRecorded) {
  EXPECT_EQ(replay(GetParam()), "done");
}

INSTANTIATE_TEST_SUITE_P(Part, RecordedSequences, testing::Range(std::size_t{0}, parts));

TEST(RecordingOfSequences, AreThousandsOfCallsThatTheGeneratorStillDraws) {
  EXPECT_GE(recording().sequences.size(), 4000U);
  EXPECT_EQ(recording().generator, Generator::version);
  for (const RecordedSequence& each : recording().sequences)
    ASSERT_EQ(checksum_of_calls(each.seed, recording().devices, each.steps), each.checksum)
        << "The generator has changed: record seed " << each.seed << " and all others again.";
}

TEST(RecordingOfSequences, EndEarlyNowhere) {
  EXPECT_EQ(statistics_of(recording()).ended_early, 0U);
}

// Every operation there is, and every call of virtual memory management as entry_points.def has it.
TEST(RecordingOfSequences, CoverEveryCall) {
  const SequenceStatistics statistics = statistics_of(recording());
  for (const auto& [name, calls] : statistics.calls) {
    EXPECT_GE(calls.calls, 50U) << name;
  }
  for (const driver::EntryPointInfo& entry : driver::entry_points)
    if (entry.group == driver::EntryPointGroup::vmm) {
      EXPECT_EQ(statistics.calls.count(std::string{entry.name}), 1U) << entry.name;
    }
}

// The codes that these calls can answer to a program that never uses a dead handle and never breaks its context.
TEST(RecordingOfSequences, CoverEveryCodeThatCanBeReached) {
  std::set<CUresult> seen;
  for (const auto& [name, calls] : statistics_of(recording()).calls)
    for (const auto& [code, number] : calls.codes) seen.insert(code);
  for (const CUresult code :
       {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_DEVICE,
        CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_UNKNOWN, CUDA_ERROR_ILLEGAL_STATE, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_CAPTURED_EVENT})
    EXPECT_EQ(seen.count(code), 1U) << result_name(code);
}

}  // namespace

}  // namespace cuvmm::conformance
