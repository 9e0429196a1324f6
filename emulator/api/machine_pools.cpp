// Memory of pools as the process sees it, and frees in the order of a stream.
#include <exception>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {

// Called by the model, under the lock.
bool Machine::view_of_chunk(const model::PoolChunk& chunk, bool visible) noexcept try {
  if (!visible) {
    host_views_.remove(chunk.address);
    return true;
  }
  return host_views_.set(chunk.address, piece({chunk.memory, 0, chunk.bytes}), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
} catch (const std::exception&) {
  return false;
}

Answer Machine::begin_free(CUdeviceptr address, model::StreamId stream, PendingFree& free) {
  const std::lock_guard lock(mutex_);
  free.address = address;
  return stream_ordered_memory_.begin_free(address, stream, &free.token);
}

void Machine::cancel_free(const PendingFree& free) noexcept {
  const std::lock_guard lock(mutex_);
  stream_ordered_memory_.cancel_free(free.address, free.token);
}

void Machine::finish_free(const PendingFree& free) noexcept {
  const std::lock_guard lock(mutex_);
  stream_ordered_memory_.finish_free(free.address, free.token);
}

bool Machine::is_pooled(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  return stream_ordered_memory_.find(address) != nullptr;
}

}  // namespace cuvmm::emulator::api
