// cuMemSetAccess and cuMemGetAccess.
#include <array>
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

CUresult set_access(Environment& cuda, CUdeviceptr address, std::size_t size, const CUmemAccessDesc& access) {
  return cuda->cuMemSetAccess(address, size, &access, 1);
}

// A reservation of `granules`, mapped whole to one allocation, without access.
CUdeviceptr mapped_without_access(Environment& cuda, std::size_t granules = 1) {
  return cuda.mapped(granules * granule, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

void add_arguments(Table& table) {
  table.add("access.unmapped",
            [](Environment& cuda) { return set_access(cuda, cuda.reserve(granule), granule, access_of(0)); });
  table.add("access.count_0", [](Environment& cuda) {
    const CUmemAccessDesc access = access_of(0);
    return cuda->cuMemSetAccess(mapped_without_access(cuda), granule, &access, 0);
  });
  table.add("access.null",
            [](Environment& cuda) { return cuda->cuMemSetAccess(mapped_without_access(cuda), granule, nullptr, 1); });
  table.add("access.size_0",
            [](Environment& cuda) { return set_access(cuda, mapped_without_access(cuda), 0, access_of(0)); });
  table.add("access.unaligned_size",
            [](Environment& cuda) { return set_access(cuda, mapped_without_access(cuda), 4096, access_of(0)); });
  table.add("access.unaligned_va", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, 2 * granule);
    return set_access(cuda, address + 4096, granule, access_of(0));
  });
  table.add("access.null_address", [](Environment& cuda) { return set_access(cuda, 0, granule, access_of(0)); });
  table.add("access.nowhere", [](Environment& cuda) { return set_access(cuda, nowhere, granule, access_of(0)); });
  table.add("access.device_allocation",
            [](Environment& cuda) { return set_access(cuda, cuda.allocate(granule), granule, access_of(0)); });
}

void add_ranges(Table& table) {
  table.add("access.part_of_mapping", [](Environment& cuda) {
    const CUdeviceptr address = mapped_without_access(cuda, 4);
    return spaces(
        {set_access(cuda, address, granule, access_of(0)), cuda.access(address), cuda.access(address + granule)});
  });
  table.add("access.two_mappings", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, 2 * granule);
    cuda.map_new(address + 2 * granule, granule);
    return spaces({set_access(cuda, address, 3 * granule, access_of(0)), cuda.access(address),
                   cuda.access(address + 2 * granule)});
  });
  table.add("access.mapped_then_unmapped", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, granule);
    return spaces({set_access(cuda, address, 4 * granule, access_of(0)), cuda.access(address)});
  });
  table.add("access.unmapped_then_mapped", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address + 3 * granule, granule);
    return spaces({set_access(cuda, address, 4 * granule, access_of(0)), cuda.access(address + 3 * granule)});
  });
  table.add("access.hole_between", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, granule);
    cuda.map_new(address + 2 * granule, granule);
    return spaces({set_access(cuda, address, 3 * granule, access_of(0)), cuda.access(address),
                   cuda.access(address + granule), cuda.access(address + 2 * granule)});
  });
  table.add("access.second_mapping_only", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, 2 * granule);
    cuda.map_new(address + 2 * granule, granule);
    return spaces({set_access(cuda, address + 2 * granule, granule, access_of(0)), cuda.access(address),
                   cuda.access(address + 2 * granule)});
  });
  table.add("access.one_and_half_mappings", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, 2 * granule);
    cuda.map_new(address + 2 * granule, 2 * granule);
    return spaces({set_access(cuda, address, 3 * granule, access_of(0)), cuda.access(address),
                   cuda.access(address + 2 * granule)});
  });
  table.add("access.beyond_reservation", [](Environment& cuda) {
    const CUdeviceptr address = mapped_without_access(cuda, 2);
    return spaces({set_access(cuda, address, 3 * granule, access_of(0)), cuda.access(address)});
  });
}

