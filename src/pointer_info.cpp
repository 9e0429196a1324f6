#include "cuvmm/pointer_info.hpp"

#include <fmt/format.h>

#include "clean_up.hpp"
#include "driver/convert.hpp"
#include "pointer_query.hpp"
#include "refusal.hpp"

namespace cuvmm {

using namespace abi;
using driver::EntryPoint;
using driver::try_call;

namespace {

// Of memory that has no handle, the kind.
PointerKind kind_without_handle(const PointerFacts& facts) noexcept {
  if (!facts.known()) return PointerKind::unknown;
  if (facts.managed) return PointerKind::managed;
  if (facts.in_pool) return PointerKind::pool_allocation;
  return facts.on_host() ? PointerKind::page_locked_host : PointerKind::device_allocation;
}

// Only memory of cuMemCreate has a handle to retain; the rest is not asked for one, since that call would fail.
bool may_have_handle(const PointerFacts& facts) noexcept {
  return facts.known() && !facts.managed && !facts.in_pool && !facts.has_context && !facts.legacy_ipc_capable;
}

Result<void> add_rights_of(PointerInfo& info, const Driver& driver, const Location& location) {
  const CUmemLocation converted = driver::to_abi(location);
  unsigned long long flags = 0;
  auto asked = try_call<EntryPoint::cuMemGetAccess>(driver.interface(), &flags, &converted, info.address.value);
  if (asked) info.rights.push_back({location, static_cast<AccessRights>(flags)});
  return asked;
}

Result<void> add_rights(PointerInfo& info, const Driver& driver) {
  int devices = 0;
  if (auto counted = try_call<EntryPoint::cuDeviceGetCount>(driver.interface(), &devices); !counted) return counted;
  for (int ordinal = 0; ordinal < devices; ++ordinal)
    if (auto asked = add_rights_of(info, driver, Location::device(DeviceOrdinal{ordinal})); !asked) return asked;
  if (info.location->kind != LocationKind::device) return add_rights_of(info, driver, Location::host());
  info.rights.push_back({Location::host(), AccessRights::none});  // the driver would tell the device's own
  return {};
}

// A reference to a handle, given back at the end.
class Reference {
 public:
  Reference(const Driver& driver, CUmemGenericAllocationHandle handle) noexcept : driver_(driver), handle_(handle) {}
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  Reference(Reference&&) = delete;
  Reference& operator=(Reference&&) = delete;
  ~Reference() { clean_up<EntryPoint::cuMemRelease>(driver_.interface(), handle_); }

