// A stream that allocates from a pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cuvmm/stream_uses.hpp"
#include "pool/chunk.hpp"
#include "remembered_stream.hpp"

namespace cuvmm::pool {

// Guarded by the lock of its pool, but for `uses`. Nothing is recorded when memory is freed: where others want it, an
// event is recorded then, which stands for all that was freed by then.
struct PoolStream {
  PoolStream(const Driver& driver, CUstream_st* handle_, StreamNumber number_)
      : handle(handle_), number(number_), uses(driver) {}

  CUstream_st* const handle;
  const StreamNumber number;
  StreamUses uses;
  std::uint64_t freed = 0;     // how often memory was freed on it
  std::uint64_t done = 0;      // up to which of these the device is done
  std::uint64_t asked_at = 0;  // up to which of these `asked` stands for
  std::optional<PendingWork> asked{};
  bool being_asked = false;  // by a thread that has left the lock
  bool destroyed = false;    // without forget(), as the driver said when memory was last lacking
  std::size_t live = 0;      // allocations of it

  [[nodiscard]] bool has_unripe() const noexcept { return freed > done; }
};

// What a stream is known by. CU_STREAM_PER_THREAD is another one in each thread.
struct StreamKey {
  abi::CUstream stream = nullptr;
  std::uint64_t thread = 0;

  explicit StreamKey(CUstream_st* handle) noexcept
      : stream(same_name(handle)), thread(handle == abi::per_thread_stream() ? this_thread_number() : 0) {}
  friend bool operator==(const StreamKey&, const StreamKey&) noexcept = default;
};

struct StreamKeyHash {
  std::size_t operator()(const StreamKey& key) const noexcept {
    return std::hash<const void*>()(key.stream) ^ (std::hash<std::uint64_t>()(key.thread) << 1U);
  }
};

}  // namespace cuvmm::pool
