// Collectives on the devices of a team, launched by each rank on its own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "cuvmm/gpu/all_reduce_way.hpp"
#include "cuvmm/gpu/float16.cuh"
#include "cuvmm/team/symmetric_memory.hpp"

namespace cuvmm::team {

// The same on all ranks.
struct CollectivesOptions {
  std::uint32_t blocks = 132;             // of one call at most, to 65,535: no more than a device runs at once
  std::uint32_t lines_per_block = 2048;   // of 8 bytes of small content, 1 to 2^20
  std::size_t staging_bytes = 64U << 20;  // for what one rank writes to another at once; a multiple of 16, to 2^40
  std::chrono::nanoseconds time_limit{5'000'000'000};  // of a wait of a kernel for another rank; more than 0
  Multicast multicast = Multicast::never;              // whether ranks may meet by it
};

// The same bytes of every rank's part of symmetric memory.
struct SymmetricBytes {
  const SymmetricMemory& memory;
  std::size_t offset = 0;  // in each part
};

// How an all-reduce is done: the same on all ranks.
struct AllReducePlan {
  gpu::AllReduceWay way = gpu::AllReduceWay::staged_two_shot;
  unsigned blocks = 1;
  unsigned threads = 256;  // of a block
};

// Launches all-reduce, broadcast, all-gather and barriers over symmetric memory (docs/collectives.md), on GPUs and on
// the emulated driver. A rank's calls are given to streams of its device's primary context and are asynchronous; they
// follow one another in one stream, or are otherwise ordered. All ranks make the same calls in the same order.
//
// create() and close() are collective, as those of SymmetricMemory, and throw the same. What is wrong with a call's
// arguments is refused before any driver call (InvalidUse, with the way out).
//
// A rank that does not come within the time limit is named by missing(); from then on every call ends at once and does
// nothing: make this anew, on a new team. The destructor waits for the device.
//
// One thread at a time uses an object.
class Collectives {
 public:
  [[nodiscard]] static Collectives create(const std::shared_ptr<Team>& team, const CollectivesOptions& options,
                                          const Deadline& deadline) {
    return try_create(team, options, deadline).value();
  }
  [[nodiscard]] static Result<Collectives> try_create(const std::shared_ptr<Team>& team,
                                                      const CollectivesOptions& options, const Deadline& deadline);

  Collectives(Collectives&&) noexcept;
  Collectives& operator=(Collectives&&) noexcept;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;
  ~Collectives();

  // Every rank's `count` values at `output` become the sums of all ranks' at `input`, which may be the same bytes
  // unless the plan's way is a one-shot that reads (docs/collectives.md). Without a plan it is chosen by size, and is
  // none by multicast; one by multicast wants can_meet_by_multicast(), and bytes that lie behind their memory's
  // multicast address. T: float, gpu::float16, gpu::bfloat16, std::int32_t, std::uint32_t, std::uint64_t.
  template <class T>
  void all_reduce(CUstream_st* stream, const SymmetricBytes& input, const SymmetricBytes& output, std::size_t count,
                  const std::optional<AllReducePlan>& plan = {});

  // Every rank's `bytes` bytes at `output` become those that rank `root` has at `input`, which may be the same. By
  // multicast where that is asked for, as an all-reduce.
  void broadcast(CUstream_st* stream, int root, const SymmetricBytes& input, const SymmetricBytes& output,
                 std::size_t bytes, bool multicast = false);

  // Every rank gets the `bytes` bytes at `input` of all ranks, one behind the other at `output`.
  void all_gather(CUstream_st* stream, const SymmetricBytes& input, const SymmetricBytes& output, std::size_t bytes,
                  bool multicast = false);

  // What any rank gave to its stream before is done, and seen by all, when what comes behind it begins.
  void barrier(CUstream_st* stream, bool multicast = false);

  // Ranks that a kernel of this rank gave up waiting for, bit r for rank r; 0 as long as all is well. Waits for all
  // work of the device.
  [[nodiscard]] std::uint32_t missing() const;

  // Whether anything can be done by multicast; if it was asked for and cannot, why: the same on all ranks.
  [[nodiscard]] bool can_meet_by_multicast() const;
  [[nodiscard]] const std::optional<Failure>& why_no_multicast() const;

  // Waits for the device, and gives everything back, on all ranks. Afterwards the object is as moved from.
  void close(const Deadline& deadline) { try_close(deadline).value(); }
  Result<void> try_close(const Deadline& deadline);

 private:
  class Impl;
  explicit Collectives(std::unique_ptr<Impl> impl) noexcept;
  [[nodiscard]] Impl& impl(const char* call) const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::team
