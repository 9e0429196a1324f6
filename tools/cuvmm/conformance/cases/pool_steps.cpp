#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

CUmemPoolProps pool_properties(int id, int location_type, std::size_t max_size) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = location(id, location_type);
  properties.maxSize = max_size;
  return properties;
}

CUmemoryPool new_pool(Environment& cuda, const CUmemPoolProps& properties) {
  CUmemoryPool pool = nullptr;
  cuda.expect("create pool", cuda->cuMemPoolCreate(&pool, &properties));
  return pool;
}

CUdeviceptr allocate_from(Environment& cuda, CUmemoryPool pool, std::size_t bytes, CUstream stream) {
  CUdeviceptr address = 0;
  cuda.expect("allocate", cuda->cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
  return address;
}

CUresult try_allocate_from(Environment& cuda, CUmemoryPool pool, std::size_t bytes, CUstream stream) {
  CUdeviceptr address = 0;
  return cuda->cuMemAllocFromPoolAsync(&address, bytes, pool, stream);
}

std::string numbers(Environment& cuda, CUmemoryPool pool) {
  const auto number = [&](CUmemPool_attribute attribute) {
    std::uint64_t value = 0;
    cuda.expect("attribute", cuda->cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  };
  return slashes({number(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) / mebibyte,
                  number(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) / mebibyte, number(CU_MEMPOOL_ATTR_USED_MEM_CURRENT),
                  number(CU_MEMPOOL_ATTR_USED_MEM_HIGH)});
}

}  // namespace cuvmm::conformance
