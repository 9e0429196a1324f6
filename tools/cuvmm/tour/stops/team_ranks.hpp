// The part of 4.16.4.4 in which each rank of a team is a process of its own.
#pragma once

#include "tour/stop.hpp"
#include "tour/team_device.hpp"

namespace cuvmm::tour {

// On one node, by descriptors; and over two nodes, by fabric handles.
void show_ranks(Visit& visit, const TeamDevices& devices, std::size_t bytes);

}  // namespace cuvmm::tour
