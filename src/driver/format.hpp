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

// Opaque handles (CUcontext and the like) are pointers to types that are never defined.
template <class T>
inline constexpr bool is_opaque_handle =
    std::is_same_v<T, CUcontext> || std::is_same_v<T, CUstream> || std::is_same_v<T, CUevent> ||
    std::is_same_v<T, CUmodule> || std::is_same_v<T, CUfunction> || std::is_same_v<T, CUgraph> ||
    std::is_same_v<T, CUgraphNode> || std::is_same_v<T, CUgraphExec> || std::is_same_v<T, CUmemoryPool> ||
    std::is_same_v<T, CUuserObject>;

// Whether the driver writes through arguments of that type, which are no lists.
template <class T>
inline constexpr bool is_written =
    std::is_pointer_v<T> && !std::is_const_v<std::remove_pointer_t<T>> && !std::is_void_v<std::remove_pointer_t<T>> &&
    !std::is_function_v<std::remove_pointer_t<T>> && !std::is_same_v<T, CUipcMemHandle*> &&
    !std::is_same_v<T, CUmemPoolPtrExportData*> && !std::is_same_v<T, CUmemLocation*> && !is_opaque_handle<T>;

// Whether the argument of that name is a list, which the driver reads, or fills as far as another argument says.
[[nodiscard]] bool is_list(std::string_view name) noexcept;
[[nodiscard]] bool is_list_of_answers(std::string_view name) noexcept;

// Whether an argument that is a `void*` is where an answer of the entry point goes.
[[nodiscard]] bool receives_untyped_answer(EntryPoint entry, std::string_view name) noexcept;

// Whether it is where an answer of the entry point goes: it tells the caller nothing about the call.
template <class T>
[[nodiscard]] bool receives_answer(EntryPoint entry, std::string_view name, const T&) noexcept {
  if constexpr (std::is_same_v<T, CUipcMemHandle*>)
    return true;
  else if constexpr (std::is_same_v<T, void*>)
    return receives_untyped_answer(entry, name);
  else
    return is_written<T> && (!is_list(name) || is_list_of_answers(name));
}

// The names in "(pointer, size)".
[[nodiscard]] std::vector<std::string_view> split_names(std::string_view argument_names);

// "pointer = 0x7f0000000000, size = 2097152 (2 MiB)" from the names and the texts; those without a text are left out.
[[nodiscard]] std::string join_arguments(EntryPoint entry, const std::vector<std::string>& texts);

// The text of each argument of a call.
template <EntryPoint entry, class... Arguments>
[[nodiscard]] std::vector<std::string> texts_of(const Arguments&... arguments) {
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
  return texts;
}

// All that was passed, for recordings.
template <EntryPoint entry, class... Arguments>
[[nodiscard]] std::string format_arguments(const Arguments&... arguments) {
  return join_arguments(entry, texts_of<entry>(arguments...));
}

// What the caller gave, for errors: where the answer was to go is no matter, unless that is nowhere.
template <EntryPoint entry, class... Arguments>
[[nodiscard]] std::string format_given(const Arguments&... arguments) {
  std::vector<std::string> texts = texts_of<entry>(arguments...);
  if constexpr (sizeof...(arguments) > 0) {
    const std::vector<std::string_view> names = split_names(info(entry).argument_names);
    std::size_t index = 0;
    const auto leave_out = [&](const auto& argument) {
      if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(argument)>>)
        if (argument != nullptr && receives_answer(entry, names[index], argument)) texts[index].clear();
      ++index;
    };
    (leave_out(arguments), ...);
  }
  return join_arguments(entry, texts);
}

}  // namespace cuvmm::driver
