// Host locations wherever a location is taken: HOST, HOST_NUMA, HOST_NUMA_CURRENT, with every sort of id.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

constexpr int host_types[] = {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA,
                              CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
constexpr int ids[] = {-1, 0, 1, 7, 99};

std::string place_name(int type, int id) {
  return "lt" + std::to_string(type) + "_id" + std::to_string(id);
}

// A node 1 may be there or not: what is asked of it is not the same on every machine.
bool depends_on_machine(int type, int id) {
  return type == CU_MEM_LOCATION_TYPE_HOST_NUMA && id == 1;
}

CUmemAllocationProp at(int type, int id) {
  CUmemAllocationProp properties = host_memory(static_cast<CUmemLocationType>(type));
  properties.location.id = id;
  return properties;
}

Answer create(Environment& cuda, int type, int id) {
  const CUmemAllocationProp wanted = at(type, id);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = cuda->cuMemCreate(&handle, granule, &wanted, 0);
  if (created != CUDA_SUCCESS) return created;
  CUmemAllocationProp seen{};
  const CUresult told = cuda->cuMemGetAllocationPropertiesFromHandle(&seen, handle);
  return spaces({created, told, static_cast<int>(seen.location.type)});
}

Answer grant(Environment& cuda, CUdeviceptr address, int type, int id) {
  const CUmemAccessDesc access = access_of(id, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, type);
  return spaces({cuda->cuMemSetAccess(address, granule, &access, 1), cuda.access(address),
                 cuda.access(address, 0, CU_MEM_LOCATION_TYPE_HOST),
                 cuda.access(address, 0, CU_MEM_LOCATION_TYPE_HOST_NUMA)});
}

void add_places(Table& table, int type, int id) {
  const std::string name = place_name(type, id);
  table.add("host_location.create_" + name, [=](Environment& cuda) { return create(cuda, type, id); });
  table.add("host_location.granularity_" + name, [=](Environment& cuda) {
    const CUmemAllocationProp wanted = at(type, id);
    std::size_t minimum = 0;
    std::size_t recommended = 0;
    const CUresult first = cuda->cuMemGetAllocationGranularity(&minimum, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const CUresult second =
        cuda->cuMemGetAllocationGranularity(&recommended, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    return spaces({slashes({first, minimum}), slashes({second, recommended})});
  });
  table.add("host_location.grant_device_memory_to_" + name,
            [=](Environment& cuda) { return grant(cuda, cuda.mapped(granule, 0), type, id); });
  table.add("host_location.grant_host_memory_to_" + name, [=](Environment& cuda) {
    return grant(cuda, cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST)), type, id);
  });
  table.add("host_location.grant_numa_memory_to_" + name, [=](Environment& cuda) {
    return grant(cuda, cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)), type, id);
  });
  table.add("host_location.rights_of_" + name, [=](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
    const CUmemAccessDesc access = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_LOCATION_TYPE_HOST_NUMA);
    cuda.expect("access", cuda->cuMemSetAccess(address, granule, &access, 1));
    return spaces({cuda.access(address, id, type), cuda.access(cuda.mapped(), id, type)});
  });
}

// Host memory that device and host are granted together, in one call or one after the other.
void add_together(Table& table) {
  for (const int type : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA})
    table.add("host_location.device_and_host_in_one_call_lt" + std::to_string(type), [type](Environment& cuda) {
      const CUdeviceptr address = cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
      const CUmemAccessDesc both[] = {access_of(0), access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ, type)};
      return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address),
                     cuda.access(address, 0, CU_MEM_LOCATION_TYPE_HOST),
                     cuda.access(address, 0, CU_MEM_LOCATION_TYPE_HOST_NUMA)});
    });
  table.add("host_location.bad_one_changes_nothing", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
    const CUmemAccessDesc both[] = {access_of(0), access_of(0, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)};
    return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address)});
  });
  table.add("host_location.exported_host_memory_comes_back", [](Environment& cuda) {
    const CUmemAllocationProp wanted =
        host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    const CUmemGenericAllocationHandle handle = cuda.create(granule, wanted);
    int descriptor = -1;
    cuda.expect("export",
                cuda->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle imported = 0;
    const CUresult result = cuda.import(descriptor, imported);
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.map(address, granule, imported);
    return spaces({result, grant(cuda, address, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0)});
  });
}

}  // namespace

void add_host_location_cases(Table& table) {
  for (const int type : host_types)
    for (const int id : ids)
      if (!depends_on_machine(type, id)) add_places(table, type, id);
  add_together(table);
}

}  // namespace cuvmm::conformance
