// What the command line asks of `cuvmm conformance`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command/driver_choice.hpp"

namespace CLI {
class App;
}

namespace cuvmm::conformance {

// Every `of`-th case, beginning with the `number`-th.
struct Shard {
  unsigned number = 1;  // from 1 to `of`
  unsigned of = 1;
};

struct Options {
  command::DriverChoice driver = command::DriverChoice::automatic;
  std::optional<int> devices;          // as many as the driver has, two of the emulated one, unless given
  std::optional<std::string> match;    // of the cases, those whose id contains it; all unless given
  Shard shard;                         // of these, a part; all unless given
  unsigned jobs = 1;                   // processes at a time
  std::optional<unsigned> time_limit;  // seconds that a case, or a process that plays sequences, may take
  std::optional<std::string> record;   // the file that takes what was answered
  std::optional<std::string> profile;  // whose recorded answers are compared with, and what is emulated
  bool json = false;
  std::optional<std::uint64_t> sequences;     // how many random sequences to run, instead of the cases
  std::optional<std::uint64_t> seed;          // of the first of them; the recording's unless given
  std::optional<std::string> sequences_file;  // to compare with, instead of what is built in
  bool statistics = false;                    // tell what the sequences are made of, and run none
};

// Adds the options to the command.
void add_options(CLI::App& command, Options& options);

}  // namespace cuvmm::conformance
