// Names and facts of the driver's entry points, made from the one list in entry_points.def.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace cuvmm::driver {

// One value per line of entry_points.def, in its order: usable as an array index.
enum class EntryPoint : unsigned short {
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) name,
#include "driver/entry_points.def"
};

enum class EntryPointGroup : unsigned char {
  core,
  device,
  context,
  memory,
  pool,
  vmm,
  sharing,
  copy,
  stream,
  event,
  graph,
  kernel,
  multicast
};

struct EntryPointInfo {
  EntryPoint entry_point;
  EntryPointGroup group;
  std::string_view name;            // without any _v2, unless the form before it is listed, too
  int version;                      // 1000 * major + 10 * minor, of the form that is meant
  std::string_view argument_names;  // "(handle, size, properties, flags)"
};

inline constexpr auto entry_points = std::to_array<EntryPointInfo>({
#define CUVMM_ENTRY_POINT(group, name, version, parameters, arguments) \
  {EntryPoint::name, EntryPointGroup::group, #name, version, #arguments},
#include "driver/entry_points.def"
});

inline constexpr std::size_t entry_point_count = entry_points.size();

constexpr const EntryPointInfo& info(EntryPoint entry_point) noexcept {
  return entry_points[static_cast<std::size_t>(entry_point)];
}

constexpr std::string_view name(EntryPoint entry_point) noexcept {
  return info(entry_point).name;
}

// What cuGetProcAddress is asked for: one name for all forms.
constexpr std::string_view looked_up_name(const EntryPointInfo& entry) noexcept {
  constexpr std::string_view second_form = "_v2";
  return entry.name.ends_with(second_form) ? entry.name.substr(0, entry.name.size() - second_form.size()) : entry.name;
}

// The entry point of that name ("cuMemMap"), or nothing.
constexpr std::optional<EntryPoint> find_entry_point(std::string_view name) noexcept {
  for (const EntryPointInfo& entry : entry_points)
    if (entry.name == name) return entry.entry_point;
  return std::nullopt;
}

}  // namespace cuvmm::driver
