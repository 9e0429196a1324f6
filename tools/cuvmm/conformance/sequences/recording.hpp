// Sequences as they are written down: the seed, what each call answered, and a checksum of the calls, which are drawn
// anew from seed and codes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/sequences/player.hpp"

namespace cuvmm::conformance {

// How a sequence ends whose process did not come to an end in time.
inline constexpr std::string_view timed_out_end = "!timeout";

struct RecordedSequence {
  std::uint64_t seed = 0;
  std::vector<Step> steps;
  std::string end;             // why it ended early: "!11" for a signal, "!c" if it could not be cleaned up; else empty
  std::uint32_t checksum = 0;  // of the calls

  friend bool operator==(const RecordedSequence&, const RecordedSequence&) = default;
};

struct Recording {
  int generator = 0;    // the version of the generator
  int devices = 1;      // that the sequences use
  std::string machine;  // for people
  std::vector<RecordedSequence> sequences;
};

// A step as it is written: one letter for the code, then what is seen.
[[nodiscard]] std::string to_text(const Step& step);

// "SEED STEPS CHECKSUM", without a line's end.
[[nodiscard]] std::string to_text(const RecordedSequence& sequence);
[[nodiscard]] std::string to_text(const Recording& recording);

// The steps in such text; the first character that begins none is where it ends. Takes them from the text.
[[nodiscard]] std::vector<Step> take_steps(std::string_view& text);

// Throws std::runtime_error, which names the source and the line, for text that is no recording.
[[nodiscard]] Recording parse_recording(std::string_view text, const std::string& source);

// One line of it.
[[nodiscard]] RecordedSequence parse_sequence(std::string_view line, const std::string& source);

// A checksum as it is written.
[[nodiscard]] std::string hexadecimal(std::uint32_t value);

// The checksum of the calls that are drawn for the seed if these codes are answered.
[[nodiscard]] std::uint32_t checksum_of_calls(std::uint64_t seed, int devices, const std::vector<Step>& steps);

// The text of the call of that step.
[[nodiscard]] std::string call_of_step(std::uint64_t seed, int devices, const std::vector<Step>& steps,
                                       std::size_t step);

}  // namespace cuvmm::conformance
