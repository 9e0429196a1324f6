#include "cuvmm/copy.hpp"

#include <fmt/format.h>

#include "driver/call.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {

void require_inside(std::string_view function, const Mapping& mapping, std::size_t offset, std::size_t bytes) {
  if (offset <= mapping.size() && bytes <= mapping.size() - offset) return;
  raise(invalid_use(function,
                    fmt::format("mapping of {} bytes, offset = {}, bytes = {}", mapping.size(), offset, bytes),
                    "The bytes must lie inside the mapping", "Copy fewer bytes, or to or from a smaller offset"));
}

}  // namespace

void copy_bytes_to_device(const Driver& driver, DeviceAddress destination, std::span<const std::byte> source) {
  if (source.empty()) return;
  call<EntryPoint::cuMemcpyHtoD>(driver.interface(), destination.value, source.data(), source.size());
  // Bytes from pageable memory may still be on their way when the copy returns.
  call<EntryPoint::cuStreamSynchronize>(driver.interface(), nullptr);
}

void copy_bytes_from_device(const Driver& driver, std::span<std::byte> destination, DeviceAddress source) {
  if (destination.empty()) return;
  call<EntryPoint::cuMemcpyDtoH>(driver.interface(), destination.data(), source.value, destination.size());
}

void copy_bytes_to_device(const Mapping& mapping, std::size_t offset, std::span<const std::byte> source) {
  require_inside("copy_bytes_to_device", mapping, offset, source.size());
  copy_bytes_to_device(mapping.driver(), mapping.address() + offset, source);
}

void copy_bytes_from_device(std::span<std::byte> destination, const Mapping& mapping, std::size_t offset) {
  require_inside("copy_bytes_from_device", mapping, offset, destination.size());
  copy_bytes_from_device(mapping.driver(), destination, mapping.address() + offset);
}

}  // namespace cuvmm
