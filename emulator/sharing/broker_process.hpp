// Starting a broker.
#pragma once

#include <chrono>

#include "emulator/broker/command_line.hpp"
#include "emulator/broker/machine_directory.hpp"

namespace cuvmm::emulator::sharing {

// Starts the broker of that machine on a socket that listens in its directory from now on. It is no child of this
// process, and has none of its descriptors. For who has the directory's lock. Throws std::system_error, also where the
// program does not leave a broker behind, and end, until the deadline.
void start_broker(const broker::MachineDirectory& directory, const broker::Task& task,
                  std::chrono::steady_clock::time_point deadline);

// Where the broker's program is: what CUVMM_EMULATOR_BROKER names; beside the library or program that this code is in;
// where it was installed; where it was built. Throws std::system_error if it is nowhere.
[[nodiscard]] std::string broker_program();

}  // namespace cuvmm::emulator::sharing
