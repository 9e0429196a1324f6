// A kernel that may die, in a process of its own.
//
// A kernel that touches memory it has no right to takes its context with it, and every later call on that context
// fails. So the tour runs such kernels in a child process, which this program starts as itself with a hidden command.
#pragma once

#include <string>
#include <vector>

#include "command/driver_choice.hpp"
#include "driver/interface.hpp"
#include "tour/options.hpp"

namespace CLI {
class App;
}

namespace cuvmm::tour {

enum class Touch { load, store };

// In place of a device's ordinal: the processor that the child itself runs on.
inline constexpr int cpu = -1;

// "Map memory, set these rights for `toucher` one after the other, and let a kernel there, or the CPU, touch it." The
// memory is device 0's, or for the CPU the host's.
struct AccessProbe {
  command::DriverChoice driver = command::DriverChoice::automatic;
  int devices = 1;
  int toucher = 0;
  std::vector<int> grants{};  // of cuvmm::AccessRights; none for a fresh mapping
  Touch touch = Touch::load;
  bool alias = false;  // the memory is mapped at another address as well, where the toucher may read and write
};

// Whether the code says that a kernel touched memory it may not touch.
[[nodiscard]] bool is_fault(abi::CUresult result) noexcept;

// Runs the probe in a child process and returns what the kernel's launch and the wait for its end answered there; for
// the CPU, CUDA_ERROR_ILLEGAL_ADDRESS if it was stopped by a signal (SIGSEGV, SIGBUS).
// Throws std::runtime_error if the child could not get as far as that, or has not answered within a minute.
[[nodiscard]] abi::CUresult run_in_child(const AccessProbe& probe);

// The child's side: adds the hidden command with its options, and returns it. Once it is parsed, run_probe does the
// work, writes the answer to standard output and ends the process.
CLI::App* add_probe_command(CLI::App& application, AccessProbe& probe);
[[noreturn]] void run_probe(const AccessProbe& probe);

// The end of a child process: writes the text to standard output, and leaves everything else as it is. After a fault
// the context is broken, and nothing could be given back in order.
[[noreturn]] void answer_and_end(const std::string& text);

}  // namespace cuvmm::tour
