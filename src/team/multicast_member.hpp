// What one rank has of a team's multicast object.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuvmm/multicast_object.hpp"

namespace cuvmm::team {

// Those ranks of this process that have one object. A process unmaps an object before it unbinds memory from it
// (MULTICAST-UNBIND-AFTER-UNMAP), so a rank that goes while another one of its process has the object mapped leaves its
// own to that one. Thread-safe.
class ObjectInProcess {
 public:
  // The one of the object that the team calls so.
  [[nodiscard]] static std::shared_ptr<ObjectInProcess> named(const std::string& name);

  // Around each mapping: before it is made, and after it is gone.
  void begin_mapping() noexcept;
  void end_mapping() noexcept;
  // Unbinds and releases what the list holds, or leaves that to the last mapping that ends.
  void give_back(std::list<MulticastObject> objects) noexcept;

 private:
  std::mutex mutex_;
  std::size_t mappings_ = 0;
  std::list<MulticastObject> left_behind_;
};

// Part of this rank's memory behind part of the object.
struct MulticastPart {
  std::size_t offset = 0;
  SharedPhysicalMemory memory{};
  std::size_t memory_offset = 0;
  std::size_t bytes = 0;

  friend bool operator==(const MulticastPart&, const MulticastPart&) noexcept = default;
};

// An object, this rank's device, what it has bound, and where it has mapped the object. The destructor gives back what
// is left in the order that is right. Waits for no device and no rank: its users do. Those functions that can block in
// the driver are marked.
//
// One thread at a time uses an object.
class MulticastMember {
 public:
  // `name`: of the object, among all ranks.
  MulticastMember(MulticastObject object, const Device& device, const std::string& name);
  MulticastMember(const MulticastMember&) = delete;
  MulticastMember& operator=(const MulticastMember&) = delete;
  MulticastMember(MulticastMember&&) = delete;
  MulticastMember& operator=(MulticastMember&&) = delete;
  ~MulticastMember();

  [[nodiscard]] SharedPhysicalMemory shareable() const { return objects_.front().shareable(); }
  [[nodiscard]] Result<void> add_device() { return objects_.front().try_add_device(device_); }

  // What is certain to be refused. What an attempt that was given up has left in the way is unbound first, unless the
  // object is mapped.
  [[nodiscard]] Result<void> check_bind(const MulticastPart& part);
  // BLOCKS. What is bound there already, with the same memory, is not bound again.
  [[nodiscard]] Result<void> bind(const MulticastPart& part);
  // BLOCKS. Reserves addresses, maps the whole object there, and lets this rank's device read and write. After a
  // failure unmap() takes back what was done; or this is called again.
  [[nodiscard]] Result<void> map(std::size_t alignment);
  [[nodiscard]] bool is_mapped() const noexcept { return mapping_.has_value(); }
  [[nodiscard]] DeviceAddress address() const noexcept { return mapping_ ? mapping_->address() : DeviceAddress(); }

  // All that is bound belongs to all ranks' buffers from now on.
  void keep_what_is_bound() noexcept { kept_ = bound_.size(); }
  // Unbinds what does not; nothing while the object is mapped. What fails is bound still.
  [[nodiscard]] Result<void> unbind_the_rest();

  // These may be called again after a failure, and do nothing where there is nothing left to do.
  [[nodiscard]] Result<void> unmap();  // and frees the addresses
  [[nodiscard]] Result<void> unbind_all();

 private:
  [[nodiscard]] bool is_bound(const MulticastPart& part) const;
  [[nodiscard]] Result<void> unbind_from(std::size_t first);

  Device device_;
  std::shared_ptr<ObjectInProcess> in_process_;
  std::list<MulticastObject> objects_;  // one; a list, since giving it back must not fail
  std::vector<MulticastPart> bound_;
  std::size_t kept_ = 0;  // the first ones
  std::optional<AddressReservation> addresses_;
  std::optional<MulticastMapping> mapping_;
};

}  // namespace cuvmm::team
