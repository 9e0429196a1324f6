// What a broker is told when it is started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/broker/machine_state.hpp"

namespace cuvmm::emulator::broker {

// How the program ends that is started where the system lets it start none itself; others are 1 and 2.
inline constexpr int no_process_left = 3;

// Where a broker finds what it is given open.
inline constexpr int listener_descriptor = 3;
inline constexpr int directory_descriptor = 4;

struct Task {
  std::string path;  // of the machine's directory
  MachineShape shape;
  std::string settings;  // what processes are told of the machine
};

// As the words behind the program's name, and back: nothing where they are none.
[[nodiscard]] std::vector<std::string> words_of(const Task& task);
[[nodiscard]] std::optional<Task> task_of(const std::vector<std::string>& words);

}  // namespace cuvmm::emulator::broker
