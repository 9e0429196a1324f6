// What may be in use for as long as the process lives.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace cuvmm {

// Keeps it until the process ends, and after its static objects, where leak checkers see that it is on purpose.
inline void keep_for_ever(std::shared_ptr<void> what) noexcept try {
  struct Kept {
    std::mutex mutex;
    std::list<std::shared_ptr<void>> all;
  };
  static Kept& kept = *new Kept;
  const std::lock_guard lock(kept.mutex);
  kept.all.push_back(what);
} catch (const std::bad_alloc&) {
  // Kept by nobody, whom leak checkers miss: a reference that is never given back.
  alignas(std::shared_ptr<void>) std::byte never_destroyed[sizeof(std::shared_ptr<void>)];
  ::new (static_cast<void*>(never_destroyed)) std::shared_ptr<void>(std::move(what));
}

}  // namespace cuvmm
