// Export and import of physical memory.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {

namespace {

// A reference that was given to a function, for as long as it runs.
class Held {
 public:
  Held(model::PhysicalStore& store, model::Allocation& memory) : store_(store), memory_(memory) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { store_.drop_reference(memory_); }

 private:
  model::PhysicalStore& store_;
  model::Allocation& memory_;
};

}  // namespace

void Machine::collect_closed_exports() {
  const std::lock_guard lock(mutex_);
  physical_->collect_closed_exports();
}

Answer Machine::export_handle(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags) {
  if (shareable == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "shareableHandle must not be null"};
  const std::lock_guard lock(mutex_);
  physical_->collect_closed_exports();
  model::Allocation* allocation = nullptr;
  if (Answer answer = virtual_memory_.check_export(handle, type, flags, &allocation); !answer.ok()) return answer;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC)
    return physical_->export_fabric(static_cast<CUmemFabricHandle*>(shareable), *allocation);
  return physical_->export_descriptor(static_cast<int*>(shareable), {allocation}, memory::ExportRegistry::Use::import);
}

Answer Machine::import_handle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType type) {
  if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "handle must not be null"};
  const auto refused = [&](CUresult code, Rule rule, std::string_view why) {
    return Answer(code, rule, fmt::format("handle type {:#x}: {}", static_cast<int>(type), why));
  };
  if (os_handle == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "osHandle must not be null, nor descriptor 0"};
  const bool fabric = type == CU_MEM_HANDLE_TYPE_FABRIC;
  if (type == CU_MEM_HANDLE_TYPE_WIN32 || type == CU_MEM_HANDLE_TYPE_WIN32_KMT ||
      (fabric && configuration_.imex_channel_count() == 0))
    return refused(CUDA_ERROR_NOT_SUPPORTED, Rule::import_type,
                   fabric ? "this machine has no IMEX channel (imex-channels is 0)" : "this machine has none");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !fabric)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::import_type, "it is not one type");

  const auto import = [&](model::VirtualMemory& memory_of_process) -> Answer {
    physical_->collect_closed_exports();
    if (fabric && !physical_->has_imex_channel())
      return refused(CUDA_ERROR_NOT_PERMITTED, Rule::create_fabric_permission,
                     "there is no IMEX channel that this process may open");
    model::Allocation* memory = nullptr;
    Answer answer =
        fabric ? import_fabric(&memory, *static_cast<const CUmemFabricHandle*>(os_handle))
               : physical_->import_descriptor(&memory, static_cast<int>(reinterpret_cast<std::uintptr_t>(os_handle)));
    if (!answer.ok()) return answer;
    const Held held(store_, *memory);
    *handle = memory_of_process.import(*memory);
    return {};
  };
  return with_memory(import);
}

// The driver makes a new multicast object in the place of one that is gone. Under the lock.
Answer Machine::import_fabric(model::Allocation** memory, const CUmemFabricHandle& handle) {
  Answer answer = physical_->import_fabric(memory, handle, false);
  if (answer.ok() || answer.rule != Rule::multicast_kept) return answer;
  if (Answer refused = virtual_memory_.tolerated(answer.rule, answer.detail); !refused.ok()) return refused;
  return physical_->import_fabric(memory, handle, true);
}

Answer Machine::export_ipc(CUipcMemHandle* handle, CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto range = heap_.find_own(address);
  if (!range)
    return {CUDA_ERROR_INVALID_VALUE, Rule::ipc_not_for_vmm,
            fmt::format("{:#x} was not allocated by cuMemAlloc in this process", address)};
  return physical_->export_ipc(handle, {range->allocation, range->offset, range->bytes});
}

Answer Machine::open_ipc(CUdeviceptr* address, const CUipcMemHandle& handle, int device, std::uint64_t owner) {
  const std::lock_guard lock(mutex_);
  memory::IpcRange range;
  if (Answer answer = physical_->import_ipc(&range, handle); !answer.ok()) return answer;
  const Held held(store_, *range.memory);
  const int home = range.memory->place.device;
  if (!configuration_.can_access_peer(device, home))
    return {CUDA_ERROR_INVALID_DEVICE, Rule::access_peer,
            fmt::format("device {} cannot reach device {}, whose memory it is", device, home)};
  if (Answer answer = heap_.open(address, {range.memory, range.offset, range.bytes}, owner); !answer.ok())
    return answer;
  if (device != home && !peers_enabled_.contains({device, home})) peers_enabled_.insert({device, home});
  return {};
}

