// Export and import of physical memory.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "emulator/api/machine.hpp"

namespace cuvmm::emulator::api {
namespace {

// What a fabric handle holds; the rest of its 64 bytes is zero.
struct FabricContent {
  char magic[8] = {'c', 'u', 'v', 'm', 'm', 'f', 'b', '1'};
  std::uint64_t allocation = 0;
};

}  // namespace

void Machine::collect_closed_exports() {
  const std::lock_guard lock(mutex_);
  collect_closed_exports_locked();
}

void Machine::collect_closed_exports_locked() {
  if (exports_.size() == 0) return;
  for (const std::uint64_t id : exports_.take_closed()) store_.drop_reference(*exported_.at(id));
}

Answer Machine::export_handle(void* shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags) {
  if (shareable == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "shareableHandle must not be null"};
  const std::lock_guard lock(mutex_);
  collect_closed_exports_locked();
  model::Allocation* allocation = nullptr;
  if (Answer answer = virtual_memory_.check_export(handle, type, flags, &allocation); !answer.ok()) return answer;
  exported_[allocation->id] = allocation;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    FabricContent content;
    content.allocation = allocation->id;
    std::memset(shareable, 0, sizeof(CUmemFabricHandle));
    std::memcpy(shareable, &content, sizeof content);
    return {};
  }
  const bool full = configuration_.descriptor_limit && exports_.size() >= *configuration_.descriptor_limit;
  const auto descriptor = full ? std::nullopt : exports_.add({allocation->id});
  if (!descriptor)
    return {CUDA_ERROR_OPERATING_SYSTEM, Rule::descriptor_limit,
            full ? fmt::format("{} exported descriptors are open", exports_.size()) : std::strerror(errno)};
  store_.add_reference(*allocation);
  *static_cast<int*>(shareable) = *descriptor;
  return {};
}

Answer Machine::import_handle(CUmemGenericAllocationHandle* handle, void* os_handle, CUmemAllocationHandleType type) {
  if (handle == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "handle must not be null"};
  const auto refused = [&](CUresult code, Rule rule, std::string_view why) {
    return Answer(code, rule, fmt::format("handle type {:#x}: {}", static_cast<int>(type), why));
  };
  const bool fabric = type == CU_MEM_HANDLE_TYPE_FABRIC;
  if (type == CU_MEM_HANDLE_TYPE_WIN32 || type == CU_MEM_HANDLE_TYPE_WIN32_KMT ||
      (fabric && !configuration_.profile.imex_channel))
    return refused(CUDA_ERROR_NOT_SUPPORTED, Rule::import_type, "this machine has none");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !fabric)
    return refused(CUDA_ERROR_INVALID_VALUE, Rule::import_type, "it is not one type");
  if (os_handle == nullptr)
    return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, "osHandle must not be null, nor descriptor 0"};

  const std::lock_guard lock(mutex_);
  collect_closed_exports_locked();
  std::optional<std::uint64_t> id;
  if (fabric) {
    FabricContent content, expected;
    if (os_handle != nullptr) std::memcpy(&content, os_handle, sizeof content);
    if (os_handle != nullptr && std::memcmp(content.magic, expected.magic, sizeof content.magic) == 0)
      id = content.allocation;
  } else {
    const auto value = reinterpret_cast<std::uintptr_t>(os_handle);
    id = exports_.find(static_cast<int>(value));
  }
  auto exported = id ? exported_.find(*id) : exported_.end();
  if (exported == exported_.end())
    return refused(fabric ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_UNKNOWN, Rule::import_descriptor,
                   fabric ? "no memory was exported as this handle, or it is gone"
                          : "the descriptor is not open here, or is no export");
  *handle = virtual_memory_.import(*exported->second);
  return {};
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
  for (CUdeviceptr next = address; next < address + bytes;) {
    const model::Mapping* mapping = virtual_memory_.find_mapping(next);
    if (mapping == nullptr) return refused("it is not device memory throughout");
    if (mapping->handle->allocation->place.is_host()) return refused("host memory has no dma-bufs");
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
  collect_closed_exports_locked();
  if (configuration_.profile.attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) == 0)
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::dma_buf_range, "this machine has no dma-bufs"};
  std::vector<model::Allocation*> covered;
  if (Answer refused = dma_buf_memory(address, bytes, covered); !refused.ok()) return refused;
  if (flags != 0) return {CUDA_ERROR_NOT_SUPPORTED, Rule::dma_buf_range, "this machine maps no dma-bufs over PCIe"};
  const auto is_compressed = [](const model::Allocation* each) {
    return each->properties.allocFlags.compressionType != 0;
  };
  if (std::any_of(covered.begin(), covered.end(), is_compressed))
    return {CUDA_ERROR_UNKNOWN, Rule::dma_buf_range, "compressible memory has no dma-bufs"};
  std::vector<std::uint64_t> ids;
  for (model::Allocation* allocation : covered) {
    exported_[allocation->id] = allocation;
    ids.push_back(allocation->id);
  }
  const auto descriptor = exports_.add(std::move(ids), memory::ExportRegistry::Use::hold_only);
  if (!descriptor) return {CUDA_ERROR_OPERATING_SYSTEM, Rule::descriptor_limit, std::strerror(errno)};
  for (model::Allocation* allocation : covered) store_.add_reference(*allocation);
  *static_cast<int*>(handle) = *descriptor;
  return {};
}

}  // namespace cuvmm::emulator::api
