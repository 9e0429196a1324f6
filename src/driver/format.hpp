// Driver types and calls as text, for errors and recordings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "driver/interface.hpp"

namespace cuvmm::driver {

[[nodiscard]] std::string format_location(const CUmemLocation& location);                             // "DEVICE 0"
[[nodiscard]] std::string format_handle_types(unsigned long long handle_types);                       // "FABRIC"
[[nodiscard]] std::string format_properties(const CUmemAllocationProp& properties);                   // "{PINNED, ...}"
[[nodiscard]] std::string format_access_list(const CUmemAccessDesc* descriptors, std::size_t count);  // "[...]"
[[nodiscard]] std::string format_pool_properties(const CUmemPoolProps& properties);                   // "{PINNED, ...}"
[[nodiscard]] std::string format_multicast_properties(const CUmulticastObjectProp& properties);
[[nodiscard]] std::string format_pointer(const void* pointer);
[[nodiscard]] std::string format_text(const char* text);  // quoted, shortened
[[nodiscard]] std::string format_signed(long long value);
[[nodiscard]] std::string format_attribute(CUdevice_attribute attribute);
[[nodiscard]] std::string format_result(CUresult result);

// By the name of the argument in entry_points.def: sizes as "2097152 (2 MiB)", addresses and handles in hexadecimal.
[[nodiscard]] std::string format_unsigned(std::string_view name, unsigned long long value);

// An argument as it was passed. What the driver reads through a pointer is decoded; what it writes is not.
template <class T>
[[nodiscard]] std::string format_argument(std::string_view name, const T& value) {
  if constexpr (std::is_same_v<T, const CUmemLocation*> || std::is_same_v<T, CUmemLocation*>)  // read by all calls
    return value ? format_location(*value) : "null";
  else if constexpr (std::is_same_v<T, const CUmemAllocationProp*>)
    return value ? format_properties(*value) : "null";
  else if constexpr (std::is_same_v<T, const CUmemPoolProps*>)
    return value ? format_pool_properties(*value) : "null";
  else if constexpr (std::is_same_v<T, const CUmulticastObjectProp*>)
    return value ? format_multicast_properties(*value) : "null";
  else if constexpr (std::is_same_v<T, const char*>)
    return format_text(value);
  else if constexpr (std::is_same_v<T, CUdevice_attribute>)
    return format_attribute(value);
  else if constexpr (std::is_same_v<T, CUmemAllocationHandleType>)
    return format_handle_types(static_cast<unsigned>(value));
  else if constexpr (std::is_same_v<T, CUresult>)
    return format_result(value);
  else if constexpr (std::is_same_v<T, CUipcMemHandle>)
    return "{64 bytes}";
  else if constexpr (std::is_same_v<T, CUhostFn>)
    return format_pointer(reinterpret_cast<const void*>(value));
  else if constexpr (std::is_pointer_v<T>)
    return format_pointer(value);
  else if constexpr (std::is_enum_v<T>)
    return format_signed(static_cast<int>(value));
  else if constexpr (std::is_signed_v<T>)
    return format_signed(value);
  else
    return format_unsigned(name, value);
}

// The names in "(pointer, size)".
[[nodiscard]] std::vector<std::string_view> split_names(std::string_view argument_names);

// "pointer = 0x7f0000000000, size = 2097152 (2 MiB)" from the names and the texts.
[[nodiscard]] std::string join_arguments(EntryPoint entry, const std::vector<std::string>& texts);

// The same from the arguments of a call.
template <EntryPoint entry, class... Arguments>
[[nodiscard]] std::string format_arguments(const Arguments&... arguments) {
  std::vector<std::string> texts;
  if constexpr (entry == EntryPoint::cuMemSetAccess) {
    // A list needs the count that stands beside it.
    const auto& [pointer, size, descriptors, count] = std::tie(arguments...);
    texts = {format_argument("pointer", pointer), format_argument("size", size), format_access_list(descriptors, count),
             format_argument("count", count)};
  } else if constexpr (entry == EntryPoint::cuMemPoolSetAccess) {
    const auto& [pool, descriptors, count] = std::tie(arguments...);
    texts = {format_argument("pool", pool), format_access_list(descriptors, count), format_argument("count", count)};
  } else if constexpr (sizeof...(arguments) > 0) {
    const std::vector<std::string_view> names = split_names(info(entry).argument_names);
    std::size_t index = 0;
    (texts.push_back(format_argument(names[index++], arguments)), ...);
  }
  return join_arguments(entry, texts);
}

}  // namespace cuvmm::driver
