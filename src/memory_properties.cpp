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

}  // namespace cuvmm
