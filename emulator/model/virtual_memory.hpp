// The rules and the state of CUDA virtual memory management: handles, reservations, mappings, rights.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "emulator/answer.hpp"
#include "emulator/configuration.hpp"
#include "emulator/model/address_space.hpp"
#include "emulator/model/physical_store.hpp"
#include "emulator/model/rights.hpp"

namespace cuvmm::emulator::model {

using namespace cuvmm::abi;

// A handle to physical memory, as cuMemCreate or cuMemImportFromShareableHandle gave out. It stays known while it is
// held (references) or mapped, so that it can be retained from an address.
struct Handle {
  CUmemGenericAllocationHandle value = 0;
  Allocation* allocation = nullptr;
  std::uint32_t references = 0;
  std::uint32_t mappings = 0;
  bool imported = false;
};

struct Reservation {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;

  [[nodiscard]] CUdeviceptr end() const { return address + bytes; }
};

struct Mapping {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
  Handle* handle = nullptr;
  Rights rights;
  // Addresses past the reservation that were nobody's: the mapping's own for as long as it lives, so that they are
  // given to nobody else.
  std::vector<Reservation> own_addresses;

  [[nodiscard]] CUdeviceptr end() const { return address + bytes; }
};

// Part of an allocation behind a piece of an address range.
struct Segment {
  Allocation* allocation = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// What happens to the host's view of memory when mappings and rights change; called after the model agreed, before it
// changes.
class HostViewListener {
 public:
  virtual ~HostViewListener() = default;
  // An answer that is not ok makes the call fail with it, and nothing changes: the changes before it in the same call
  // are taken back; where not even that is possible the host has no rights to that mapping.
  virtual Answer host_rights_change(const Mapping& mapping, CUmemAccess_flags now) noexcept = 0;
  // The host has no rights to it any more.
  virtual void mapping_goes(const Mapping& mapping) noexcept = 0;
};

// What is to be bound to a multicast object.
struct MulticastBind {
  CUmemGenericAllocationHandle object = 0;
  std::optional<CUdevice> device;  // named by the forms of CUDA 13.1 alone
  std::uint64_t offset = 0;        // in the object
  std::uint64_t bytes = 0;
  unsigned long long flags = 0;
  CUmemGenericAllocationHandle memory = 0;
  std::uint64_t memory_offset = 0;
  CUdeviceptr address = 0;  // instead of a handle, where by_address is set
  bool by_address = false;
};

// The pure model of one machine's virtual memory: state and rules, no bytes, no system calls. Not thread-safe: its
// owner takes turns. Functions take the driver's arguments and answer what the driver of the configured profile would.
class VirtualMemory {
 public:
  // Called when faithful mode lets something pass that the rule forbids.
  using Warning = std::function<void(Rule, const std::string& detail)>;

  VirtualMemory(const Configuration& configuration, PhysicalStore& store, AddressSpace& addresses,
                HostViewListener& host_view, Warning warn);

  Answer granularity(std::size_t* granularity, const CUmemAllocationProp* properties,
                     CUmemAllocationGranularity_flags option) const;
  Answer create(CUmemGenericAllocationHandle* handle, std::size_t bytes, const CUmemAllocationProp* properties,
                unsigned long long flags);
  Answer release(CUmemGenericAllocationHandle value);
  Answer properties(CUmemAllocationProp* properties, CUmemGenericAllocationHandle value) const;
  // Adds a reference to a handle, so it is no const function. NOLINTNEXTLINE(readability-make-member-function-const)
  Answer retain(CUmemGenericAllocationHandle* handle, CUdeviceptr address);

  Answer reserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                 unsigned long long flags);
  Answer free(CUdeviceptr address, std::size_t bytes);

  Answer map(CUdeviceptr address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle value,
             unsigned long long flags, bool alone = true);  // `alone` as of bind()
  // Whether unmap() would do it; the caller can then look for work that is still using the range.
  Answer check_unmap(CUdeviceptr address, std::size_t bytes) const;
  Answer unmap(CUdeviceptr address, std::size_t bytes);

  Answer set_access(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* descriptors, std::size_t count);
  Answer get_access(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) const;

  // Export: whether the handle may be exported as that type, and the memory behind it.
  Answer check_export(CUmemGenericAllocationHandle value, CUmemAllocationHandleType type, unsigned long long flags,
                      Allocation** allocation) const;
  // Import: a new handle, with one reference, to memory that something else keeps alive during the call.
  CUmemGenericAllocationHandle import(Allocation& allocation);

  // Multicast objects. What waits for the devices of an object answers NOT_READY while some are missing and somebody
  // could add them, TIMEOUT where nobody could; `alone` says that no other thread of this process could.
  Answer multicast_granularity(std::size_t* granularity, const CUmulticastObjectProp* properties,
                               CUmulticastGranularity_flags option) const;
  Answer create_multicast(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties);
  Answer join(CUmemGenericAllocationHandle object, CUdevice device);
  Answer bind(const MulticastBind& wanted, bool alone);
  Answer unbind(CUmemGenericAllocationHandle object, CUdevice device, std::uint64_t offset, std::uint64_t bytes);
  // Whether the object's addresses can be mapped; anything that is no multicast object can.
  Answer check_team(CUmemGenericAllocationHandle object, bool alone) const;

