// cuMemGetAllocationPropertiesFromHandle.
#include <cstring>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// Every field of the properties that the driver reports for memory made with `properties`.
std::string reported(Environment& cuda, const CUmemAllocationProp& properties) {
  CUmemAllocationProp seen{};
  std::memset(&seen, 0xff, sizeof seen);
  const CUresult result = cuda->cuMemGetAllocationPropertiesFromHandle(&seen, cuda.create(granule, properties));
  return result_name(result) + " type=" + std::to_string(seen.type) + " loc=" + std::to_string(seen.location.type) +
         "/" + std::to_string(seen.location.id) + " ht=" + std::to_string(seen.requestedHandleTypes) +
         " comp=" + std::to_string(seen.allocFlags.compressionType) +
         " rdma=" + std::to_string(seen.allocFlags.gpuDirectRDMACapable) +
         " usage=" + std::to_string(seen.allocFlags.usage) +
         " win32=" + (seen.win32HandleMetaData == nullptr ? "null" : "set");
}

void add_reported(Table& table, const std::string& id, const CUmemAllocationProp& properties) {
  table.add("props." + id, [properties](Environment& cuda) { return reported(cuda, properties); });
}

void add_round_trips(Table& table) {
  add_reported(table, "device", device_memory());
  add_reported(table, "exportable", exportable());
  add_reported(table, "handle_types_48", device_memory(0, 48));
  add_reported(table, "host", host_memory(CU_MEM_LOCATION_TYPE_HOST));
  add_reported(table, "host_numa", host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  CUmemAllocationProp rdma = device_memory();
  rdma.allocFlags.gpuDirectRDMACapable = 1;
  add_reported(table, "rdma", rdma);
  rdma.allocFlags.gpuDirectRDMACapable = 2;
  add_reported(table, "rdma_2", rdma);
  CUmemAllocationProp usage = device_memory();
  usage.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
  add_reported(table, "usage_2", usage);
}

}  // namespace

void add_properties_cases(Table& table) {
  table.add("props.null", [](Environment& cuda) {
    return cuda->cuMemGetAllocationPropertiesFromHandle(nullptr, cuda.create(granule));
  });
  table.add("props.garbage", [](Environment& cuda) {
    CUmemAllocationProp seen{};
    return cuda->cuMemGetAllocationPropertiesFromHandle(&seen, 0x1234);
  });
  table.add("props.zero", [](Environment& cuda) {
    CUmemAllocationProp seen{};
    return cuda->cuMemGetAllocationPropertiesFromHandle(&seen, 0);
  });
  table.add("props.released", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.expect("release", cuda->cuMemRelease(handle));
    CUmemAllocationProp seen{};
    return cuda->cuMemGetAllocationPropertiesFromHandle(&seen, handle);
  });
  table.add("props.compressed", [](Environment& cuda) {
    CUmemAllocationProp properties = device_memory();
    properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    CUmemAllocationProp seen{};
    cuda.expect("properties", cuda->cuMemGetAllocationPropertiesFromHandle(&seen, cuda.create(granule, properties)));
    return "comp=" + std::to_string(seen.allocFlags.compressionType);
  });
  add_round_trips(table);
}

}  // namespace cuvmm::conformance
