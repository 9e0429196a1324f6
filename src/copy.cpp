#include "cuvmm/copy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "driver/call.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

namespace {

void require_inside(std::string_view function, std::string_view what, std::size_t size, std::size_t offset,
                    std::size_t bytes) {
  if (offset <= size && bytes <= size - offset) return;
  raise(invalid_use(function, fmt::format("{} of {} bytes, offset = {}, bytes = {}", what, size, offset, bytes),
                    fmt::format("The bytes must lie inside the {}", what),
                    "Copy fewer bytes, or to or from a smaller offset", "ACCESS-NEEDED"));
}

// Whether the device of the current context may read the range and not write it.
bool is_read_only_here(const MappedRange& range) {
  abi::CUdevice device = 0;
  if (!driver::try_call<EntryPoint::cuCtxGetDevice>(range.driver().interface(), &device)) return false;
  const auto& grants = range.grants();
  return std::any_of(grants.begin(), grants.end(), [&](const AccessGrant& each) {
    return each.location == Location::device(DeviceOrdinal(device)) && each.rights == AccessRights::read;
  });
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
  require_inside("copy_bytes_to_device", "mapping", mapping.size(), offset, source.size());
  copy_bytes_to_device(mapping.driver(), mapping.address() + offset, source);
}

void copy_bytes_from_device(std::span<std::byte> destination, const Mapping& mapping, std::size_t offset) {
  require_inside("copy_bytes_from_device", "mapping", mapping.size(), offset, destination.size());
  copy_bytes_from_device(mapping.driver(), destination, mapping.address() + offset);
}

void copy_bytes_to_device(const MappedRange& range, std::size_t offset, std::span<const std::byte> source) {
  require_inside("copy_bytes_to_device", "range", range.size(), offset, source.size());
  try {
    copy_bytes_to_device(range.driver(), range.address() + offset, source);
  } catch (const InvalidUse& error) {
    Failure failure = error.failure();
    if (failure.rule_ids != "ACCESS-NEEDED" || !is_read_only_here(range)) throw;
    failure.way_out =
        "The device may read the range and not write it: grant AccessRights::read_write (MappedRange::grant). A range "
        "of "
        "another process that is attached to read (sharing::AttachedRange) stays so: attach with AttachOptions::rights "
        "= "
        "AccessRights::read_write, which its publisher has to offer (PublishOptions::rights)";
    raise(failure);
  }
}

void copy_bytes_from_device(std::span<std::byte> destination, const MappedRange& range, std::size_t offset) {
  require_inside("copy_bytes_from_device", "range", range.size(), offset, destination.size());
  copy_bytes_from_device(range.driver(), destination, range.address() + offset);
}

}  // namespace cuvmm
