// Arguments at their limits and beyond, of calls whose own groups stop before them.
#include <array>
#include <string>
#include <vector>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/kernels.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

void nothing(void*) {}

// A case for each value.
template <class Value>
void add(Table& table, const char* call, std::initializer_list<Value> values, Answer (*ask)(Environment&, Value),
         Needs needs = {}) {
  for (const Value value : values)
    table.add(
        std::string{"limit."} + call + "." + std::to_string(value),
        [ask, value](Environment& cuda) { return ask(cuda, value); }, needs);
}

void add_ordinals(Table& table) {
  const auto each = [&](const char* call, std::initializer_list<int> ordinals, Answer (*ask)(Environment&, int)) {
    add(table, call, ordinals, ask, needs_two_devices);
  };
  each("cuDeviceGet", {1, 2}, [](Environment& cuda, int ordinal) -> Answer {
    CUdevice device = -5;
    return slashes({cuda->cuDeviceGet(&device, ordinal), device});
  });
  each("cuDeviceGetName", {1, 2}, [](Environment& cuda, int device) -> Answer {
    std::array<char, 100> name{};
    return cuda->cuDeviceGetName(name.data(), static_cast<int>(name.size()), device);
  });
  each("cuDeviceGetAttribute", {1, 2}, [](Environment& cuda, int device) -> Answer {
    int value = 0;
    return slashes({cuda->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device), value});
  });
  each("cuDeviceGetDefaultMemPool", {-1, 1, 99}, [](Environment& cuda, int device) -> Answer {
    CUmemoryPool pool = nullptr;
    const CUresult got = cuda->cuDeviceGetDefaultMemPool(&pool, device);
    return slashes({got, pool == nullptr ? "null" : "pool"});
  });
  each("cuDeviceGetMemPool", {-1, 1, 99}, [](Environment& cuda, int device) -> Answer {
    CUmemoryPool pool = nullptr;
    const CUresult got = cuda->cuDeviceGetMemPool(&pool, device);
    return slashes({got, pool == nullptr ? "null" : "pool"});
  });
  each("cuDeviceSetMemPool", {-1, 99},
       [](Environment& cuda, int device) -> Answer { return cuda->cuDeviceSetMemPool(device, new_pool(cuda)); });
  each("cuDeviceGetGraphMemAttribute", {-1, 1}, [](Environment& cuda, int device) -> Answer {
    unsigned long long value = 9;
    return slashes({cuda->cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value), value});
  });
  each("cuDeviceSetGraphMemAttribute", {-1, 1, 2}, [](Environment& cuda, int device) -> Answer {
    unsigned long long value = 0;
    return cuda->cuDeviceSetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &value);
  });
  each("cuDeviceGraphMemTrim", {-1, 1},
       [](Environment& cuda, int device) -> Answer { return cuda->cuDeviceGraphMemTrim(device); });
  each("cuDevicePrimaryCtxSetFlags", {1, 2},
       [](Environment& cuda, int device) -> Answer { return cuda->cuDevicePrimaryCtxSetFlags(device, 0); });
}

