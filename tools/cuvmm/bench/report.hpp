// What a report has found: ways of doing the same, what each costs, and how they compare.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/estimate.hpp"
#include "bench/meter.hpp"

namespace cuvmm::bench {

enum class Unit { count, bytes, percent, gigabytes_a_second };

// Something else that is worth to know of a way.
struct Fact {
  std::string name;
  double value = 0;
  Unit unit = Unit::count;
};

struct Way {
  std::string name;
  std::vector<Cost> costs{};  // one of each round
  std::vector<Fact> facts{};
};

// How often the cost of `to` one of `of` is, round by round; or, where it is asked for the speed, the other way round.
struct Ratio {
  std::string of;
  std::string to;
  bool of_speed = false;
  // On a GPU: of time at most, of speed at least.
  std::optional<double> goal{};
};

// The most milliseconds that a way may take on a GPU, over `per`.
struct Limit {
  std::string way;
  double milliseconds = 0;
  std::string per{};  // "a GiB"; empty: as a whole
  double divisor = 1;
};

struct Report {
  std::string name;
  std::string title{};                  // what is done, with its sizes
  std::vector<std::string> settings{};  // "5 rounds"
  std::vector<Way> ways{};
  std::vector<Ratio> ratios{};
  std::vector<Limit> limits{};
  std::vector<std::string> notes{};
  std::string left_out{};  // why nothing was measured

  [[nodiscard]] const Way* way(const std::string& wanted) const noexcept;
};

// What was found, ready to be shown.
struct Compared {
  Ratio ratio{};
  Estimate value{};
  std::optional<bool> met{};  // none: there is no goal, or no GPU
};
struct Limited {
  Limit limit{};
  Estimate value{};  // milliseconds, over the divisor
  std::optional<bool> met{};
};

[[nodiscard]] Estimate milliseconds_of(const Way& way);
// Of driver calls where those are counted, else of time. Those of which a way is missing are left out, as are those of
// calls where a way makes none.
[[nodiscard]] std::vector<Compared> compared(const Report& report, bool counts);
[[nodiscard]] std::vector<Limited> limited(const Report& report, bool counts);

struct Findings {
  std::string driver;
  std::string device;
  std::string remark;  // why it is not the driver that one may expect; empty if it is
  bool counts = false;
  std::string why_no_instructions;
  std::vector<Report> reports;
};

[[nodiscard]] std::string heading(const Findings& findings);
[[nodiscard]] std::string as_page(const Report& report, bool counts);
// One object, indented, with one line end at its end. docs/performance.md tells the fields.
[[nodiscard]] std::string as_json(const Findings& findings);

}  // namespace cuvmm::bench
