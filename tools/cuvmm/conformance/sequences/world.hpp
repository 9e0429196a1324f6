// What the generator of sequences knows of the driver's state: what the calls so far have made, by their codes alone.
// So the calls of a sequence follow from its seed and the codes that were answered.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

// Where a call points to. Addresses are offsets within spaces: single reservations, which lie wherever the driver
// placed them, so that what is beside them is nobody's concern; and addresses that are none.
namespace space {
inline constexpr int count = 6;    // of reservations at a time: spaces 0 to 5
inline constexpr int null = 8;     // offsets count from address 0
inline constexpr int nowhere = 9;  // offsets count from an address that nobody reserves
}  // namespace space

struct Place {
  int space = 0;
  std::int64_t at = 0;  // bytes
};

inline constexpr std::int64_t granule_bytes = static_cast<std::int64_t>(granule);
inline constexpr std::int64_t block_bytes = 4096;  // content is followed by such blocks
inline constexpr std::int64_t most_memory_granules = 64;
inline constexpr std::int64_t most_copied_bytes = 2 * granule_bytes;

enum class Where { device_0, device_1, host };

// Physical memory.
struct Memory {
  std::int64_t granules = 0;
  Where where = Where::device_0;
  bool exportable = false;
  bool rdma = false;          // capable of GPUDirect RDMA
  std::vector<bool> written;  // for each block: whether its content is known to follow from the calls
};

struct HandleSlot {
  int memory = 0;
  bool imported = false;
};

struct MappedMemory {
  Place place;
  std::int64_t bytes = 0;
  int memory = 0;
  std::array<int, 3> rights{};       // of device 0, device 1 and the host
  bool granted_with_others = false;  // by one call for several mappings, the last time

  [[nodiscard]] std::int64_t end() const { return place.at + bytes; }
};

struct ReservedAddresses {
  Place place;  // at the beginning of its space
  std::int64_t bytes = 0;

  [[nodiscard]] std::int64_t end() const { return place.at + bytes; }
};

// A part of one piece of memory.
struct Segment {
  int memory = 0;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

struct StreamSlot {
  bool exists = false;
  bool joined = false;  // waited for a captured event, so that it captures too
};

struct EventSlot {
  bool exists = false;
  int capture = 0;  // the number of the capture that took its last record; 0 for none
};

// What a capture has collected.
struct CapturedGraph {
  bool exists = false;
  bool executable = false;       // has been instantiated
  bool launchable = true;        // all that it touches is still there as it was
  std::vector<Segment> written;  // by its memsets
  bool parallel = false;         // some of them may run at the same time
};

inline constexpr int nothing_pending = -1;
inline constexpr int legacy_stream_pending = 3;

struct World {
  int devices = 1;
  int current = 0;  // the device whose context is current; -1 for none

  std::vector<Memory> memories;
  std::array<std::optional<HandleSlot>, 8> handles;
  std::array<std::optional<int>, 4> descriptors;  // of which memory
  std::vector<ReservedAddresses> reservations;
  std::vector<MappedMemory> mappings;

  std::array<StreamSlot, 3> streams;
  std::array<EventSlot, 3> events;
  int capturing = -1;  // the stream that captures, to which others may join
  int capture = 0;     // how many captures there have been
  CapturedGraph graph;
  int pending = nothing_pending;  // the stream whose work may not be done yet; never that of two

  [[nodiscard]] bool captures() const { return capturing >= 0; }
  [[nodiscard]] bool captures(std::int64_t stream) const;  // whether the capture takes what that one is given
  [[nodiscard]] std::int64_t granules_in_use() const;

  [[nodiscard]] const MappedMemory* mapping_at(Place place) const;
  [[nodiscard]] const ReservedAddresses* reservation_at(Place place) const;
  [[nodiscard]] bool is_on_host(const MappedMemory& mapping) const;
  // The mappings that have an address of [place, place + bytes).
  [[nodiscard]] std::vector<const MappedMemory*> mappings_in(Place place, std::int64_t bytes) const;
  // Whether a mapping, or a reservation, has an address of [place, place + bytes).
  [[nodiscard]] bool is_mapped(Place place, std::int64_t bytes) const;
  [[nodiscard]] bool is_reserved(Place place, std::int64_t bytes) const;
  // What is mapped at [place, place + bytes), if all of it is and the current device has these rights.
  [[nodiscard]] std::vector<Segment> segments(Place place, std::int64_t bytes, int rights) const;

  // Content: that blocks wholly within segments are written; that those touched are not known any more; whether all
  // that are touched are known.
  void mark_written(const std::vector<Segment>& segments);
  void mark_unknown(const std::vector<Segment>& segments);
  [[nodiscard]] bool is_known(const std::vector<Segment>& segments) const;

  // Throws std::length_error for a size that no driver can have accepted.
  [[nodiscard]] int new_memory(std::int64_t granules, Where where, bool exportable);
};

}  // namespace cuvmm::conformance
