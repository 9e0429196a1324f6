// Which driver a command works with: the option --driver.
#pragma once

#include <string>

#include "cuvmm/driver.hpp"

namespace CLI {
class App;
}

namespace cuvmm::command {

enum class DriverChoice {
  automatic,  // what CUVMM_DRIVER names; else the CUDA driver if it has a device, else the emulated one, said aloud
  cuda,
  emulated,
};

// Adds the option --driver.
void add_driver_option(CLI::App& command, DriverChoice& choice);

// Where other processes find the devices that this one has.
struct DriverPlace {
  DriverChoice driver = DriverChoice::automatic;  // cuda or emulated
  int devices = 1;                                // that take part
  std::string machine{};                          // the emulated one
  int nodes = 1;                                  // of it
  int node = 0;                                   // on which this process is
  std::string alone{};                            // why no other process finds them; empty if they do
};

struct OpenedDriver {
  Driver driver;
  std::string remark;   // why it is not the driver that the user may expect; empty if it is
  DriverPlace place{};  // of open_shareable_driver
};

// Opens and initialises the driver of that choice (an automatic one obeys the environment variable CUVMM_DRIVER), with
// at least `devices` devices. The emulated driver is configured by the environment (docs/emulator.md) and gets that
// many devices. The environment variable CUVMM_LIE wraps the driver into one that lies (docs/tour.md). Throws
// cuvmm::Error if there is no such driver, InputError if it has too few devices.
[[nodiscard]] OpenedDriver open_driver(DriverChoice choice, int devices);

// What a program wants of an emulated machine beyond what the environment says: the same for all of its processes.
struct EmulatedMachine {
  std::string defaults{};  // settings that count where the environment names neither a machine nor a profile
};

// The same of a child process that ends by what it does: an emulated machine is its own, of one node, whatever the
// environment says of that.
[[nodiscard]] Driver open_driver_apart(DriverChoice choice, int devices, const EmulatedMachine& machine);

// The same for a program whose child processes are to have the same devices. An emulated machine is one that processes
// share: the one that the environment names, else a new one, of two nodes at least, that ends with the last of them. If
// that cannot be had, the machine is the process's own, and the place tells why.
[[nodiscard]] OpenedDriver open_shareable_driver(DriverChoice choice, int devices, const EmulatedMachine& machine);

// The driver of such a child process, on that node of the machine. Throws as open_driver.
[[nodiscard]] Driver open_driver_at(const DriverPlace& place, int node, const EmulatedMachine& machine);

}  // namespace cuvmm::command
