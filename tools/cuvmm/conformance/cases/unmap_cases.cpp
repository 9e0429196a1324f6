// cuMemUnmap.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// A reservation of four granules that begins with mappings of the given sizes, in granules.
CUdeviceptr four_granules(Environment& cuda, std::initializer_list<std::size_t> mappings) {
  const CUdeviceptr address = cuda.reserve(4 * granule);
  CUdeviceptr next = address;
  for (const std::size_t granules : mappings) {
    cuda.map_new(next, granules * granule);
    next += granules * granule;
  }
  return address;
}

void add_whole(Table& table) {
  table.add("unmap.ok", [](Environment& cuda) { return cuda->cuMemUnmap(cuda.mapped(granule, 0), granule); });
  table.add("unmap.two", [](Environment& cuda) { return cuda->cuMemUnmap(four_granules(cuda, {2, 1}), 3 * granule); });
  table.add("unmap.hole_between", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {1});
    cuda.map_new(address + 2 * granule, granule);
    return cuda->cuMemUnmap(address, 3 * granule);
  });
  table.add("unmap.never_mapped", [](Environment& cuda) { return cuda->cuMemUnmap(four_granules(cuda, {}), granule); });
  table.add("unmap.whole_reservation_part_mapped", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {1});
    cuda.grant(address, granule);
    return spaces({cuda->cuMemUnmap(address, 4 * granule), cuda.access(address)});
  });
  table.add("unmap.twice", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0);
    cuda.unmap(address, granule);
    return cuda->cuMemUnmap(address, granule);
  });
}

void add_parts(Table& table) {
  table.add("unmap.zero", [](Environment& cuda) { return cuda->cuMemUnmap(cuda.mapped(granule, 0), 0); });
  table.add("unmap.part_first", [](Environment& cuda) { return cuda->cuMemUnmap(four_granules(cuda, {4}), granule); });
  table.add("unmap.part_last",
            [](Environment& cuda) { return cuda->cuMemUnmap(four_granules(cuda, {4}) + 2 * granule, 2 * granule); });
  table.add("unmap.part_middle", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {4});
    return spaces({cuda->cuMemUnmap(address + granule, granule), cuda.access(address)});
  });
  table.add("unmap.unaligned",
            [](Environment& cuda) { return cuda->cuMemUnmap(four_granules(cuda, {4}) + 4096, granule); });
  table.add("unmap.unaligned_size", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {4});
    return spaces({cuda->cuMemUnmap(address, 4 * granule - 4096), cuda.access(address)});
  });
  table.add("unmap.unaligned_never_mapped",
            [](Environment& cuda) { return cuda->cuMemUnmap(four_granules(cuda, {}) + 4096, granule); });
  table.add("unmap.one_and_half", [](Environment& cuda) {
    return cuda->cuMemUnmap(four_granules(cuda, {2, 2}), 3 * granule);
  });
  table.add("unmap.refused_leaves_all", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {2, 2});
    cuda.grant(address, 4 * granule);
    return spaces({cuda->cuMemUnmap(address, 3 * granule), cuda.access(address), cuda.access(address + 2 * granule)});
  });
}

void add_outside(Table& table) {
  table.add("unmap.nowhere", [](Environment& cuda) { return cuda->cuMemUnmap(nowhere, granule); });
  table.add("unmap.null", [](Environment& cuda) { return cuda->cuMemUnmap(0, granule); });
  table.add("unmap.device_allocation",
            [](Environment& cuda) { return cuda->cuMemUnmap(cuda.allocate(granule), granule); });
  table.add("unmap.beyond_reservation", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {4});
    return spaces({cuda->cuMemUnmap(address, 5 * granule), cuda.access(address)});
  });
  table.add("unmap.far_beyond_reservation", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {1});
    return spaces({cuda->cuMemUnmap(address, gibibyte), cuda.access(address)});
  });
  table.add("unmap.size_overflow", [](Environment& cuda) {
    const CUdeviceptr address = four_granules(cuda, {1});
    return spaces({cuda->cuMemUnmap(address, ~(granule - 1)), cuda.access(address)});
  });
  table.add("unmap.freed_reservation", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.expect("free", cuda->cuMemAddressFree(address, granule));
    return cuda->cuMemUnmap(address, granule);
  });
  table.add("unmap.mapping_beyond_reservation", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map_new(address + granule, 2 * granule);
    return spaces({cuda->cuMemUnmap(address + granule, 2 * granule), cuda->cuMemAddressFree(address, 2 * granule)});
  });
}

}  // namespace

void add_unmap_cases(Table& table) {
  add_whole(table);
  add_parts(table);
  add_outside(table);
}

}  // namespace cuvmm::conformance
