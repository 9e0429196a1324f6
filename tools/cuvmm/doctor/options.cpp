#include "doctor/options.hpp"

#include <CLI/CLI.hpp>

#include "command/driver_choice.hpp"

namespace cuvmm::doctor {

void add_options(CLI::App& command, Options& options) {
  command::add_driver_option(command, options.driver);
  command
      .add_option("--devices", options.devices,
                  "How many devices are looked at; all there are, and one of the emulated driver, unless given")
      ->option_text("N")
      ->check(CLI::Range(1, 32).description(""));
  command.add_flag("--probe", options.probe,
                   "Try what the devices announce: a granule of memory a trial, given back at once; calls of the "
                   "driver may fail");
  command.add_flag("--json", options.json, "Write JSON instead of a page for people");
}

}  // namespace cuvmm::doctor