 private:
  const Driver& driver_;
  CUmemGenericAllocationHandle handle_;
};

// What a mapping has beyond other memory.
Result<void> add_mapping(PointerInfo& info, const Driver& driver, CUmemGenericAllocationHandle handle,
                         const PointerFacts& facts) {
  CUmemAllocationProp got{};
  auto asked = try_call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(driver.interface(), &got, handle);
  if (!asked) return asked;
  info.kind = PointerKind::mapping;
  info.properties = driver::from_abi(got);
  info.location = info.properties->location;
  info.reservation_base = facts.range_base;
  info.reservation_size = facts.range_size;
  return add_rights(info, driver);
}

PointerInfo plain(DeviceAddress address, const PointerFacts& facts) {
  PointerInfo info;
  info.address = address;
  info.kind = kind_without_handle(facts);
  if (!facts.known()) return info;
  info.base = facts.base;
  info.size = facts.size;
  info.offset = static_cast<std::size_t>(address.value - facts.base.value);
  info.location = facts.on_host() ? Location::host() : Location::device(DeviceOrdinal{facts.device});
  info.exportable_as = driver::handle_types_from_abi(facts.handle_types);
  info.legacy_ipc_capable = facts.legacy_ipc_capable;
  info.rdma_capable = facts.rdma_capable;
  return info;
}

struct IpcRefusal {
  std::string_view reason;
  std::string_view way_out;
};

IpcRefusal why_no_legacy_ipc(const PointerInfo& info) noexcept {
  switch (info.kind) {
    case PointerKind::mapping:
      if (!info.exportable_as.empty())
        return {"Legacy IPC takes no memory of cuMemCreate",
                "Export the allocation's handle (cuMemExportToShareableHandle); PhysicalMemory::retain finds it"};
      return {
          "Legacy IPC takes no memory of cuMemCreate, and this memory was created without a handle type, or "
          "imported",
          "Name a handle type when the memory is created, and export its handle"};
    case PointerKind::pool_allocation:
      return {"Legacy IPC takes no memory of a pool", "Export the pool (cuMemPoolExportToShareableHandle)"};
    case PointerKind::device_allocation:
      return {"The driver says that legacy IPC does not take this memory",
              "Create the memory with PhysicalMemory and a handle type"};
    case PointerKind::managed:
    case PointerKind::page_locked_host:
      return {"Legacy IPC takes device memory of cuMemAlloc only",
              "Create the memory on the host with PhysicalMemory and a handle type, or use the operating system's "
              "shared memory"};
    case PointerKind::reserved:
    case PointerKind::unknown:
      break;
  }
  return {"There is no memory at this address that the driver knows of", "Check the address"};
}

std::string text_of_place(const PointerInfo& info) {
  return fmt::format("{:#x}: {}, {} bytes into {} at {:#x}", info.address.value, to_string(info.kind), info.offset,
                     format_bytes(info.size), info.base.value);
}

std::string text_of_rights(const PointerInfo& info) {
  std::string text;
  for (const AccessGrant& each : info.rights)
    if (each.rights != AccessRights::none)
      text += fmt::format("{}{} for {}", text.empty() ? "; " : ", ", to_string(each.rights), to_string(each.location));
  return text.empty() ? "; nobody may access it" : text;
}

}  // namespace

Result<PointerInfo> try_describe(const Driver& driver, DeviceAddress address) {
  const auto facts = query_pointer(driver, address);
  if (!facts) return facts.failure();
  PointerInfo info = plain(address, *facts);
  if (!may_have_handle(*facts)) return info;
  unsigned long long handle = 0;
  const auto retained =
      try_call<EntryPoint::cuMemRetainAllocationHandle>(driver.interface(), &handle, address.as_pointer<void>());
  if (!retained) {
    if (retained.failure().code == CUDA_ERROR_INVALID_VALUE) return info;  // so it is not memory of cuMemCreate
    return retained.failure();
  }
  const Reference reference(driver, handle);
  const auto added = add_mapping(info, driver, handle, *facts);
  if (!added) return added.failure();
  return info;
}

PointerInfo describe(const Driver& driver, DeviceAddress address) {
  return try_describe(driver, address).value();
}

PointerInfo describe(const AddressReservation& reservation, std::size_t offset) {
  if (offset >= reservation.size())
    raise(invalid_use("describe", fmt::format("reservation of {} bytes, offset = {}", reservation.size(), offset),
                      "The address must lie inside the reservation", "Use a smaller offset"));
  PointerInfo info = describe(reservation.driver(), reservation.address() + offset);
  if (info.kind != PointerKind::unknown) return info;
  info.kind = PointerKind::reserved;
  info.reservation_base = reservation.address();
  info.reservation_size = reservation.size();
  return info;
}

void require_legacy_ipc(const PointerInfo& info) {
  if (info.legacy_ipc_capable) return;
  const IpcRefusal refusal = why_no_legacy_ipc(info);
  Failure failure;
  failure.kind = ErrorKind::not_supported;
  failure.call = "require_legacy_ipc";
  failure.arguments = fmt::format("address = {:#x}", info.address.value);
  failure.feature = "legacy IPC";
  failure.reason = refusal.reason;
  failure.way_out = refusal.way_out;
  raise(failure);
}

std::string_view to_string(PointerKind kind) noexcept {
  switch (kind) {
    case PointerKind::unknown:
      return "unknown";
    case PointerKind::reserved:
      return "reserved";
    case PointerKind::mapping:
      return "mapping";
    case PointerKind::device_allocation:
      return "device allocation";
    case PointerKind::pool_allocation:
      return "pool allocation";
    case PointerKind::managed:
      return "managed memory";
    case PointerKind::page_locked_host:
      return "page-locked host memory";
  }
  return "unknown";
}

std::string to_string(const PointerInfo& info) {
  if (info.kind == PointerKind::unknown)
    return fmt::format("{:#x}: unknown to the driver, or reserved with nothing mapped", info.address.value);
  const std::string reservation = info.reservation_size == 0
                                      ? std::string()
                                      : fmt::format(", in a reservation of {} at {:#x}",
                                                    format_bytes(info.reservation_size), info.reservation_base.value);
  if (info.kind == PointerKind::reserved)
    return fmt::format("{:#x}: reserved, nothing mapped{}", info.address.value, reservation);
  std::string text = text_of_place(info) + reservation;
  if (info.location) text += fmt::format("; memory of {}", to_string(*info.location));
  if (info.properties && info.properties->compression) text += ", compressible";
  if (info.kind == PointerKind::mapping) text += text_of_rights(info);
  text += info.exportable_as.empty() ? "; not exportable" : "; exportable as " + to_string(info.exportable_as);
  text += info.legacy_ipc_capable ? "; legacy IPC takes it" : "; legacy IPC does not take it";
  return text + (info.rdma_capable ? "; network cards may reach it" : "; network cards may not reach it");
}

}  // namespace cuvmm
