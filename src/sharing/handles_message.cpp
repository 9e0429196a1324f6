#include "sharing/handles_message.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sharing/memory_size.hpp"
#include "sharing/wire.hpp"
#include "windows_handles.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view receiving = "receive_handles";

Failure no_handles(std::string reason) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.call = receiving;
  failure.reason = std::move(reason);
  return failure;
}

HandleTypes types_of(std::uint32_t bits) noexcept {
  HandleTypes types;
  for (const HandleType each :
       {HandleType::posix_file_descriptor, HandleType::win32, HandleType::win32_kmt, HandleType::fabric})
    if ((bits & static_cast<unsigned>(each)) != 0) types = types | each;
  return types;
}

// The handle of that type which comes next, its descriptor taken out of those beside the message.
Result<ShareableHandle> next_handle(Reader& reader, std::span<UniqueDescriptor>& descriptors) {
  const auto type = reader.number<std::uint32_t>();
  if (reader.failed()) return no_handles("it ends within the size and type of a handle");
  if (type == static_cast<unsigned>(HandleType::posix_file_descriptor)) {
    if (descriptors.empty()) return no_handles("a descriptor is named that did not come with the message");
    UniqueDescriptor descriptor = std::move(descriptors.front());
    descriptors = descriptors.subspan(1);
    return ShareableHandle::adopt(std::move(descriptor));
  }
  if (type == static_cast<unsigned>(HandleType::fabric)) {
    FabricBytes bytes{};
    const auto raw = reader.raw(bytes.size());
    if (raw.empty()) return no_handles("it ends within a fabric handle");
    std::copy(raw.begin(), raw.end(), bytes.begin());
    return ShareableHandle::from_bytes(bytes);
  }
  if (auto refused = windows_handles_refused(receiving, types_of(type))) return *refused;
  return no_handles(fmt::format("there is no handle type {}", type));
}

}  // namespace

Result<std::vector<HandleOfMemory>> handles_in(Message& message) try {
  if (message.kind != handles_message)
    return no_handles(fmt::format("a message of kind {} came instead of handles", message.kind));
  Reader reader(message.bytes);
  std::span<UniqueDescriptor> descriptors(message.descriptors);
  std::vector<HandleOfMemory> handles;
  while (reader.left() != 0) {
    const auto bytes = reader.number<std::uint64_t>();
    auto handle = next_handle(reader, descriptors);
    if (!handle) return handle.failure();
    if (bytes == 0) return no_handles("a handle has no size");
    if (bytes > most_bytes_of_memory) return no_handles(fmt::format("no memory has {} bytes", bytes));
    handles.push_back({std::move(handle).value(), static_cast<std::size_t>(bytes)});
  }
  if (reader.failed() || !descriptors.empty()) return no_handles("handles and descriptors do not match");
  return handles;
} catch (const Error& error) {  // of a descriptor that could not be moved
  return error.failure();
}

}  // namespace cuvmm::sharing
