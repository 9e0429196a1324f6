// What an answer is worth beside the recorded one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "conformance/cases/case.hpp"

namespace cuvmm::conformance {

enum class Verdict {
  equal,
  different,
  timed_out,      // its process did not come to an end in time, and was killed
  crash_refused,  // the recorded driver brought its process down; the emulated one refuses (INVALID_VALUE)
  on_purpose,     // the emulated driver answers otherwise, for a known reason
  not_recorded,   // there is nothing to compare with
  unavailable,    // the case could not be run here
};

struct Comparison {
  std::string id;
  Verdict verdict = Verdict::unavailable;
  std::string recorded;  // empty where nothing is
  std::string answer;    // empty where the case was not run
  std::string reason;    // of what is unavailable or on purpose; else empty
};

// Compares an answer of the emulated driver, or of a real one, whose crashes and luck no other answer excuses.
[[nodiscard]] Comparison compare(const std::string& id, const std::optional<std::string>& recorded,
                                 const std::string& answer, bool emulated);

// What of a driver decides which cases can be run on it.
struct Abilities {
  int devices = 0;
  bool emulated = false;
  bool stepped = false;  // work advances only within calls: a host function that waits for the caller never ends
};

// Why a case cannot be run on a driver; nothing if it can.
[[nodiscard]] std::optional<std::string> why_unavailable(const Case& each, const Abilities& driver);

// What compare calls on purpose: the answer that the emulated driver gives, and the reason; nothing for a case without
// such an exception.
struct Deviation {
  std::string_view id;
  std::string_view answer;
  std::string_view reason;
};
[[nodiscard]] const Deviation* find_deviation(std::string_view id);

}  // namespace cuvmm::conformance
