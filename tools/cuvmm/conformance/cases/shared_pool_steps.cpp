#include "conformance/cases/shared_pool_steps.hpp"

#include <array>

namespace cuvmm::conformance {

namespace {

CUmemoryPool shareable(Environment& cuda, CUmemPoolProps properties) {
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return new_pool(cuda, properties);
}

}  // namespace

CUmemoryPool shareable_pool(Environment& cuda, int device, std::size_t max_size) {
  return shareable(cuda, pool_properties(device, CU_MEM_LOCATION_TYPE_DEVICE, max_size));
}

CUmemoryPool shareable_host_pool(Environment& cuda) {
  return shareable(cuda, pool_properties(0, CU_MEM_LOCATION_TYPE_HOST_NUMA));
}

int exported_pool(Environment& cuda, CUmemoryPool pool) {
  int descriptor = -1;
  cuda.expect("export pool",
              cuda->cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return descriptor;
}

CUmemoryPool imported_pool(Environment& cuda, int descriptor) {
  CUmemoryPool pool = nullptr;
  cuda.expect("import pool", cuda->cuMemPoolImportFromShareableHandle(&pool, as_os_handle(descriptor),
                                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return pool;
}

CUmemPoolPtrExportData exported_pointer(Environment& cuda, CUdeviceptr address) {
  CUmemPoolPtrExportData data{};
  cuda.expect("export pointer", cuda->cuMemPoolExportPointer(&data, address));
  return data;
}

namespace {

SharedAllocation exported_allocation(Environment& cuda, CUmemoryPool pool, std::size_t bytes) {
  SharedAllocation made{pool, exported_pool(cuda, pool), cuda.stream(), 0};
  made.address = allocate_from(cuda, made.pool, bytes, made.stream);
  cuda.expect("synchronize", cuda->cuStreamSynchronize(made.stream));
  return made;
}

}  // namespace

SharedAllocation shared_host_allocation(Environment& cuda, std::size_t bytes) {
  const SharedAllocation made = exported_allocation(cuda, shareable_host_pool(cuda), bytes);
  auto* const words = static_cast<unsigned*>(as_pointer(made.address));
  words[0] = 66;
  words[bytes / sizeof *words - 1] = 67;
  return made;
}

SharedAllocation shared_allocation(Environment& cuda, CUmemoryPool pool, std::size_t bytes) {
  const SharedAllocation made = exported_allocation(cuda, pool, bytes);
  cuda.write_word(made.address, 66);
  cuda.write_word(made.address + bytes - 4, 67);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  return made;
}

SharedAllocation shared_allocation(Environment& cuda, std::size_t bytes) {
  return shared_allocation(cuda, shareable_pool(cuda), bytes);
}

std::string told_of_pointer(Environment& cuda, int attribute, CUdeviceptr pointer, CUmemoryPool pool) {
  std::array<unsigned long long, 2> data{};
  const CUresult got = cuda->cuPointerGetAttribute(data.data(), static_cast<CUpointer_attribute>(attribute), pointer);
  const unsigned long long value = data[0];
  if (value == pointer) return slashes({got, "begin"});
  if (value == reinterpret_cast<std::uintptr_t>(pool)) return slashes({got, "pool"});
  if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR && value != 0 && value < pointer)
    return slashes({got, "begin-" + std::to_string(pointer - value)});
  return value > 1024 * gibibyte ? slashes({got, "number"}) : slashes({got, value});
}

}  // namespace cuvmm::conformance
