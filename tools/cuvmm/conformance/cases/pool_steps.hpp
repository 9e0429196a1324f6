// Steps of cases about memory pools and memory of graphs.
#pragma once

#include "conformance/cases/environment.hpp"

namespace cuvmm::conformance {

// Properties of a pool, zero but for what is named.
[[nodiscard]] CUmemPoolProps pool_properties(int id = 0, int location_type = CU_MEM_LOCATION_TYPE_DEVICE,
                                             std::size_t max_size = 0);
[[nodiscard]] CUmemoryPool new_pool(Environment& cuda, const CUmemPoolProps& properties = pool_properties());

// Allocates in the stream, and notes a failure.
[[nodiscard]] CUdeviceptr allocate_from(Environment& cuda, CUmemoryPool pool, std::size_t bytes, CUstream stream);
// The result of that alone.
[[nodiscard]] CUresult try_allocate_from(Environment& cuda, CUmemoryPool pool, std::size_t bytes, CUstream stream);

// "32/32/1000/1000": MiB reserved now and at most, bytes used now and at most.
[[nodiscard]] std::string numbers(Environment& cuda, CUmemoryPool pool);

template <class Value>
CUresult set_attribute(Environment& cuda, CUmemoryPool pool, CUmemPool_attribute attribute, Value value) {
  return cuda->cuMemPoolSetAttribute(pool, attribute, &value);
}

}  // namespace cuvmm::conformance
