// What may be in use for as long as the process lives.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace cuvmm {

// Keeps it until the process ends, and after its static objects, where leak checkers see that it is on purpose.
inline void keep_for_ever(std::shared_ptr<void> what) noexcept {
  struct Kept {
    std::mutex mutex;
    std::list<std::shared_ptr<void>> all;
  };
  static Kept& kept = *new Kept;
  try {
    const std::lock_guard lock(kept.mutex);
    kept.all.push_back(what);
  } catch (const std::bad_alloc&) {
    // Kept by nobody, whom leak checkers miss: a reference that is never given back.
    union Reference {
      explicit Reference(std::shared_ptr<void> taken) noexcept : of(std::move(taken)) {}
      ~Reference() {}
      std::shared_ptr<void> of;
    };
    const Reference never_given_back(std::move(what));
  }
}

}  // namespace cuvmm
