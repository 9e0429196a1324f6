// Settings from a list, from JSON, and from the environment.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "emulator/configuration_settings.hpp"
#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator {
namespace {

using Json = nlohmann::json;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

constexpr std::size_t most_bytes = std::size_t{1} << 20;  // of a file
constexpr int most_nesting = 8;                           // of JSON; settings need two levels

// For messages, which quote no novels.
std::string shortened(std::string text) {
  constexpr std::size_t most = 200;
  if (text.size() > most) text.replace(most, std::string::npos, "...");
  return text;
}

std::string text_of(const std::string& name, const Json& value, const std::string& source) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw std::invalid_argument(
      fmt::format("emulated driver: {} is {} (from {}); it may be a string, a number, a boolean "
                  "or a list of them",
                  shortened(name), shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace)), source));
}

[[noreturn]] void refuse_file(const std::string& path, std::string_view why) {
  throw std::invalid_argument(fmt::format(
      "emulated driver: the file '{}' (from CUVMM_EMULATOR_CONFIG) cannot be read: {}; it must be a readable JSON file "
      "of at most {} bytes",
      path, why, most_bytes));
}

// What is no file proper (a FIFO, a device) might never end, or never begin.
memory::FileDescriptor opened(const std::string& path) {
  memory::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) refuse_file(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) refuse_file(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) refuse_file(path, "it is no regular file");
  return file;
}

std::string content_of(const std::string& path) {
  const memory::FileDescriptor file = opened(path);
  std::string content(most_bytes + 1, '\0');
  std::size_t length = 0;
  while (length < content.size()) {
    const ssize_t count = ::read(file.get(), content.data() + length, content.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_file(path, std::strerror(errno));
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  if (length > most_bytes) refuse_file(path, "it is larger");
  content.resize(length);
  return content;
}

// Ends the parsing of what is nested too deep, of which the rest is not looked at.
struct NestedTooDeep {};

[[noreturn]] void refuse_twice(const std::string& name, const std::string& source) {
  throw std::invalid_argument(
      fmt::format("emulated driver: {} is given twice (from {}); give it once", shortened(name), source));
}

bool may_be_repeated(std::string_view name) {
  const auto& all = settings();
  return std::any_of(all.begin(), all.end(), [&](const Setting& each) { return each.name == name && each.repeatable; });
}

// One of two values would be lost in silence.
void refuse_repeated(const std::vector<GivenSetting>& given) {
  for (auto one = given.begin(); one != given.end(); ++one)
    if (!may_be_repeated(one->name) &&
        std::any_of(given.begin(), one, [&](const GivenSetting& before) { return before.name == one->name; }))
      refuse_twice(one->name, one->source);
}

Json parsed(const std::string& text, const std::string& source) {
  std::set<std::string> names;
  const auto check_depth = [&](int depth, Json::parse_event_t event, const Json& value) {
    if (depth > most_nesting) throw NestedTooDeep();
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(value.get<std::string>()).second)
      refuse_twice(value.get<std::string>(), source);
    return true;
  };
  try {
    return Json::parse(text, check_depth);
  } catch (const NestedTooDeep&) {
    throw std::invalid_argument(
        fmt::format("emulated driver: {} is nested more than {} deep; it must be one object of settings, whose values "
                    "are strings, numbers, booleans or lists of them",
                    source, most_nesting));
  } catch (const Json::exception& error) {
    throw std::invalid_argument(fmt::format("emulated driver: {} is not JSON: {}; it must be one object of settings",
                                            source, shortened(error.what())));
  }
}

}  // namespace

std::vector<GivenSetting> settings_in_list(std::string_view text, const std::string& source) {
  std::vector<GivenSetting> given;
  if (trimmed(text).empty()) return given;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = trimmed(text.substr(begin, end - begin));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = trimmed(item.substr(0, equals));
    if (name.empty())
      throw std::invalid_argument(
          fmt::format("emulated driver: '{}' (from {}) has a setting without a name; it must be "
                      "name=value,name=value,...",
                      text, source));
    const std::string_view value = equals == item.size() ? "true" : trimmed(item.substr(equals + 1));
    given.push_back({std::string(name), std::string(value), source});
    begin = end + 1;
  }
  refuse_repeated(given);
  return given;
}

std::string list_without(std::string_view text, std::string_view name) {
  std::string kept;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    if (trimmed(item.substr(0, std::min(item.find('='), item.size()))) != name) {
      if (begin != 0 && !kept.empty()) kept += ',';
      kept += item;
    }
    begin = end + 1;
  }
  return kept;
}

std::vector<GivenSetting> settings_in_json(const std::string& text, const std::string& source) {
  const Json content = parsed(text, source);
  if (!content.is_object())
    throw std::invalid_argument(
        fmt::format("emulated driver: {} is JSON, but not an object; it must be one object of settings", source));
  std::vector<GivenSetting> given;
  for (const auto& [name, value] : content.items()) {
    if (!value.is_array()) {
      given.push_back({name, text_of(name, value, source), source});
      continue;
    }
    for (const Json& element : value) given.push_back({name, text_of(name, element, source), source});
  }
  refuse_repeated(given);
  return given;
}

namespace {

std::vector<GivenSetting> given_in(const char* variable) {
  const char* const list = std::getenv(variable);
  return list == nullptr ? std::vector<GivenSetting>() : settings_in_list(list, variable);
}

std::vector<GivenSetting> given_by_user() {
  std::vector<GivenSetting> given;
  if (const char* path = std::getenv("CUVMM_EMULATOR_CONFIG"); path != nullptr && *path != '\0')
    given = settings_in_json(content_of(path), fmt::format("CUVMM_EMULATOR_CONFIG, file '{}'", path));
  for (GivenSetting& one : given_in("CUVMM_EMULATOR")) given.push_back(std::move(one));
  return given;
}

bool has(const std::vector<GivenSetting>& given, std::string_view name) {
  return std::any_of(given.begin(), given.end(), [&](const GivenSetting& one) { return one.name == name; });
}

// Programs of one configuration find each other, and those of different ones do not get into each other's way.
std::string default_machine(const Configuration& configuration) {
  return fmt::format("default-{}-devices-{}-memory-{}-nodes-{}-imex-{}", configuration.profile.name,
                     configuration.devices, configuration.memory_per_device(), configuration.nodes,
                     configuration.imex_channel_count());
}

}  // namespace

Configuration Configuration::from_environment(int least_devices) {
  return configuration_of(given_by_user(), least_devices);
}

Configuration configuration_to_share(const std::string& own, int least_devices, std::string_view defaults) {
  const std::vector<GivenSetting> users = given_by_user();
  std::vector<GivenSetting> given;
  if (!has(users, "machine") && !has(users, "profile")) given = settings_in_list(defaults, "a default");
  given.insert(given.end(), users.begin(), users.end());
  if (!has(given, "machine")) given.push_back({"machine", own, "a machine of its own"});
  return configuration_of(given, least_devices);
}

Configuration Configuration::of_program() {
  std::vector<GivenSetting> given = given_in(machine_variable.data());
  const std::vector<GivenSetting> users = given_by_user();
  given.insert(given.end(), users.begin(), users.end());
  const bool named = has(given, "machine");
  if (!named) given.push_back({"machine", "default", "the default"});
  Configuration configuration = configuration_of(given);
  if (!named) configuration.machine = default_machine(configuration);
  configuration.left_open.clear();
  for (const std::string_view name : machine_wide_settings)
    if (!has(users, name)) configuration.left_open.emplace_back(name);
  return configuration;
}

}  // namespace cuvmm::emulator
