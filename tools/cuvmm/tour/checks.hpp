// What a stop of the tour makes sure of.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace cuvmm::tour {

// One thing that was made sure of: a statement, and whether it held. Or one that could not be tried here, and why.
struct Check {
  std::string statement;
  bool passed;
  std::string left_out{};  // the reason; empty for a check that was made
};

// A check did not hold: the stop ends there and has failed. The text is the statement, and what was seen instead.
class CheckFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The stop's feature is not to be had here, for the reason in the text: neither passed nor failed.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The checks that one stop made, in their order.
class Checks {
 public:
  // Records the statement. Throws CheckFailed with it and with what was seen instead if it does not hold.
  void require(bool holds, std::string statement, const std::string& seen = {}) {
    made_.push_back({std::move(statement), holds});
    if (!holds) throw CheckFailed(made_.back().statement + (seen.empty() ? ": it is not so" : ": " + seen));
  }

  // Records that the statement was not looked into, for the reason: a part of the feature that is not to be had here,
  // where the rest is.
  void leave_out(std::string statement, std::string reason) {
    made_.push_back({std::move(statement), false, std::move(reason)});
  }

  [[nodiscard]] const std::vector<Check>& made() const noexcept { return made_; }

 private:
  std::vector<Check> made_;
};

}  // namespace cuvmm::tour