  // The mapping that contains the address, or null; the same for reservations.
  [[nodiscard]] const Mapping* find_mapping(CUdeviceptr address) const;
  [[nodiscard]] const Reservation* find_reservation(CUdeviceptr address) const;

  // Appends the memory behind [address, address + bytes), all of which must be mapped and open to `who`. Nothing is
  // appended on refusal.
  Answer resolve(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write,
                 std::vector<Segment>& segments) const;

  // The multicast object behind such a range, and where in it the range begins: one mapping of one object, all of it
  // open to the device.
  Answer resolve_multicast(CUdeviceptr address, std::uint64_t bytes, Accessor who, bool write, Segment* segment) const;

  // What the real driver lets pass although the rule forbids it: refused in strict mode, else a warning.
  [[nodiscard]] Answer tolerated(Rule rule, std::string detail) const;

  [[nodiscard]] std::size_t live_handles() const { return handles_.size(); }
  [[nodiscard]] std::size_t live_mappings() const { return mappings_.size(); }
  [[nodiscard]] std::size_t live_reservations() const { return reservations_.size(); }

 private:
  using Mappings = std::map<CUdeviceptr, Mapping>;

  [[nodiscard]] Answer check_properties(const CUmemAllocationProp& properties) const;
  [[nodiscard]] Answer check_handle_types(const CUmemAllocationProp& properties) const;
  [[nodiscard]] Answer check_access_descriptor(const CUmemAccessDesc& descriptor, std::size_t index,
                                               Mappings::const_iterator first, Mappings::const_iterator last) const;
  [[nodiscard]] Answer check_whole_mappings(CUdeviceptr address, std::uint64_t bytes, Rule rule) const;
  // Past the last of the mappings that follow each other without a hole from `mapping` on, and begin before `end`.
  [[nodiscard]] Mappings::iterator first_hole(Mappings::iterator mapping, CUdeviceptr end);
  [[nodiscard]] Handle* find_handle(CUmemGenericAllocationHandle value) const;
  [[nodiscard]] bool was_handle(CUmemGenericAllocationHandle value) const;
  [[nodiscard]] Answer dead_handle(CUmemGenericAllocationHandle value) const;
  Handle& add_handle(Allocation& allocation, bool imported);
  [[nodiscard]] Answer check_multicast_supported() const;
  [[nodiscard]] Answer check_multicast_properties(const CUmulticastObjectProp* properties) const;
  // None, and why not, unless it is the handle of a multicast object.
  [[nodiscard]] Handle* find_multicast(CUmemGenericAllocationHandle value, Answer& answer) const;
  [[nodiscard]] Answer find_bound_memory(const MulticastBind& wanted, Allocation** memory, std::uint64_t* offset) const;
  [[nodiscard]] Answer check_bind(const MulticastBind& wanted, const Handle& object, const Allocation& memory,
                                  std::uint64_t memory_offset) const;
  [[nodiscard]] Answer incomplete(const Allocation& object, const MulticastState& state, bool alone) const;
  [[nodiscard]] Answer failure_of_bind(int device);
  [[nodiscard]] Answer check_not_last_of_bound(const Handle& handle, std::size_t mappings_that_go) const;
  [[nodiscard]] Answer check_memory_stays(Mappings::const_iterator first, Mappings::const_iterator last) const;
  void forget_if_unused(Handle& handle) noexcept;
  // Takes what of [begin, end) belongs to no reservation; false, and nothing taken, if cuMemAlloc memory is there.
  bool take_unreserved(CUdeviceptr begin, CUdeviceptr end, std::vector<Reservation>& taken);
  void give_back(const std::vector<Reservation>& taken) noexcept;
  void remove(Mappings::iterator mapping) noexcept;
  [[nodiscard]] Answer change_host_views(Mappings::iterator first, Mappings::iterator last,
                                         const CUmemAccessDesc* descriptors, std::size_t count);
  [[nodiscard]] bool aligned(std::uint64_t value) const { return value % configuration_.profile.granularity == 0; }

  const Configuration& configuration_;
  PhysicalStore& store_;
  AddressSpace& addresses_;
  HostViewListener& host_view_;
  Warning warn_;
  std::unordered_map<CUmemGenericAllocationHandle, Handle> handles_;
  std::map<CUdeviceptr, Reservation> reservations_;
  Mappings mappings_;
  CUmemGenericAllocationHandle next_handle_;
  std::vector<int> failures_left_;  // of configuration_.multicast_failures; -1: no end
};

}  // namespace cuvmm::emulator::model
