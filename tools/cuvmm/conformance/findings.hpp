// What came out of the cases.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "conformance/comparison.hpp"

namespace cuvmm::conformance {

// The driver that was asked, and whose answers its own were compared with.
struct Subject {
  std::string driver;  // its description
  std::string remark;  // why it is not the driver that the user may expect; empty if it is
  std::string device;  // the name of device 0
  bool emulated = false;
  bool stepped = false;  // the emulated driver's scheduler
  int devices = 0;       // that the cases might use
  std::string profile;   // whose recordings are compared with
  std::string machine;   // what was recorded
};

struct Findings {
  Subject subject;
  std::vector<Comparison> cases;
  std::chrono::seconds time_limit{0};  // of a case
};

[[nodiscard]] std::size_t count(const std::vector<Comparison>& cases, Verdict verdict);

// "copy" of "copy.no_access".
[[nodiscard]] std::string group_of(const std::string& id);

// The page for people, and JSON for programs.
[[nodiscard]] std::string as_page(const Findings& findings);
[[nodiscard]] std::string as_json(const Findings& findings);

// The lines about the subject with which every page begins.
[[nodiscard]] std::string heading(const Subject& subject);

}  // namespace cuvmm::conformance
