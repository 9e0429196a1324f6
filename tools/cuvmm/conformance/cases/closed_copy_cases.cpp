// Copies to and from host memory that no device may touch: mappings that were granted to the host alone, and memory of
// pools that let nobody in. Each is the first and last copy of its process, since one that the driver makes by itself
// may end that.
#include <string>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

// What is copied to and from: the closed memory, a device's, an ordinary word of the process.
struct Ends {
  CUdeviceptr closed = 0, open = 0;
  unsigned word = 3;
  CUstream stream = nullptr;
};

struct Copy {
  const char* name;
  CUresult (*make)(Environment&, Ends&);
};

constexpr std::size_t bytes = 4;

constexpr Copy copies[] = {
    {"source_of_HtoD",
     [](Environment& cuda, Ends& ends) { return cuda->cuMemcpyHtoD(ends.open, as_pointer(ends.closed), bytes); }},
    {"destination_of_DtoH",
     [](Environment& cuda, Ends& ends) { return cuda->cuMemcpyDtoH(as_pointer(ends.closed), ends.open, bytes); }},
    {"destination_of_HtoDAsync",
     [](Environment& cuda, Ends& ends) {
       return cuda->cuMemcpyHtoDAsync(ends.closed, &ends.word, bytes, ends.stream);
     }},
    {"source_of_DtoHAsync",
     [](Environment& cuda, Ends& ends) {
       return cuda->cuMemcpyDtoHAsync(&ends.word, ends.closed, bytes, ends.stream);
     }},
    {"source_of_HtoDAsync",
     [](Environment& cuda, Ends& ends) {
       return cuda->cuMemcpyHtoDAsync(ends.open, as_pointer(ends.closed), bytes, ends.stream);
     }},
    {"destination_of_DtoHAsync",
     [](Environment& cuda, Ends& ends) {
       return cuda->cuMemcpyDtoHAsync(as_pointer(ends.closed), ends.open, bytes, ends.stream);
     }},
    {"source_of_DtoD", [](Environment& cuda, Ends& ends) { return cuda->cuMemcpyDtoD(ends.open, ends.closed, bytes); }},
    {"source_of_DtoDAsync",
     [](Environment& cuda, Ends& ends) { return cuda->cuMemcpyDtoDAsync(ends.open, ends.closed, bytes, ends.stream); }},
    {"source_of_any", [](Environment& cuda, Ends& ends) { return cuda->cuMemcpy(ends.open, ends.closed, bytes); }},
    {"destination_of_any", [](Environment& cuda, Ends& ends) { return cuda->cuMemcpy(ends.closed, ends.open, bytes); }},
    {"source_of_any_async",
     [](Environment& cuda, Ends& ends) { return cuda->cuMemcpyAsync(ends.open, ends.closed, bytes, ends.stream); }},
    {"destination_of_any_async",
     [](Environment& cuda, Ends& ends) { return cuda->cuMemcpyAsync(ends.closed, ends.open, bytes, ends.stream); }},
    {"from_the_process",
     [](Environment& cuda, Ends& ends) { return cuda->cuMemcpy(ends.closed, as_address(&ends.word), bytes); }},
};

CUdeviceptr mapping_of_the_host(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  const CUmemAccessDesc host = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  cuda.expect("access", cuda->cuMemSetAccess(address, granule, &host, 1));
  return address;
}

CUdeviceptr memory_of_a_pool(Environment& cuda) {
  const CUmemoryPool pool = new_pool(cuda, pool_properties(0, CU_MEM_LOCATION_TYPE_HOST));
  const CUstream stream = cuda.stream();
  const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
  cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
  return memory;
}

Answer make(Environment& cuda, const Copy& copy, CUdeviceptr closed) {
  Ends ends;
  ends.closed = closed;
  ends.open = cuda.allocate();
  ends.stream = cuda.stream();
  const CUresult made = copy.make(cuda, ends);
  return commas({made, cuda->cuCtxSynchronize()});
}

}  // namespace

void add_closed_copy_cases(Table& table) {
  for (const Copy& copy : copies) {
    table.add(std::string{"closed_copy.mapping."} + copy.name,
              [copy](Environment& cuda) { return make(cuda, copy, mapping_of_the_host(cuda)); });
    table.add(std::string{"closed_copy.pool."} + copy.name,
              [copy](Environment& cuda) { return make(cuda, copy, memory_of_a_pool(cuda)); });
  }
}

}  // namespace cuvmm::conformance
