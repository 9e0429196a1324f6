// cuMemMap: what may be mapped where.
#include <limits>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// One cuMemMap with a new reservation and a new allocation.
struct Attempt {
  std::size_t reserved = 4 * granule;
  std::size_t start = 0;  // within the reservation
  std::size_t size = granule;
  std::size_t offset = 0;  // within the allocation
  std::size_t allocated = granule;
  unsigned long long flags = 0;
};

CUresult attempt_map(Environment& cuda, const Attempt& attempt) {
  const CUdeviceptr address = cuda.reserve(attempt.reserved);
  const CUmemGenericAllocationHandle handle = cuda.create(attempt.allocated);
  return cuda->cuMemMap(address + attempt.start, attempt.size, attempt.offset, handle, attempt.flags);
}

void add_attempts(Table& table) {
  const std::pair<const char*, Attempt> attempts[] = {
      {"ok", {}},
      {"middle", {4 * granule, granule, 2 * granule, 0, 2 * granule, 0}},
      {"zero", {4 * granule, 0, 0, 0, granule, 0}},
      {"unaligned_va_64K", {4 * granule, 65536, granule, 0, granule, 0}},
      {"unaligned_size", {4 * granule, 0, granule + 4096, 0, 2 * granule, 0}},
      {"unaligned_offset", {4 * granule, 0, granule, 4096, 4 * granule, 0}},
      {"prefix", {4 * granule, 0, 2 * granule, 0, 4 * granule, 0}},
      {"suffix", {4 * granule, 0, 2 * granule, 2 * granule, 4 * granule, 0}},
      {"larger", {8 * granule, 0, 5 * granule, 0, 4 * granule, 0}},
      {"offset_past_end", {4 * granule, 0, granule, granule, granule, 0}},
      {"offset_huge", {4 * granule, 0, granule, ~(granule - 1), granule, 0}},
      {"size_huge", {4 * granule, 0, ~(granule - 1), 0, granule, 0}},
      {"flags", {4 * granule, 0, granule, 0, granule, 1}},
      {"beyond_reservation", {2 * granule, granule, 2 * granule, 0, 2 * granule, 0}},
      {"past_end", {2 * granule, 2 * granule, granule, 0, granule, 0}},
      {"past_end_1G", {2 * granule, gibibyte, granule, 0, granule, 0}},
  };
  for (const auto& [name, attempt] : attempts)
    table.add(std::string{"map."} + name,
              [attempt = attempt](Environment& cuda) { return attempt_map(cuda, attempt); });
}

void add_addresses(Table& table) {
  table.add("map.null_address",
            [](Environment& cuda) { return cuda->cuMemMap(0, granule, 0, cuda.create(granule), 0); });
  table.add("map.nowhere",
            [](Environment& cuda) { return cuda->cuMemMap(nowhere, granule, 0, cuda.create(granule), 0); });
  table.add("map.device_allocation", [](Environment& cuda) {
    const CUdeviceptr allocation = cuda.allocate(4 * granule);
    return cuda->cuMemMap((allocation + granule - 1) / granule * granule, granule, 0, cuda.create(granule), 0);
  });
  table.add("map.freed_reservation", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.expect("free", cuda->cuMemAddressFree(address, granule));
    return cuda->cuMemMap(address, granule, 0, cuda.create(granule), 0);
  });
  table.add("map_access.no_context", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.make_current(nullptr);
    const CUmemAccessDesc access = access_of(0);
    return commas({cuda->cuMemMap(address, granule, 0, handle, 0), cuda->cuMemSetAccess(address, granule, &access, 1)});
  });
}

void add_handles(Table& table) {
  table.add("map.handle_0", [](Environment& cuda) { return cuda->cuMemMap(cuda.reserve(granule), granule, 0, 0, 0); });
  table.add("map.handle_garbage",
            [](Environment& cuda) { return cuda->cuMemMap(cuda.reserve(granule), granule, 0, 0x1234, 0); });
  table.add("map.handle_released", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.expect("release", cuda->cuMemRelease(handle));
    return cuda->cuMemMap(cuda.reserve(granule), granule, 0, handle, 0);
  });
}

void add_overlaps(Table& table) {
  table.add("map.over_same", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    return cuda->cuMemMap(address, granule, 0, handle, 0);
  });
  table.add("map.over_partial", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, 2 * granule);
    return cuda->cuMemMap(address + granule, 2 * granule, 0, cuda.create(2 * granule), 0);
  });
  table.add("map.over_enclosed", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address + granule, granule);
    return cuda->cuMemMap(address, 4 * granule, 0, cuda.create(4 * granule), 0);
  });
  table.add("map.remap_other_handle", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.map_new(address, granule);
    cuda.unmap(address, granule);
    return cuda->cuMemMap(address, granule, 0, cuda.create(granule), 0);
  });
}

void add_aliases(Table& table) {
  table.add("map.alias_64x", [](Environment& cuda) -> Answer {
    const CUdeviceptr address = cuda.reserve(64 * granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    for (int i = 0; i < 64; ++i)
      if (const CUresult result = cuda->cuMemMap(address + i * granule, granule, 0, handle, 0); result != CUDA_SUCCESS)
        return joined("@", {result, i});
    const CUmemAccessDesc access = access_of(0);
    return cuda->cuMemSetAccess(address, 64 * granule, &access, 1);
  });
  table.add("map.alias_data", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.map(address + granule, granule, handle);
    cuda.grant(address, 2 * granule);
    cuda.write_word(address + 64, 21);
    return cuda.read_word(address + granule + 64);
  });
  table.add("map.alias_rights_differ", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.map(address + granule, granule, handle);
    cuda.grant(address, granule);
    cuda.grant(address + granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    return spaces({cuda.access(address), cuda.access(address + granule), cuda->cuMemsetD8(address, 1, 4),
                   cuda->cuMemsetD8(address + granule, 1, 4)});
  });
}

}  // namespace

void add_map_cases(Table& table) {
  add_attempts(table);
  add_addresses(table);
  add_handles(table);
  add_overlaps(table);
  add_aliases(table);
}

}  // namespace cuvmm::conformance
