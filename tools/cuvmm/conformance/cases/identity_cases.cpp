// Managed memory, and small questions to devices, contexts and streams.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

void add_managed_memory(Table& table) {
  for (const unsigned flags : {0U, 1U, 2U, 3U, 4U, 5U, 7U, 8U})
    table.add("managed.flags_" + std::to_string(flags), [flags](Environment& cuda) {
      CUdeviceptr memory = 0;
      return cuda->cuMemAllocManaged(&memory, 4096, flags);
    });
  table.add("managed.zero", [](Environment& cuda) {
    CUdeviceptr memory = 0;
    return cuda->cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL);
  });
  table.add("managed.is_seen_by_both", [](Environment& cuda) {
    CUdeviceptr memory = 0;
    cuda.expect("allocate", cuda->cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    const CUresult set = cuda->cuMemsetD8(memory, 7, 4096);
    const CUresult finished = cuda->cuCtxSynchronize();
    return spaces({set, finished, static_cast<int>(*static_cast<const unsigned char*>(as_pointer(memory)))});
  });
  for (const int attribute : {1, 2, 3, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})
    table.add("managed.pointer_attribute_" + std::to_string(attribute), [attribute](Environment& cuda) {
      CUdeviceptr memory = 0;
      cuda.expect("allocate", cuda->cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
      unsigned long long value = 0;
      const CUresult got = cuda->cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(attribute), memory);
      if (value == memory) return slashes({got, "begin"});
      if (value == reinterpret_cast<std::uintptr_t>(cuda.context())) return slashes({got, "context"});
      return slashes({got, value});
    });
  table.add("managed.host_flags", [](Environment& cuda) {
    CUdeviceptr memory = 0;
    unsigned flags = 77;
    cuda.expect("allocate", cuda->cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    const CUresult got = cuda->cuMemHostGetFlags(&flags, as_pointer(memory));
    return slashes({got, flags});
  });
  table.add("managed.address_range", [](Environment& cuda) {
    CUdeviceptr memory = 0;
    CUdeviceptr base = 0;
    std::size_t size = 0;
    cuda.expect("allocate", cuda->cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    const CUresult got = cuda->cuMemGetAddressRange(&base, &size, memory + 8);
    return slashes({got, base == memory ? "begin" : "other", size});
  });
  table.add("managed.free", [](Environment& cuda) {
    CUdeviceptr memory = 0;
    cuda.expect("allocate", cuda->cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    return commas({cuda->cuMemFreeHost(as_pointer(memory)), cuda->cuMemFree(memory), cuda->cuMemFree(memory)});
  });
  table.add("managed.free_in_stream", [](Environment& cuda) {
    CUdeviceptr memory = 0;
    cuda.expect("allocate", cuda->cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL));
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemFreeAsync(memory, stream), cuda->cuStreamSynchronize(stream), cuda->cuMemFree(memory)});
  });
}

void add_devices(Table& table) {
  for (const char* const place : {"nowhere", "", "ffff:ff:1f.0", "zz:zz.z", "0000:00:00.0"})
    table.add(std::string{"identity.device_at_"} + (*place == '\0' ? "empty" : place), [place](Environment& cuda) {
      CUdevice device = -1;
      return cuda->cuDeviceGetByPCIBusId(&device, place);
    });
  table.add("identity.device_by_its_place", [](Environment& cuda) {
    char place[20] = {};
    CUdevice with_domain = -1;
    CUdevice without = -1;
    cuda.expect("place", cuda->cuDeviceGetPCIBusId(place, sizeof place, 0));
    const CUresult found = cuda->cuDeviceGetByPCIBusId(&with_domain, place);
    const CUresult again = cuda->cuDeviceGetByPCIBusId(&without, place + 5);
    return spaces({slashes({found, with_domain}), slashes({again, without})});
  });
}

