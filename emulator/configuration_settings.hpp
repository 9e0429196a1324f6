// The settings of a configuration by name, for every way in which they are given as text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/configuration.hpp"

namespace cuvmm::emulator {

struct Setting {
  std::string name;
  std::string values;   // what it may be, for people
  std::string meaning;  // one line for people
  // Sets it. Answers false, and changes nothing, for a value that it may not have.
  std::function<bool(Configuration&, std::string_view value)> set;
  bool repeatable = false;  // may be given several times in one place
};

// All settings there are. The function objects of a configuration (kernels, on_warning) can be given by a program
// alone.
[[nodiscard]] const std::vector<Setting>& settings();

// What is the same for all processes on a machine.
inline constexpr std::string_view machine_wide_settings[] = {"profile", "devices",       "memory",
                                                             "nodes",   "imex-channels", "multicast-slots"};

// The value that the configuration has of one of them; all of them as a list of settings.
[[nodiscard]] std::string machine_wide_value(const Configuration& configuration, std::string_view setting);
[[nodiscard]] std::string machine_settings(const Configuration& configuration);

// The value of `machine` that makes the machine the process's own.
inline constexpr std::string_view private_machine = "private";

inline constexpr int most_nodes = 64;
inline constexpr int most_imex_channels = 2048;
inline constexpr int most_broker_patience = 3600;
inline constexpr int most_multicast_slots = 100'000;
inline constexpr int most_multicast_wait = 3'600'000;

// Where `cuvmm emulate` puts the machine that it makes. Users do not set it, and messages do not blame it.
inline constexpr std::string_view machine_variable = "CUVMM_EMULATOR_MACHINE";

// One setting as somebody gave it.
struct GivenSetting {
  std::string name;
  std::string value;
  std::string source;  // where it was given, for messages: "CUVMM_EMULATOR"
};

// The settings in "name=value,name,...", where a name alone means true; in a JSON object of the same names, whose
// values are strings, numbers, booleans, or lists of them where a setting may be given several times. Both throw
// std::invalid_argument for text that has not that form, or where a setting is given twice that may not be; JSON that
// is nested deeply is not looked at to its end.
[[nodiscard]] std::vector<GivenSetting> settings_in_list(std::string_view text, const std::string& source);
[[nodiscard]] std::vector<GivenSetting> settings_in_json(const std::string& text, const std::string& source);

// The list again, which need not be one of settings, without those of that name.
[[nodiscard]] std::string list_without(std::string_view text, std::string_view name);

// The default configuration with these settings, later ones over earlier ones, the profile before all others. Throws
// std::invalid_argument, which names setting, value, what is allowed and the source.
[[nodiscard]] Configuration configuration_of(const std::vector<GivenSetting>& given, int least_devices = 1);

// As Configuration::from_environment, of a program that is about to share its machine with processes that it starts:
// the machine is `own` unless the environment names one, and so may have several nodes. `defaults` is a list of
// settings that count, less than others, where the environment names neither a machine nor a profile.
[[nodiscard]] Configuration configuration_to_share(const std::string& own, int least_devices,
                                                   std::string_view defaults = {});

}  // namespace cuvmm::emulator
