#include "tour/options.hpp"

#include <CLI/CLI.hpp>

#include "command/driver_choice.hpp"

namespace cuvmm::tour {

void add_options(CLI::App& command, Options& options) {
  command.add_option("FILE", options.file, "The file whose bytes are moved");
  command::add_driver_option(command, options.driver);
  command.add_option("--devices", options.devices, "How many devices take part")
      ->option_text("N [1]")
      ->check(CLI::Range(1, 32).description(""));
  CLI::Option* json = command.add_flag("--json", options.json, "Write JSON instead of a table");
  command.add_option("--stop", options.stops, "Visit only this stop; may be given several times")
      ->option_text("ID")
      ->allow_extra_args(false);
  command.add_flag("--list", options.list, "List the stops and end")->excludes(json);
}

std::string contradiction(const Options& options) {
  if (options.list && !options.file.empty()) return "--list takes no FILE.";
  if (!options.list && options.file.empty()) return "The tour needs a FILE whose bytes it may move.";
  return {};
}

}  // namespace cuvmm::tour
