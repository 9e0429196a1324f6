#include "command/driver_choice.hpp"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string_view>

#include "command/input_error.hpp"
#include "command/words.hpp"
#include "cuvmm/error.hpp"
#include "emulator/configuration.hpp"

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

OpenedDriver open_emulated_driver(int devices) {
  try {
    return {Driver::emulated(emulator::Configuration::from_environment(devices)), {}};
  } catch (const std::invalid_argument& error) {
    throw InputError(error.what());
  } catch (const InvalidUse& error) {
    throw InputError(error.what());
  }
}

OpenedDriver open_cuda_driver() {
  try {
    return {Driver::cuda(), {}};
  } catch (const DriverUnavailable& why) {
    throw InputError(fmt::format("{}. To run without a GPU, take --driver emulated.", why.rule()));
  }
}

OpenedDriver open_either_driver(int devices) {
  try {
    return {Driver::cuda(), {}};
  } catch (const DriverUnavailable& why) {
    OpenedDriver opened = open_emulated_driver(devices);
    opened.remark = fmt::format("{}. The emulated driver is used.", why.rule());
    return opened;
  }
}

OpenedDriver open_chosen_driver(DriverChoice choice, int devices) {
  switch (choice) {
    case DriverChoice::cuda:
      return open_cuda_driver();
    case DriverChoice::emulated:
      return open_emulated_driver(devices);
    case DriverChoice::automatic:
      break;
  }
  const char* const text = std::getenv("CUVMM_DRIVER");
  const std::string_view wanted = text == nullptr ? "" : text;
  if (wanted.empty()) return open_either_driver(devices);
  if (wanted == "cuda") return open_cuda_driver();
  if (wanted == "emulated") return open_emulated_driver(devices);
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

OpenedDriver open_driver(DriverChoice choice, int devices) {
  OpenedDriver opened = open_chosen_driver(choice, devices);
  if (const int present = opened.driver.device_count(); present < devices) {
    throw InputError(
        fmt::format("{} devices are asked for, and the driver has {}: ask for no more than it has, or "
                    "take --driver emulated.",
                    devices, present));
  }
  return opened;
}

}  // namespace cuvmm::command
