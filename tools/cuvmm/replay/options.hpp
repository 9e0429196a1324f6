// What the command line asks of a replay.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command/driver_choice.hpp"
#include "traces/random_allocations.hpp"
#include "traces/workload.hpp"

namespace CLI {
class App;
}

namespace cuvmm::replay {

struct Options {
  std::string trace{};  // a file; empty: --random
  command::DriverChoice driver = command::DriverChoice::automatic;
  std::vector<std::string> allocators{};  // none: all
  bool list = false;
  bool json = false;
  bool fit = false;
  std::string picture{};  // a file to write; empty: none
  std::string history{};  // likewise: the trace as it is replayed
  std::uint64_t scale = 1;
  std::optional<std::uint64_t> limit_mebibytes{};
  std::optional<std::uint64_t> seed{};
  std::optional<std::uint64_t> random_count{};
  std::optional<std::uint64_t> live_mebibytes{};
  std::optional<std::size_t> trace_device{};
  traces::Serving serving{};
  std::vector<std::string> serving_options{};  // names of those that were given
};

// Adds the options of `cuvmm replay` to the command.
void add_options(CLI::App& command, Options& options);

// Why the options contradict each other, or nothing.
[[nodiscard]] std::string contradiction(const Options& options);

}  // namespace cuvmm::replay
