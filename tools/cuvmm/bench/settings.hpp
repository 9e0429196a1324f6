// How large the work of the reports is.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/contest.hpp"
#include "bench/own_process.hpp"

namespace cuvmm::bench {

// What is not given is as each report has it: large on a GPU, small on the emulated driver.
struct Settings {
  std::optional<std::size_t> bytes{};  // of the memory that grows, is read, sleeps or is attached
  std::optional<int> rounds{};
  std::optional<double> pause_seconds{};  // before each turn, and while memory sleeps
  std::optional<unsigned> threads{};      // that copy pageable memory
  std::optional<std::size_t> staging_bytes{};
  std::optional<std::size_t> chunk_bytes{};  // of the range that is attached
  bool own_processes = false;                // for each turn
  std::optional<std::size_t> turn_of{};      // the contender of whom this process is one
  std::vector<std::string> same_again{};     // how this program is asked for the same report and work once more
};

// Those of a report, unless others are given.
struct Defaults {
  ContestOptions on_gpu{};
  ContestOptions on_emulator{};
};
[[nodiscard]] inline ContestOptions contest_options(const Settings& settings, const Meter& meter,
                                                    const Defaults& defaults) {
  ContestOptions options = meter.counts() ? defaults.on_emulator : defaults.on_gpu;
  if (settings.rounds) options.rounds = *settings.rounds;
  if (settings.pause_seconds) options.pause = std::chrono::duration<double>(*settings.pause_seconds);
  options.only = settings.turn_of;
  if (settings.own_processes)
    options.elsewhere = [words = settings.same_again](std::size_t contender) {
      return turn_in_own_process(words, contender);
    };
  return options;
}

[[nodiscard]] inline std::size_t bytes_of(const Settings& settings, const Meter& meter, std::size_t on_gpu,
                                          std::size_t on_emulator) {
  return settings.bytes.value_or(meter.counts() ? on_emulator : on_gpu);
}

}  // namespace cuvmm::bench
