// A machine's physical memory: what exists, its bytes, and how it passes between handles and processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/answer.hpp"
#include "emulator/memory/export_registry.hpp"
#include "emulator/memory/mapped_file.hpp"
#include "emulator/memory/shared_pool.hpp"
#include "emulator/model/physical_store.hpp"

namespace cuvmm::emulator::memory {

// Where an allocation's bytes are.
struct Extent {
  MappedFile* file = nullptr;
  std::uint64_t offset = 0;
};

// What a legacy IPC handle stands for: part of the memory behind cuMemAlloc.
struct IpcRange {
  model::Allocation* memory = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Where an allocation of a shared pool lies: in this memory, as if one piece followed the other, `offset` bytes behind
// the beginning of the first.
struct PoolRange {
  std::vector<model::Allocation*> memory;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The bytes of one device behind a piece of a multicast object.
struct MulticastPiece {
  std::size_t member = 0;    // of the team, in the order in which its devices were added
  std::uint64_t offset = 0;  // in the object
  std::uint64_t bytes = 0;
  Extent extent;
};

inline Answer lost_multicast() {
  return {abi::CUDA_ERROR_INVALID_VALUE, Rule::multicast_kept,
          "the handle is that of a multicast object that nobody has any more"};
}

// There are two: a machine of the process's own (PrivateMemory), and one that processes share through a broker
// (sharing::SharedMemory). Not thread-safe: its owner takes turns.
//
// Where a function answers an allocation, that has one more reference, which is the caller's. Functions that answer
// throw std::bad_alloc and std::system_error as well; nothing has changed then.
class PhysicalMemory : public model::PhysicalSupply {
 public:
  PhysicalMemory() : store_(*this) {}

  [[nodiscard]] model::PhysicalStore& store() noexcept { return store_; }

  // Tells the machine apart from all others.
  [[nodiscard]] virtual std::string machine_identity() const = 0;

  // Throws std::bad_alloc, FileLimitReached among them, and std::system_error.
  [[nodiscard]] virtual Extent extent(const model::Allocation& allocation) = 0;

  // A new close-on-exec descriptor, the caller's to close, whose copies, in any process or on the way to one, keep
  // these allocations (one at least).
  virtual Answer export_descriptor(int* descriptor, const std::vector<model::Allocation*>& memory,
                                   ExportRegistry::Use use) = 0;
  virtual Answer import_descriptor(model::Allocation** memory, int descriptor) = 0;

  // A fabric handle keeps nothing.
  virtual Answer export_fabric(abi::CUmemFabricHandle* handle, model::Allocation& memory) = 0;
  // Where the handle stands for a multicast object that is gone, a new, empty one is made if `anew`; else the answer is
  // lost_multicast().
  virtual Answer import_fabric(model::Allocation** memory, const abi::CUmemFabricHandle& handle, bool anew) = 0;

  // What is bound within [offset, offset + bytes) of a multicast object, cut to that.
  [[nodiscard]] virtual std::vector<MulticastPiece> multicast_pieces(const model::Allocation& object,
                                                                     std::uint64_t offset, std::uint64_t bytes) = 0;

  // Nor does a legacy IPC handle.
  virtual Answer export_ipc(abi::CUipcMemHandle* handle, const IpcRange& range) = 0;
  virtual Answer import_ipc(IpcRange* range, const abi::CUipcMemHandle& handle) = 0;

  // Pools are passed on by descriptors, which keep no memory; what was exported or imported is had until it was dropped
  // as often. export_pool gives a pool that has none an id.
  virtual Answer export_pool(int* descriptor, SharedPool* pool) = 0;
  virtual Answer import_pool(SharedPool* pool, int descriptor) = 0;
  virtual void drop_pool(std::uint64_t id) noexcept = 0;
  // An allocation of a pool that was exported or imported. What is exported keeps nothing; of what is imported, each
  // piece of memory has one more reference.
  virtual Answer export_pool_range(abi::CUmemPoolPtrExportData* data, std::uint64_t pool, const PoolRange& range) = 0;
  virtual Answer import_pool_range(PoolRange* range, std::uint64_t pool, const abi::CUmemPoolPtrExportData& data) = 0;

  // Takes back the memory of exports whose descriptors have all been closed.
  virtual void collect_closed_exports() = 0;
  // Exports of this process whose descriptors are open.
  [[nodiscard]] virtual std::size_t live_exports() = 0;

 private:
  model::PhysicalStore store_;
};

}  // namespace cuvmm::emulator::memory
