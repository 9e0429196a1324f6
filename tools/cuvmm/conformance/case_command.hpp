// A case in a fresh process: this program started as itself, with a hidden command.
#pragma once

#include <string>

#include "conformance/cases/case_process.hpp"

namespace CLI {
class App;
}

namespace cuvmm::conformance {

// Which driver the processes of cases and sequences make.
struct DriverOfProcess {
  bool cuda = false;
  int devices = 1;      // that sequences use; that the emulated driver has
  std::string profile;  // of the emulated driver; empty for what the environment says

  // Throws std::invalid_argument if the environment's settings, or the profile, make no emulated machine.
  [[nodiscard]] DriverFactory factory(const Needs& needs = {}) const;
  // The options of a hidden command that say the same.
  [[nodiscard]] std::vector<std::string> words() const;
};

// Adds those options to a hidden command.
void add_driver_options(CLI::App& command, DriverOfProcess& driver);

// Replaces this process by this program with other words, its standard output going to the descriptor. Returns only if
// the system refuses.
void become_self(const std::vector<std::string>& words, int descriptor);

// Performs each case by becoming this program once more.
[[nodiscard]] Performer started_anew(const DriverOfProcess& driver);

// The process's side: the hidden command, and what it does. The process has then ended.
struct CaseCommand {
  DriverOfProcess driver;
  std::string id;
};
CLI::App* add_case_command(CLI::App& application, CaseCommand& command);
[[noreturn]] void run_case_command(const CaseCommand& command);

}  // namespace cuvmm::conformance
