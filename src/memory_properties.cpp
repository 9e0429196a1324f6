#include "cuvmm/memory_properties.hpp"

#include <fmt/format.h>

namespace cuvmm {

std::string to_string(const Location& location) {
  switch (location.kind) {
    case LocationKind::device:
      return fmt::format("device {}", location.id);
    case LocationKind::host:
      return "host";
    case LocationKind::host_numa:
      return fmt::format("host NUMA node {}", location.id);
  }
  return fmt::format("location of kind {}", static_cast<int>(location.kind));
}

std::string to_string(HandleTypes types) {
  std::string text;
  const auto add = [&](HandleType type, const char* name) {
    if (types.contains(type)) text += fmt::format("{}{}", text.empty() ? "" : " and ", name);
  };
  add(HandleType::posix_file_descriptor, "POSIX file descriptor");
  add(HandleType::win32, "Win32 handle");
  add(HandleType::win32_kmt, "Win32 KMT handle");
  add(HandleType::fabric, "fabric handle");
  return text.empty() ? "none" : text;
}

}  // namespace cuvmm
