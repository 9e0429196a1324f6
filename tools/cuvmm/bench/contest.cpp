#include "bench/contest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace cuvmm::bench {

Way& Turn::found(const std::string& name) {
  const auto found = std::find_if(ways_.begin(), ways_.end(), [&](const Way& each) { return each.name == name; });
  return found != ways_.end() ? *found : ways_.emplace_back(Way{name});
}

void Turn::tell(const std::string& way, const Fact& fact) {
  if (!counted_) return;
  auto& facts = found(way).facts;
  const auto known = std::find_if(facts.begin(), facts.end(), [&](const Fact& each) { return each.name == fact.name; });
  if (known != facts.end()) {
    *known = fact;
  } else {
    facts.push_back(fact);
  }
}

void Contest::turn_of(std::size_t contender, bool counted, const ContestOptions& options,
                      std::vector<Way>& ways) const {
  Turn turn(meter_, ways, counted);
  if (!options.elsewhere) return contenders_[contender](turn);
  for (const Way& way : options.elsewhere(contender)) {
    for (const Cost& cost : way.costs) turn.record(way.name, cost);
    for (const Fact& fact : way.facts) turn.tell(way.name, fact);
  }
}

void Contest::round(bool turned, bool counted, const ContestOptions& options, std::vector<Way>& ways) const {
  for (std::size_t index = 0; index < contenders_.size(); ++index) {
    const std::size_t contender = turned ? contenders_.size() - 1 - index : index;
    if (options.only && contender != *options.only) continue;
    if (options.pause.count() > 0) std::this_thread::sleep_for(options.pause);
    turn_of(contender, counted, options, ways);
  }
}

std::vector<Way> Contest::run(const ContestOptions& options) {
  std::vector<Way> ways;
  for (int index = 0; index < options.warming_rounds; ++index) round(false, false, options, ways);
  for (int index = 0; index < options.rounds; ++index) round(index % 2 != 0, true, options, ways);
  return ways;
}

std::string in_words(const ContestOptions& options) {
  std::string text = fmt::format("{} round{} in alternating order", options.rounds, options.rounds == 1 ? "" : "s");
  if (options.warming_rounds != 0)
    text += fmt::format(" after {} that {} not counted", options.warming_rounds,
                        options.warming_rounds == 1 ? "is" : "are");
  if (options.pause.count() > 0) text += fmt::format(", {:g} s of pause before each turn", options.pause.count());
  if (options.elsewhere) text += ", each turn in a process of its own";
  return text;
}

}  // namespace cuvmm::bench
