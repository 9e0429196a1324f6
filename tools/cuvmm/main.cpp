// The cuvmm command: its subcommands and its version.
#include <CLI/CLI.hpp>

#include "tour/access_probe.hpp"
#include "tour/options.hpp"
#include "tour/tour.hpp"

int main(int count, char** words) {
  constexpr int exit_misuse = 2;
  CLI::App application("Shows and explains CUDA's virtual memory management.", "cuvmm");
  application.set_version_flag("--version", "cuvmm " CUVMM_VERSION);
  application.require_subcommand(1);

  cuvmm::tour::Options options;
  CLI::App* tour = application.add_subcommand("tour", "Moves the bytes of a file through the features, one by one");
  cuvmm::tour::add_options(*tour, options);
  tour->set_version_flag("--version", "cuvmm " CUVMM_VERSION);

  cuvmm::tour::AccessProbe probe;
  cuvmm::tour::add_probe_command(application, probe);

  try {
    application.parse(count, words);
  } catch (const CLI::ParseError& error) {
    return application.exit(error) == 0 ? 0 : exit_misuse;
  }
  if (tour->parsed()) return cuvmm::tour::run_tour(options);
  cuvmm::tour::run_probe(probe);
}
