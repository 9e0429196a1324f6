// cuMemGetInfo: what is counted, and in which steps.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

std::size_t free_bytes(Environment& cuda) {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda.expect("info", cuda->cuMemGetInfo(&free, &total));
  return free;
}

// By how many KiB free memory shrank; negative if it grew.
long long shrunk_by(Environment& cuda, std::size_t before) {
  return (static_cast<long long>(before) - static_cast<long long>(free_bytes(cuda))) / 1024;
}

void add_arguments(Table& table) {
  table.add("memory_info.null_free", [](Environment& cuda) {
    std::size_t total = 0;
    return cuda->cuMemGetInfo(nullptr, &total);
  });
  table.add("memory_info.null_total", [](Environment& cuda) {
    std::size_t free = 0;
    return cuda->cuMemGetInfo(&free, nullptr);
  });
  table.add("memory_info.null_both", [](Environment& cuda) { return cuda->cuMemGetInfo(nullptr, nullptr); });
  table.add("memory_info.total_is_the_devices", [](Environment& cuda) {
    std::size_t free = 0;
    std::size_t total = 0;
    std::size_t of_device = 0;
    const CUresult result = cuda->cuMemGetInfo(&free, &total);
    cuda.expect("total", cuda->cuDeviceTotalMem(&of_device, 0));
    return slashes({result, total == of_device ? "equal" : "differs", free < total ? "less free" : "all free"});
  });
}

void add_allocations(Table& table) {
  for (const std::size_t size : {std::size_t{1}, mebibyte, mebibyte + 1, granule, granule + 1, 64 * mebibyte})
    table.add(
        "memory_info.allocated_" + std::to_string(size),
        [size](Environment& cuda) {
          cuda.allocate(1);  // what the first allocation costs once is not asked here
          const std::size_t before = free_bytes(cuda);
          cuda.allocate(size);
          return shrunk_by(cuda, before);
        },
        needs_alone);
  table.add(
      "memory_info.allocated_and_freed",
      [](Environment& cuda) {
        const std::size_t before = free_bytes(cuda);
        cuda.expect("free", cuda->cuMemFree(cuda.allocate(64 * mebibyte)));
        return shrunk_by(cuda, before);
      },
      needs_alone);
  table.add(
      "memory_info.host_allocation",
      [](Environment& cuda) {
        cuda.allocate_host();
        const std::size_t before = free_bytes(cuda);
        cuda.allocate_host(64 * mebibyte);
        return shrunk_by(cuda, before) < 32LL * 1024 ? "not counted" : "counted";
      },
      needs_alone);
}

void add_physical_memory(Table& table) {
  table.add(
      "memory_info.created_and_released",
      [](Environment& cuda) {
        const std::size_t before = free_bytes(cuda);
        const CUmemGenericAllocationHandle handle = cuda.create(64 * mebibyte);
        const long long created = shrunk_by(cuda, before);
        cuda.expect("release", cuda->cuMemRelease(handle));
        return spaces({created, shrunk_by(cuda, before)});
      },
      needs_alone);
  table.add(
      "memory_info.released_while_mapped",
      [](Environment& cuda) {
        const CUdeviceptr address = cuda.reserve(64 * mebibyte);
        const std::size_t before = free_bytes(cuda);
        const CUmemGenericAllocationHandle handle = cuda.create(64 * mebibyte);
        cuda.map(address, 64 * mebibyte, handle);
        cuda.expect("release", cuda->cuMemRelease(handle));
        const bool held = shrunk_by(cuda, before) >= 60LL * 1024;
        cuda.unmap(address, 64 * mebibyte);
        const bool returned = shrunk_by(cuda, before) < 4LL * 1024;
        return spaces({held ? "held" : "gone", returned ? "returned" : "kept"});
      },
      needs_alone);
  table.add(
      "memory_info.held_by_descriptor",
      [](Environment& cuda) {
        const std::size_t before = free_bytes(cuda);
        const Exported exported = cuda.export_new(64 * mebibyte);
        cuda.expect("release", cuda->cuMemRelease(exported.handle));
        return shrunk_by(cuda, before) >= 60LL * 1024 ? "held" : "gone";
      },
      needs_alone);
}

}  // namespace

void add_memory_info_cases(Table& table) {
  add_arguments(table);
  add_allocations(table);
  add_physical_memory(table);
}

}  // namespace cuvmm::conformance
