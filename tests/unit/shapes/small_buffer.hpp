// A buffer that is small, and what makes it move.
#pragma once

#include <gtest/gtest.h>

#include "cuvmm/device_buffer.hpp"

namespace cuvmm::test {

constexpr std::size_t small_capacity = 8_MiB;

inline MappedRangeOptions small(std::size_t capacity = small_capacity,
                                const ChunkPolicy& chunks = ChunkPolicy::fixed(std::size_t{2} << 20)) {
  MappedRangeOptions options;
  options.capacity = capacity;
  options.chunks = chunks;
  return options;
}

// Takes the addresses right behind the buffer's, so that it has to move to grow beyond them.
inline AddressReservation take_addresses_behind(const DeviceBuffer& buffer) {
  const DeviceAddress end = buffer.address() + buffer.address_capacity();
  auto taken = AddressReservation::create(buffer.driver(), 2_MiB, 0, end);
  EXPECT_EQ(taken.address(), end);
  return taken;
}

}  // namespace cuvmm::test
