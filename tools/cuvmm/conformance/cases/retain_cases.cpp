// cuMemRetainAllocationHandle.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// The handle behind a new mapping of four granules, asked for at `offset`.
std::string retained_at(Environment& cuda, std::size_t offset) {
  const CUdeviceptr address = cuda.reserve(4 * granule);
  const CUmemGenericAllocationHandle handle = cuda.create(4 * granule);
  cuda.map(address, 4 * granule, handle);
  CUmemGenericAllocationHandle retained = 0;
  const CUresult result = cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address + offset));
  return slashes({result, retained == handle ? "same" : "other"});
}

CUresult retain_at(Environment& cuda, CUdeviceptr address) {
  CUmemGenericAllocationHandle retained = 0;
  return cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address));
}

void add_addresses(Table& table) {
  table.add("retain.base", [](Environment& cuda) { return retained_at(cuda, 0); });
  table.add("retain.inside", [](Environment& cuda) { return retained_at(cuda, granule + 123); });
  table.add("retain.unmapped", [](Environment& cuda) { return retain_at(cuda, cuda.reserve(granule)); });
  table.add("retain.malloc_ptr", [](Environment& cuda) { return retain_at(cuda, cuda.allocate(granule)); });
  table.add("retain.host_alloc", [](Environment& cuda) { return retain_at(cuda, as_address(cuda.allocate_host())); });
  table.add("retain.stack", [](Environment& cuda) {
    const int local = 0;
    return retain_at(cuda, as_address(&local));
  });
  table.add("retain.null", [](Environment& cuda) { return retain_at(cuda, 0); });
  table.add("retain.null_handle",
            [](Environment& cuda) { return cuda->cuMemRetainAllocationHandle(nullptr, as_pointer(cuda.mapped())); });
}

void add_counting(Table& table) {
  table.add("retain.balanced", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    CUmemGenericAllocationHandle retained = 0;
    cuda.expect("retain", cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address)));
    return commas({cuda->cuMemRelease(handle), cuda->cuMemRelease(retained)});
  });
  table.add("retain.after_release", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.expect("release", cuda->cuMemRelease(handle));
    CUmemGenericAllocationHandle retained = 0;
    const CUresult result = cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address));
    return commas({result, cuda->cuMemMap(cuda.reserve(granule), granule, 0, retained, 0)});
  });
  table.add("retain.released_once_too_often", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    CUmemGenericAllocationHandle retained = 0;
    cuda.expect("retain", cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address)));
    return commas({cuda->cuMemRelease(handle), cuda->cuMemRelease(retained), cuda->cuMemRelease(retained)});
  });
  table.add("retain.keeps_memory_after_unmap", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.grant(address, granule);
    cuda.write_word(address, 12);
    CUmemGenericAllocationHandle retained = 0;
    cuda.expect("retain", cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address)));
    cuda.expect("release", cuda->cuMemRelease(handle));
    cuda.unmap(address, granule);
    cuda.map(address + granule, granule, retained);
    cuda.grant(address + granule, granule);
    return cuda.read_word(address + granule);
  });
}

}  // namespace

void add_retain_cases(Table& table) {
  add_addresses(table);
  add_counting(table);
}

}  // namespace cuvmm::conformance
