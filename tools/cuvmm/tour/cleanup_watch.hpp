// What fails while the tour gives things back.
#pragma once

#include <memory>
#include <string>

#include "cuvmm/error.hpp"

namespace cuvmm::tour {

// While it lives, failures of clean-ups, which destructors cannot throw, are collected instead of written to standard
// error. Not copied, since it puts the process's former handler back at its end; what nobody took then goes to standard
// error. Thread-safe.
class CleanupWatch {
 public:
  CleanupWatch();
  CleanupWatch(const CleanupWatch&) = delete;
  CleanupWatch& operator=(const CleanupWatch&) = delete;
  ~CleanupWatch();

  // The messages since the last time, in one text; empty if nothing failed.
  [[nodiscard]] std::string take();

 private:
  struct Collected;
  std::shared_ptr<Collected> collected_;
  CleanupFailureHandler former_;
};

}  // namespace cuvmm::tour
