#include "tour/choose_driver.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

#include "cuvmm/error.hpp"
#include "emulator/configuration.hpp"
#include "tour/input_file.hpp"

namespace cuvmm::tour {
namespace {

OpenedDriver open_emulated_driver(int devices) {
  try {
    return {Driver::emulated(emulator::Configuration::from_environment(devices)), {}};
  } catch (const std::invalid_argument& error) {
    throw InputError(error.what());
  } catch (const InvalidUse& error) {
    throw InputError(error.what());
  }
}

OpenedDriver open_either_driver(int devices) {
  try {
    return {Driver::cuda(), {}};
  } catch (const DriverUnavailable& why) {
    OpenedDriver opened = open_emulated_driver(devices);
    opened.remark = fmt::format("{}. The tour uses the emulated driver.", why.rule());
    return opened;
  }
}

OpenedDriver open_chosen_driver(DriverChoice choice, int devices) {
  switch (choice) {
    case DriverChoice::cuda:
      return {Driver::cuda(), {}};
    case DriverChoice::emulated:
      return open_emulated_driver(devices);
    case DriverChoice::automatic:
      break;
  }
  return open_either_driver(devices);
}

}  // namespace

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

}  // namespace cuvmm::tour
