// What kernels may touch. A kernel that touches anything else breaks its context.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

struct Target {
  const char* name;
  CUdeviceptr (*make)(Environment&);
};

constexpr Target targets[] = {
    {"read_write", [](Environment& cuda) { return cuda.mapped(); }},
    {"read_only", [](Environment& cuda) { return cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ); }},
    {"no_access", [](Environment& cuda) { return cuda.mapped(granule, 0); }},
    {"reserved", [](Environment& cuda) { return cuda.reserve(granule); }},
    {"unmapped",
     [](Environment& cuda) {
       const CUdeviceptr address = cuda.mapped();
       cuda.unmap(address, granule);
       return address;
     }},
    {"revoked",
     [](Environment& cuda) {
       const CUdeviceptr address = cuda.mapped();
       cuda.grant(address, granule, 0);
       return address;
     }},
    {"null", [](Environment&) { return CUdeviceptr{0}; }},
    {"misaligned", [](Environment& cuda) { return cuda.mapped() + 1; }},
    {"allocated", [](Environment& cuda) { return cuda.allocate(); }},
    {"freed",
     [](Environment& cuda) {
       const CUdeviceptr address = cuda.allocate(64 * mebibyte);
       cuda.expect("free", cuda->cuMemFree(address));
       return address;
     }},
    {"host_alloc", [](Environment& cuda) { return as_address(cuda.allocate_host()); }},
    {"host_numa",
     [](Environment& cuda) { return cuda.mapped(granule, 3, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)); }},
    {"host_numa_read_only",
     [](Environment& cuda) { return cuda.mapped(granule, 1, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)); }},
    {"beyond_mapping",
     [](Environment& cuda) {
       const CUdeviceptr address = cuda.reserve(2 * granule);
       cuda.map_new(address, granule);
       cuda.grant(address, granule);
       return address + granule;
     }},
};

}  // namespace

void add_kernel_cases(Table& table) {
  for (const Target& target : targets) {
    table.add(
        std::string{"kernel.store."} + target.name,
        [target](Environment& cuda) {
          const Kernels kernels{cuda};
          const CUdeviceptr address = target.make(cuda);
          return spaces({kernels.store(address, 5), cuda->cuCtxSynchronize()});
        },
        needs_alone);
    table.add(
        std::string{"kernel.load."} + target.name,
        [target](Environment& cuda) {
          const Kernels kernels{cuda};
          const CUdeviceptr address = target.make(cuda);
          const CUdeviceptr destination = cuda.allocate();
          return spaces({kernels.load(address, destination), cuda->cuCtxSynchronize()});
        },
        needs_alone);
  }
  table.add(
      "kernel.store_to_peer_granted_memory",
      [](Environment& cuda) {
        const Kernels kernels{cuda};
        const CUdeviceptr address = cuda.mapped(granule, 3, device_memory(1));
        return spaces({kernels.store(address, 5), cuda->cuCtxSynchronize(), cuda.read_word(address)});
      },
      needs_two_devices);
  table.add(
      "kernel.store_to_memory_granted_to_peer_only",
      [](Environment& cuda) {
        const Kernels kernels{cuda};
        const CUdeviceptr address = cuda.mapped(granule, 0);
        cuda.grant(address, granule, 3, 1);
        return spaces({kernels.store(address, 5), cuda->cuCtxSynchronize()});
      },
      needs_two_devices_alone);
}

}  // namespace cuvmm::conformance
