#include "cuvmm/dma_buf.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "clean_up.hpp"
#include "cuvmm/pointer_info.hpp"
#include "driver/call.hpp"
#include "pointer_query.hpp"
#include "recyclable_memory.hpp"
#include "refusal.hpp"

namespace cuvmm {

using namespace abi;

namespace {

// [begin, end) of device addresses.
struct Range {
  unsigned long long begin;
  unsigned long long end;
};

std::string text(const Range& range) {
  return fmt::format("address = {:#x}, bytes = {}", range.begin, range.end - range.begin);
}

// The smallest range of whole pages of the host around it.
Range whole_pages(const Range& range) {
  static const auto page = static_cast<unsigned long long>(::sysconf(_SC_PAGESIZE));
  return {range.begin / page * page, (range.end + page - 1) / page * page};
}

Failure unmapped(const Range& asked, unsigned long long at) {
  return invalid_use("dma_bufs", text(asked),
                     fmt::format("There must be memory throughout, and the driver knows of none at {:#x}", at),
                     "Ask for less, or map memory there first", "DMA-BUF-RANGE");
}

// Whether the memory there is compressible, as far as the driver tells.
bool is_compressible(const Driver& driver, DeviceAddress address) {
  const auto info = try_describe(driver, address);
  return info && info->properties && info->properties->compression;
}

struct Kind {
  const char* feature;
  const char* reason;
  const char* way_out;
};

// The mapping or the allocation that was asked about: allocations of a pool share mappings.
Range extent(const PointerFacts& facts) {
  return facts.in_pool ? Range{facts.range_base.value, facts.range_base.value + facts.range_size}
                       : Range{facts.base.value, facts.base.value + facts.size};
}

// The kind of memory that has no dma-bufs of those pages; nothing where it may have some.
std::optional<Kind> kind_without(const PointerFacts& facts, const Range& pages) {
  if (facts.managed)
    return Kind{"dma-buf export of managed memory",
                "Managed memory moves, and the driver exports none of it as dma-bufs",
                "Export memory of cuMemCreate or cuMemAlloc"};
  if (facts.on_host())
    return Kind{"dma-buf export of host memory", "The driver exports device memory as dma-bufs only",
                "Register host memory with the network card by its address"};
  if (const Range whole = extent(facts); pages.begin < whole.begin || pages.end > whole.end)
    return Kind{"dma-buf export of a part of a page",
                "Dma-bufs cover whole pages of the host, and the allocation shares its last one, or its first",
                "Allocate whole pages for dma-bufs"};
  return std::nullopt;
}

Failure not_supported(Failure failure, const Kind& kind) {
  failure.kind = ErrorKind::not_supported;
  failure.feature = kind.feature;
  failure.reason = kind.reason;
  failure.way_out = kind.way_out;
  return failure;
}

// Adds which feature it is, and why, to what the driver says.
Failure explained(Failure failure, const Driver& driver, const PointerFacts& facts, const Range& pages,
                  DmaBufMapping mapping) {
  if (failure.code == CUDA_ERROR_NOT_SUPPORTED) {
    failure.kind = ErrorKind::not_supported;
    failure.feature = mapping == DmaBufMapping::pcie ? "dma-buf export through PCIe" : "dma-buf export";
    failure.reason = mapping == DmaBufMapping::pcie
                         ? "The platform maps no dma-bufs through PCIe BAR1, or has none at all"
                         : "The device or the driver's kernel modules cannot export dma-bufs";
    failure.way_out = mapping == DmaBufMapping::pcie
                          ? "Take DmaBufMapping::platform"
                          : "Install the open variant of the NVIDIA kernel modules, or register memory through "
                            "nvidia_peermem";
  } else if (const auto kind = kind_without(facts, pages); failure.code == CUDA_ERROR_INVALID_VALUE && kind) {
    return not_supported(std::move(failure), *kind);
  } else if (failure.code == CUDA_ERROR_INVALID_VALUE && facts.in_pool) {
    return not_supported(std::move(failure),
                         {"dma-buf export of pool memory", "The driver does not export every pool's memory as dma-bufs",
                          "Export memory of cuMemCreate or cuMemAlloc"});
  } else if (failure.code == CUDA_ERROR_UNKNOWN && is_compressible(driver, facts.base)) {
    failure.kind = ErrorKind::not_supported;
    failure.feature = "dma-buf export of compressible memory";
    failure.reason = "The driver exports no compressible memory as dma-bufs";
    failure.way_out = "Create memory for dma-bufs without compression; asking for GPUDirect RDMA as well does that";
  }
  return failure;
}

// A source's memory there is not handed out again: the dma-buf leads to it for as long as somebody has it.
Result<void> keep_from_recycling(const Driver& driver, const PointerFacts& facts) {
  RecyclableMemory& recyclable = RecyclableMemory::all();
  if (recyclable.empty() || facts.has_context || facts.managed || facts.in_pool || facts.on_host()) return {};
  CUmemGenericAllocationHandle handle = 0;
  const CUresult retained = driver.interface().cuMemRetainAllocationHandle(&handle, facts.base.as_pointer<void>());
  if (retained == CUDA_ERROR_INVALID_VALUE) return {};  // memory that has no handle is nobody's source's
  if (retained != CUDA_SUCCESS)
    return driver::describe_failure(driver.interface(), driver::EntryPoint::cuMemRetainAllocationHandle, retained,
                                    fmt::format("address = {:#x}", facts.base.value), {});
  recyclable.held_elsewhere(handle);
  clean_up<driver::EntryPoint::cuMemRelease>(driver.interface(), handle);
  return {};
}

Result<DmaBuf> export_part(const Driver& driver, const Range& part, const PointerFacts& facts, DmaBufMapping mapping) {
  // The driver exports nothing of a pool that begins within an allocation.
  const Range pages = whole_pages(facts.in_pool ? Range{extent(facts).begin, part.end} : part);
  // It crashes at a pool's managed memory, and gives pages that belong to other allocations, too.
  if (const auto kind = facts.in_pool ? kind_without(facts, pages) : std::nullopt)
    return not_supported(invalid_use("dma_bufs", text(part), "", ""), *kind);
  const unsigned long long flags = mapping == DmaBufMapping::pcie ? CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE : 0;
  int descriptor = -1;
  if (auto kept = keep_from_recycling(driver, facts); !kept) return kept.failure();
  const auto exported = driver::try_call<driver::EntryPoint::cuMemGetHandleForAddressRange>(
      driver.interface(), static_cast<void*>(&descriptor), pages.begin,
      static_cast<std::size_t>(pages.end - pages.begin), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);
  if (!exported) return explained(exported.failure(), driver, facts, pages, mapping);
  return DmaBuf{UniqueDescriptor(descriptor), static_cast<std::size_t>(part.begin - pages.begin),
                static_cast<std::size_t>(part.end - part.begin), DeviceAddress{part.begin}};
}

}  // namespace

Result<std::vector<DmaBuf>> try_dma_bufs(const Driver& driver, DeviceAddress address, std::size_t bytes,
                                         DmaBufMapping mapping) {
  const Range asked{address.value, address.value + bytes};
  if (bytes == 0 || asked.end < asked.begin)
    return invalid_use("dma_bufs", fmt::format("address = {:#x}, bytes = {}", address.value, bytes),
                       "The range must not be empty, nor run past the last address", "Ask for one byte at least",
                       "DMA-BUF-RANGE");
  std::vector<DmaBuf> all;
  for (unsigned long long next = asked.begin; next < asked.end;) {
    const auto facts = query_pointer(driver, DeviceAddress{next});
    if (!facts) return facts.failure();
    const unsigned long long end = extent(*facts).end;
    if (!facts->known() || end <= next) return unmapped(asked, next);
    const Range part{next, std::min(asked.end, end)};
    auto exported = export_part(driver, part, *facts, mapping);
    if (!exported) return exported.failure();
    all.push_back(std::move(*exported));
    next = part.end;
  }
  return all;
}

std::vector<DmaBuf> dma_bufs(const Driver& driver, DeviceAddress address, std::size_t bytes, DmaBufMapping mapping) {
  return try_dma_bufs(driver, address, bytes, mapping).value();
}

}  // namespace cuvmm
