// A touch of a multicast address that may break the context, in a process of its own: as AccessProbe.
#pragma once

#include "command/driver_choice.hpp"
#include "tour/access_probe.hpp"

namespace CLI {
class App;
}

namespace cuvmm::tour {

// "Make a team of the first device and another one, with memory of both behind a multicast address, and let the first
// one touch it like this."
struct MulticastProbe {
  enum class Touch {
    load,   // an ordinary one by a kernel
    store,  // likewise
    copy,   // from the host to there
    memset,
    multimem_store,
    multimem_store_to_memory,  // to the first device's memory at its own address
  };
  command::DriverChoice driver = command::DriverChoice::automatic;
  int devices = 2;  // of the driver
  int second = 1;   // the other one
  Touch touch = Touch::multimem_store;
};

// Runs the probe in a child process and returns what the touch, or the wait for its end, answered there. Throws
// std::runtime_error if the child could not get as far as that, or has not answered within a minute.
[[nodiscard]] abi::CUresult run_in_child(const MulticastProbe& probe);

// The child's side, as for AccessProbe.
CLI::App* add_probe_command(CLI::App& application, MulticastProbe& probe);
[[noreturn]] void run_probe(const MulticastProbe& probe);

}  // namespace cuvmm::tour
