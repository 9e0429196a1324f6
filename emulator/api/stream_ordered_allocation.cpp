// cuMemAllocAsync and cuMemFreeAsync: allocations and frees that have their place in a stream.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

using execution::Operation;
using execution::OperationKind;
using execution::Outcome;
using model::StreamOrderedMemory;

// A free that is asked for. It runs in its stream, or, where the stream's work is dropped, at the latest when nobody
// holds it any more.
class FreeInStream {
 public:
  explicit FreeInStream(Machine& machine) : machine_(machine) {}
  FreeInStream(const FreeInStream&) = delete;
  FreeInStream& operator=(const FreeInStream&) = delete;
  ~FreeInStream() { run(); }

  Answer begin(CUdeviceptr address, model::StreamId stream) {
    Answer begun = machine_.begin_free(address, stream, free_);
    pending_ = begun.ok();
    return begun;
  }
  void run() noexcept {
    if (std::exchange(pending_, false)) machine_.finish_free(free_);
  }
  void cancel() noexcept {
    if (std::exchange(pending_, false)) machine_.cancel_free(free_);
  }

 private:
  Machine& machine_;
  PendingFree free_;
  bool pending_ = false;
};

}  // namespace

// The allocation is usable at once for the host's calls; in its stream it waits for what had the memory before, if that
// is another stream's.
Answer EmulatedDriver::allocate_in_stream(CUdeviceptr* pointer, std::size_t bytes, const MemoryPoolPointer& pool,
                                          const StreamEntry& entry) {
  model::Signal before;
  CUdeviceptr address = 0;
  Answer allocated = machine_.with_pools(
      [&](StreamOrderedMemory& memory) { return memory.allocate(&address, bytes, pool, entry.stream->id, &before); });
  if (!allocated.ok()) return allocated;
  try {
    Operation operation;
    operation.kind = OperationKind::memory_allocation;
    operation.description = fmt::format("allocation of {} bytes at {:#x}", bytes, address);
    operation.run = [before] {
      return before == nullptr || before->load(std::memory_order_acquire) ? Outcome::done() : Outcome::again();
    };
    Answer submitted = engine_.submit(entry.stream, std::move(operation));
    if (submitted.ok())
      *pointer = address;
    else
      undo_allocation(address, *pool);
    return submitted;
  } catch (...) {
    undo_allocation(address, *pool);
    throw;
  }
}

void EmulatedDriver::undo_allocation(CUdeviceptr address, model::MemoryPool& pool) noexcept {
  machine_.with_pools([&](StreamOrderedMemory& memory) {
    std::uint64_t token = 0;
    if (memory.begin_free(address, 0, &token).ok()) memory.finish_free(address, token);
    pool.release_above_threshold();
  });
}

// cuMemFree of memory of a pool: false if it is none. The driver takes it that all use of the memory has ended.
bool EmulatedDriver::free_pooled(CUdeviceptr address, Answer& freed) {
  return machine_.with_pools([&](StreamOrderedMemory& memory) {
    const model::PoolAllocation* allocation = memory.find(address);
    if (allocation == nullptr || allocation->address != address) return false;
    freed = memory.free_now(address);
    return true;
  });
}

// The driver gives back what pools hold above their thresholds when the host synchronizes.
Answer EmulatedDriver::synchronized(Answer finished) {
  if (finished.ok()) machine_.with_pools([](StreamOrderedMemory& memory) { memory.host_synchronized_with_all(); });
  return finished;
}

Answer EmulatedDriver::allocate_async(CUdeviceptr* pointer, std::size_t bytes, CUstream stream,
                                      std::optional<CUmemoryPool> from) {
  if (Answer refused = check_pools_supported(); !refused.ok()) return refused;
  StreamEntry entry;
  if (Answer refused = find_working_stream(stream, &entry); !refused.ok()) return refused;
  if (pointer == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "dptr must not be null"};
  CUmemoryPool handle = from.value_or(nullptr);
  // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): an entry that is found has a context
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, entry.context->device};
  if (!from)
    if (Answer refused = pool_of_location(&handle, &here, CU_MEM_ALLOCATION_TYPE_PINNED, false); !refused.ok())
      return refused;
  MemoryPoolPointer pool;
  if (Answer refused = find_pool(handle, &pool); !refused.ok()) return refused;
  if (pool->kind().imported)
    return {CUDA_ERROR_INVALID_VALUE, Rule::pool_properties, "nothing can be allocated from a pool that was imported"};
  if (bytes == 0) {
    *pointer = 0;
    return {};
  }
  if (is_captured(entry.stream)) return capture_allocation(pointer, bytes, *pool, entry);
  return allocate_in_stream(pointer, bytes, pool, entry);
}

CUresult EmulatedDriver::cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return initialised([&] { return allocate_async(pointer, bytes, stream, std::nullopt); });
}

CUresult EmulatedDriver::cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                                 CUstream stream) {
  return initialised([&] { return allocate_async(pointer, bytes, stream, pool); });
}

Answer EmulatedDriver::free_in_stream(CUdeviceptr pointer, const StreamEntry& entry) {
  const auto pending = std::make_shared<FreeInStream>(machine_);
  Operation operation;
  operation.kind = OperationKind::memory_free;
  operation.description = fmt::format("free at {:#x}", pointer);
  operation.run = [pending] {
    pending->run();
    return Outcome::done();
  };
  if (Answer refused = pending->begin(pointer, entry.stream->id); !refused.ok()) return refused;
  try {
    Answer submitted = engine_.submit(entry.stream, std::move(operation));
    if (!submitted.ok()) pending->cancel();
    return submitted;
  } catch (...) {
    pending->cancel();
    throw;
  }
}

CUresult EmulatedDriver::cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_pools_supported(); !refused.ok()) return refused;
    StreamEntry entry;
    if (Answer refused = find_working_stream(stream, &entry); !refused.ok()) return refused;
    if (pointer == 0) return {};
    if (is_captured(entry.stream)) return capture_free(pointer, entry);
    if (machine_.find_managed(pointer))
      return {CUDA_ERROR_NOT_SUPPORTED, Rule::pool_pointer,
              fmt::format("{:#x} is memory of cuMemAllocManaged", pointer)};
    if (machine_.find_heap_allocation(pointer)) return free_heap(pointer);
    return free_in_stream(pointer, entry);
  });
}

}  // namespace cuvmm::emulator::api
