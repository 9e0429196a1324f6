// The owner of a multicast object: one address behind which lies memory of several devices.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/granularity.hpp"
#include "cuvmm/mapping.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/shared_physical_memory.hpp"

namespace cuvmm {

class MulticastMapping;

// What a multicast object is created with (guide 4.16.4.1; CUmulticastObjectProp).
struct MulticastProperties {
  unsigned devices = 0;        // how many are to be added, by all processes together
  std::size_t bytes = 0;       // a multiple of the minimum granularity
  HandleTypes handle_types{};  // how it may be exported; none: not at all

  friend constexpr bool operator==(const MulticastProperties&, const MulticastProperties&) noexcept = default;
};

// A multicast object (guide 4.16.4; cuMulticastCreate). Each process of a team has an owner of its own, and in it adds
// its devices, binds their memory and maps the object; multimem instructions then reach the memory of all devices at
// once (cuvmm/gpu/multimem.cuh).
//
// BINDING AND MAPPING BLOCK INSIDE THE DRIVER until all devices were added, by whatever process, and cannot be
// cancelled: let all ranks agree that all have added theirs before one binds.
//
// The owner keeps the memory that it has bound, and mappings keep the owner's object, so that no order of destruction
// is wrong: mappings go first, then what was bound is unbound, then the object is released, and the memory last.
// Destruction never throws: a failure goes to the clean-up failure handler. A device cannot be taken out again.
//
// What is certain to be wrong is refused before the driver is asked, with the rule. Everything throws NotSupported,
// before any driver call, where multicast is turned off by the environment (docs/environment.md) or was left out of the
// build.
//
// One thread at a time uses an object and its mappings. A moved-from one may be assigned to or destroyed; all else is
// refused (InvalidUse).
class MulticastObject {
 public:
  // Throws InvalidUse if a property breaks a rule, NotSupported where there is no multicast, NotPermitted for fabric
  // handles without an IMEX channel, and Error as the driver fails.
  [[nodiscard]] static MulticastObject create(const Driver& driver, const MulticastProperties& properties) {
    return try_create(driver, properties).value();
  }
  [[nodiscard]] static Result<MulticastObject> try_create(const Driver& driver, const MulticastProperties& properties);

  // Takes over a handle that other code created or imported: PhysicalMemory::adopt of the driver's number, or what
  // ShareableHandle::import_into answers (tell it MemoryProperties{}, since the driver has none of a multicast object).
  // `properties` are those that the object was created with. Throws as create, and InvalidUse where the sizes differ.
  [[nodiscard]] static MulticastObject adopt(PhysicalMemory handle, const MulticastProperties& properties) {
    return try_adopt(std::move(handle), properties).value();
  }
  [[nodiscard]] static Result<MulticastObject> try_adopt(PhysicalMemory handle, const MulticastProperties& properties);

  // The unit of sizes and offsets, in bytes, which depends on properties.bytes: fill it in before
  // (cuMulticastGetGranularity). The minimum is what binding and mapping require; the recommended one grows with the
  // object.
  [[nodiscard]] static std::size_t granularity(const Driver& driver, const MulticastProperties& properties,
                                               Granularity which = Granularity::minimum);

  // What suits the object, the memory that is bound to it, and its addresses, all at once. properties.bytes is any
  // size.
  [[nodiscard]] static GranularFit fitted(const Driver& driver, const MulticastProperties& properties,
                                          const MemoryProperties& memory, Granularity which = Granularity::minimum);

  MulticastObject(MulticastObject&&) noexcept = default;
  MulticastObject& operator=(MulticastObject&&) noexcept = default;
  MulticastObject(const MulticastObject&) = delete;
  MulticastObject& operator=(const MulticastObject&) = delete;
  ~MulticastObject() = default;

  // Makes a device of this process part of the team (cuMulticastAddDevice). Throws InvalidUse for one that this owner
  // has added, for more than the object is for, for a device of another driver, and as the driver refuses.
  void add_device(const Device& device) { try_add_device(device).value(); }
  Result<void> try_add_device(const Device& device);

