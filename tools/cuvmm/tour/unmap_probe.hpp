// Unmapping under a running kernel, in a process of its own: memory that is taken from under a kernel takes the context
// with it, and every later call on that context fails.
#pragma once

#include <cstdint>
#include <string>

#include "command/driver_choice.hpp"
#include "driver/interface.hpp"
#include "tour/options.hpp"

namespace CLI {
class App;
}

namespace cuvmm::tour {

// "Put the file's first bytes into a range of device 0, let a kernel read them once it is told to, and unmap the range
// in another thread meanwhile."
struct UnmapProbe {
  command::DriverChoice driver = command::DriverChoice::automatic;
  int devices = 1;  // of the driver
  std::string file;
};

// How many of the file's bytes that are at most.
inline constexpr std::size_t unmap_probe_bytes = std::size_t{1} << 20;

struct UnmapAnswer {
  bool waited = false;            // unmapping had not come back before the kernel was told to go on
  abi::CUresult kernel{};         // what the wait for the kernel's end answered, if it waited
  std::uint64_t checksum = 0;     // of what the kernel read
  abi::CUresult touched_after{};  // what a copy answered to the addresses afterwards
};

// Runs the probe in a child process. Throws std::runtime_error if the child could not get as far as that, or has not
// answered within a minute.
[[nodiscard]] UnmapAnswer run_in_child(const UnmapProbe& probe);

// The child's side, as for AccessProbe.
CLI::App* add_probe_command(CLI::App& application, UnmapProbe& probe);
[[noreturn]] void run_probe(const UnmapProbe& probe);

}  // namespace cuvmm::tour
