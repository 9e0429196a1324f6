#include "team/multicast_member.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "cuvmm/access_grant.hpp"
#include "refusal.hpp"

namespace cuvmm::team {

std::shared_ptr<ObjectInProcess> ObjectInProcess::named(const std::string& name) {
  static std::mutex mutex;
  static auto& all = *new std::map<std::string, std::weak_ptr<ObjectInProcess>>;  // threads may outlast the program
  const std::lock_guard lock(mutex);
  std::erase_if(all, [](const auto& each) { return each.second.expired(); });
  auto found = all[name].lock();
  if (!found) all[name] = found = std::make_shared<ObjectInProcess>();
  return found;
}

void ObjectInProcess::begin_mapping() noexcept {
  const std::lock_guard lock(mutex_);
  ++mappings_;
}

// With the lock, so that nobody maps the object meanwhile.
void ObjectInProcess::end_mapping() noexcept {
  const std::lock_guard lock(mutex_);
  if (--mappings_ == 0) left_behind_.clear();
}

void ObjectInProcess::give_back(std::list<MulticastObject> objects) noexcept {
  const std::lock_guard lock(mutex_);
  if (mappings_ == 0)
    objects.clear();
  else
    left_behind_.splice(left_behind_.end(), objects);
}

MulticastMember::MulticastMember(MulticastObject object, const Device& device, const std::string& name)
    : device_(device), in_process_(ObjectInProcess::named(name)) {
  objects_.push_back(std::move(object));
}

// What cannot be unmapped is reported, and counts as gone.
MulticastMember::~MulticastMember() {
  if (mapping_) {
    mapping_.reset();
    in_process_->end_mapping();
  }
  addresses_.reset();
  in_process_->give_back(std::move(objects_));
}

Result<void> MulticastMember::check_bind(const MulticastPart& part) {
  if (is_bound(part)) return {};
  if (auto clean = unbind_the_rest(); !clean) return clean;
  auto fine = objects_.front().check_bind(part.offset, part.memory, part.memory_offset, part.bytes);
  if (fine && part.memory.properties().location != device_.location())
    return invalid_use("MulticastTeam::bind", "memory on " + to_string(part.memory.properties().location),
                       "Each rank binds memory of its own device", "Create it at Team::device()",
                       "MULTICAST-BIND-MEMORY");
  return fine;
}

bool MulticastMember::is_bound(const MulticastPart& part) const {
  return std::find(bound_.begin(), bound_.end(), part) != bound_.end();
}

Result<void> MulticastMember::bind(const MulticastPart& part) {
  if (is_bound(part)) return {};
  bound_.reserve(bound_.size() + 1);
  auto bound = objects_.front().try_bind(part.offset, part.memory, part.memory_offset, part.bytes);
  if (bound) bound_.push_back(part);
  return bound;
}

Result<void> MulticastMember::map(std::size_t alignment) {
  if (!addresses_) {
    auto reserved = AddressReservation::try_create(device_.driver(), objects_.front().properties().bytes, alignment);
    if (!reserved) return reserved.failure();
    addresses_.emplace(std::move(reserved).value());
  }
  if (!mapping_) {
    in_process_->begin_mapping();
    auto mapping = objects_.front().try_map(*addresses_);
    if (!mapping) {
      in_process_->end_mapping();
      return mapping.failure();
    }
    mapping_.emplace(std::move(mapping).value());
  }
  const AccessGrant own[] = {{device_.location(), AccessRights::read_write}};
  return mapping_->try_grant(own);
}

Result<void> MulticastMember::unmap() try {
  if (mapping_) {
    mapping_->unmap();
    mapping_.reset();
    in_process_->end_mapping();
  }
  if (addresses_) {
    addresses_->free();
    addresses_.reset();
  }
  return {};
} catch (const Error& error) {
  return error.failure();
}

Result<void> MulticastMember::unbind_from(std::size_t first) {
  Result<void> unbound;
  for (std::size_t index = bound_.size(); index-- > first;) {
    auto one = objects_.front().try_unbind(device_, bound_[index].offset, bound_[index].bytes);
    if (one)
      bound_.erase(bound_.begin() + static_cast<std::ptrdiff_t>(index));
    else if (unbound)
      unbound = std::move(one);
  }
  kept_ = std::min(kept_, bound_.size());
  return unbound;
}

Result<void> MulticastMember::unbind_the_rest() {
  return is_mapped() ? Result<void>() : unbind_from(kept_);
}

Result<void> MulticastMember::unbind_all() {
  return unbind_from(0);
}

}  // namespace cuvmm::team