void add_contexts(Table& table) {
  table.add("identity.context_ids", [](Environment& cuda) {
    const CUcontext made = cuda.new_context();
    unsigned long long first = 0;
    unsigned long long second = 0;
    unsigned long long current = 0;
    const CUresult of_primary = cuda->cuCtxGetId(cuda.context(), &first);
    const CUresult of_made = cuda->cuCtxGetId(made, &second);
    const CUresult of_current = cuda->cuCtxGetId(nullptr, &current);
    return spaces({of_primary, of_made, of_current, first == second ? "same" : "distinct",
                   second == current ? "same" : "distinct"});
  });
  table.add("identity.context_id_with_none_current", [](Environment& cuda) {
    unsigned long long id = 0;
    unsigned version = 0;
    cuda.make_current(nullptr);
    return commas({cuda->cuCtxGetId(nullptr, &id), cuda->cuCtxGetApiVersion(nullptr, &version)});
  });
  table.add("identity.context_id_of_destroyed", [](Environment& cuda) {
    const CUcontext made = cuda.new_context();
    cuda.expect("destroy", cuda->cuCtxDestroy(made));
    unsigned long long id = 0;
    return cuda->cuCtxGetId(made, &id);
  });
  table.add("identity.context_api_version", [](Environment& cuda) {
    unsigned primary = 0;
    unsigned made = 0;
    const CUresult first = cuda->cuCtxGetApiVersion(cuda.context(), &primary);
    const CUresult second = cuda->cuCtxGetApiVersion(cuda.new_context(), &made);
    return spaces({slashes({first, primary}), slashes({second, made})});
  });
}

void add_streams(Table& table) {
  table.add("identity.stream_priority_range", [](Environment& cuda) {
    int least = 77;
    int greatest = 77;
    const CUresult got = cuda->cuCtxGetStreamPriorityRange(&least, &greatest);
    return slashes({got, least, greatest});
  });
  table.add("identity.stream_priority_range_nulls", [](Environment& cuda) {
    int priority = 0;
    return commas({cuda->cuCtxGetStreamPriorityRange(nullptr, &priority),
                   cuda->cuCtxGetStreamPriorityRange(&priority, nullptr),
                   cuda->cuCtxGetStreamPriorityRange(nullptr, nullptr)});
  });
  for (const int wanted : {-9, -5, -1, 0, 1, 9})
    table.add("identity.stream_priority_" + std::to_string(wanted), [wanted](Environment& cuda) {
      CUstream stream = nullptr;
      int priority = 77;
      cuda.expect("create", cuda->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, wanted));
      const CUresult got = cuda->cuStreamGetPriority(stream, &priority);
      return slashes({got, priority});
    });
  table.add("identity.default_streams", [](Environment& cuda) {
    std::string answer;
    for (const std::uintptr_t handle : {0, 1, 2}) {
      const auto stream = reinterpret_cast<CUstream>(handle);
      int priority = 77;
      unsigned long long id = 0;
      const CUresult first = cuda->cuStreamGetPriority(stream, &priority);
      const CUresult second = cuda->cuStreamGetId(stream, &id);
      answer += (answer.empty() ? "" : " ") + slashes({first, priority, second});
    }
    return answer;
  });
  table.add("identity.captured_stream", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    int priority = 77;
    unsigned long long id = 0;
    CUgraph graph = nullptr;
    cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUresult second = cuda->cuStreamGetId(stream, &id);
    const CUresult first = cuda->cuStreamGetPriority(stream, &priority);
    return commas({second, first, cuda->cuStreamEndCapture(stream, &graph)});
  });
  for (const unsigned flags : {0U, 1U, 2U})
    table.add("identity.capture_dependencies_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      const CUstream stream = cuda.stream();
      CUgraph graph = nullptr;
      const CUresult before = cuda->cuStreamUpdateCaptureDependencies(stream, nullptr, 0, flags);
      cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      const CUresult none = cuda->cuStreamUpdateCaptureDependencies(stream, nullptr, 0, flags);
      const CUresult null = cuda->cuStreamUpdateCaptureDependencies(stream, nullptr, 1, flags);
      return commas({before, none, null, cuda->cuStreamEndCapture(stream, &graph)});
    });
}

}  // namespace

void add_identity_cases(Table& table) {
  add_managed_memory(table);
  add_devices(table);
  add_contexts(table);
  add_streams(table);
}

}  // namespace cuvmm::conformance
