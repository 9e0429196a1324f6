// What is known of fabric handles that were asked for and could not be had.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "cuvmm/error.hpp"
#include "cuvmm/memory_properties.hpp"
#include "driver/interface.hpp"

namespace cuvmm {

// Whether the failure says that memory cannot have fabric handles here, so that it is worth trying without. A lack of
// memory does not.
[[nodiscard]] inline bool refuses_fabric_handles(const Failure& failure) noexcept {
  return failure.kind == ErrorKind::not_permitted || failure.kind == ErrorKind::not_supported;
}

// The driver's refusals by location, one for a driver, kept as long as that lives: each location is asked once, and
// the reason can be told later. Thread-safe.
class FabricRefusals {
 public:
  [[nodiscard]] static std::shared_ptr<FabricRefusals> of(const std::shared_ptr<driver::Interface>& interface);

  [[nodiscard]] std::optional<Failure> at(const Location& location) const;
  // The first one stays.
  void remember(const Location& location, const Failure& failure);

 private:
  using Key = std::pair<LocationKind, int>;

  mutable std::mutex mutex_;
  std::map<Key, Failure> refusals_;
};

}  // namespace cuvmm
