// Memory in the order of streams, from a pool that does not fragment.
//
//   auto pool = cuvmm::Pool::create(driver);
//   const cuvmm::DeviceAddress buffer = pool.allocate(bytes, stream);
//   launch(stream, buffer.as_pointer<float>());
//   pool.free(buffer, stream);  // at once; what comes next in the stream may get the same bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "cuvmm/driver.hpp"
#include "cuvmm/pool/pool_options.hpp"
#include "cuvmm/pool/pool_statistics.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/units.hpp"

struct CUstream_st;

namespace cuvmm {

// Gives out memory of devices in the order of streams, as cuMemAllocAsync does, on physical memory that is stitched
// (guide 4.16.2; cuMemCreate, cuMemMap, cuMemSetAccess, cuMemUnmap). Free physical memory of any place can stand behind
// any address, so that it is mapped elsewhere before more is made. Nothing is ever copied for that, only free memory is
// moved, and nothing is unmapped before the device is done with it. See docs/pool.md.
//
// - What was freed on a stream is used again by that stream at once, without a call of the driver. Other streams, and
//   other addresses, get it as soon as the device is known to be done with it.
// - Each allocation begins at a multiple of 512 bytes.
// - After a failure the pool is as it was before, but that memory which was free may have been given back.
//
// Thread-safe. No lock is held while the driver is called or the device waited for. Streams are known by their handle:
// call forget() before one is destroyed. Default streams (null, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD) are those of
// the context that is current when they are first named, and of that thread. In a capture, use a pool of its own, see
// make_private(). A moved-from pool may be assigned to or destroyed; all else is refused (InvalidUse), as is all in a
// forked child of the process that made the pool, where its end does nothing.
class Pool {
 public:
  // Reserves addresses; no memory is made yet. Throws InvalidUse for options that clash, OutOfAddressSpace, and Error
  // as the driver fails.
  [[nodiscard]] static Pool create(const Driver& driver, const PoolOptions& options = {});
  [[nodiscard]] static Result<Pool> try_create(const Driver& driver, const PoolOptions& options = {});

  Pool(Pool&&) noexcept;
  Pool& operator=(Pool&&) noexcept;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  // Waits for work on memory that was freed, then gives everything back. What is live is told to the clean-up failure
  // handler, and left mapped for ever with the rest of its pool, as is what the device is not done with in time.
  ~Pool();

  // `bytes` of the device's memory for the work that the stream is given from now on. Throws InvalidUse for 0 bytes and
  // for a device that the pool was not made for, OutOfDeviceMemory with asked, existing, live and still recyclable
  // bytes where there is none even after waiting and trimming, OutOfAddressSpace, and Error as the driver fails.
  [[nodiscard]] DeviceAddress allocate(std::size_t bytes, CUstream_st* stream);
  [[nodiscard]] DeviceAddress allocate(std::size_t bytes, CUstream_st* stream, DeviceOrdinal device);
  [[nodiscard]] Result<DeviceAddress> try_allocate(std::size_t bytes, CUstream_st* stream);
  [[nodiscard]] Result<DeviceAddress> try_allocate(std::size_t bytes, CUstream_st* stream, DeviceOrdinal device);

  // Work of another stream uses the allocation as well; that stream has been made to wait for what it needs. Throws
  // InvalidUse for an address that is not the beginning of a live allocation, Error if the driver refuses the stream.
  void used_on(DeviceAddress address, CUstream_st* stream);

  // Frees the allocation that begins there in the order of the stream: work that the stream was given may use it still.
  // Where other streams were named by used_on(), it is free when all of them have done what they were given so far.
  // Throws InvalidUse for an address that the pool did not give out, that lies inside an allocation, that was freed
  // before, and for a stream that the allocation is neither of nor used on: its work is not known to be done before.
  void free(DeviceAddress address, CUstream_st* stream);
  [[nodiscard]] Result<void> try_free(DeviceAddress address, CUstream_st* stream);

  // The stream is about to be destroyed. What was freed on it goes to the others when its work is done. Throws
  // InvalidUse while an allocation of it lives, or while it is being captured. For one that was destroyed before, whose
  // handle the driver knows no more, it waits for all work of the context (cuCtxSynchronize).
  void forget(CUstream_st* stream);

  // Gives free memory back until at most `keep_bytes` of physical memory exist at each device, or nothing free is left;
  // a call ends once `step_bytes` were given back, so that it can be done little by little. Both are passed by no more
  // than the rest of one chunk, the smallest that is enough. Does not wait for the device. Answers the bytes given
  // back.
  std::size_t trim(std::size_t keep_bytes = 0, std::size_t step_bytes = SIZE_MAX);

  // A pool with the same options, budget and source, for one captured graph. What was allocated from it on a stream
  // that is captured may be used by each launch of the graph; destroy it when the graph is gone and its launches are
  // done. Before it makes memory it takes what is free in this pool, which gets all of it back when the private one
  // goes, or nothing where this pool went first.
  [[nodiscard]] Pool make_private() const;

  // The live allocation that the address lies in; nothing where there is none.
  [[nodiscard]] std::optional<PoolAllocation> describe(DeviceAddress address) const;

  [[nodiscard]] PoolStatistics statistics() const;  // of all devices; peaks are the sums of theirs
  [[nodiscard]] PoolStatistics statistics(DeviceOrdinal device) const;
  [[nodiscard]] const PoolOptions& options() const;
  [[nodiscard]] const Driver& driver() const;
  [[nodiscard]] const std::shared_ptr<PhysicalSource>& source() const;

 private:
  class Impl;
  explicit Pool(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm
