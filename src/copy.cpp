#include "cuvmm/copy.hpp"

#include <fmt/format.h>

#include "access_refusal.hpp"
#include "driver/call.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {

void require_inside(std::string_view function, std::string_view what, std::size_t size, std::size_t offset,
                    std::size_t bytes) {
  if (offset <= size && bytes <= size - offset) return;
  if (size == 0)
    raise(invalid_use(function, fmt::format("{} of 0 bytes, bytes = {}", what, bytes),
                      fmt::format("Nothing is mapped: the {} is empty, or was moved from, unmapped or closed", what),
                      "Map memory first", "ACCESS-NEEDED"));
  raise(invalid_use(function, fmt::format("{} of {} bytes, offset = {}, bytes = {}", what, size, offset, bytes),
                    fmt::format("The bytes must lie inside the {}", what),
                    "Copy fewer bytes, or to or from a smaller offset", "ACCESS-NEEDED"));
}

}  // namespace

void copy_bytes_to_device(const Driver& driver, DeviceAddress destination, std::span<const std::byte> source) {
  if (source.empty()) return;
  call_that_touches<EntryPoint::cuMemcpyHtoD>(driver, destination, source.size(), AccessRights::read_write,
                                              destination.value, source.data(), source.size());
  // Bytes from pageable memory may still be on their way when the copy returns.
  call<EntryPoint::cuStreamSynchronize>(driver.interface(), nullptr);
}

void copy_bytes_from_device(const Driver& driver, std::span<std::byte> destination, DeviceAddress source) {
  if (destination.empty()) return;
  call_that_touches<EntryPoint::cuMemcpyDtoH>(driver, source, destination.size(), AccessRights::read,
                                              destination.data(), source.value, destination.size());
}

void copy_bytes_to_device(const Mapping& mapping, std::size_t offset, std::span<const std::byte> source) {
  require_inside("copy_bytes_to_device", "mapping", mapping.size(), offset, source.size());
  copy_bytes_to_device(mapping.driver(), mapping.address() + offset, source);
}

void copy_bytes_from_device(std::span<std::byte> destination, const Mapping& mapping, std::size_t offset) {
  require_inside("copy_bytes_from_device", "mapping", mapping.size(), offset, destination.size());
  copy_bytes_from_device(mapping.driver(), destination, mapping.address() + offset);
}

void copy_bytes_to_device(const MappedRange& range, std::size_t offset, std::span<const std::byte> source) {
  require_inside("copy_bytes_to_device", "range", range.size(), offset, source.size());
  copy_bytes_to_device(range.driver(), range.address() + offset, source);
}

void copy_bytes_from_device(std::span<std::byte> destination, const MappedRange& range, std::size_t offset) {
  require_inside("copy_bytes_from_device", "range", range.size(), offset, destination.size());
  copy_bytes_from_device(range.driver(), destination, range.address() + offset);
}

}  // namespace cuvmm
