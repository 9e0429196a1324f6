// Features proved by use.
#pragma once

#include <cstddef>
#include <optional>

#include "cuvmm/capabilities.hpp"
#include "cuvmm/result.hpp"

namespace cuvmm {

// Makes trials on one device. Each takes memory of one granule at most, goes as far as a user of the feature must go,
// and gives everything back, also after a failure. Calls of the driver may fail.
class CapabilityTrials {
 public:
  CapabilityTrials(const Device& device, int host_numa_node) noexcept
      : device_(device), host_numa_node_(host_numa_node) {}

  // Whether there is a trial of the feature.
  [[nodiscard]] static bool exists(Feature feature) noexcept;

  // Success, or what ended the trial. A feature that was accepted and not given is a NotSupported with a reason.
  [[nodiscard]] Result<void> run(Feature feature) const;

  // The largest power of two of bytes that can be reserved, or nothing.
  [[nodiscard]] std::optional<std::size_t> largest_reservation() const;

 private:
  const Device& device_;
  int host_numa_node_;
};

}  // namespace cuvmm
