// cuMemsetD8, D16, D32, and their asynchronous forms.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

void add_alignment(Table& table) {
  table.add("memset.d8_odd_address", [](Environment& cuda) { return cuda->cuMemsetD8(cuda.mapped() + 1, 1, 3); });
  for (const int offset : {0, 1, 2})
    table.add("memset.d16_offset_" + std::to_string(offset),
              [offset](Environment& cuda) { return cuda->cuMemsetD16(cuda.mapped() + offset, 1, 4); });
  for (const int offset : {0, 1, 2, 4})
    table.add("memset.d32_offset_" + std::to_string(offset),
              [offset](Environment& cuda) { return cuda->cuMemsetD32(cuda.mapped() + offset, 1, 4); });
  table.add("memset.async_misaligned", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemsetD16Async(address + 1, 1, 4, stream), cuda->cuMemsetD32Async(address + 2, 1, 4, stream),
                   cuda->cuStreamSynchronize(stream)});
  });
}

void add_ranges(Table& table) {
  table.add("memset.past", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    cuda.map_new(address, granule);
    cuda.grant(address, granule);
    return cuda->cuMemsetD8(address, 0, 2 * granule);
  });
  table.add("memset.past_allocation",
            [](Environment& cuda) { return cuda->cuMemsetD8(cuda.allocate(4 * granule), 0, 5 * granule); });
  table.add("memset.one_byte_past_small_allocation",
            [](Environment& cuda) { return cuda->cuMemsetD8(cuda.allocate(1000), 0, 1001); });
  table.add("memset.across_two_mappings", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map_new(address, granule);
    cuda.map_new(address + granule, granule);
    cuda.grant(address, 2 * granule);
    const CUresult result = cuda->cuMemsetD32(address, 0x01020304, 2 * granule / 4);
    return slashes({result, cuda.read_word(address + 2 * granule - 4)});
  });
  table.add("memset.into_neighbour_without_access", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map_new(address, granule);
    cuda.map_new(address + granule, granule);
    cuda.grant(address, granule);
    return cuda->cuMemsetD8(address, 1, 2 * granule);
  });
  table.add("memset.count_overflow",
            [](Environment& cuda) { return cuda->cuMemsetD32(cuda.mapped(), 1, (~std::size_t{0} >> 2) + 2); });
  table.add("memset.zero_count", [](Environment& cuda) {
    return commas({cuda->cuMemsetD8(0, 1, 0), cuda->cuMemsetD8(nowhere, 1, 0), cuda->cuMemsetD32(nowhere + 1, 1, 0),
                   cuda->cuMemsetD8(cuda.mapped(granule, 0), 1, 0)});
  });
}

void add_places(Table& table) {
  table.add("memset.null", [](Environment& cuda) { return cuda->cuMemsetD8(0, 1, 4); });
  table.add("memset.pinned", [](Environment& cuda) {
    auto* pinned = static_cast<unsigned*>(cuda.allocate_host());
    const CUresult result = cuda->cuMemsetD32(as_address(pinned), 77, 1);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return slashes({result, *pinned});
  });
  table.add("memset.stack", [](Environment& cuda) {
    unsigned place = 0;
    return cuda->cuMemsetD32(as_address(&place), 77, 1);
  });
  table.add("memset.async_no_access", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemsetD8Async(cuda.mapped(granule, 0), 1, 4, stream),
                   cuda->cuMemsetD8Async(cuda.mapped(granule, 1), 1, 4, stream), cuda->cuStreamSynchronize(stream)});
  });
}

void add_values(Table& table) {
  table.add("memset.values", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.expect("memset", cuda->cuMemsetD8(address, 0x11, 4));
    cuda.expect("memset", cuda->cuMemsetD16(address + 4, 0x2222, 2));
    cuda.expect("memset", cuda->cuMemsetD32(address + 8, 0x33333333, 1));
    return commas({cuda.read_word(address), cuda.read_word(address + 4), cuda.read_word(address + 8)});
  });
}

}  // namespace

void add_memset_cases(Table& table) {
  add_alignment(table);
  add_ranges(table);
  add_places(table);
  add_values(table);
}

}  // namespace cuvmm::conformance
