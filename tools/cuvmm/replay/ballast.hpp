// A device with less memory than it has.
#pragma once

#include <cstdint>

#include "cuvmm/driver.hpp"

namespace cuvmm::replay {

// Takes all free memory of device 0 but that much, so that every allocator meets the same limit, the driver's own among
// them. For one thread, which has a context.
class Ballast {
 public:
  // Throws InputError where less is free.
  Ballast(const Driver& driver, std::uint64_t leave_bytes);
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;
  Ballast(Ballast&&) = delete;
  Ballast& operator=(Ballast&&) = delete;
  ~Ballast();

  [[nodiscard]] std::uint64_t left_bytes() const noexcept { return left_; }  // which is in whole units of the driver's

 private:
  Driver driver_;
  unsigned long long address_ = 0;
  std::uint64_t left_ = 0;
};

}  // namespace cuvmm::replay
