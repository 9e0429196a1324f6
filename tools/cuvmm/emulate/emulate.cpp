#include "emulate/emulate.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "command/input_error.hpp"
#include "emulate/environment.hpp"
#include "emulate/run_command.hpp"

namespace cuvmm::emulate {

int run_emulate(const Options& options) {
  constexpr int exit_misuse = 2;
  try {
    if (options.command.empty() || options.command.front().empty())
      throw command::InputError("The command to run is missing: cuvmm emulate [OPTIONS] -- CMD ARG...");
    prepare_environment(options);
    return run_command(options.command);
  } catch (const CannotRun& error) {
    std::fputs(fmt::format("cuvmm emulate: {}\n", error.what()).c_str(), stderr);
    return error.exit_status();
  } catch (const std::exception& error) {
    std::fputs(fmt::format("cuvmm emulate: {}\n", error.what()).c_str(), stderr);
    return exit_misuse;
  }
}

}  // namespace cuvmm::emulate
