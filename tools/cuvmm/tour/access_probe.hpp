// A kernel that may die, in a process of its own.
//
// A kernel that touches memory it has no right to takes its context with it, and every later call on that context
// fails. So the tour runs such kernels in a child process, which this program starts as itself with a hidden command.
#pragma once

#include <vector>

#include "driver/interface.hpp"
#include "tour/options.hpp"

namespace CLI {
class App;
}

namespace cuvmm::tour {

enum class Touch { load, store };

// "Map memory of device 0, set these rights for device `toucher` one after the other, and let a kernel there touch it."
struct AccessProbe {
  DriverChoice driver = DriverChoice::automatic;
  int devices = 1;
  int toucher = 0;
  std::vector<int> grants;  // of cuvmm::AccessRights; none for a fresh mapping
  Touch touch = Touch::load;
};

// Whether the code says that a kernel touched memory it may not touch.
[[nodiscard]] bool is_fault(abi::CUresult result) noexcept;

// Runs the probe in a child process and returns what the kernel's launch and the wait for its end answered there.
// Throws std::runtime_error if the child could not get as far as that, or has not answered within a minute.
[[nodiscard]] abi::CUresult run_in_child(const AccessProbe& probe);

// The child's side: adds the hidden command with its options. Once it is parsed, run_probe does the work, writes the
// answer to standard output and ends the process.
void add_probe_command(CLI::App& application, AccessProbe& probe);
[[noreturn]] void run_probe(const AccessProbe& probe);

}  // namespace cuvmm::tour
