// Becoming one of the processes of a machine.
#pragma once

#include <memory>

#include "emulator/configuration.hpp"
#include "emulator/memory/physical_memory.hpp"

namespace cuvmm::emulator::sharing {

// Connects this process to the machine that the configuration names, and makes that first if it is not there. What the
// configuration leaves open is made what the machine has. Throws std::invalid_argument, which names both values, where
// the configuration contradicts the machine, and std::system_error where it cannot be made or reached. Thread-safe.
[[nodiscard]] std::unique_ptr<memory::PhysicalMemory> join_machine(Configuration& configuration);

}  // namespace cuvmm::emulator::sharing
