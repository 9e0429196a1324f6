// Playing sequences: one in this process, or many in processes that are started for them.
#pragma once

#include <functional>

#include "conformance/case_command.hpp"
#include "conformance/sequences/recording.hpp"

namespace CLI {
class App;
}

namespace cuvmm::conformance {

// Plays the sequence of the seed, and cleans up behind it. Tells each step when it is answered. Where it could not be
// cleaned up, the end says so, and the player is not to be used any more.
[[nodiscard]] RecordedSequence play(std::uint64_t seed, int devices, Player& player,
                                    const std::function<void(const Step&)>& answered = {});

// The sequences of seed, seed + 1, ...: `count` of them, played a hundred in a process. One that kills its process ends
// there ("!11"), also one in which the process's time is over, and the next begin in another. Throws std::runtime_error
// if the driver cannot be brought to where sequences begin.
[[nodiscard]] std::vector<RecordedSequence> play_in_processes(std::uint64_t seed, std::uint64_t count,
                                                              const DriverOfProcess& driver, const PoolOptions& pool);

// The process's side: the hidden command, and what it does. The process has then ended.
struct SequencesCommand {
  DriverOfProcess driver;
  std::uint64_t seed = 0;
  std::uint64_t count = 1;
};
CLI::App* add_sequences_command(CLI::App& application, SequencesCommand& command);
[[noreturn]] void run_sequences_command(const SequencesCommand& command);

}  // namespace cuvmm::conformance
