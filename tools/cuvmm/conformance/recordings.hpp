// What was recorded on real machines, built into the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cuvmm::conformance {

// The recordings that belong to a profile of the emulated driver: emulator/profiles/NAME/.
struct Recordings {
  std::string_view profile;
  std::string_view machine;    // for people: what was recorded, with which driver
  std::string_view answers;    // of the cases: answers.tsv (answers.hpp)
  std::string_view sequences;  // of random sequences: sequences.txt (sequences/recording.hpp)
};

// Those of the profile, or null.
[[nodiscard]] const Recordings* find_recordings(std::string_view profile);

// The profiles that have some.
[[nodiscard]] std::vector<std::string> recorded_profiles();

}  // namespace cuvmm::conformance
