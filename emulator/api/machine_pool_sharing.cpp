// Memory pools that pass between processes.
#include <fcntl.h>
#include <fmt/format.h>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {
namespace {

// References that import_pool_range() gave, for as long as a function runs.
class HeldRange {
 public:
  explicit HeldRange(model::PhysicalStore& store) : store_(store) {}
  HeldRange(const HeldRange&) = delete;
  HeldRange& operator=(const HeldRange&) = delete;
  ~HeldRange() {
    for (model::Allocation* memory : range.memory) store_.drop_reference(*memory);
  }

  memory::PoolRange range;

 private:
  model::PhysicalStore& store_;
};

}  // namespace

Answer Machine::export_pool(int* descriptor, model::MemoryPool& pool) {
  const std::lock_guard lock(mutex_);
  physical_->collect_closed_exports();
  memory::SharedPool shared{pool.shared_id, pool.place()};
  Answer exported = physical_->export_pool(descriptor, &shared);
  if (!exported.ok()) return exported;
  pool.shared_id = shared.id;
  (void)::fcntl(*descriptor, F_SETFD, 0);  // unlike those of memory, they are not closed by exec
  return {};
}

bool Machine::has_imex_channel() {
  const std::lock_guard lock(mutex_);
  return physical_->has_imex_channel();
}

Answer Machine::import_pool(memory::SharedPool* pool, int descriptor) {
  const std::lock_guard lock(mutex_);
  physical_->collect_closed_exports();
  return physical_->import_pool(pool, descriptor);
}

void Machine::drop_pool(std::uint64_t shared_id) noexcept {
  const std::lock_guard lock(mutex_);
  if (shared_id != 0) physical_->drop_pool(shared_id);
}

Answer Machine::export_pool_pointer(CUmemPoolPtrExportData* data, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto refused = [&](std::string_view why) {
    return Answer(CUDA_ERROR_INVALID_VALUE, Rule::pool_shared, fmt::format("{:#x}: {}", address, why));
  };
  const model::PoolAllocation* const allocation = stream_ordered_memory_.find_live(address);
  if (allocation == nullptr || allocation->graph) return refused("it is no live allocation of a pool");
  model::MemoryPool& pool = *allocation->pool;
  if (pool.kind().imported) return refused("it was imported");
  if (pool.shared_id == 0) return refused("its pool was not exported");
  memory::PoolRange range{{}, 0, allocation->bytes};
  pool.for_each_piece(allocation->extent, [&](const model::PoolChunk& chunk, std::uint64_t offset, std::uint64_t) {
    if (range.memory.empty()) range.offset = offset;
    range.memory.push_back(chunk.memory);
  });
  Answer exported = physical_->export_pool_range(data, pool.shared_id, range);
  if (exported.ok()) pool.mark_exported(allocation->extent);
  return exported;
}

Answer Machine::import_pool_pointer(CUdeviceptr* address, const std::shared_ptr<model::MemoryPool>& pool,
                                    const CUmemPoolPtrExportData& data) {
  const std::lock_guard lock(mutex_);
  HeldRange held(store_);
  memory::PoolRange& range = held.range;
  if (Answer refused = physical_->import_pool_range(&range, pool->shared_id, data); !refused.ok()) return refused;
  if (const auto* const known = stream_ordered_memory_.imported_as(*pool, range.memory, range.offset, range.bytes)) {
    if (pool->place().is_host())
      return {CUDA_ERROR_ALREADY_MAPPED, Rule::pool_shared, "the allocation was imported already"};
    *address = known->address;  // nobody counts how often: the first free is the last
    return {};
  }
  return stream_ordered_memory_.import(address, pool, range.memory, range.offset, range.bytes);
}

}  // namespace cuvmm::emulator::api
