// Where physical memory is created and given back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuvmm/shared_physical_memory.hpp"

namespace cuvmm {

class RetireQueue;

// The most bytes that a source lets exist at one location at a time.
struct LocationBudget {
  Location location{};
  std::size_t bytes = 0;
};

struct PhysicalSourceOptions {
  // A location that is not named has no limit but the machine's.
  std::vector<LocationBudget> budgets;
  // How many bytes that were given back are kept for re-use, over all locations, by requests of the same size and the
  // same properties. Creating memory right after much was released is slow, because the driver clears what it gets
  // back; re-using avoids that. What is re-used keeps its old content.
  // Not re-used is memory that others may still reach: what was made to be exported, what is mapped elsewhere, and what
  // was retained or exported as a dma-buf by the functions of this library (PhysicalMemory::retain, dma_bufs). What
  // other code retains or exports by calls of its own, the source cannot see: do not recycle where that is done.
  std::size_t recycle_limit = 0;
  // How long a request that finds no memory waits for the queues named by drain_under_pressure(), all together.
  std::chrono::milliseconds pressure_wait{10'000};
};

// What a source has done and holds; bytes over all locations.
struct PhysicalSourceCounters {
  std::size_t live_bytes = 0;        // exist and are in use
  std::size_t recyclable_bytes = 0;  // exist and wait for re-use
  std::size_t peak_bytes = 0;        // the most that existed at once
  std::uint64_t created = 0;         // allocations made by the driver
  std::uint64_t recycled = 0;        // requests served without the driver
  std::uint64_t refused = 0;         // requests that a budget did not allow
  std::uint64_t reclaims = 0;        // rounds in which others were asked to give memory back
};

// What others are asked for before a lack of memory is reported.
struct ReclaimRequest {
  Location location{};
  std::size_t bytes = 0;  // how many would be enough
};

// Gives memory back to a source if it can, and returns how many bytes it gave (an estimate will do; 0: none).
using ReclaimHook = std::function<std::size_t(const ReclaimRequest&)>;

// Keeps a hook registered as long as it lives. A call of the hook that another thread has begun may outlast it: what
// the hook needs is best captured by shared ownership.
class ReclaimRegistration {
 public:
  ReclaimRegistration() noexcept = default;
  ReclaimRegistration(ReclaimRegistration&&) noexcept = default;
  ReclaimRegistration& operator=(ReclaimRegistration&&) noexcept = default;
  ReclaimRegistration(const ReclaimRegistration&) = delete;
  ReclaimRegistration& operator=(const ReclaimRegistration&) = delete;
  ~ReclaimRegistration() = default;

 private:
  friend class PhysicalSource;
  explicit ReclaimRegistration(std::shared_ptr<ReclaimHook> hook) noexcept : hook_(std::move(hook)) {}

  std::shared_ptr<ReclaimHook> hook_;  // the source holds it weakly
};

// All physical memory of ranges comes through a source; ranges that are to share budgets and re-use share one. It keeps
// to budgets, re-uses what was given back, counts, and asks others to give memory back before it reports that there is
// none. A budget counts what exists, in use or kept for re-use: memory is charged before it is created, and its charge
// ends only when the driver has released it, so not while a mapping outlasts its owners.
//
// Thread-safe. No lock is held while the driver or a hook is called. Memory may outlive the source that it came from,
// and is then released with its last share.
class PhysicalSource {
 public:
  // Throws InvalidUse for two budgets of one location, and for a negative wait.
  [[nodiscard]] static std::shared_ptr<PhysicalSource> create(const Driver& driver,
                                                              const PhysicalSourceOptions& options = {});

  PhysicalSource(const PhysicalSource&) = delete;
  PhysicalSource& operator=(const PhysicalSource&) = delete;
  PhysicalSource(PhysicalSource&&) = delete;
  PhysicalSource& operator=(PhysicalSource&&) = delete;
  ~PhysicalSource();

  // Memory of exactly `bytes` bytes, a multiple of the granularity, re-used or created (cuMemCreate). Give it to a
  // range (append, map, replace), or drop the last share to give it back. Where there is none left, first what waits
  // for re-use at that location is released, then queues are drained, then the hooks are called, and it is tried again
  // after each that gave something. Throws as PhysicalMemory::create does; OutOfDeviceMemory and OutOfHostMemory also
  // where the budget does not allow it, with asked, live and recyclable bytes filled in.
  //
  // Fabric handles that are asked for beside other handle types are done without where the driver does not permit or
  // support them (guide 4.16.3.1): the memory's properties() tell what was got, fabric_refusal() why. The driver is
  // asked once for each location, and never again after it refused. Asked for alone, they are a demand; and a lack of
  // memory is reported as that.
  [[nodiscard]] SharedPhysicalMemory acquire(const MemoryProperties& properties, std::size_t bytes);
  [[nodiscard]] Result<SharedPhysicalMemory> try_acquire(const MemoryProperties& properties, std::size_t bytes);

  // One allocation for each size, in that order, or none at all.
  [[nodiscard]] Result<std::vector<SharedPhysicalMemory>> try_acquire_all(const MemoryProperties& properties,
                                                                          std::span<const std::size_t> sizes);

  // Releases what waits for re-use, oldest first, until at most `keep_bytes` are left. Returns the bytes released.
  std::size_t trim(std::size_t keep_bytes = 0);

  // Registers a hook, which is called by threads that ask for memory, several at a time. It may use the source:
  // what it asks of it calls no hooks again. It must not change a range that is growing, nor put its group to sleep,
  // which is refused. What it throws is passed to the clean-up failure handler and counts as nothing given. Throws
  // InvalidUse for an empty hook.
  [[nodiscard]] ReclaimRegistration add_reclaim_hook(ReclaimHook hook);

  // Drains the queue before a lack of memory is reported, as long as the queue lives: what waits there for the device
  // is soon free. Naming a queue again changes nothing.
  void drain_under_pressure(const std::shared_ptr<RetireQueue>& queue);

  [[nodiscard]] PhysicalSourceCounters counters() const;
  [[nodiscard]] std::size_t existing_bytes(const Location& location) const;  // in use or waiting for re-use
  [[nodiscard]] std::optional<std::size_t> budget(const Location& location) const;
  // Why memory there is created without fabric handles; nothing as long as the driver has not refused them. Known of a
  // driver, whichever source asked.
  [[nodiscard]] std::optional<Failure> fabric_refusal(const Location& location) const;
  [[nodiscard]] const Driver& driver() const noexcept;

 private:
  class Core;
  explicit PhysicalSource(std::shared_ptr<Core> core) noexcept;

  std::shared_ptr<Core> core_;
};

}  // namespace cuvmm
