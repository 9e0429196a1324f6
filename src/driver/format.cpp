#include "driver/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "cuvmm/units.hpp"
#include "driver/result_names.hpp"

namespace cuvmm::driver {

namespace {

constexpr auto size_names = std::to_array<std::string_view>(
    {"size", "bytes", "alignment", "offset", "multicast_offset", "memory_offset", "granularity", "free", "total"});
constexpr auto hexadecimal_names = std::to_array<std::string_view>(
    {"pointer", "device_pointer", "address", "base", "source", "destination", "handle", "multicast", "memory"});

// Pointers to lists, whose length stands elsewhere: not a single value.
constexpr auto list_names =
    std::to_array<std::string_view>({"attributes", "data", "nodes", "dependencies", "kernel_params", "extra"});

constexpr std::size_t longest_list = 8;   // descriptors shown of a list
constexpr std::size_t longest_text = 64;  // characters shown of a text

template <std::size_t count>
bool contains(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string allocation_type(CUmemAllocationType type) {
  switch (type) {
    case CU_MEM_ALLOCATION_TYPE_INVALID:
      return "INVALID";
    case CU_MEM_ALLOCATION_TYPE_PINNED:
      return "PINNED";
    case CU_MEM_ALLOCATION_TYPE_MANAGED:
      return "MANAGED";
  }
  return fmt::format("type {}", static_cast<int>(type));
}

std::string access_flags(CUmemAccess_flags flags) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_NONE:
      return "NONE";
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      return "READ";
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return "READWRITE";
  }
  return fmt::format("flags {}", static_cast<int>(flags));
}

}  // namespace

std::string format_location(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return fmt::format("DEVICE {}", location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
      return "HOST";
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return fmt::format("HOST_NUMA {}", location.id);
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return "HOST_NUMA_CURRENT";
    case CU_MEM_LOCATION_TYPE_INVALID:
      break;
  }
  return fmt::format("location type {} id {}", static_cast<int>(location.type), location.id);
}

std::string format_handle_types(unsigned long long handle_types) {
  struct Named {
    unsigned long long bit;
    std::string_view name;
  };
  static constexpr auto named =
      std::to_array<Named>({{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "POSIX_FILE_DESCRIPTOR"},
                            {CU_MEM_HANDLE_TYPE_WIN32, "WIN32"},
                            {CU_MEM_HANDLE_TYPE_WIN32_KMT, "WIN32_KMT"},
                            {CU_MEM_HANDLE_TYPE_FABRIC, "FABRIC"}});
  std::string text;
  for (const Named& type : named) {
    if ((handle_types & type.bit) == 0) continue;
    if (!text.empty()) text += '|';
    text += type.name;
    handle_types &= ~type.bit;
  }
  if (handle_types != 0) text += fmt::format("{}{:#x}", text.empty() ? "" : "|", handle_types);
  return text.empty() ? "NONE" : text;
}

std::string format_properties(const CUmemAllocationProp& properties) {
  return fmt::format("{{{}, location {}, handle types {}, compression {}, RDMA {}, usage {}}}",
                     allocation_type(properties.type), format_location(properties.location),
                     format_handle_types(static_cast<unsigned>(properties.requestedHandleTypes)),
                     int{properties.allocFlags.compressionType}, int{properties.allocFlags.gpuDirectRDMACapable},
                     int{properties.allocFlags.usage});
}

std::string format_pool_properties(const CUmemPoolProps& properties) {
  return fmt::format(
      "{{{}, location {}, handle types {}, at most {}, usage {}}}", allocation_type(properties.allocType),
      format_location(properties.location), format_handle_types(static_cast<unsigned>(properties.handleTypes)),
      properties.maxSize == 0 ? "what there is" : format_unsigned("size", properties.maxSize), int{properties.usage});
}

std::string format_access_list(const CUmemAccessDesc* descriptors, std::size_t count) {
  if (descriptors == nullptr) return "null";
  std::string text = "[";
  for (std::size_t index = 0; index < std::min(count, longest_list); ++index)
    text += fmt::format("{}{} {}", index == 0 ? "" : ", ", format_location(descriptors[index].location),
                        access_flags(descriptors[index].flags));
  if (count > longest_list) text += fmt::format(", and {} more", count - longest_list);
  return text + "]";
}

std::string format_multicast_properties(const CUmulticastObjectProp& properties) {
  return fmt::format("{{{} devices, size {}, handle types {}, flags {}}}", properties.numDevices,
                     format_unsigned("size", properties.size), format_handle_types(properties.handleTypes),
                     properties.flags);
}

std::string format_pointer(const void* pointer) {
  return pointer == nullptr ? "null" : fmt::format("{}", pointer);
}

std::string format_text(const char* text) {
  if (text == nullptr) return "null";
  const std::size_t length = ::strnlen(text, longest_text + 1);
  return fmt::format("\"{}{}\"", std::string_view(text, std::min(length, longest_text)),
                     length > longest_text ? "..." : "");
}

std::string format_signed(long long value) {
  return fmt::format("{}", value);
}

std::string format_attribute(CUdevice_attribute attribute) {
  switch (attribute) {
#define CUVMM_DEVICE_ATTRIBUTE(name, value) \
  case CU_DEVICE_ATTRIBUTE_##name:          \
    return #name;
#include "driver/abi_device_attributes.def"
  }
  return fmt::format("attribute {}", static_cast<int>(attribute));
}

std::string format_result(CUresult result) {
  const std::string_view name = result_name(result);
  return name.empty() ? fmt::format("code {}", static_cast<int>(result)) : std::string(name);
}

std::string format_unsigned(std::string_view name, unsigned long long value) {
  if (contains(hexadecimal_names, name)) return fmt::format("{:#x}", value);
  if (contains(size_names, name) && value >= 1024) return fmt::format("{} ({})", value, format_bytes(value));
  return fmt::format("{}", value);
}

std::vector<std::string_view> split_names(std::string_view argument_names) {
  std::vector<std::string_view> names;
  std::string_view rest = argument_names.substr(1, argument_names.size() - 2);
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    names.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ', comma + 1)));
  }
  return names;
}

bool is_list(std::string_view name) noexcept {
  return contains(list_names, name);
}

bool is_list_of_answers(std::string_view name) noexcept {
  return name == "data" || name == "nodes";
}

bool receives_untyped_answer(EntryPoint entry, std::string_view name) noexcept {
  switch (entry) {
    case EntryPoint::cuMemExportToShareableHandle:
    case EntryPoint::cuMemPoolExportToShareableHandle:
      return name == "shareable_handle";
    case EntryPoint::cuMemGetHandleForAddressRange:
      return name == "handle";
    case EntryPoint::cuPointerGetAttribute:
      return name == "data";
    case EntryPoint::cuMemPoolGetAttribute:
    case EntryPoint::cuDeviceGetGraphMemAttribute:
      return name == "value";
    default:
      return false;
  }
}

std::string join_arguments(EntryPoint entry, const std::vector<std::string>& texts) {
  const std::vector<std::string_view> names = split_names(info(entry).argument_names);
  std::string joined;
  for (std::size_t index = 0; index < texts.size(); ++index)
    if (!texts[index].empty())
      joined += fmt::format("{}{} = {}", joined.empty() ? "" : ", ", names[index], texts[index]);
  return joined;
}

}  // namespace cuvmm::driver
