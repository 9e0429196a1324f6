// A conformance case: a short sequence of driver calls, and the answer in text. Cases are compared literally with the
// recorded answers of a real driver (conformance/answers.hpp).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "conformance/cases/answer.hpp"
#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

// What a case needs around it.
struct Needs {
  Start start = Start::context;
  int devices = 1;
  bool alone = false;           // measures or exhausts what other processes use too, or breaks its context
  bool processes = false;       // starts processes that share one machine's memory
  bool driver_library = false;  // asks functions of the driver's library that are no entry points here
  bool concurrency = false;     // asks the driver while a host function waits for the case to go on
};

inline constexpr Needs needs_loaded{Start::loaded, 1, false, false};
inline constexpr Needs needs_initialized{Start::initialized, 1, false, false};
inline constexpr Needs needs_alone{Start::context, 1, true, false};
inline constexpr Needs needs_two_devices{Start::context, 2, false, false};
inline constexpr Needs needs_two_devices_alone{Start::context, 2, true, false};
inline constexpr Needs needs_processes{Start::nothing, 1, false, true};
inline constexpr Needs needs_driver_library{Start::nothing, 1, false, false, true};
inline constexpr Needs needs_concurrency{Start::context, 1, false, false, false, true};
inline constexpr Needs needs_concurrency_alone{Start::context, 1, true, false, false, true};

using CaseFunction = std::function<Answer(Environment&)>;

struct Case {
  std::string id;  // "group.what", unique, without blanks
  CaseFunction function;
  Needs needs;
};

// The cases in the order in which they were added.
class Table {
 public:
  // Throws std::logic_error if `id` is there already, or has blanks in it.
  void add(std::string id, CaseFunction function, Needs needs = {});

  [[nodiscard]] const std::vector<Case>& cases() const noexcept { return cases_; }
  // The case of that id, or null.
  [[nodiscard]] const Case* find(const std::string& id) const noexcept;

 private:
  std::vector<Case> cases_;
};

// Every case there is.
[[nodiscard]] Table all_cases();

}  // namespace cuvmm::conformance
