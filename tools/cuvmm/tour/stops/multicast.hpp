// What the stops of multicast (4.16.4.1 to 4.16.4.4) have in common.
#pragma once

#include <cstddef>
#include <string>

#include "tour/stop.hpp"
#include "tour/team_memory.hpp"

namespace cuvmm::tour {

// Half of what a stop may hold of each device, in whole units of multicast; a unit at least.
[[nodiscard]] std::size_t half_of_multicast_window(const Visit& visit, const TeamDevices& devices);

// "a team of 4".
[[nodiscard]] std::string team_in_words(std::size_t ranks);

// Makes sure that what the rank stores to the multicast address is in every rank's memory: some 64 KiB, around the
// border in the object's middle, whatever the input's size. `what` begins the statement.
void require_broadcast(Visit& visit, TeamMemory& memory, std::size_t root, const std::string& what);

// Moves the input so, the first rank storing, and makes sure that every rank has it.
void broadcast_input(Visit& visit, TeamMemory& memory, const std::string& what);

}  // namespace cuvmm::tour
