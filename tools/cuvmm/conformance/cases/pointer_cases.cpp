// Single questions about VMM pointers.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// The low 32 bits of an attribute of `address`: "OK/2", or "INVALID_VALUE/-".
std::string attribute(Environment& cuda, CUpointer_attribute attribute, CUdeviceptr address) {
  unsigned long long value = 0;
  const CUresult result = cuda->cuPointerGetAttribute(&value, attribute, address);
  if (result != CUDA_SUCCESS) return slashes({result, "-"});
  return slashes({result, static_cast<unsigned>(value)});
}

void add_attributes(Table& table) {
  table.add("ptr.memory_type",
            [](Environment& cuda) { return attribute(cuda, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cuda.mapped()); });
  table.add("ptr.memory_type_no_access", [](Environment& cuda) {
    return attribute(cuda, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cuda.mapped(granule, 0));
  });
  table.add("ptr.device_ordinal",
            [](Environment& cuda) { return attribute(cuda, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, cuda.mapped()); });
  table.add("ptr.mapped", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const std::string before = attribute(cuda, CU_POINTER_ATTRIBUTE_MAPPED, address);
    cuda.map_new(address, granule);
    cuda.grant(address, granule);
    return spaces({before, attribute(cuda, CU_POINTER_ATTRIBUTE_MAPPED, address)});
  });
  table.add("ptr.allowed_handle_types", [](Environment& cuda) {
    return attribute(cuda, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, cuda.mapped(granule, 3, exportable()));
  });
  table.add("ptr.access_flags", [](Environment& cuda) {
    return attribute(cuda, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  });
  table.add("ptr.mapping_size_base", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, 2 * granule);
    cuda.grant(address, 2 * granule);
    unsigned long long size = 0;
    unsigned long long base = 0;
    const CUresult result = cuda->cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, address + granule);
    cuda.expect("base", cuda->cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, address + granule));
    return slashes({result, base == address ? "base" : "other", std::to_string(size / mebibyte) + "MiB"});
  });
}

void add_ranges(Table& table) {
  table.add("ptr.address_range", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, granule);
    cuda.map_new(address + granule, 2 * granule);
    cuda.grant(address, 3 * granule);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult result = cuda->cuMemGetAddressRange(&base, &size, address + granule + 5);
    const char* what = base == address ? "reservation" : base == address + granule ? "mapping" : "other";
    return slashes({result, what, std::to_string(size / mebibyte) + "MiB"});
  });
  table.add("ptr.address_range_no_access", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult result = cuda->cuMemGetAddressRange(&base, &size, address + 5);
    return slashes({result, base == address ? "mapping" : "other", std::to_string(size / mebibyte) + "MiB"});
  });
  table.add("ptr.address_range_reserved", [](Environment& cuda) {
    CUdeviceptr base = 0;
    std::size_t size = 0;
    return cuda->cuMemGetAddressRange(&base, &size, cuda.reserve(granule));
  });
  table.add("memfree.vmm_ptr", [](Environment& cuda) { return cuda->cuMemFree(cuda.mapped()); });
  table.add("memfree.vmm_ptr_no_access", [](Environment& cuda) { return cuda->cuMemFree(cuda.mapped(granule, 0)); });
  table.add("memfree.reserved", [](Environment& cuda) { return cuda->cuMemFree(cuda.reserve(granule)); });
}

}  // namespace

void add_pointer_cases(Table& table) {
  add_attributes(table);
  add_ranges(table);
}

}  // namespace cuvmm::conformance
