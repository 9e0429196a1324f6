#include "fabric_refusals.hpp"

namespace cuvmm {

namespace {

struct Known {
  std::weak_ptr<driver::Interface> interface;  // another driver may get the address of one that is gone
  std::shared_ptr<FabricRefusals> refusals;
};

// A part of the process's drivers, so to say. Never destroyed: owners with static storage may need it late.
struct AllRefusals {
  std::mutex mutex;
  std::map<const driver::Interface*, Known> of;
};

AllRefusals& all_refusals() {
  static AllRefusals& all = *new AllRefusals;
  return all;
}

}  // namespace

std::shared_ptr<FabricRefusals> FabricRefusals::of(const std::shared_ptr<driver::Interface>& interface) {
  AllRefusals& all = all_refusals();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.of, [](const auto& known) { return known.second.interface.expired(); });
  Known& known = all.of[interface.get()];
  if (!known.refusals) known = {interface, std::make_shared<FabricRefusals>()};
  return known.refusals;
}

std::optional<Failure> FabricRefusals::at(const Location& location) const {
  const std::lock_guard lock(mutex_);
  const auto found = refusals_.find({location.kind, location.id});
  if (found == refusals_.end()) return std::nullopt;
  return found->second;
}

void FabricRefusals::remember(const Location& location, const Failure& failure) {
  const std::lock_guard lock(mutex_);
  refusals_.emplace(Key(location.kind, location.id), failure);
}

}  // namespace cuvmm