  // Puts `bytes` bytes of memory, from `memory_offset` on, behind the object's bytes from `offset` on, for the device
  // whose memory it is (cuMulticastBindMem; of CUDA 13.1 the form that names the device). Several buffers may be bound
  // at different offsets. Throws InvalidUse where a number is no multiple of the minimum granularity or runs past an
  // end, where this owner has bound memory of the device there, for memory of the host, and for memory that cannot be
  // exported if the object can or was imported; OutOfMulticastSlots where the switch has no room; and Error as the
  // driver fails: 802 passes, and 401 is trouble of the fabric manager.
  void bind(std::size_t offset, const SharedPhysicalMemory& memory, std::size_t memory_offset, std::size_t bytes) {
    try_bind(offset, memory, memory_offset, bytes).value();
  }
  Result<void> try_bind(std::size_t offset, const SharedPhysicalMemory& memory, std::size_t memory_offset,
                        std::size_t bytes);
  // What bind() would refuse before it asks the driver; asks nobody, and binds nothing. For who has to tell others
  // before.
  [[nodiscard]] Result<void> check_bind(std::size_t offset, const SharedPhysicalMemory& memory,
                                        std::size_t memory_offset, std::size_t bytes) const;

  // The same with memory that is mapped at that address, whoever mapped it (cuMulticastBindAddr). The memory is
  // retained until it is unbound.
  void bind_address(std::size_t offset, DeviceAddress address, std::size_t bytes) {
    try_bind_address(offset, address, bytes).value();
  }
  Result<void> try_bind_address(std::size_t offset, DeviceAddress address, std::size_t bytes);

  // Takes exactly what was bound away again (cuMulticastUnbind). Throws InvalidUse for anything else, and while this
  // owner's object is mapped. After a failure it is still bound, and this can be called again.
  void unbind(const Device& device, std::size_t offset, std::size_t bytes) {
    try_unbind(device, offset, bytes).value();
  }
  Result<void> try_unbind(const Device& device, std::size_t offset, std::size_t bytes);

  // Maps the whole object `offset` bytes into the reservation. As Mapping::create.
  [[nodiscard]] MulticastMapping map(const AddressReservation& reservation, std::size_t offset = 0);
  [[nodiscard]] Result<MulticastMapping> try_map(const AddressReservation& reservation, std::size_t offset = 0);

  // Unbinds all that this owner has bound, and gives its reference back; afterwards the object is as moved from. Throws
  // InvalidUse while it is mapped. Where the driver refuses an unbind, the others are done all the same, the first
  // failure is thrown, and this can be called again.
  void close() { try_close().value(); }
  Result<void> try_close();

  [[nodiscard]] const MulticastProperties& properties() const;
  [[nodiscard]] const Driver& driver() const;
  [[nodiscard]] std::size_t granularity() const;    // the minimum, bytes
  [[nodiscard]] std::size_t bindings() const;       // how many of this owner's there are
  [[nodiscard]] bool is_mapped() const;             // by this owner
  [[nodiscard]] unsigned long long handle() const;  // the driver's CUmemGenericAllocationHandle
  // The object as ShareableHandle::export_from and Team::try_broadcast_handle take it. It is no memory: do not map it.
  [[nodiscard]] SharedPhysicalMemory shareable() const;

 private:
  friend class MulticastMapping;
  struct State;
  explicit MulticastObject(std::shared_ptr<State> state) noexcept;

  std::shared_ptr<State> state_;
};

// A multicast object at addresses, which only multimem may touch: a copy, a memset and an ordinary load or store fault.
// Keeps the object. Rights are granted to devices of the team alone.
//
// Unmapping does not wait for the device: see Mapping. A moved-from one may be assigned to or destroyed.
class MulticastMapping {
 public:
  MulticastMapping(MulticastMapping&&) noexcept;
  MulticastMapping& operator=(MulticastMapping&&) noexcept;
  MulticastMapping(const MulticastMapping&) = delete;
  MulticastMapping& operator=(const MulticastMapping&) = delete;
  ~MulticastMapping();

  [[nodiscard]] DeviceAddress address() const noexcept { return mapping_.address(); }
  [[nodiscard]] std::size_t size() const noexcept { return mapping_.size(); }  // bytes

  // Gives devices rights (cuMemSetAccess). Throws as cuvmm::grant, and InvalidUse for the host.
  void grant(std::span<const AccessGrant> grants) { try_grant(grants).value(); }
  Result<void> try_grant(std::span<const AccessGrant> grants);

  // As Mapping::unmap.
  void unmap();

 private:
  friend class MulticastObject;
  MulticastMapping(std::shared_ptr<MulticastObject::State> object, Mapping mapping) noexcept;
  void forget() noexcept;

  std::shared_ptr<MulticastObject::State> object_;  // goes after the mapping
  Mapping mapping_;
};

}  // namespace cuvmm
