// What an address is: which memory, whose, and what may be done with it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/address_reservation.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/memory_properties.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

enum class PointerKind : unsigned char {
  unknown,            // the driver knows nothing of it; also an address that is reserved with nothing mapped, of which
                      // it tells no more
  reserved,           // in an AddressReservation that was asked about, with nothing mapped
  mapping,            // memory of cuMemCreate, mapped by cuMemMap
  device_allocation,  // of cuMemAlloc
  pool_allocation,    // of a memory pool (cuMemAllocAsync)
  managed,            // of cuMemAllocManaged
  page_locked_host,   // of cuMemHostAlloc or cuMemHostRegister
};

// "mapping", "device allocation", ...: for people.
[[nodiscard]] std::string_view to_string(PointerKind kind) noexcept;

// A value. What does not apply to the kind is empty, zero or false.
struct PointerInfo {
  DeviceAddress address;  // that was asked about
  PointerKind kind = PointerKind::unknown;

  DeviceAddress base;      // where its mapping or allocation begins
  std::size_t size = 0;    // of that, bytes
  std::size_t offset = 0;  // of the address in it, bytes
  DeviceAddress reservation_base;
  std::size_t reservation_size = 0;

  // Where the memory lies. Page-locked memory is Location::host(), whatever its node.
  std::optional<Location> location;
  std::optional<MemoryProperties> properties;  // of a mapping's memory, as it was got and not as it was asked for
  std::vector<AccessGrant> rights;             // to a mapping: of every device in order, then of the host
  HandleTypes exportable_as;                   // none for memory that was imported
  bool legacy_ipc_capable = false;             // cuIpcGetMemHandle takes it
  bool rdma_capable = false;                   // network cards may reach it

  friend bool operator==(const PointerInfo&, const PointerInfo&) noexcept = default;
};

// Asks the driver about any address, whoever made the memory (cuPointerGetAttributes; for mappings also
// cuMemRetainAllocationHandle, cuMemGetAllocationPropertiesFromHandle, cuMemGetAccess). An address of which nothing is
// known is an answer, not a failure. Needs no context. Throws Error if the driver fails. Thread-safe; memory that other
// threads unmap meanwhile is described as at some moment, or is unknown.
[[nodiscard]] PointerInfo describe(const Driver& driver, DeviceAddress address);
[[nodiscard]] Result<PointerInfo> try_describe(const Driver& driver, DeviceAddress address);

// The same of `offset` bytes into a reservation, so that an address with nothing mapped is told from an unknown one.
// Throws InvalidUse if that is not inside it.
[[nodiscard]] PointerInfo describe(const AddressReservation& reservation, std::size_t offset);

// Nothing if the memory can be shared by cuIpcGetMemHandle; else throws NotSupported, which says why and what to use
// instead.
void require_legacy_ipc(const PointerInfo& info);

// All of it in sentences, on one line.
[[nodiscard]] std::string to_string(const PointerInfo& info);

}  // namespace cuvmm