Answer Machine::close_ipc(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  return heap_.close(address);
}

// The device memory behind a range that lies in one allocation, or in mappings that follow each other.
Answer Machine::dma_buf_memory(CUdeviceptr address, std::uint64_t bytes,
                               std::vector<model::Allocation*>& covered) const {
  const auto refused = [&](std::string_view why) {
    return Answer(CUDA_ERROR_INVALID_VALUE, Rule::dma_buf_range, fmt::format("{:#x} + {}: {}", address, bytes, why));
  };
  std::vector<model::Segment> segments;
  if (heap_.resolve(address, bytes, segments).ok()) {
    covered.push_back(segments.front().allocation);
    return {};
  }
  if (address + bytes < address) return refused("it is beyond all addresses");
  if (const auto* const pooled = stream_ordered_memory_.find(address);
      pooled != nullptr && !pooled->pool->place().is_host()) {
    // From the beginning of an allocation on, and as far as the pool's memory goes.
    if (pooled->address != address || pooled->graph) return refused("no allocation of a pool begins there");
    for (CUdeviceptr next = address; next < address + bytes;) {
      const model::PoolChunk* const chunk = pooled->pool->chunk_at(next);
      if (chunk == nullptr) return refused("the pool has no memory there");
      covered.push_back(chunk->memory);
      next = chunk->address + chunk->bytes;
    }
    return {};
  }
  for (CUdeviceptr next = address; next < address + bytes;) {
    const model::Mapping* mapping = virtual_memory_.find_mapping(next);
    if (mapping == nullptr) return refused("it is not device memory throughout");
    if (mapping->handle->allocation->place.is_host()) return refused("host memory has no dma-bufs");
    if (mapping->handle->allocation->is_multicast()) return refused("multicast objects have no dma-bufs");
    if (!covered.empty() && covered.front()->place.device != mapping->handle->allocation->place.device)
      return refused("it is memory of more than one device");
    covered.push_back(mapping->handle->allocation);
    next = mapping->end();
  }
  return {};
}

Answer Machine::dma_buf(void* handle, CUdeviceptr address, std::uint64_t bytes, CUmemRangeHandleType type,
                        unsigned long long flags) {
  constexpr std::uint64_t page_bytes = 4096;
  if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "handle must not be null"};
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || (flags & ~1ULL) != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
            fmt::format("handle type {} with flags {:#x} does not exist", static_cast<int>(type), flags)};
  if (bytes == 0 || address % page_bytes != 0 || bytes % page_bytes != 0)
    return {CUDA_ERROR_INVALID_VALUE, Rule::dma_buf_range,
            fmt::format("{:#x} + {} is not whole host pages", address, bytes)};
  const std::lock_guard lock(mutex_);
  physical_->collect_closed_exports();
  if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) == 0)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::dma_buf_range, "this machine has no dma-bufs"};
  std::vector<model::Allocation*> covered;
  if (Answer refused = dma_buf_memory(address, bytes, covered); !refused.ok()) return refused;
  if (flags != 0) return {CUDA_ERROR_NOT_SUPPORTED, Rule::dma_buf_range, "this machine maps no dma-bufs over PCIe"};
  const auto is_compressed = [](const model::Allocation* each) {
    return each->properties.allocFlags.compressionType != 0;
  };
  if (std::any_of(covered.begin(), covered.end(), is_compressed))
    return {CUDA_ERROR_UNKNOWN, Rule::dma_buf_compressible,
            fmt::format("{:#x} + {} holds compressible memory", address, bytes)};
  return physical_->export_descriptor(static_cast<int*>(handle), covered, memory::ExportRegistry::Use::hold_only);
}

}  // namespace cuvmm::emulator::api
