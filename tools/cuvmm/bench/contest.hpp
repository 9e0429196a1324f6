// Several ways of doing the same, measured in turn within one run.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/meter.hpp"
#include "bench/report.hpp"

namespace cuvmm::bench {

// One turn of a contender: what it measures, and what it tells beside.
class Turn {
 public:
  Turn(const Meter& meter, std::vector<Way>& ways, bool counted) : meter_(meter), ways_(ways), counted_(counted) {}

  template <class Work>
  void measure(const std::string& way, Work&& work) {
    record(way, meter_.measure(std::forward<Work>(work)));
  }
  // The same of what was measured otherwise, as by the device itself.
  void record(const std::string& way, const Cost& cost) {
    if (counted_) found(way).costs.push_back(cost);
  }
  // In place of what was told before under that name.
  void tell(const std::string& way, const Fact& fact);

  [[nodiscard]] const Meter& meter() const noexcept { return meter_; }

 private:
  Way& found(const std::string& name);

  const Meter& meter_;
  std::vector<Way>& ways_;
  bool counted_;
};

struct ContestOptions {
  int rounds = 1;
  int warming_rounds = 0;                  // that are not counted
  std::chrono::duration<double> pause{0};  // before each turn
  // Where turns are taken elsewhere: what one of the contender of that index has measured.
  std::function<std::vector<Way>(std::size_t contender)> elsewhere{};
  std::optional<std::size_t> only{};  // the one contender that takes its turns
};

// Contenders take turns: one turn of each is a round, and every other round goes through them in reverse order, so that
// what changes while it runs falls on all alike.
class Contest {
 public:
  using Contender = std::function<void(Turn&)>;

  explicit Contest(const Meter& meter) : meter_(meter) {}

  void add(Contender contender) { contenders_.push_back(std::move(contender)); }

  // The ways, in the order in which they were first measured.
  [[nodiscard]] std::vector<Way> run(const ContestOptions& options);

 private:
  void turn_of(std::size_t contender, bool counted, const ContestOptions& options, std::vector<Way>& ways) const;
  void round(bool turned, bool counted, const ContestOptions& options, std::vector<Way>& ways) const;

  const Meter& meter_;
  std::vector<Contender> contenders_;
};

// "5 rounds in alternating order, 2 s of pause before each turn".
[[nodiscard]] std::string in_words(const ContestOptions& options);

}  // namespace cuvmm::bench
