#include "conformance/sequences/sequence_findings.hpp"

#include <gtest/gtest.h>

#include "conformance/sequences/generator.hpp"

namespace cuvmm::conformance {

namespace {

// A sequence of that seed whose steps answer so, with the checksum that belongs to it.
RecordedSequence sequence(std::uint64_t seed, const std::vector<Step>& steps) {
  return {seed, steps, "", checksum_of_calls(seed, 2, steps)};
}

const Step ok{CUDA_SUCCESS, ""};
const Step refused{CUDA_ERROR_INVALID_VALUE, ""};

TEST(SequenceComparison, TellsTheFirstStepThatDiffersWithItsCallAndBothAnswers) {
  const RecordedSequence recorded = sequence(5, {refused, refused, {CUDA_ERROR_UNKNOWN, "3fc9"}, refused});
  const RecordedSequence played = sequence(5, {refused, refused, refused, ok});
  const SequenceComparison comparison = compare(played, &recorded, 2);
  EXPECT_EQ(comparison.verdict, Verdict::different);
  EXPECT_EQ(comparison.step, 2U);
  EXPECT_EQ(comparison.call, call_of_step(5, 2, recorded.steps, 2));
  EXPECT_EQ(comparison.recorded, "UNKNOWN 3fc9");
  EXPECT_EQ(comparison.answered, "INVALID_VALUE");
  EXPECT_EQ(compare(recorded, &recorded, 2).verdict, Verdict::equal);
}

TEST(SequenceComparison, SeesWhatWasSeenAndNotTheCodeAlone) {
  const RecordedSequence recorded = sequence(5, {{CUDA_ERROR_UNKNOWN, "1"}});
  const RecordedSequence played = sequence(5, {{CUDA_ERROR_UNKNOWN, "2"}});
  EXPECT_EQ(compare(played, &recorded, 2).verdict, Verdict::different);
}

TEST(SequenceComparison, NoticesAnEndThatCameEarlier) {
  const RecordedSequence recorded = sequence(5, {refused, refused});
  RecordedSequence played = sequence(5, {refused});
  played.end = "!11";
  const SequenceComparison comparison = compare(played, &recorded, 2);
  EXPECT_EQ(comparison.verdict, Verdict::different);
  EXPECT_EQ(comparison.step, 1U);
  EXPECT_EQ(comparison.recorded, "INVALID_VALUE");
  EXPECT_EQ(comparison.answered.substr(0, 11), "the end !11");
}

TEST(SequenceComparison, NoticesThatTheCallsWereOthers) {
  const RecordedSequence recorded = sequence(5, {refused, refused});
  RecordedSequence played = recorded;
  played.checksum ^= 1U;
  const SequenceComparison comparison = compare(played, &recorded, 2);
  EXPECT_EQ(comparison.verdict, Verdict::different);
  EXPECT_NE(comparison.recorded, comparison.answered);
}

TEST(SequenceComparison, HasNothingToCompareWithWhereNothingIsRecorded) {
  EXPECT_EQ(compare(sequence(5, {refused}), nullptr, 2).verdict, Verdict::not_recorded);
}

TEST(SequenceStatistics, CountCallsCodesAndLengths) {
  Recording recording{Generator::version, 2, "a machine", {sequence(5, {refused, refused}), sequence(6, {refused})}};
  recording.sequences[1].end = "!11";
  const SequenceStatistics statistics = statistics_of(recording);
  EXPECT_EQ(statistics.steps(), 3U);
  EXPECT_EQ(statistics.lengths, (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(statistics.ended_early, 1U);
  std::size_t calls = 0;
  for (const auto& [name, each] : statistics.calls) {
    calls += each.calls;
    EXPECT_EQ(each.calls, each.calls == 0 ? 0U : each.codes.at(CUDA_ERROR_INVALID_VALUE)) << name;
  }
  EXPECT_EQ(calls, 3U);
}

}  // namespace

}  // namespace cuvmm::conformance
