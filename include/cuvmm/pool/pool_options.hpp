// How a pool is to be.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "cuvmm/access_grant.hpp"
#include "cuvmm/physical_source.hpp"
#include "cuvmm/units.hpp"

namespace cuvmm {

// Checked as a whole when the pool is made.
struct PoolOptions {
  // Whose memory the pool gives out. A request that names no device gets memory of the first.
  std::vector<DeviceOrdinal> devices{DeviceOrdinal{0}};
  // The most bytes of physical memory that exist at one device for the pool and its private ones: no less than the
  // granularity. 0: what the source and the machine have.
  std::size_t budget = 0;
  // Where physical memory is acquired. None: a source of the pool's own. A source that others use, too, may take back
  // what is free in the pool before it reports a lack of memory.
  std::shared_ptr<PhysicalSource> source{};
  // Who may access the memory of each device beside that device itself, which may always. A device is named once, and
  // must reach the memory (cuDeviceCanAccessPeer).
  std::vector<AccessGrant> grants{};
  // Requests of so many bytes and more get whole chunks of physical memory, rounded up to the granularity; smaller ones
  // are packed side by side. A multiple of the granularity, at least 16 times that, and no more than a quarter of the
  // memory of each device, where that is less.
  std::size_t large_from = std::size_t{32} << 20;
  // How long an allocation waits for the device to be done with memory that was freed, before the pool makes more. The
  // wait ends as soon as there is enough. 0: never.
  std::chrono::microseconds reuse_wait{1'000};
  // How long it waits for that before a lack of memory is reported.
  std::chrono::milliseconds pressure_wait{10'000};
};

}  // namespace cuvmm
