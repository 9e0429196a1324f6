// cuMemHostAlloc, cuMemAllocHost, cuMemFreeHost.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

CUresult try_allocate(Environment& cuda, std::size_t size, unsigned flags = 0) {
  void* pointer = nullptr;
  return cuda->cuMemHostAlloc(&pointer, size, flags);
}

std::string flags_of(Environment& cuda, void* pointer) {
  unsigned flags = 99;
  const CUresult result = cuda->cuMemHostGetFlags(&flags, pointer);
  return slashes({result, flags});
}

std::string device_pointer_of(Environment& cuda, void* pointer, unsigned flags = 0) {
  CUdeviceptr address = 0;
  const CUresult result = cuda->cuMemHostGetDevicePointer(&address, pointer, flags);
  if (result != CUDA_SUCCESS) return result_name(result);
  return slashes({result, address == as_address(pointer) ? "same" : "other"});
}

void add_arguments(Table& table) {
  table.add("host_alloc.zero", [](Environment& cuda) { return try_allocate(cuda, 0); });
  table.add("host_alloc.one_byte", [](Environment& cuda) { return try_allocate(cuda, 1); });
  table.add("host_alloc.2^50", [](Environment& cuda) { return try_allocate(cuda, std::size_t{1} << 50); });
  table.add("host_alloc.all", [](Environment& cuda) { return try_allocate(cuda, ~std::size_t{0}); });
  table.add("host_alloc.null_out", [](Environment& cuda) { return cuda->cuMemHostAlloc(nullptr, 4096, 0); });
  table.add("host_alloc.plain_zero", [](Environment& cuda) {
    void* pointer = nullptr;
    return cuda->cuMemAllocHost(&pointer, 0);
  });
  table.add("host_alloc.plain_null_out", [](Environment& cuda) { return cuda->cuMemAllocHost(nullptr, 4096); });
  for (const unsigned flags : {0U, 1U, 2U, 3U, 4U, 7U, 8U, 16U})
    table.add("host_alloc.flags_" + std::to_string(flags), [flags](Environment& cuda) -> Answer {
      void* pointer = nullptr;
      const CUresult result = cuda->cuMemHostAlloc(&pointer, 4096, flags);
      if (result != CUDA_SUCCESS) return result;
      return spaces({result, flags_of(cuda, pointer), device_pointer_of(cuda, pointer)});
    });
  table.add("host_alloc.plain_flags", [](Environment& cuda) {
    void* pointer = nullptr;
    cuda.expect("allocate", cuda->cuMemAllocHost(&pointer, 4096));
    return spaces({flags_of(cuda, pointer), device_pointer_of(cuda, pointer)});
  });
}

void add_questions(Table& table) {
  table.add("host_alloc.inside", [](Environment& cuda) {
    char* pointer = static_cast<char*>(cuda.allocate_host()) + 100;
    return spaces({flags_of(cuda, pointer), device_pointer_of(cuda, pointer)});
  });
  table.add("host_alloc.device_pointer_flags_1",
            [](Environment& cuda) { return device_pointer_of(cuda, cuda.allocate_host(), 1); });
  table.add("host_alloc.device_pointer_null_out",
            [](Environment& cuda) { return cuda->cuMemHostGetDevicePointer(nullptr, cuda.allocate_host(), 0); });
  table.add("host_alloc.device_pointer_null", [](Environment& cuda) { return device_pointer_of(cuda, nullptr); });
  table.add("host_alloc.flags_null_out",
            [](Environment& cuda) { return cuda->cuMemHostGetFlags(nullptr, cuda.allocate_host()); });
  table.add("host_alloc.flags_null", [](Environment& cuda) { return flags_of(cuda, nullptr); });
  table.add("host_alloc.unknown", [](Environment& cuda) {
    int local = 0;
    return spaces({flags_of(cuda, &local), device_pointer_of(cuda, &local)});
  });
  table.add("host_alloc.of_device_memory", [](Environment& cuda) {
    void* pointer = as_pointer(cuda.allocate());
    return spaces({flags_of(cuda, pointer), device_pointer_of(cuda, pointer)});
  });
  table.add("host_alloc.of_mapping", [](Environment& cuda) {
    void* pointer = as_pointer(cuda.mapped());
    return spaces({flags_of(cuda, pointer), device_pointer_of(cuda, pointer)});
  });
  table.add("host_alloc.address_aligned_to_page", [](Environment& cuda) {
    return (as_address(cuda.allocate_host(1)) | as_address(cuda.allocate_host(1))) % 4096 == 0 ? "yes" : "no";
  });
}

void add_frees(Table& table) {
  table.add("host_alloc.free", [](Environment& cuda) { return cuda->cuMemFreeHost(cuda.allocate_host()); });
  table.add("host_alloc.free_null", [](Environment& cuda) { return cuda->cuMemFreeHost(nullptr); });
  table.add("host_alloc.free_unknown", [](Environment& cuda) {
    int local = 0;
    return cuda->cuMemFreeHost(&local);
  });
  table.add("host_alloc.free_middle", [](Environment& cuda) {
    char* pointer = static_cast<char*>(cuda.allocate_host());
    return commas({cuda->cuMemFreeHost(pointer + 64), cuda->cuMemFreeHost(pointer)});
  });
  table.add("host_alloc.free_twice", [](Environment& cuda) {
    void* pointer = cuda.allocate_host();
    return commas({cuda->cuMemFreeHost(pointer), cuda->cuMemFreeHost(pointer)});
  });
  table.add("host_alloc.free_device_memory",
            [](Environment& cuda) { return cuda->cuMemFreeHost(as_pointer(cuda.allocate())); });
  table.add("host_alloc.free_from_other_context", [](Environment& cuda) {
    void* pointer = cuda.allocate_host();
    cuda.new_context();
    return cuda->cuMemFreeHost(pointer);
  });
  table.add("host_alloc.destroyed_with_context", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    void* pointer = cuda.allocate_host();
    cuda.expect("destroy", cuda->cuCtxDestroy(created));
    cuda.make_current(cuda.context());
    return commas({flags_of(cuda, pointer), cuda->cuMemFreeHost(pointer)});
  });
}

}  // namespace

void add_host_alloc_cases(Table& table) {
  add_arguments(table);
  add_questions(table);
  add_frees(table);
}

}  // namespace cuvmm::conformance
