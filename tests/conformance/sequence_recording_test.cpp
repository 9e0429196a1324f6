#include <gtest/gtest.h>

#include "conformance/sequences/generator.hpp"
#include "conformance/sequences/recording.hpp"

namespace cuvmm::conformance {

namespace {

Recording parse(const std::string& text) {
  return parse_recording(text, "the test's recording");
}

const std::string heading = "cuvmm sequences 2\ngenerator 1\ndevices 2\nmachine a machine\n";

TEST(SequenceRecording, IsReadAsItWasWritten) {
  Recording recording{3, 2, "a machine, a driver", {}};
  recording.sequences.push_back(
      {7, {{CUDA_SUCCESS, ""}, {CUDA_SUCCESS, "3fc9"}, {CUDA_ERROR_INVALID_VALUE, "9"}}, "", 0x1234abcd});
  recording.sequences.push_back({8, {{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "1_0+"}}, "!11", 5});
  recording.sequences.push_back({9, {}, "!c", 6});
  const Recording read = parse(to_text(recording));
  EXPECT_EQ(read.generator, 3);
  EXPECT_EQ(read.devices, 2);
  EXPECT_EQ(read.machine, "a machine, a driver");
  EXPECT_EQ(read.sequences, recording.sequences);
}

TEST(SequenceRecording, KeepsCodesThatHaveNoLetter) {
  const RecordedSequence sequence{1, {{CUDA_ERROR_NVLINK_UNCORRECTABLE, ""}, {CUDA_SUCCESS, "a"}}, "", 2};
  EXPECT_EQ(parse_sequence(to_text(sequence), "a test"), sequence);
}

TEST(SequenceRecording, RefusesWhatIsNone) {
  EXPECT_THROW(parse("something else\n"), std::runtime_error);
  EXPECT_THROW(parse(heading + "unknown 1\n"), std::runtime_error);
  EXPECT_THROW(parse(heading + "1 ..G. 00000001\n"), std::runtime_error);
  EXPECT_THROW(parse(heading + "1 ...\n"), std::runtime_error);
  EXPECT_THROW(parse(heading + "1 ... 0000000g\n"), std::runtime_error);
  EXPECT_EQ(parse(heading + "1 ... 00000001\n").sequences.size(), 1U);
  EXPECT_EQ(parse("").sequences.size(), 0U);
}

TEST(SequenceRecording, TellsTheCallOfAStep) {
  const std::vector<Step> none;
  Generator generator{5, 2};
  const auto first = generator.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(call_of_step(5, 2, none, 0), text(*first));
}

}  // namespace

}  // namespace cuvmm::conformance
