// Handle types that cannot be had: those that exist on Windows alone, and any of memory of the host at large.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "cuvmm/error.hpp"
#include "cuvmm/memory_properties.hpp"
#include "refusal.hpp"

namespace cuvmm {

// Why these handle types cannot be had here, if there are Windows ones among them. Found without the driver, which
// answers differently from version to version.
[[nodiscard]] inline std::optional<Failure> windows_handles_refused(std::string_view call, HandleTypes types) {
  const HandleTypes wanted = types.without(HandleType::posix_file_descriptor).without(HandleType::fabric);
  if (wanted.empty()) return std::nullopt;
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = call;
  failure.arguments = fmt::format("handle types = {}", to_string(types));
  failure.rule_ids = "CREATE-HANDLE-TYPE";
  failure.rule = "A handle type must be one that the operating system has";
  failure.feature = to_string(wanted);
  failure.reason = "handles of the Windows kernel exist on Windows alone, and this is Linux";
  failure.way_out =
      "Use HandleType::posix_file_descriptor between processes of one machine, or HandleType::fabric between machines";
  return failure;
}

// Why memory of the host at large cannot have these.
[[nodiscard]] inline std::optional<Failure> host_handles_refused(std::string_view call,
                                                                 const MemoryProperties& properties) {
  if (properties.location.kind != LocationKind::host || properties.handle_types.empty()) return std::nullopt;
  return invalid_use(call, fmt::format("location = host, handle types = {}", to_string(properties.handle_types)),
                     "Memory of the host at large cannot be exported",
                     "Create it without handle types; to share memory of the host, name Location::host_numa(node) with "
                     "HandleType::posix_file_descriptor",
                     "CREATE-HANDLE-TYPE");
}

}  // namespace cuvmm
