// cuMemGetHandleForAddressRange: dma-buf descriptors of ranges.
#include <fcntl.h>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/descriptor_limit.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

CUresult get_descriptor(Environment& cuda, CUdeviceptr address, std::size_t size, int type = 1,
                        unsigned long long flags = 0) {
  int descriptor = -1;
  return cuda->cuMemGetHandleForAddressRange(&descriptor, address, size, static_cast<CUmemRangeHandleType>(type),
                                             flags);
}

// A part of a mapping of four granules.
void add_part(Table& table, const std::string& id, std::size_t start, std::size_t size) {
  table.add("dma_buf." + id,
            [=](Environment& cuda) { return get_descriptor(cuda, cuda.mapped(4 * granule) + start, size); });
}

void add_parts(Table& table) {
  add_part(table, "whole", 0, 4 * granule);
  add_part(table, "half", 0, 2 * granule);
  add_part(table, "second_half", 2 * granule, 2 * granule);
  add_part(table, "first_64K", 0, 65536);
  add_part(table, "second_64K", 65536, 65536);
  add_part(table, "first_page", 0, 4096);
  add_part(table, "second_page", 4096, 4096);
  add_part(table, "unaligned_size", 0, granule + 1);
  add_part(table, "unaligned_address", 64, 4096);
  add_part(table, "zero", 0, 0);
  add_part(table, "beyond_mapping", granule, 4 * granule);
}

void add_places(Table& table) {
  table.add("dma_buf.two_mappings", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map_new(address, granule);
    cuda.map_new(address + granule, granule);
    cuda.grant(address, 2 * granule);
    return commas({get_descriptor(cuda, address, 2 * granule), get_descriptor(cuda, address + granule, granule)});
  });
  table.add("dma_buf.no_access",
            [](Environment& cuda) { return get_descriptor(cuda, cuda.mapped(granule, 0), granule); });
  table.add("dma_buf.read_only",
            [](Environment& cuda) { return get_descriptor(cuda, cuda.mapped(granule, 1), granule); });
  table.add("dma_buf.exportable",
            [](Environment& cuda) { return get_descriptor(cuda, cuda.mapped(granule, 3, exportable()), granule); });
  table.add("dma_buf.rdma", [](Environment& cuda) {
    CUmemAllocationProp properties = device_memory();
    properties.allocFlags.gpuDirectRDMACapable = 1;
    return get_descriptor(cuda, cuda.mapped(granule, 3, properties), granule);
  });
  table.add("dma_buf.reserved", [](Environment& cuda) { return get_descriptor(cuda, cuda.reserve(granule), granule); });
  table.add("dma_buf.allocation",
            [](Environment& cuda) { return get_descriptor(cuda, cuda.allocate(granule), granule); });
  table.add("dma_buf.allocation_page",
            [](Environment& cuda) { return get_descriptor(cuda, cuda.allocate(granule) + 65536, 65536); });
  table.add("dma_buf.host_alloc",
            [](Environment& cuda) { return get_descriptor(cuda, as_address(cuda.allocate_host(granule)), granule); });
  table.add("dma_buf.host_numa", [](Environment& cuda) {
    return get_descriptor(cuda, cuda.mapped(granule, 3, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)), granule);
  });
  table.add("dma_buf.null", [](Environment& cuda) { return get_descriptor(cuda, 0, granule); });
}

// Memory of a pool, or of the current one where none is given.
CUdeviceptr pooled(Environment& cuda, CUmemoryPool pool = nullptr, std::size_t size = granule) {
  const CUstream stream = cuda.stream();
  CUdeviceptr memory = 0;
  if (pool != nullptr)
    memory = allocate_from(cuda, pool, size, stream);
  else
    cuda.expect("allocate", cuda->cuMemAllocAsync(&memory, size, stream));
  cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
  return memory;
}

void add_pools(Table& table) {
  table.add("dma_buf.pool_current", [](Environment& cuda) { return get_descriptor(cuda, pooled(cuda), granule); });
  table.add("dma_buf.pool_first_page", [](Environment& cuda) { return get_descriptor(cuda, pooled(cuda), 4096); });
  table.add("dma_buf.pool_second_page",
            [](Environment& cuda) { return get_descriptor(cuda, pooled(cuda) + 4096, 4096); });
  table.add("dma_buf.pool_page_of_1000_bytes",
            [](Environment& cuda) { return get_descriptor(cuda, pooled(cuda, new_pool(cuda), 1000), 4096); });
  table.add("dma_buf.pool_beyond_allocation",
            [](Environment& cuda) { return get_descriptor(cuda, pooled(cuda, new_pool(cuda)), 2 * granule); });
  table.add("dma_buf.pool_freed", [](Environment& cuda) {
    const CUdeviceptr memory = pooled(cuda, new_pool(cuda));
    cuda.expect("free", cuda->cuMemFree(memory));
    return get_descriptor(cuda, memory, granule);
  });
  for (const int type : {int{CU_MEM_LOCATION_TYPE_HOST}, int{CU_MEM_LOCATION_TYPE_HOST_NUMA}})
    table.add("dma_buf.pool_of_lt" + std::to_string(type), [type](Environment& cuda) {
      return get_descriptor(cuda, pooled(cuda, new_pool(cuda, pool_properties(0, type))), granule);
    });
  table.add("dma_buf.pool_of_managed_memory", [](Environment& cuda) {
    CUmemPoolProps properties = pool_properties();
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    return get_descriptor(cuda, pooled(cuda, new_pool(cuda, properties)), granule);
  });
}

void add_arguments(Table& table) {
  for (const int type : {0, 2})
    table.add("dma_buf.type_" + std::to_string(type),
              [type](Environment& cuda) { return get_descriptor(cuda, cuda.mapped(), granule, type); });
  for (const unsigned long long flags : {1, 2})
    table.add("dma_buf.flags_" + std::to_string(flags),
              [flags](Environment& cuda) { return get_descriptor(cuda, cuda.mapped(), granule, 1, flags); });
  table.add("dma_buf.null_out", [](Environment& cuda) {
    return cuda->cuMemGetHandleForAddressRange(nullptr, cuda.mapped(), granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  });
  table.add("dma_buf.supported", [](Environment& cuda) {
    int value = -1;
    const CUresult result = cuda->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
    return slashes({result, value});
  });
  table.add("dma_buf.cloexec", [](Environment& cuda) {
    int descriptor = -1;
    const CUresult result = cuda->cuMemGetHandleForAddressRange(&descriptor, cuda.mapped(), granule,
                                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    const int flags = fcntl(descriptor, F_GETFD);
    return slashes({result, flags < 0 ? "none" : (flags & FD_CLOEXEC) != 0 ? "cloexec" : "inherit"});
  });
  table.add("dma_buf.no_descriptor_left", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    allow_no_more_descriptors();
    return get_descriptor(cuda, address, granule);
  });
}

}  // namespace

void add_dma_buf_cases(Table& table) {
  add_parts(table);
  add_places(table);
  add_arguments(table);
  add_pools(table);
}

}  // namespace cuvmm::conformance
