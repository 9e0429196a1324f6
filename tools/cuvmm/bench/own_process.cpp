#include "bench/own_process.hpp"

#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench/unit_names.hpp"
#include "command/child_process.hpp"

namespace cuvmm::bench {
namespace {

using Json = nlohmann::json;

// A turn of the slowest contender takes seconds.
constexpr std::chrono::minutes long_enough{10};

Cost cost_in(const Json& way, std::size_t index) {
  Cost cost;
  if (way.contains("milliseconds")) cost.milliseconds = way["milliseconds"].at(index);
  if (!way.contains("driver_calls")) return cost;
  cost.driver_calls = way["driver_calls"].at(index);
  cost.allocations = way["allocations"].at(index);
  if (const Json& instructions = way["instructions"].at(index); !instructions.is_null())
    cost.instructions = instructions.get<std::uint64_t>();
  return cost;
}

Way way_in(const Json& json) {
  Way way{json.at("name")};
  for (const Json& each : json.at("facts"))
    way.facts.push_back({each.at("name"), each.at("value"), unit_of_name(each.at("unit").get<std::string>())});
  const std::size_t turns = json.at(json.contains("driver_calls") ? "driver_calls" : "milliseconds").size();
  for (std::size_t index = 0; index < turns; ++index) way.costs.push_back(cost_in(json, index));
  return way;
}

}  // namespace

std::vector<Way> turn_in_own_process(std::vector<std::string> words, std::size_t contender) {
  words.insert(words.end(), {"--json", "--rounds", "1", "--pause", "0", "--turn-of", std::to_string(contender)});
  return ways_in(command::output_of_self(words, long_enough));
}

std::vector<Way> ways_in(const std::string& json) try {
  const Json read = Json::parse(json);
  std::vector<Way> ways;
  for (const Json& way : read.at("reports").at(0).at("ways")) ways.push_back(way_in(way));
  return ways;
} catch (const Json::exception& error) {
  throw std::runtime_error(std::string("a turn in a process of its own told no report: ") + error.what());
}

}  // namespace cuvmm::bench
