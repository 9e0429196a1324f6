// 4.16.1.2: ask the device for each feature singly, and prove each answer by use.
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "driver/call.hpp"
#include "driver/result_names.hpp"
#include "tour/content_checksum.hpp"
#include "tour/device_memory.hpp"
#include "tour/stop.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;
using namespace abi;

struct Feature {
  CUdevice_attribute attribute;
  std::string_view name;
};

constexpr std::array features{
    Feature{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
    Feature{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "descriptors"},
    Feature{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, "fabric handles"},
    Feature{CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, "compression"},
    Feature{CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, "GPUDirect RDMA"},
    Feature{CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, "multicast"},
    Feature{CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "host memory by NUMA node"},
};

// Creates one granule with those properties, lets `use` look at it, and gives it back. What cuMemCreate answered.
template <typename Use>
CUresult try_create(driver::Interface& driver, const CUmemAllocationProp& properties, std::size_t size, Use use) {
  CUmemGenericAllocationHandle memory = 0;
  const CUresult created = driver.cuMemCreate(&memory, size, &properties, 0);
  if (created != CUDA_SUCCESS) return created;
  use(memory);
  call<EntryPoint::cuMemRelease>(driver, memory);
  return created;
}

CUresult try_create(driver::Interface& driver, const CUmemAllocationProp& properties, std::size_t size) {
  return try_create(driver, properties, size, [](CUmemGenericAllocationHandle) {});
}

// The trial of one feature: it works if and only if the device says that it does.
void require_as_said(Visit& visit, const std::string& what, bool said, CUresult tried) {
  visit.checks.require(said == (tried == CUDA_SUCCESS),
                       fmt::format("{}: the device says {}, and the trial agrees", what, said ? "yes" : "no"),
                       fmt::format("the trial answered {}", driver::result_name(tried)));
}

void try_descriptors(Visit& visit, const Gpu& gpu, bool said, std::size_t size) {
  CUmemAllocationProp properties = device_memory(gpu);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUresult exported = CUDA_ERROR_NOT_SUPPORTED;
  const CUresult created = try_create(*visit.driver, properties, size, [&](CUmemGenericAllocationHandle memory) {
    int descriptor = -1;
    exported =
        visit.driver->cuMemExportToShareableHandle(&descriptor, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (exported == CUDA_SUCCESS) ::close(descriptor);
  });
  require_as_said(visit, fmt::format("device {}: descriptors", gpu.ordinal()), said,
                  created == CUDA_SUCCESS ? exported : created);
}

// The attribute tells what the device can do; whether this process may is known from a trial alone.
void try_fabric_handles(Visit& visit, const Gpu& gpu, bool said, std::size_t size) {
  CUmemAllocationProp properties = device_memory(gpu);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
  const CUresult created = try_create(*visit.driver, properties, size);
  if (said && created == CUDA_ERROR_NOT_PERMITTED) {
    visit.checks.require(true, fmt::format("device {}: fabric handles: the device says yes, the trial says that this "
                                           "process may not use them (no IMEX channel)",
                                           gpu.ordinal()));
    return;
  }
  require_as_said(visit, fmt::format("device {}: fabric handles", gpu.ordinal()), said, created);
}

// Compression and RDMA are asked for and may be silently not given: a device that has them must accept the wish, and
// the memory tells what became of it.
void try_hint(Visit& visit, const Gpu& gpu, std::string_view name, const CUmemAllocationProp& wish,
              bool (*is_set)(const CUmemAllocationProp&), std::size_t size) {
  bool given = false;
  const CUresult created = try_create(*visit.driver, wish, size, [&](CUmemGenericAllocationHandle memory) {
    CUmemAllocationProp got{};
    call<EntryPoint::cuMemGetAllocationPropertiesFromHandle>(*visit.driver, &got, memory);
    given = is_set(got);
  });
  require_accepted(visit.checks, created,
                   fmt::format("device {}: memory with {} ({})", gpu.ordinal(), name, given ? "given" : "not given"));
}

void try_features(Visit& visit, const Gpu& gpu) {
  driver::Interface& driver = *visit.driver;
  const CUmemAllocationProp plain = device_memory(gpu);
  const std::size_t minimum = granularity(driver, plain, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const std::size_t recommended = granularity(driver, plain, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  visit.checks.require(minimum != 0 && (minimum & (minimum - 1)) == 0,
                       fmt::format("device {}: the granularity, {} bytes, is a power of two", gpu.ordinal(), minimum));
  visit.checks.require(
      recommended != 0 && recommended % minimum == 0,
      fmt::format("device {}: the recommended granularity, {} bytes, is a multiple of it", gpu.ordinal(), recommended));
  require_as_said(visit, fmt::format("device {}: virtual memory management", gpu.ordinal()), true,
                  try_create(driver, plain, minimum));
  try_descriptors(visit, gpu, gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0,
                  minimum);
  try_fabric_handles(visit, gpu, gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED) != 0, minimum);
  if (gpu.attribute(CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED) != 0) {
    CUmemAllocationProp wish = plain;
    wish.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    try_hint(
        visit, gpu, "compression", wish,
        [](const CUmemAllocationProp& got) { return got.allocFlags.compressionType != 0; }, minimum);
  }
  if (gpu.attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0) {
    CUmemAllocationProp wish = plain;
    wish.allocFlags.gpuDirectRDMACapable = 1;
    try_hint(
        visit, gpu, "GPUDirect RDMA", wish,
        [](const CUmemAllocationProp& got) { return got.allocFlags.gpuDirectRDMACapable != 0; }, minimum);
  }
}

std::string ask_each_feature(Visit& visit, const Gpu& gpu) {
  std::string answers;
  for (const Feature& feature : features) {
    const int value = gpu.attribute(feature.attribute);
    visit.checks.require(value == 0 || value == 1,
                         fmt::format("device {}: asked for {}, it answers yes or no", gpu.ordinal(), feature.name),
                         fmt::format("it answers {}", value));
    answers += fmt::format("{}{} {}", answers.empty() ? "" : ", ", feature.name, value != 0 ? "yes" : "no");
  }
  return answers;
}

// Plain device memory, given back at the end.
class PlainMemory {
 public:
  PlainMemory(driver::Interface& driver, std::size_t bytes) : driver_(driver) {
    call<EntryPoint::cuMemAlloc>(driver, &address_, bytes);
  }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;
  ~PlainMemory() { driver_.cuMemFree(address_); }

  [[nodiscard]] CUdeviceptr address() const noexcept { return address_; }

 private:
  driver::Interface& driver_;
  CUdeviceptr address_ = 0;
};

// The reference that the other stops are measured by: the same bytes through memory from cuMemAlloc. A kernel brings
// them back, so that nothing but the driver's copy to the device lies between the file and the sum.
void round_trip(Visit& visit, Gpu& gpu) {
  const std::uint64_t window = window_bytes(visit.input.size(), 512, gpu.free_memory());
  const PlainMemory memory(*visit.driver, window);
  const ReachableHostMemory back(visit.driver, window);
  ContentChecksum returned;
  for_each_piece(visit, window, [&](std::uint64_t, std::span<std::byte> piece) {
    call<EntryPoint::cuMemcpyHtoD>(*visit.driver, memory.address(), static_cast<const void*>(piece.data()),
                                   piece.size());
    gpu.copy(back.address(), memory.address(), piece.size());
    returned.add(back.bytes().first(piece.size()));
  });
  visit.checks.require(
      returned.value() == visit.checksum,
      fmt::format("the input comes back from plain device memory with the checksum {:016x}", visit.checksum),
      fmt::format("it comes back with {:016x}", returned.value()));
}

void visit_query(Visit& visit) {
  for (const std::unique_ptr<Gpu>& gpu : visit.gpus) {
    gpu->make_current();
    const std::string answers = ask_each_feature(visit, *gpu);
    if (gpu == visit.gpus.front()) visit.shown = answers;
    if (gpu->attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0) {
      try_features(visit, *gpu);
    } else {
      require_refused(visit.checks, try_create(*visit.driver, device_memory(*gpu), std::size_t{2} << 20),
                      fmt::format("device {}: no virtual memory management, it says: creating memory", gpu->ordinal()));
    }
  }
  Gpu& first = *visit.gpus.front();
  first.make_current();
  first.require_kernels();
  round_trip(visit, first);
}

}  // namespace

Stop query_stop() {
  return {"4.16.1.2", "Query", "each feature asked for singly and tried; plain memory as the reference", visit_query};
}

}  // namespace cuvmm::tour
