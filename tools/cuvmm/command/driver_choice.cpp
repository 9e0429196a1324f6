#include "command/driver_choice.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "command/input_error.hpp"
#include "command/words.hpp"
#include "cuvmm/error.hpp"
#include "emulator/broker/machine_directory.hpp"
#include "emulator/configuration.hpp"
#include "emulator/configuration_settings.hpp"

namespace cuvmm::command {
namespace {

// Replaces the name by the choice's number, which is what CLI11 reads enumerations from. Returns what is wrong with it,
// in words of its own: CLI11's transformer would tell the numbers, and take them.
std::string name_to_number(std::string& name) {
  static const std::map<std::string, DriverChoice> names{
      {"auto", DriverChoice::automatic}, {"cuda", DriverChoice::cuda}, {"emulated", DriverChoice::emulated}};
  const auto found = names.find(name);
  if (found == names.end()) return "there is no driver " + command::quoted(name) + "; there are: auto, cuda, emulated";
  name = std::to_string(static_cast<int>(found->second));
  return {};
}

// What `make` answers; a configuration that makes no sense is the user's.
template <class Make>
auto configured(Make make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {
    throw InputError(error.what());
  } catch (const InvalidUse& error) {
    throw InputError(error.what());
  }
}

OpenedDriver open_emulated_driver(int devices) {
  return configured([&] {
    return OpenedDriver{Driver::emulated(emulator::Configuration::from_environment(devices)), {}};
  });
}

emulator::Configuration configuration_of(const std::string& own, int devices, const EmulatedMachine& machine) {
  emulator::Configuration configuration = emulator::configuration_to_share(own, devices, machine.defaults);
  return configuration;
}

// On a machine of the process's own.
Driver open_apart(int devices, const EmulatedMachine& machine) {
  return configured([&] {
    emulator::Configuration configuration = configuration_of("apart", devices, machine);
    configuration.machine.clear();
    configuration.nodes = 1;
    configuration.node = 0;
    return Driver::emulated(configuration);
  });
}

// On the machine that the environment names, or on a new one of that name.
OpenedDriver open_shareable_emulated_driver(emulator::Configuration configuration, const std::string& own) {
  return configured([&] {
    if (configuration.machine.empty() || configuration.machine == own) {
      configuration.machine = own;
      configuration.nodes = std::max(2, configuration.nodes);
    }
    OpenedDriver opened{Driver::emulated(configuration), {}};
    opened.place.machine = configuration.machine;
    opened.place.nodes = configuration.nodes;
    opened.place.node = configuration.node;
    return opened;
  });
}

// A machine that processes share takes more of the system than one of the process's own, so there is a way without.
OpenedDriver open_emulated_driver_for_many(int devices, const EmulatedMachine& machine) {
  const std::string own = emulator::broker::fresh_machine();
  const auto configuration = configured([&] { return configuration_of(own, devices, machine); });
  const bool named = !configuration.machine.empty() && configuration.machine != own;
  const bool needed = named || configuration.nodes > 1;
  try {
    return open_shareable_emulated_driver(configuration, own);
  } catch (const Error& error) {
    if (needed) throw;
    OpenedDriver opened{open_apart(devices, machine), {}};
    opened.place.alone = fmt::format("other processes cannot share this one's emulated machine: {}", error.what());
    return opened;
  } catch (const std::system_error& error) {
    if (needed) throw InputError(error.what());
    OpenedDriver opened{open_apart(devices, machine), {}};
    opened.place.alone = fmt::format("other processes cannot share this one's emulated machine: {}", error.what());
    return opened;
  }
}

OpenedDriver open_cuda_driver() {
  try {
    return {Driver::cuda(), {}};
  } catch (const DriverUnavailable& why) {
    throw InputError(fmt::format("{}. To run without a GPU, take --driver emulated.", why.rule()));
  }
}

using OpenEmulated = std::function<OpenedDriver()>;

OpenedDriver open_either_driver(const OpenEmulated& open_emulated) {
  try {
    return {Driver::cuda(), {}};
  } catch (const DriverUnavailable& why) {
    OpenedDriver opened = open_emulated();
    opened.remark = fmt::format("{}. The emulated driver is used.", why.rule());
    return opened;
  }
}

OpenedDriver open_chosen_driver(DriverChoice choice, const OpenEmulated& open_emulated) {
  switch (choice) {
    case DriverChoice::cuda:
      return open_cuda_driver();
    case DriverChoice::emulated:
      return open_emulated();
    case DriverChoice::automatic:
      break;
  }
  const char* const text = std::getenv("CUVMM_DRIVER");
  const std::string_view wanted = text == nullptr ? "" : text;
  if (wanted.empty()) return open_either_driver(open_emulated);
  if (wanted == "cuda") return open_cuda_driver();
  if (wanted == "emulated") return open_emulated();
  throw InputError(fmt::format("CUVMM_DRIVER names no driver: it is {}. Set it to cuda or to emulated, or remove it.",
                               quoted(std::string(wanted))));
}

}  // namespace

void add_driver_option(CLI::App& command, DriverChoice& choice) {
  command
      .add_option("--driver", choice,
                  "auto (what CUVMM_DRIVER names; else the CUDA driver if it has a device, else the emulated one), "
                  "cuda, or emulated")
      ->option_text("DRIVER [auto]")
      ->transform(CLI::Validator(name_to_number, ""));
}

namespace {

void require_devices(const Driver& driver, int devices) {
  if (const int present = driver.device_count(); present < devices) {
    throw InputError(
        fmt::format("{} devices are asked for, and the driver has {}: ask for no more than it has, or "
                    "take --driver emulated.",
                    devices, present));
  }
}

}  // namespace

OpenedDriver open_driver(DriverChoice choice, int devices) {
  OpenedDriver opened = open_chosen_driver(choice, [&] { return open_emulated_driver(devices); });
  require_devices(opened.driver, devices);
  return opened;
}

Driver open_driver_apart(DriverChoice choice, int devices, const EmulatedMachine& machine) {
  if (choice != DriverChoice::emulated) return open_driver(choice, devices).driver;
  Driver driver = open_apart(devices, machine);
  require_devices(driver, devices);
  return driver;
}

OpenedDriver open_shareable_driver(DriverChoice choice, int devices, const EmulatedMachine& machine) {
  OpenedDriver opened = open_chosen_driver(choice, [&] { return open_emulated_driver_for_many(devices, machine); });
  require_devices(opened.driver, devices);
  opened.place.driver = opened.driver.is_emulated() ? DriverChoice::emulated : DriverChoice::cuda;
  opened.place.devices = devices;
  return opened;
}

Driver open_driver_at(const DriverPlace& place, int node, const EmulatedMachine& machine) {
  if (place.driver != DriverChoice::emulated) return open_driver(place.driver, place.devices).driver;
  Driver driver = configured([&] {
    emulator::Configuration configuration = configuration_of(place.machine, place.devices, machine);
    configuration.machine = place.machine;
    configuration.nodes = place.nodes;
    configuration.node = node;
    return Driver::emulated(configuration);
  });
  require_devices(driver, place.devices);
  return driver;
}

}  // namespace cuvmm::command
