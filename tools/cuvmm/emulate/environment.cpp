#include "emulate/environment.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "command/input_error.hpp"
#include "command/words.hpp"
#include "emulator/broker/machine_directory.hpp"
#include "emulator/configuration.hpp"
#include "emulator/configuration_settings.hpp"

namespace cuvmm::emulate {
namespace {

std::string from_environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

void set_in_environment(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) != 0) throw std::system_error(errno, std::generic_category(), name);
}

// Where the library lies, seen from this program; the same in the build tree and where both are installed.
std::string library_folder() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path folder = (program.parent_path() / CUVMM_DROP_IN_FROM_PROGRAM).lexically_normal();
  const std::string library = (folder / "libcuda.so.1").string();
  if (::access(library.c_str(), R_OK) != 0)
    throw command::InputError(fmt::format(
        "The emulated driver {} is not there or cannot be read. Install cuvmm anew, and move its folders together.",
        command::quoted(library)));
  if (library.find_first_of(":;$") != std::string::npos)
    throw command::InputError(
        fmt::format("The emulated driver {} cannot be named in LD_LIBRARY_PATH, where ':', ';' and '$' mean something. "
                    "Move cuvmm to a folder without them.",
                    command::quoted(library)));
  return folder.string();
}

std::vector<emulator::GivenSetting> settings_in(const Options& options) {
  std::vector<emulator::GivenSetting> given;
  for (const auto& [name, value] : {std::pair{"profile", options.profile}, std::pair{"devices", options.devices},
                                    std::pair{"nodes", options.nodes}, std::pair{"memory", options.memory}})
    if (value) given.push_back({name, *value, fmt::format("--{}", name)});
  if (options.strict) given.push_back({"mode", "strict", "--strict"});
  if (options.explain) given.push_back({"explain", "true", "--explain"});
  return given;
}

}  // namespace

void prepare_environment(const Options& options) {
  const std::string folder = library_folder();
  std::string settings = from_environment("CUVMM_EMULATOR");
  const auto given = settings_in(options);
  // What counts least, for the command and all that it starts: a machine of their own.
  const std::string machine = fmt::format("machine={},node=0", emulator::broker::fresh_machine());
  std::vector<emulator::GivenSetting> checked = emulator::settings_in_list(machine, "cuvmm emulate");
  checked.insert(checked.end(), given.begin(), given.end());
  static_cast<void>(emulator::configuration_of(checked));  // so that a message names the option
  for (const auto& [name, value, source] : given) settings = emulator::list_without(settings, name);
  for (const auto& [name, value, source] : given)
    settings += fmt::format("{}{}={}", settings.empty() ? "" : ",", name, value);
  if (!settings.empty()) set_in_environment("CUVMM_EMULATOR", settings);
  set_in_environment(emulator::machine_variable.data(), machine);
  // Programs that are given other settings than the others are on the same machine: it counts for them, too.
  const emulator::Configuration configuration = emulator::Configuration::of_program();
  set_in_environment(emulator::machine_variable.data(),
                     fmt::format("{},{}", machine, emulator::machine_settings(configuration)));

  // A program of this library is to open the machine's driver, not one within itself.
  if (from_environment("CUVMM_DRIVER") == "emulated") set_in_environment("CUVMM_DRIVER", "cuda");
  const std::string others = from_environment("LD_LIBRARY_PATH");
  set_in_environment("LD_LIBRARY_PATH", others.empty() ? folder : fmt::format("{}:{}", folder, others));
}

}  // namespace cuvmm::emulate
