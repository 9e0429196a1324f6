// cuMemAlloc, cuMemFree, cuMemGetAddressRange.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

CUresult try_allocate(Environment& cuda, std::size_t size) {
  CUdeviceptr address = 0;
  return cuda->cuMemAlloc(&address, size);
}

// "OK/start+0/1000": where the driver says that the range around an address begins, and how long it is.
std::string range(Environment& cuda, CUdeviceptr address, CUdeviceptr start) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult result = cuda->cuMemGetAddressRange(&base, &size, address);
  if (result != CUDA_SUCCESS) return result_name(result);
  return slashes({result, base == start ? "start" : "other", size});
}

void add_sizes(Table& table) {
  const std::pair<const char*, std::size_t> sizes[] = {{"zero", 0},
                                                       {"one_byte", 1},
                                                       {"over_card", 200 * gibibyte},
                                                       {"2^50", std::size_t{1} << 50},
                                                       {"2^63", std::size_t{1} << 63},
                                                       {"all", ~std::size_t{0}}};
  for (const auto& [name, size] : sizes)
    table.add(std::string{"alloc."} + name, [size = size](Environment& cuda) { return try_allocate(cuda, size); });
  table.add("alloc.null_out", [](Environment& cuda) { return cuda->cuMemAlloc(nullptr, 4096); });
  table.add("alloc.zero_writes_nothing", [](Environment& cuda) {
    CUdeviceptr address = 99;
    const CUresult result = cuda->cuMemAlloc(&address, 0);
    return slashes({result, address});
  });
}

void add_alignments(Table& table) {
  table.add("alloc.small_ones_aligned_to", [](Environment& cuda) {
    CUdeviceptr together = 0;
    for (int i = 0; i < 8; ++i) together |= cuda.allocate(1);
    return together & (~together + 1);
  });
  table.add("alloc.small_ones_apart_by", [](Environment& cuda) {
    const CUdeviceptr first = cuda.allocate(1);
    const CUdeviceptr second = cuda.allocate(1);
    return first < second ? second - first : first - second;
  });
  table.add("alloc.large_ones_aligned_to_2MiB", [](Environment& cuda) {
    return (cuda.allocate(3 * mebibyte) | cuda.allocate(5 * mebibyte)) % granule == 0 ? "yes" : "no";
  });
}

void add_frees(Table& table) {
  table.add("alloc.free", [](Environment& cuda) { return cuda->cuMemFree(cuda.allocate()); });
  table.add("alloc.free_null", [](Environment& cuda) { return cuda->cuMemFree(0); });
  table.add("alloc.free_garbage", [](Environment& cuda) { return cuda->cuMemFree(0x1234); });
  table.add("alloc.free_nowhere", [](Environment& cuda) { return cuda->cuMemFree(nowhere); });
  table.add("alloc.free_middle", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate();
    return commas({cuda->cuMemFree(address + 4096), cuda->cuMemFree(address)});
  });
  table.add("alloc.free_twice", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate();
    return commas({cuda->cuMemFree(address), cuda->cuMemFree(address)});
  });
  table.add("alloc.free_stack", [](Environment& cuda) {
    const int local = 0;
    return cuda->cuMemFree(as_address(&local));
  });
  table.add("alloc.free_host_alloc",
            [](Environment& cuda) { return cuda->cuMemFree(as_address(cuda.allocate_host())); });
  table.add("alloc.free_from_other_context", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate();
    cuda.new_context();
    return cuda->cuMemFree(address);
  });
}

void add_ranges(Table& table) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, mebibyte, 3 * mebibyte + 5})
    table.add("alloc.range_of_" + std::to_string(size), [size](Environment& cuda) {
      const CUdeviceptr address = cuda.allocate(size);
      return spaces({range(cuda, address, address), range(cuda, address + size - 1, address)});
    });
  table.add("alloc.range_past_end", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(64 * mebibyte);
    return range(cuda, address + 64 * mebibyte, address);
  });
  table.add("alloc.range_past_end_of_small", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(1000);
    return range(cuda, address + 1000, address);
  });
  table.add("alloc.range_of_freed", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(64 * mebibyte);
    cuda.expect("free", cuda->cuMemFree(address));
    return range(cuda, address, address);
  });
  table.add("alloc.range_of_null", [](Environment& cuda) { return range(cuda, 0, 0); });
  table.add("alloc.range_of_host_alloc", [](Environment& cuda) {
    const CUdeviceptr address = as_address(cuda.allocate_host(10000));
    return range(cuda, address + 5, address);
  });
  table.add("alloc.range_of_stack", [](Environment& cuda) {
    const int local = 0;
    return range(cuda, as_address(&local), as_address(&local));
  });
  table.add("alloc.range_null_outputs", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate();
    CUdeviceptr base = 0;
    std::size_t size = 0;
    return commas({cuda->cuMemGetAddressRange(nullptr, &size, address),
                   cuda->cuMemGetAddressRange(&base, nullptr, address),
                   cuda->cuMemGetAddressRange(nullptr, nullptr, address)});
  });
}

}  // namespace

void add_alloc_cases(Table& table) {
  add_sizes(table);
  add_alignments(table);
  add_frees(table);
  add_ranges(table);
}

}  // namespace cuvmm::conformance
