#include "cuvmm/pool/pool_statistics.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cuvmm {

PoolStatistics& PoolStatistics::operator+=(const PoolStatistics& other) noexcept {
  live_bytes += other.live_bytes;
  live_allocations += other.live_allocations;
  reserved_bytes += other.reserved_bytes;
  pending_bytes += other.pending_bytes;
  recyclable_bytes += other.recyclable_bytes;
  holes += other.holes;
  largest_hole = std::max(largest_hole, other.largest_hole);
  mappings += other.mappings;
  peak_live_bytes += other.peak_live_bytes;
  peak_reserved_bytes += other.peak_reserved_bytes;
  allocations += other.allocations;
  warm += other.warm;
  remapped += other.remapped;
  calls.create += other.calls.create;
  calls.release += other.calls.release;
  calls.map += other.calls.map;
  calls.set_access += other.calls.set_access;
  calls.unmap += other.calls.unmap;
  calls.events += other.calls.events;
  return *this;
}

std::string to_string(const PoolStatistics& now) {
  return fmt::format(
      "{} live in {} allocations; {} of physical memory in {} mappings, {} of it recyclable, {} waiting for the "
      "device; "
      "{} holes, the largest {}; at most {} live and {} physical; {} allocations, {} of them warm, {} chunks moved; "
      "calls: {} create, {} release, {} map, {} set access, {} unmap, {} events",
      format_bytes(now.live_bytes), now.live_allocations, format_bytes(now.reserved_bytes), now.mappings,
      format_bytes(now.recyclable_bytes), format_bytes(now.pending_bytes), now.holes, format_bytes(now.largest_hole),
      format_bytes(now.peak_live_bytes), format_bytes(now.peak_reserved_bytes), now.allocations, now.warm, now.remapped,
      now.calls.create, now.calls.release, now.calls.map, now.calls.set_access, now.calls.unmap, now.calls.events);
}

std::string to_string(const PoolAllocation& allocation) {
  return fmt::format("{} bytes into an allocation of {} at {:#x}, which takes {} of device {}, on stream {}",
                     allocation.offset, format_bytes(allocation.bytes), allocation.address.value,
                     format_bytes(allocation.rounded_bytes), allocation.device.value, fmt::ptr(allocation.stream));
}

}  // namespace cuvmm