void add_flags(Table& table) {
  add<unsigned>(table, "cuCtxCreate", {6, 7, 9, 12, 32, 64, 512}, [](Environment& cuda, unsigned flags) -> Answer {
    CUcontext made = nullptr;
    return cuda->cuCtxCreate(&made, flags, 0);
  });
  add<unsigned>(table, "cuDevicePrimaryCtxSetFlags_of_0", {3, 5, 6, 24, 32, 64},
                [](Environment& cuda, unsigned flags) -> Answer { return cuda->cuDevicePrimaryCtxSetFlags(0, flags); });
  add<unsigned>(table, "cuMemHostAlloc", {5, 6, 32, 0x80000000U}, [](Environment& cuda, unsigned flags) -> Answer {
    void* pointer = nullptr;
    return cuda->cuMemHostAlloc(&pointer, 4096, flags);
  });
  add<unsigned>(table, "cuMemHostRegister", {4, 7, 9, 32}, [](Environment& cuda, unsigned flags) -> Answer {
    alignas(4096) static std::array<char, 4096> page{};
    return cuda->cuMemHostRegister(page.data(), page.size(), flags);
  });
  add<unsigned>(table, "cuIpcOpenMemHandle", {3, 4}, [](Environment& cuda, unsigned flags) -> Answer {
    CUipcMemHandle handle{};
    CUdeviceptr address = 0;
    cuda.expect("handle", cuda->cuIpcGetMemHandle(&handle, cuda.allocate()));
    return cuda->cuIpcOpenMemHandle(&address, handle, flags);
  });
  add<unsigned>(table, "cuStreamWriteValue64", {1, 2, 4}, [](Environment& cuda, unsigned flags) -> Answer {
    const CUstream stream = cuda.stream();
    return commas({cuda->cuStreamWriteValue64(stream, cuda.mapped(), 1, flags), cuda->cuStreamSynchronize(stream)});
  });
  // The value is there already, whichever way they are compared.
  add<unsigned>(
      table, "cuStreamWaitValue64", {0, 1, 2, 3, 4, 7, 1U << 29, 1U << 30},
      [](Environment& cuda, unsigned flags) -> Answer {
        const CUdeviceptr memory = cuda.mapped();
        constexpr unsigned long long one = 1;
        cuda.expect("write", cuda->cuMemcpyHtoD(memory, &one, sizeof one));
        const CUstream stream = cuda.stream();
        return commas({cuda->cuStreamWaitValue64(stream, memory, 1, flags), cuda->cuStreamSynchronize(stream)});
      });
  add<unsigned>(table, "cuGraphInstantiateWithFlags", {3, 4, 9, 15, 32},
                [](Environment& cuda, unsigned flags) -> Answer {
                  const CUstream stream = cuda.stream();
                  CUgraph graph = nullptr;
                  CUgraphExec exec = nullptr;
                  cuda.expect("begin capture", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
                  cuda.expect("memset", cuda->cuMemsetD8Async(cuda.mapped(), 1, 4, stream));
                  cuda.expect("end capture", cuda->cuStreamEndCapture(stream, &graph));
                  return cuda->cuGraphInstantiateWithFlags(&exec, graph, flags);
                });
}

void add_counts(Table& table) {
  add<unsigned>(table, "cuUserObjectCreate", {2147483647U, 4294967295U},
                [](Environment& cuda, unsigned count) -> Answer {
                  CUuserObject object = nullptr;
                  return cuda->cuUserObjectCreate(&object, &object, nothing, count, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
                });
  const auto of_one = [](Environment& cuda) {
    CUuserObject object = nullptr;
    cuda.expect("create", cuda->cuUserObjectCreate(&object, &cuda, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return object;
  };
  for (const unsigned count : {2147483646U, 2147483647U, 2147483648U, 4294967295U}) {
    table.add("limit.cuUserObjectRetain." + std::to_string(count),
              [of_one, count](Environment& cuda) { return cuda->cuUserObjectRetain(of_one(cuda), count); });
    table.add("limit.cuUserObjectRelease." + std::to_string(count),
              [of_one, count](Environment& cuda) { return cuda->cuUserObjectRelease(of_one(cuda), count); });
  }
}

void add_sizes(Table& table) {
  constexpr std::size_t largest = ~std::size_t{0};
  add<std::size_t>(table, "cuMemAllocManaged", {1, std::size_t{1} << 50, largest},
                   [](Environment& cuda, std::size_t bytes) -> Answer {
                     CUdeviceptr memory = 0;
                     return cuda->cuMemAllocManaged(&memory, bytes, CU_MEM_ATTACH_GLOBAL);
                   });
  add<std::size_t>(table, "cuMemAllocHost", {1, 4097, std::size_t{1} << 50, largest},
                   [](Environment& cuda, std::size_t bytes) -> Answer {
                     void* memory = nullptr;
                     return cuda->cuMemAllocHost(&memory, bytes);
                   });
  add<std::size_t>(
      table, "cuMemPoolTrimTo", {largest, largest / 2, 4096},
      [](Environment& cuda, std::size_t bytes) -> Answer { return cuda->cuMemPoolTrimTo(new_pool(cuda), bytes); });
  const auto add_copy = [&](const char* call, Answer (*copy)(Environment&, std::size_t)) {
    add<std::size_t>(table, call, {granule - 1, granule, granule + 1, largest}, copy);
  };
  add_copy("cuMemcpyAsync", [](Environment& cuda, std::size_t bytes) -> Answer {
    return cuda->cuMemcpyAsync(cuda.mapped(), cuda.mapped(), bytes, cuda.stream());
  });
  add_copy("cuMemcpyDtoDAsync", [](Environment& cuda, std::size_t bytes) -> Answer {
    return cuda->cuMemcpyDtoDAsync(cuda.mapped(), cuda.mapped(), bytes, cuda.stream());
  });
  add_copy("cuMemcpyPeer", [](Environment& cuda, std::size_t bytes) -> Answer {
    return cuda->cuMemcpyPeer(cuda.mapped(), cuda.context(), cuda.mapped(), cuda.context(), bytes);
  });
  add_copy("cuMemcpyPeerAsync", [](Environment& cuda, std::size_t bytes) -> Answer {
    return cuda->cuMemcpyPeerAsync(cuda.mapped(), cuda.context(), cuda.mapped(), cuda.context(), bytes, cuda.stream());
  });
  // Host memory that is large enough, so that the device's end alone is crossed.
  add<std::size_t>(table, "cuMemcpyHtoDAsync", {granule - 1, granule, granule + 1},
                   [](Environment& cuda, std::size_t bytes) -> Answer {
                     return cuda->cuMemcpyHtoDAsync(cuda.mapped(), cuda.allocate_host(2 * granule), bytes,
                                                    cuda.stream());
                   });
  add<std::size_t>(table, "cuMemcpyDtoHAsync", {granule - 1, granule, granule + 1},
                   [](Environment& cuda, std::size_t bytes) -> Answer {
                     return cuda->cuMemcpyDtoHAsync(cuda.allocate_host(2 * granule), cuda.mapped(), bytes,
                                                    cuda.stream());
                   });
  add<std::size_t>(table, "cuMemsetD16Async", {granule / 2, granule / 2 + 1, std::size_t{1} << 63, largest},
                   [](Environment& cuda, std::size_t count) -> Answer {
                     return cuda->cuMemsetD16Async(cuda.mapped(), 1, count, cuda.stream());
                   });
  add<std::size_t>(table, "cuMemsetD32Async", {granule / 4, granule / 4 + 1, std::size_t{1} << 62, largest},
                   [](Environment& cuda, std::size_t count) -> Answer {
                     return cuda->cuMemsetD32Async(cuda.mapped(), 1, count, cuda.stream());
                   });
  add<std::size_t>(
      table, "cuMemsetD16", {granule / 2, granule / 2 + 1, std::size_t{1} << 63},
      [](Environment& cuda, std::size_t count) -> Answer { return cuda->cuMemsetD16(cuda.mapped(), 1, count); });
}

void add_streams_and_launches(Table& table) {
  // 1 and 2 are the legacy stream and the thread's own.
  add<unsigned>(table, "cuMemAllocAsync_in_stream", {0, 1, 2}, [](Environment& cuda, unsigned special) -> Answer {
    const auto stream = reinterpret_cast<CUstream>(std::uintptr_t{special});
    CUdeviceptr memory = 0;
    const CUresult allocated = cuda->cuMemAllocAsync(&memory, 64, stream);
    return commas({allocated, cuda->cuMemFreeAsync(memory, stream), cuda->cuStreamSynchronize(stream)});
  });
  struct Shape {
    const char* name;
    std::array<unsigned, 6> sizes;  // of the grid and of a block
    unsigned shared;
  };
  for (const Shape& shape :
       {Shape{"grid_z_65535", {1, 1, 65535, 1, 1, 1}, 0}, Shape{"grid_z_65536", {1, 1, 65536, 1, 1, 1}, 0},
        Shape{"block_y_1024", {1, 1, 1, 1, 1024, 1}, 0}, Shape{"block_y_1025", {1, 1, 1, 1, 1025, 1}, 0},
        Shape{"block_z_64", {1, 1, 1, 1, 1, 64}, 0}, Shape{"block_16_16_4", {1, 1, 1, 16, 16, 4}, 0},
        Shape{"block_16_16_5", {1, 1, 1, 16, 16, 5}, 0}})
    table.add(std::string{"limit.cuLaunchKernel."} + shape.name, [shape](Environment& cuda) {
      const Kernels kernels{cuda};
      CUdeviceptr memory = cuda.mapped();
      unsigned value = 1;
      void* parameters[] = {&memory, &value};
      const auto& [x, y, z, block_x, block_y, block_z] = shape.sizes;
      const CUresult launched = cuda->cuLaunchKernel(kernels.function(store_kernel), x, y, z, block_x, block_y, block_z,
                                                     shape.shared, nullptr, parameters, nullptr);
      return commas({launched, cuda->cuCtxSynchronize()});
    });
}

}  // namespace

void add_argument_limit_cases(Table& table) {
  add_ordinals(table);
  add_flags(table);
  add_counts(table);
  add_sizes(table);
  add_streams_and_launches(table);
}

}  // namespace cuvmm::conformance
