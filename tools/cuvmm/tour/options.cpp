#include "tour/options.hpp"

#include <CLI/CLI.hpp>
#include <map>

#include "tour/input_file.hpp"

namespace cuvmm::tour {

namespace {

// Replaces the name by the choice's number, which is what CLI11 reads enumerations from. Returns what is wrong with it,
// in words of its own: CLI11's transformer would tell the numbers, and take them.
std::string name_to_number(std::string& name) {
  static const std::map<std::string, DriverChoice> names{
      {"auto", DriverChoice::automatic}, {"cuda", DriverChoice::cuda}, {"emulated", DriverChoice::emulated}};
  const auto found = names.find(name);
  if (found == names.end()) return "there is no driver " + tour::quoted(name) + "; there are: auto, cuda, emulated";
  name = std::to_string(static_cast<int>(found->second));
  return {};
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

void add_options(CLI::App& command, Options& options) {
  command.add_option("FILE", options.file, "The file whose bytes are moved");
  add_driver_option(command, options.driver);
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
