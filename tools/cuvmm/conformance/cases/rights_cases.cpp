// Two devices: who may do what with memory of either, for all rights of both.
#include <array>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

constexpr std::array rights{CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ,
                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

struct Situation {
  int owner = 0;  // the memory's device; -1 for memory of the host
  CUmemAccess_flags of_first{};
  CUmemAccess_flags of_second{};
};

CUdeviceptr mapped_in(const Situation& situation, Environment& cuda) {
  const CUmemAllocationProp properties =
      situation.owner < 0 ? host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA) : device_memory(situation.owner);
  const CUdeviceptr address = cuda.mapped(granule, 0, properties);
  const CUmemAccessDesc both[] = {access_of(0, situation.of_first), access_of(1, situation.of_second)};
  cuda.expect("access", cuda->cuMemSetAccess(address, granule, both, 2));
  return address;
}

// A write, a read, a memset, and copies within the device's own memory and that one, by the current context.
std::string touches(Environment& cuda, CUdeviceptr address) {
  const CUdeviceptr own = cuda.allocate();
  unsigned word = 1;
  return commas({cuda->cuMemcpyHtoD(address, &word, 4), cuda->cuMemcpyDtoH(&word, address, 4),
                 cuda->cuMemsetD32(address, 1, 1), cuda->cuMemcpyDtoD(address, own, 4),
                 cuda->cuMemcpyDtoD(own, address, 4)});
}

Answer touched_by_both(Environment& cuda, const Situation& situation) {
  const CUdeviceptr address = mapped_in(situation, cuda);
  const std::string seen = spaces({cuda.access(address, 0), cuda.access(address, 1)});
  const std::string by_first = touches(cuda, address);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  cuda.make_current(cuda.primary(1));
  return spaces({seen, by_first, touches(cuda, address)});
}

// The rights follow one another on the same mapping.
Answer changed(Environment& cuda, const Situation& before, const Situation& after) {
  const CUdeviceptr address = mapped_in(before, cuda);
  const CUmemAccessDesc both[] = {access_of(0, after.of_first), access_of(1, after.of_second)};
  return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address, 0), cuda.access(address, 1),
                 touches(cuda, address)});
}

void add_matrix(Table& table) {
  for (const int owner : {0, 1, -1})
    for (const CUmemAccess_flags first : rights)
      for (const CUmemAccess_flags second : rights)
        table.add(
            "rights." + (owner < 0 ? std::string{"host"} : "device_" + std::to_string(owner)) + "_memory_" +
                std::to_string(first) + "_" + std::to_string(second),
            [=](Environment& cuda) {
              return touched_by_both(cuda, {owner, first, second});
            },
            needs_two_devices);
}

void add_changes(Table& table) {
  for (const CUmemAccess_flags before : rights)
    for (const CUmemAccess_flags after : rights)
      table.add(
          "rights.changed_from_" + std::to_string(before) + "_to_" + std::to_string(after),
          [=](Environment& cuda) {
            return changed(cuda, {1, before, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                           {1, after, CU_MEM_ACCESS_FLAGS_PROT_READ});
          },
          needs_two_devices);
}

}  // namespace

void add_rights_cases(Table& table) {
  add_matrix(table);
  add_changes(table);
}

}  // namespace cuvmm::conformance
