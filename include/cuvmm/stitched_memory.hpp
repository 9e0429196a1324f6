// One pointer over the memory of several places: what a StitchedArray is made of.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuvmm/mapped_range.hpp"

namespace cuvmm {

// Which bytes lie where. A value.
class StitchedLayout {
 public:
  // One part for each place, in the order in which they are named, as equal as the granularity allows. One mapping a
  // place: the cheapest, where each device works on its own part.
  [[nodiscard]] static StitchedLayout block() noexcept { return StitchedLayout(0); }

  // Pieces of `bytes` bytes, rounded up to the granularity, one place after the other and again from the first: where
  // all work on all of it, and the links between devices are to be loaded evenly. One mapping a piece, so that small
  // pieces are costly to make, grant and give back. Throws InvalidUse for 0.
  [[nodiscard]] static StitchedLayout cyclic(std::size_t bytes);

  [[nodiscard]] bool is_cyclic() const noexcept { return piece_bytes_ != 0; }
  [[nodiscard]] std::size_t piece_bytes() const noexcept { return piece_bytes_; }  // as asked for; 0 for block()

  friend bool operator==(const StitchedLayout&, const StitchedLayout&) noexcept = default;

 private:
  explicit StitchedLayout(std::size_t piece_bytes) noexcept : piece_bytes_(piece_bytes) {}
  std::size_t piece_bytes_;
};

struct StitchedOptions {
  std::vector<Location> locations{};  // at least one, each once: devices, and NUMA nodes of the host
  StitchedLayout layout = StitchedLayout::block();

  // Who may access all of it: the devices that have memory in it, and these, as far as they reach all of it; the host,
  // too, where no memory is a device's. The others are named by unreachable(), or are an error if all are required.
  std::vector<DeviceOrdinal> more_devices{};
  AccessRights rights = AccessRights::read_write;
  bool require_all = false;

  HandleTypes handle_types{};  // how the memory may be exported
  std::size_t alignment = 0;   // these four as in MappedRangeOptions
  std::shared_ptr<PhysicalSource> source{};
  std::shared_ptr<RetireQueue> retire_queue{};
  std::chrono::milliseconds device_wait{60'000};

  // Is told of a layout that makes needlessly many mappings, and what would do; none: standard error.
  std::function<void(const std::string&)> on_warning{};
};

// Bytes that lie in one place.
struct StitchedPart {
  Location location{};
  std::size_t offset = 0;  // bytes from the beginning
  std::size_t bytes = 0;

  friend bool operator==(const StitchedPart&, const StitchedPart&) noexcept = default;
};

// Memory of several devices and of the host behind one pointer (guide 4.16.3.3), all of it made at once and of a fixed
// size. To a kernel it is one array, whose bytes are more or less far away.
//
// Thread-safety: uses() and what it offers may be called by any thread at any time; all else by one thread at a time. A
// moved-from or closed one may be assigned to or destroyed, and asked for its numbers, which are 0, and its lists,
// which are empty; all else is refused (InvalidUse).
class StitchedMemory {
 public:
  // Throws InvalidUse for no bytes, no or equal locations and options that clash; NotSupported where no device reaches
  // all of it, or not all that are required do; OutOfDeviceMemory or OutOfHostMemory, OutOfAddressSpace, and others as
  // the driver fails. Nothing is left behind then.
  [[nodiscard]] static StitchedMemory create(const Driver& driver, std::size_t bytes, const StitchedOptions& options);
  [[nodiscard]] static Result<StitchedMemory> try_create(const Driver& driver, std::size_t bytes,
                                                         const StitchedOptions& options);

  StitchedMemory(StitchedMemory&& other) noexcept;
  StitchedMemory& operator=(StitchedMemory&& other) noexcept;
  StitchedMemory(const StitchedMemory&) = delete;
  StitchedMemory& operator=(const StitchedMemory&) = delete;
  ~StitchedMemory() = default;

  [[nodiscard]] DeviceAddress address() const noexcept { return range_.address(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }  // bytes, as asked for

  // All parts in order. The last one of all ends at size().
  [[nodiscard]] const std::vector<StitchedPart>& parts() const noexcept { return parts_; }
  [[nodiscard]] std::vector<StitchedPart> parts_at(const Location& location) const;  // those that are local there
  [[nodiscard]] Location location_at(std::size_t offset) const;                      // throws InvalidUse beyond the end

  [[nodiscard]] const std::vector<AccessGrant>& grants() const noexcept { return range_.grants(); }
  // Devices that were to have access, and cannot reach all of the memory.
  [[nodiscard]] const std::vector<DeviceOrdinal>& unreachable() const noexcept { return unreachable_; }
  // What on_warning was told; empty where there was nothing to say.
  [[nodiscard]] const std::string& warning() const noexcept { return warning_; }

  [[nodiscard]] StreamUses& uses() { return range_.uses(); }
  std::optional<CaptureId> used_on(CUstream_st* stream) { return range_.used_on(stream); }
  void no_longer_used_on(CUstream_st* stream) { range_.no_longer_used_on(stream); }

  [[nodiscard]] const MappedRange& range() const noexcept { return range_; }
  [[nodiscard]] const Driver& driver() const { return range_.driver(); }

  // Gives everything back now; afterwards it is as moved from. As MappedRange::close().
  void close();

 private:
  class Plan;
  StitchedMemory(MappedRange range, std::size_t size, Plan&& plan);

  MappedRange range_;
  std::size_t size_;
  std::vector<StitchedPart> parts_;
  std::vector<DeviceOrdinal> unreachable_;
  std::string warning_;
};

}  // namespace cuvmm
