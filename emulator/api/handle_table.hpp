// Handles of objects that callers name by an opaque pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace cuvmm::emulator::api {

// Gives objects handles and finds them again; a handle that was taken away is never used for another object, so that
// using it later is noticed. Thread-safe.
template <class Handle, class Object>
class HandleTable {
 public:
  Handle add(std::shared_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    const std::uintptr_t value = next_;
    entries_.emplace_hint(entries_.end(), value, Entry{value, std::move(object), true});
    next_ += step;
    ++live_;
    return reinterpret_cast<Handle>(value);
  }

  // The object, or what stands for it, or null.
  [[nodiscard]] std::shared_ptr<Object> find(Handle handle) const {
    const auto value = reinterpret_cast<std::uintptr_t>(handle);
    const std::lock_guard lock(mutex_);
    auto after = entries_.upper_bound(value);
    if (after == entries_.begin()) return nullptr;
    const auto& [first, entry] = *std::prev(after);
    return value <= entry.last && (value - first) % step == 0 ? entry.object : nullptr;
  }

  // The object, which the handle no longer names, or null.
  std::shared_ptr<Object> take(Handle handle) {
    const std::lock_guard lock(mutex_);
    auto found = entries_.find(reinterpret_cast<std::uintptr_t>(handle));
    if (found == entries_.end() || !found->second.live) return nullptr;
    std::shared_ptr<Object> object = std::move(found->second.object);
    entries_.erase(found);
    --live_;
    return object;
  }

  // Takes away the handles of all objects for which `condition(object)` holds.
  template <class Condition>
  void take_all_if(Condition&& condition) {
    const std::lock_guard lock(mutex_);
    live_ -= std::erase_if(entries_,
                           [&](const auto& entry) { return entry.second.live && condition(*entry.second.object); });
  }

  // Lets go of all objects for which `condition(object)` holds; `stand_in` is found under their handles from now on.
  // Needs no memory: handles that follow each other share what is kept of them.
  template <class Condition>
  void replace_all_if(Condition&& condition, const std::shared_ptr<Object>& stand_in) {
    const std::lock_guard lock(mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      const auto here = at++;
      Entry& entry = here->second;
      if (!entry.live || !condition(*entry.object)) continue;
      --live_;
      if (here != entries_.begin()) {
        Entry& before = std::prev(here)->second;
        if (before.object == stand_in && before.last + step == here->first) {
          before.last = here->first;
          entries_.erase(here);
          continue;
        }
      }
      entry.object = stand_in;
      entry.live = false;
    }
  }

  // How many objects there are, and how many entries are kept for them and for those that were replaced.
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  [[nodiscard]] std::size_t entries() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  // One object, or what stands for those of the handles from the entry's first to this last one.
  struct Entry {
    std::uintptr_t last = 0;
    std::shared_ptr<Object> object;
    bool live = false;
  };

  static constexpr std::uintptr_t step = 0x100;
  mutable std::mutex mutex_;
  std::uintptr_t next_ = 0x0cb0'0000'0000;  // like addresses that are never mapped
  std::map<std::uintptr_t, Entry> entries_;
  std::size_t live_ = 0;
};

}  // namespace cuvmm::emulator::api
