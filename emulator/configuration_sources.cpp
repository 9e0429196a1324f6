// Settings from a list, from JSON, and from the environment.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <ios>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "emulator/configuration_settings.hpp"

namespace cuvmm::emulator {
namespace {

using Json = nlohmann::json;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

std::string text_of(const std::string& name, const Json& value, const std::string& source) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw std::invalid_argument(
      fmt::format("emulated driver: {} is {} (from {}); it may be a string, a number, a boolean "
                  "or a list of them",
                  name, value.dump(), source));
}

std::string content_of(const std::string& path) {
  std::ifstream file;
  file.exceptions(std::ios::badbit | std::ios::failbit);
  try {
    file.open(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  } catch (const std::ios_base::failure&) {
    throw std::invalid_argument(
        fmt::format("emulated driver: the file '{}' (from CUVMM_EMULATOR_CONFIG) cannot be read: "
                    "{}; it must be a readable JSON file",
                    path, std::strerror(errno)));
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
  return given;
}

std::vector<GivenSetting> settings_in_json(const std::string& text, const std::string& source) {
  Json content;
  try {
    content = Json::parse(text);
  } catch (const Json::exception& error) {
    throw std::invalid_argument(
        fmt::format("emulated driver: {} is not JSON: {}; it must be one object of settings", source, error.what()));
  }
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
  return given;
}

Configuration Configuration::from_environment(int least_devices) {
  std::vector<GivenSetting> given;
  if (const char* path = std::getenv("CUVMM_EMULATOR_CONFIG"); path != nullptr && *path != '\0')
    given = settings_in_json(content_of(path), fmt::format("CUVMM_EMULATOR_CONFIG, file '{}'", path));
  if (const char* list = std::getenv("CUVMM_EMULATOR"); list != nullptr)
    for (GivenSetting& one : settings_in_list(list, "CUVMM_EMULATOR")) given.push_back(std::move(one));
  return configuration_of(given, least_devices);
}

}  // namespace cuvmm::emulator
