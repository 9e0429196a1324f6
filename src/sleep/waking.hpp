// How sleeping ranges get memory again.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "sleep/content_copy.hpp"
#include "sleep/entry.hpp"

namespace cuvmm::sleep {

// One attempt to wake ranges, all of which are `changing`. Unless it is committed, all of them sleep as before when it
// is gone.
class Waking {
 public:
  Waking(const Driver& driver, const Entries& entries);
  Waking(const Waking&) = delete;
  Waking& operator=(const Waking&) = delete;
  Waking(Waking&&) = delete;
  Waking& operator=(Waking&&) = delete;
  ~Waking();

  // For those of an attempt before this one.
  Result<void> wait_for_left_copies(std::chrono::steady_clock::time_point deadline);
  Result<void> acquire();
  Result<void> map();
  // Copies the content back, and fills what was discarded where that is asked for.
  Result<void> restore(const CopyOptions& options, std::optional<std::uint8_t> poison);
  WakeReport commit();

 private:
  struct MappedPlace {
    Entry* entry = nullptr;
    Place* place = nullptr;
  };

  Result<void> fill_discarded(std::uint8_t value) const;
  void unmap(const MappedPlace& mapped) noexcept;

  const Driver& driver_;
  const Entries& entries_;
  std::vector<SleepingMemory*> memories_;  // each once
  std::vector<MappedPlace> mapped_;        // by this attempt
  bool committed_ = false;
  WakeReport report_;
};

}  // namespace cuvmm::sleep