void add_flags(Table& table) {
  for (const int flags : {0, 1, 2, 3, 4})
    table.add("access.flag_" + std::to_string(flags), [flags](Environment& cuda) {
      const CUdeviceptr address = mapped_without_access(cuda);
      return spaces({set_access(cuda, address, granule, access_of(0, flags)), cuda.access(address)});
    });
  table.add("access.read_write_to_read_only", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    return spaces(
        {set_access(cuda, address, granule, access_of(0, 1)), cuda.access(address), cuda->cuMemsetD8(address, 1, 4)});
  });
  table.add("access.read_only_to_read_write", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    return spaces(
        {set_access(cuda, address, granule, access_of(0, 3)), cuda.access(address), cuda->cuMemsetD8(address, 1, 4)});
  });
  table.add("access.revoked_then_copy", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    unsigned word = 0;
    return spaces({set_access(cuda, address, granule, access_of(0, 0)), cuda.access(address),
                   cuda->cuMemcpyDtoH(&word, address, 4), cuda->cuMemsetD8(address, 1, 4)});
  });
  table.add("access.revoked_and_granted_keeps_data", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 33);
    cuda.grant(address, granule, 0);
    cuda.grant(address, granule);
    return cuda.read_word(address);
  });
}

void add_descriptors(Table& table) {
  table.add("access.device_99",
            [](Environment& cuda) { return set_access(cuda, mapped_without_access(cuda), granule, access_of(99)); });
  table.add("access.device_-1",
            [](Environment& cuda) { return set_access(cuda, mapped_without_access(cuda), granule, access_of(-1)); });
  table.add("access.valid_and_invalid", [](Environment& cuda) {
    const CUdeviceptr address = mapped_without_access(cuda);
    const CUmemAccessDesc both[] = {access_of(0), access_of(99)};
    return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address)});
  });
  table.add("access.twice_same_location", [](Environment& cuda) {
    const CUdeviceptr address = mapped_without_access(cuda);
    const CUmemAccessDesc both[] = {access_of(0, 3), access_of(0, 1)};
    return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address)});
  });
  table.add("access.granted_and_revoked_in_one_list", [](Environment& cuda) {
    const CUdeviceptr address = mapped_without_access(cuda);
    const CUmemAccessDesc both[] = {access_of(0, 3), access_of(0, 0)};
    return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address)});
  });
  table.add("access.4096_descriptors", [](Environment& cuda) {
    const CUdeviceptr address = mapped_without_access(cuda);
    const std::vector<CUmemAccessDesc> many(4096, access_of(0));
    return spaces({cuda->cuMemSetAccess(address, granule, many.data(), many.size()), cuda.access(address)});
  });
  for (const int type : {0, 2, 3, 4, 5})
    table.add("access.location_type_" + std::to_string(type) + "_on_device_memory", [type](Environment& cuda) {
      const CUdeviceptr address = mapped_without_access(cuda);
      return spaces({set_access(cuda, address, granule, access_of(0, 3, type)), cuda.access(address, 0, type)});
    });
}

void add_queries(Table& table) {
  table.add("access.getaccess_fresh", [](Environment& cuda) { return cuda.access(mapped_without_access(cuda)); });
  table.add("access.getaccess_unmapped", [](Environment& cuda) { return cuda.access(cuda.reserve(granule)); });
  table.add("access.getaccess_nowhere", [](Environment& cuda) { return cuda.access(nowhere); });
  table.add("access.getaccess_null_address", [](Environment& cuda) { return cuda.access(0); });
  table.add("access.getaccess_inside",
            [](Environment& cuda) { return cuda.access(cuda.mapped(4 * granule) + granule + 123); });
  table.add("access.getaccess_device_99", [](Environment& cuda) { return cuda.access(cuda.mapped(), 99); });
  table.add("access.getaccess_device_-1", [](Environment& cuda) { return cuda.access(cuda.mapped(), -1); });
  table.add("access.getaccess_device_allocation", [](Environment& cuda) { return cuda.access(cuda.allocate()); });
  table.add("access.getaccess_stack", [](Environment& cuda) {
    const int local = 0;
    return cuda.access(as_address(&local));
  });
  table.add("access.getaccess_null_location", [](Environment& cuda) {
    unsigned long long flags = 99;
    const CUresult result = cuda->cuMemGetAccess(&flags, nullptr, cuda.mapped());
    return slashes({result, flags});
  });
  table.add("access.getaccess_null_flags", [](Environment& cuda) {
    const CUmemLocation where = location(0);
    return cuda->cuMemGetAccess(nullptr, &where, cuda.mapped());
  });
  table.add("access.after_remap", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    const CUmemGenericAllocationHandle handle = cuda.create(granule);
    cuda.map(address, granule, handle);
    cuda.grant(address, granule);
    cuda.unmap(address, granule);
    cuda.map(address, granule, handle);
    return cuda.access(address);
  });
}

}  // namespace

void add_access_cases(Table& table) {
  add_arguments(table);
  add_ranges(table);
  add_flags(table);
  add_descriptors(table);
  add_queries(table);
}

}  // namespace cuvmm::conformance
