// Teams whose ranks are processes of a test, on one emulated machine.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "cuvmm/team/teams.hpp"
#include "range_on_machine.hpp"

namespace cuvmm::tests {

using team::SymmetricMemory;
using team::Team;

inline std::string text_of(int rank) {
  return "the bytes of rank " + std::to_string(rank);
}

inline void store(const SymmetricMemory& memory, std::size_t offset) {
  const int rank = memory.team()->rank();
  copy_to_device(memory.range(), memory.offset_in_range(rank, offset), text_of(rank));
}
inline bool holds(const SymmetricMemory& memory, int rank, std::size_t offset) {
  std::string text(text_of(rank).size(), ' ');
  copy_from_device(text, memory.range(), memory.offset_in_range(rank, offset));
  return text == text_of(rank);
}

// Whether all parts hold at that offset what their ranks have stored there.
inline bool all_exchange(const SymmetricMemory& memory, std::size_t offset) {
  Team& team = *memory.team();
  store(memory, offset);
  team.vote("stored", {}, soon());
  bool all = true;
  for (int rank = 0; rank < team.size(); ++rank) all = all && holds(memory, rank, offset);
  team.vote("loaded", {}, soon());
  return all;
}

// Runs `size` ranks as processes; answers what each answered, -1 for one that was killed.
inline std::vector<int> run_processes(int size, const std::function<int(int rank)>& work) {
  std::vector<ChildProcess> ranks;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back([&, rank] { return work(rank); });
  std::vector<int> answers;
  answers.reserve(ranks.size());
  for (ChildProcess& each : ranks) answers.push_back(each.wait());
  return answers;
}

}  // namespace cuvmm::tests
