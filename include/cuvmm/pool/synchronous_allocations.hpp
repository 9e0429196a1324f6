// Memory of a pool in the order of no stream.
#pragma once

#include <cstddef>
#include <memory>

#include "cuvmm/pool/pool.hpp"

namespace cuvmm {

// Gives out memory of a pool as cuMemAlloc and cuMemFree do: work of every stream may use it at once, and freeing waits
// for the device. For those who keep the order of their streams themselves, and for interfaces that name no stream. It
// has a stream of its own, with no work, which the memory belongs to in the pool's books. All work is that of the
// device's primary context.
//
// Thread-safe. The pool must outlive it, and not be moved meanwhile. A moved-from one may be assigned to or destroyed;
// all else is refused (InvalidUse).
class SynchronousAllocations {
 public:
  // Of the pool's first device, or the named one. Throws InvalidUse for a device that is not the pool's, and Error as
  // the driver fails.
  [[nodiscard]] static SynchronousAllocations create(Pool& pool);
  [[nodiscard]] static SynchronousAllocations create(Pool& pool, DeviceOrdinal device);

  SynchronousAllocations(SynchronousAllocations&&) noexcept;
  SynchronousAllocations& operator=(SynchronousAllocations&&) noexcept;
  SynchronousAllocations(const SynchronousAllocations&) = delete;
  SynchronousAllocations& operator=(const SynchronousAllocations&) = delete;
  ~SynchronousAllocations();  // what is live is told to the clean-up failure handler, and stays the pool's

  // As Pool::allocate.
  [[nodiscard]] DeviceAddress allocate(std::size_t bytes);
  // Waits until the device has done all that it was given, then frees. Throws InvalidUse, without waiting, for an
  // address that allocate() has not returned or that was freed; Error where the device cannot be waited for, as while a
  // stream is captured (cuCtxSynchronize): then the memory lives on.
  void free(DeviceAddress address);

  // Whether an allocation of these begins there and lives.
  [[nodiscard]] bool owns(DeviceAddress address) const;

  [[nodiscard]] Pool& pool() const;
  [[nodiscard]] DeviceOrdinal device() const;

 private:
  class Impl;
  explicit SynchronousAllocations(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm
