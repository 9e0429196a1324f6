// Multicast objects: which devices were added to them, and what memory is bound to them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

namespace cuvmm::emulator::model {

// A device on one of the machine's nodes.
struct TeamDevice {
  int node = 0;
  int device = 0;
  friend auto operator<=>(const TeamDevice&, const TeamDevice&) = default;
};

// Part of an allocation that stands for one device behind part of a multicast object.
struct MulticastBinding {
  TeamDevice device;
  std::uint64_t offset = 0;  // in the object
  std::uint64_t bytes = 0;
  std::uint64_t memory = 0;  // the allocation's identity
  std::uint64_t memory_offset = 0;
  friend bool operator==(const MulticastBinding&, const MulticastBinding&) = default;
};

// What a process learns of an object.
struct MulticastState {
  std::vector<TeamDevice> team;  // in the order in which they were added
  std::uint32_t missing = 0;     // devices
  bool others = false;           // another process has the object, or can still come by it
  int devices_in_reach = 0;      // that may be added, those that were included
};

enum class JoinOutcome : unsigned char { joined, joined_before, team_full };
enum class BindOutcome : unsigned char { bound, incomplete, not_in_team, bound_before, no_slot };

// The multicast objects of a machine: state and rules, no memory. Who has an object, and for how long, is its owner's
// matter. Ids are those of objects that were added. Not thread-safe.
class MulticastTeams {
 public:
  using Id = std::uint64_t;

  // `slots` is of how many objects with memory bound each device can be a part.
  explicit MulticastTeams(int slots) : slots_(static_cast<std::size_t>(slots)) {}

  void add(Id object, std::uint32_t devices);
  // The object is no more; `let_go(binding)` is called for all that was bound to it.
  template <class LetGo>
  void remove(Id object, LetGo&& let_go) {
    const auto gone = objects_.extract(object);
    for (const auto& [device, bindings] : gone.mapped().bound)
      for (auto binding = bindings.begin(); binding != bindings.end();) {
        const MulticastBinding& one = (binding++)->second;
        forget(object, one, binding == bindings.end());
        let_go(one);
      }
  }
  [[nodiscard]] bool contains(Id object) const { return objects_.contains(object); }

  [[nodiscard]] JoinOutcome join(Id object, TeamDevice device);
  [[nodiscard]] const std::vector<TeamDevice>& team(Id object) const { return objects_.at(object).team; }
  [[nodiscard]] std::uint32_t missing(Id object) const;

  [[nodiscard]] BindOutcome bind(Id object, const MulticastBinding& binding);
  // What was bound there and is no more; nothing unless exactly that was bound.
  [[nodiscard]] std::optional<MulticastBinding> unbind(Id object, TeamDevice device, std::uint64_t offset,
                                                       std::uint64_t bytes);

  // What is bound within [offset, offset + bytes), in the order of the team and then of offsets.
  [[nodiscard]] std::vector<MulticastBinding> bound_in(Id object, std::uint64_t offset, std::uint64_t bytes) const;

  // Whether that memory is bound to any object.
  [[nodiscard]] bool is_bound(std::uint64_t memory) const {
    const auto use = uses_.find(memory);
    return use != uses_.end() && use->second > 0;
  }
  [[nodiscard]] std::size_t objects() const { return objects_.size(); }

 private:
  using Bindings = std::map<std::uint64_t, MulticastBinding>;  // by offset
  struct Object {
    std::uint32_t devices = 0;
    std::vector<TeamDevice> team;
    std::map<TeamDevice, Bindings> bound;
  };

  void forget(Id object, const MulticastBinding& binding, bool last_of_device) noexcept;

  std::size_t slots_;
  std::map<Id, Object> objects_;
  std::map<TeamDevice, std::set<Id>> slots_taken_;       // by objects with memory of that device
  std::unordered_map<std::uint64_t, std::size_t> uses_;  // memory -> how often it is bound
};

}  // namespace cuvmm::emulator::model
