// Handles of objects that callers name by an opaque pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace cuvmm::emulator::api {

// Gives objects handles and finds them again; a handle that was taken away is never used for another object, so that
// using it later is noticed. Thread-safe.
template <class Handle, class Object>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t value = next_;
    objects_.emplace(value, std::move(object));
    next_ += step;
    return reinterpret_cast<Handle>(value);
  }

  // The object, or null.
  [[nodiscard]] std::shared_ptr<Object> find(Handle handle) const {
    const std::lock_guard lock(mutex_);
    auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  // The object, which the handle no longer names, or null.
  std::shared_ptr<Object> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Takes away the handles of all objects for which `condition(object)` holds.
  template <class Condition>
  void take_all_if(Condition&& condition) {
    const std::lock_guard lock(mutex_);
    std::erase_if(objects_, [&](const auto& entry) { return condition(*entry.second); });
  }

  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return objects_.size();
  }

 private:
  static constexpr std::uintptr_t step = 0x100;
  mutable std::mutex mutex_;
  std::uintptr_t next_ = 0x0cb0'0000'0000;  // like addresses that are never mapped
  std::unordered_map<std::uintptr_t, std::shared_ptr<Object>> objects_;
};

}  // namespace cuvmm::emulator::api
