// Where physical memory lives, and how much of each place is taken.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/abi.hpp"

namespace cuvmm::emulator::model {

// A device's memory, or the host's. Host NUMA nodes share one budget: they are one machine's memory. What a multicast
// object stands for lies in several places, and the object in none.
struct Place {
  enum class Kind : unsigned char { device, host, multicast };
  Kind kind = Kind::device;
  int device = 0;  // ordinal; meaningless but for a device

  static Place on_device(int ordinal) { return {Kind::device, ordinal}; }
  static Place on_host() { return {Kind::host, 0}; }
  static Place of_multicast() { return {Kind::multicast, 0}; }
  [[nodiscard]] bool is_host() const noexcept { return kind == Kind::host; }
};

// Bytes taken and available, per place.
class Ledger {
 public:
  Ledger(int devices, std::uint64_t bytes_per_device, std::uint64_t host_bytes)
      : device_bytes_(bytes_per_device), host_bytes_(host_bytes), used_(static_cast<std::size_t>(devices) + 1, 0) {}

  [[nodiscard]] bool take(Place place, std::uint64_t bytes) {
    if (bytes > free(place)) return false;
    used_[index(place)] += bytes;
    return true;
  }
  void give_back(Place place, std::uint64_t bytes) { used_[index(place)] -= bytes; }

  [[nodiscard]] std::uint64_t used(Place place) const { return used_[index(place)]; }
  [[nodiscard]] std::uint64_t total(Place place) const { return place.is_host() ? host_bytes_ : device_bytes_; }
  [[nodiscard]] std::uint64_t free(Place place) const { return total(place) - used(place); }

 private:
  [[nodiscard]] std::size_t index(Place place) const {
    return place.is_host() ? used_.size() - 1 : static_cast<std::size_t>(place.device);
  }

  std::uint64_t device_bytes_;
  std::uint64_t host_bytes_;
  std::vector<std::uint64_t> used_;
};

}  // namespace cuvmm::emulator::model
