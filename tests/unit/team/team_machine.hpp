// An emulated machine with a device for each rank. Each rank has the machine's driver with a decorator of its own,
// which counts its calls and makes chosen ones fail.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "cuvmm/team/teams.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulated_machine.hpp"
#include "ranks.hpp"

namespace cuvmm::team::test {

class TeamMachine {
 public:
  explicit TeamMachine(int ranks) : TeamMachine(ranks, cuvmm::test::machine("h200-580", ranks)) {}
  // What a rank's driver is beneath its decorators, if it is not the machine's own.
  using DriverOfRank = std::function<std::shared_ptr<driver::Interface>(int, std::shared_ptr<driver::Interface>)>;
  TeamMachine(int ranks, const emulator::Configuration& configuration, const DriverOfRank& beneath = {})
      : machine_(configuration) {
    for (int rank = 0; rank < ranks; ++rank) {
      auto below = beneath ? beneath(rank, machine_.interface()) : machine_.interface();
      faults_.push_back(std::make_shared<driver::FaultInjectingDriver>(std::move(below)));
      counts_.push_back(std::make_shared<driver::CountingDriver>(faults_.back()));
      drivers_.push_back(Driver::wrap(counts_.back()));
    }
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(drivers_.size()); }
  [[nodiscard]] Device device(int rank) const {
    return drivers_[static_cast<std::size_t>(rank)].device(DeviceOrdinal(rank));
  }
  [[nodiscard]] driver::FaultInjectingDriver& faults(int rank) { return *faults_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] driver::CallCounts calls(int rank) const { return counts_[static_cast<std::size_t>(rank)]->snapshot(); }
  [[nodiscard]] bool nothing_live() const { return machine_.nothing_live(); }
  [[nodiscard]] std::size_t free_memory(int device) const { return machine_.free_memory(device); }

  // Does the work of each rank of a new team in a thread of its own, with its device's context current.
  void run(const std::function<void(const std::shared_ptr<Team>& team)>& work) {
    run_team(ranks(), [&](std::unique_ptr<SocketBootstrap> bootstrap) {
      const int rank = bootstrap->rank();
      const CurrentContext context(device(rank));
      work(Team::assemble(std::move(bootstrap), device(rank), soon()));
    });
  }

 private:
  cuvmm::test::EmulatedMachine machine_;
  std::vector<std::shared_ptr<driver::FaultInjectingDriver>> faults_;
  std::vector<std::shared_ptr<driver::CountingDriver>> counts_;
  std::vector<Driver> drivers_;
};

inline std::string text_of(int rank, int round) {
  return "rank " + std::to_string(rank) + ", round " + std::to_string(round);
}

// Stores this rank's text in its own part.
inline void store(const SymmetricMemory& memory, std::size_t offset, const std::string& text) {
  copy_to_device(memory.range(), memory.offset_in_range(memory.team()->rank(), offset), text);
}
inline std::string load(const SymmetricMemory& memory, int rank, std::size_t offset, std::size_t bytes) {
  std::string text(bytes, ' ');
  copy_from_device(text, memory.range(), memory.offset_in_range(rank, offset));
  return text;
}

// Whether each rank finds at that offset of each part what that part's rank has stored there.
inline void exchange_texts(const SymmetricMemory& memory, std::size_t offset, int round) {
  Team& team = *memory.team();
  store(memory, offset, text_of(team.rank(), round));
  team.vote("stored", {}, soon());
  for (int rank = 0; rank < team.size(); ++rank) {
    const std::string expected = text_of(rank, round);
    EXPECT_EQ(load(memory, rank, offset, expected.size()), expected);
  }
  team.vote("loaded", {}, soon());
}

}  // namespace cuvmm::team::test
