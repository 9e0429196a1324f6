#include "emulator/model/multicast.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::emulator::model {

void MulticastTeams::add(Id object, std::uint32_t devices) {
  objects_[object].devices = devices;
}

JoinOutcome MulticastTeams::join(Id object, TeamDevice device) {
  Object& joined = objects_.at(object);
  if (std::find(joined.team.begin(), joined.team.end(), device) != joined.team.end()) return JoinOutcome::joined_before;
  if (joined.team.size() == joined.devices) return JoinOutcome::team_full;
  joined.team.push_back(device);
  return JoinOutcome::joined;
}

std::uint32_t MulticastTeams::missing(Id object) const {
  const Object& one = objects_.at(object);
  return one.devices - static_cast<std::uint32_t>(one.team.size());
}

BindOutcome MulticastTeams::bind(Id object, const MulticastBinding& binding) {
  Object& one = objects_.at(object);
  if (missing(object) > 0) return BindOutcome::incomplete;
  if (std::find(one.team.begin(), one.team.end(), binding.device) == one.team.end()) return BindOutcome::not_in_team;
  Bindings& bound = one.bound[binding.device];
  const auto next = bound.lower_bound(binding.offset);
  if (next != bound.end() && next->first < binding.offset + binding.bytes) return BindOutcome::bound_before;
  if (next != bound.begin()) {
    const MulticastBinding& before = std::prev(next)->second;
    if (before.offset + before.bytes > binding.offset) return BindOutcome::bound_before;
  }
  std::set<Id>& taken = slots_taken_[binding.device];
  if (!taken.contains(object) && taken.size() >= slots_) return BindOutcome::no_slot;
  std::size_t& uses = uses_[binding.memory];
  const bool first_of_object = taken.insert(object).second;
  try {
    bound.emplace(binding.offset, binding);
  } catch (...) {
    if (first_of_object) taken.erase(object);
    throw;
  }
  ++uses;
  return BindOutcome::bound;
}

std::optional<MulticastBinding> MulticastTeams::unbind(Id object, TeamDevice device, std::uint64_t offset,
                                                       std::uint64_t bytes) {
  const auto of_device = objects_.at(object).bound.find(device);
  if (of_device == objects_.at(object).bound.end()) return std::nullopt;
  Bindings& bound = of_device->second;
  const auto found = bound.find(offset);
  if (found == bound.end() || found->second.bytes != bytes) return std::nullopt;
  const MulticastBinding gone = found->second;
  bound.erase(found);
  forget(object, gone, bound.empty());
  return gone;
}

void MulticastTeams::forget(Id object, const MulticastBinding& binding, bool last_of_device) noexcept {
  const auto use = uses_.find(binding.memory);
  if (--use->second == 0) uses_.erase(use);
  if (last_of_device) slots_taken_.find(binding.device)->second.erase(object);
}

std::vector<MulticastBinding> MulticastTeams::bound_in(Id object, std::uint64_t offset, std::uint64_t bytes) const {
  std::vector<MulticastBinding> found;
  const Object& one = objects_.at(object);
  for (const TeamDevice& device : one.team) {
    const auto bound = one.bound.find(device);
    if (bound == one.bound.end()) continue;
    for (const auto& [begin, binding] : bound->second)
      if (begin + binding.bytes > offset && begin < offset + bytes) found.push_back(binding);
  }
  return found;
}

}  // namespace cuvmm::emulator::model
