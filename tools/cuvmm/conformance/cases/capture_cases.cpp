// What may be done while a stream captures: every operation in every capture mode, and what becomes of the capture.
#include <array>
#include <thread>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

// What exists before the capture begins.
struct Scene {
  Environment& cuda;
  CUstream stream = nullptr;  // the one that captures
  CUstream other = nullptr;
  CUstream blocking = nullptr;
  CUevent done = nullptr;  // recorded and complete, outside the capture
  CUevent fresh = nullptr;
  CUdeviceptr allocation = 0;
  CUdeviceptr mapping = 0;
  CUdeviceptr unreachable = 0;  // a mapping without access
  char* host = nullptr;         // pinned
};

Scene make_scene(Environment& cuda) {
  Scene scene{cuda};
  scene.stream = cuda.stream();
  scene.other = cuda.stream();
  scene.blocking = cuda.stream(CU_STREAM_DEFAULT);
  scene.done = cuda.event(CU_EVENT_DEFAULT);
  scene.fresh = cuda.event(CU_EVENT_DEFAULT);
  scene.allocation = cuda.allocate();
  scene.mapping = cuda.mapped();
  scene.unreachable = cuda.mapped(granule, 0);
  scene.host = static_cast<char*>(cuda.allocate_host());
  cuda.expect("record", cuda->cuEventRecord(scene.done, scene.other));
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  return scene;
}

using Act = Answer (*)(Scene&);

struct Operation {
  const char* name;
  Act act;
};

alignas(4096) std::array<char, 4096> page{};
void nothing(void*) {}

// Calls that touch no stream that captures.
constexpr Operation bystanders[] = {
    {"allocate",
     [](Scene& s) -> Answer {
       CUdeviceptr address = 0;
       return s.cuda->cuMemAlloc(&address, 4096);
     }},
    {"free", [](Scene& s) -> Answer { return s.cuda->cuMemFree(s.allocation); }},
    {"host_alloc",
     [](Scene& s) -> Answer {
       void* pointer = nullptr;
       return s.cuda->cuMemHostAlloc(&pointer, 4096, 0);
     }},
    {"host_free", [](Scene& s) -> Answer { return s.cuda->cuMemFreeHost(s.host); }},
    {"host_register", [](Scene& s) -> Answer { return s.cuda->cuMemHostRegister(page.data(), page.size(), 0); }},
    {"memory_info",
     [](Scene& s) -> Answer {
       std::size_t free = 0;
       std::size_t total = 0;
       return s.cuda->cuMemGetInfo(&free, &total);
     }},
    {"pointer_attribute",
     [](Scene& s) -> Answer {
       unsigned type = 0;
       return s.cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, s.allocation);
     }},
    {"event_query", [](Scene& s) -> Answer { return s.cuda->cuEventQuery(s.done); }},
    {"event_synchronize", [](Scene& s) -> Answer { return s.cuda->cuEventSynchronize(s.done); }},
    {"event_elapsed",
     [](Scene& s) -> Answer {
       float milliseconds = 0;
       return s.cuda->cuEventElapsedTime(&milliseconds, s.done, s.done);
     }},
    {"event_create",
     [](Scene& s) -> Answer {
       CUevent event = nullptr;
       return s.cuda->cuEventCreate(&event, 0);
     }},
    {"event_destroy", [](Scene& s) -> Answer { return s.cuda->cuEventDestroy(s.done); }},
    {"stream_create",
     [](Scene& s) -> Answer {
       CUstream stream = nullptr;
       return s.cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
     }},
    {"other_stream_destroy", [](Scene& s) -> Answer { return s.cuda->cuStreamDestroy(s.other); }},
    {"other_stream_query", [](Scene& s) -> Answer { return s.cuda->cuStreamQuery(s.other); }},
    {"other_stream_synchronize", [](Scene& s) -> Answer { return s.cuda->cuStreamSynchronize(s.other); }},
    {"other_stream_memset", [](Scene& s) -> Answer { return s.cuda->cuMemsetD8Async(s.mapping, 1, 64, s.other); }},
    {"other_stream_record", [](Scene& s) -> Answer { return s.cuda->cuEventRecord(s.fresh, s.other); }},
    {"blocking_stream_memset",
     [](Scene& s) -> Answer { return s.cuda->cuMemsetD8Async(s.mapping, 1, 64, s.blocking); }},
    {"context_synchronize", [](Scene& s) -> Answer { return s.cuda->cuCtxSynchronize(); }},
    {"context_create",
     [](Scene& s) -> Answer {
       CUcontext created = nullptr;
       return s.cuda->cuCtxCreate(&created, 0, 0);
     }},
    {"copy_to_device", [](Scene& s) -> Answer { return s.cuda->cuMemcpyHtoD(s.mapping, page.data(), 64); }},
    {"copy_to_host", [](Scene& s) -> Answer { return s.cuda->cuMemcpyDtoH(page.data(), s.mapping, 64); }},
    {"copy_on_device", [](Scene& s) -> Answer { return s.cuda->cuMemcpyDtoD(s.allocation, s.mapping, 64); }},
    {"memset", [](Scene& s) -> Answer { return s.cuda->cuMemsetD8(s.mapping, 1, 64); }},
    {"legacy_stream_memset", [](Scene& s) -> Answer { return s.cuda->cuMemsetD8Async(s.mapping, 1, 64, nullptr); }},
    {"legacy_stream_query", [](Scene& s) -> Answer { return s.cuda->cuStreamQuery(nullptr); }},
    {"legacy_stream_synchronize", [](Scene& s) -> Answer { return s.cuda->cuStreamSynchronize(nullptr); }},
    {"legacy_stream_record", [](Scene& s) -> Answer { return s.cuda->cuEventRecord(s.fresh, nullptr); }},
    {"module_load",
     [](Scene& s) -> Answer {
       CUmodule module = nullptr;
       return s.cuda->cuModuleLoadData(&module, kernel_image());
     }},
    {"ipc_handle",
     [](Scene& s) -> Answer {
       CUipcMemHandle handle{};
       return s.cuda->cuIpcGetMemHandle(&handle, s.allocation);
     }},
};

// The unicast VMM calls, one after the other.
Answer vmm_calls(Scene& s) {
  Environment& cuda = s.cuda;
  const CUmemAllocationProp properties = exportable();
  const CUmemAccessDesc access = access_of(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle retained = 0;
  CUmemGenericAllocationHandle imported = 0;
  CUdeviceptr address = 0;
  int descriptor = -1;
  const CUresult created = cuda->cuMemCreate(&handle, granule, &properties, 0);
  const CUresult reserved = cuda->cuMemAddressReserve(&address, granule, 0, 0, 0);
  const CUresult mapped = cuda->cuMemMap(address, granule, 0, handle, 0);
  const CUresult granted = cuda->cuMemSetAccess(address, granule, &access, 1);
  const std::string asked = cuda.access(address);
  const CUresult retain = cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address));
  const CUresult exported =
      cuda->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  const CUresult import = cuda.import(descriptor, imported);
  const CUresult unmapped = cuda->cuMemUnmap(address, granule);
  const CUresult released = cuda->cuMemRelease(handle);
  return commas({created, reserved, mapped, granted, asked, retain, exported, import, unmapped, released,
                 cuda->cuMemAddressFree(address, granule)});
}

// Calls on the stream that captures.
constexpr Operation participants[] = {
    {"nothing", [](Scene&) -> Answer { return "-"; }},
    {"vmm_calls", vmm_calls},
    {"query", [](Scene& s) -> Answer { return s.cuda->cuStreamQuery(s.stream); }},
    {"synchronize", [](Scene& s) -> Answer { return s.cuda->cuStreamSynchronize(s.stream); }},
    {"captured_memset", [](Scene& s) -> Answer { return s.cuda->cuMemsetD8Async(s.mapping, 1, 64, s.stream); }},
    {"captured_memset_of_nothing",
     [](Scene& s) -> Answer { return s.cuda->cuMemsetD8Async(s.mapping, 1, 0, s.stream); }},
    {"captured_memset_misaligned",
     [](Scene& s) -> Answer { return s.cuda->cuMemsetD32Async(s.mapping + 1, 1, 4, s.stream); }},
    {"captured_memset_no_access",
     [](Scene& s) -> Answer { return s.cuda->cuMemsetD8Async(s.unreachable, 1, 64, s.stream); }},
    {"captured_copy_on_device",
     [](Scene& s) -> Answer { return s.cuda->cuMemcpyDtoDAsync(s.allocation, s.mapping, 64, s.stream); }},
    {"captured_copy_from_pinned",
     [](Scene& s) -> Answer { return s.cuda->cuMemcpyHtoDAsync(s.mapping, s.host, 64, s.stream); }},
    {"captured_copy_from_pageable",
     [](Scene& s) -> Answer { return s.cuda->cuMemcpyHtoDAsync(s.mapping, page.data(), 64, s.stream); }},
    {"captured_copy_to_pageable",
     [](Scene& s) -> Answer { return s.cuda->cuMemcpyDtoHAsync(page.data(), s.mapping, 64, s.stream); }},
    {"captured_copy_no_access",
     [](Scene& s) -> Answer { return s.cuda->cuMemcpyHtoDAsync(s.unreachable, s.host, 64, s.stream); }},
    {"captured_copy_of_nothing",
     [](Scene& s) -> Answer { return s.cuda->cuMemcpyDtoDAsync(s.allocation, s.mapping, 0, s.stream); }},
    {"captured_host_function", [](Scene& s) -> Answer { return s.cuda->cuLaunchHostFunc(s.stream, nothing, nullptr); }},
    {"captured_write_value",
     [](Scene& s) -> Answer { return s.cuda->cuStreamWriteValue32(s.stream, s.mapping, 1, 0); }},
    {"captured_wait_value", [](Scene& s) -> Answer { return s.cuda->cuStreamWaitValue32(s.stream, s.mapping, 0, 0); }},
    {"captured_record", [](Scene& s) -> Answer { return s.cuda->cuEventRecord(s.fresh, s.stream); }},
    {"captured_record_external",
     [](Scene& s) -> Answer { return s.cuda->cuEventRecordWithFlags(s.fresh, s.stream, CU_EVENT_RECORD_EXTERNAL); }},
    {"captured_event_query",
     [](Scene& s) -> Answer {
       return commas({s.cuda->cuEventRecord(s.fresh, s.stream), s.cuda->cuEventQuery(s.fresh)});
     }},
    {"captured_event_synchronize",
     [](Scene& s) -> Answer {
       return commas({s.cuda->cuEventRecord(s.fresh, s.stream), s.cuda->cuEventSynchronize(s.fresh)});
     }},
    {"wait_for_outside_event", [](Scene& s) -> Answer { return s.cuda->cuStreamWaitEvent(s.stream, s.done, 0); }},
    {"wait_for_outside_event_external",
     [](Scene& s) -> Answer { return s.cuda->cuStreamWaitEvent(s.stream, s.done, CU_EVENT_WAIT_EXTERNAL); }},
    {"wait_for_unrecorded_event", [](Scene& s) -> Answer { return s.cuda->cuStreamWaitEvent(s.stream, s.fresh, 0); }},
    {"wait_for_unrecorded_event_external",
     [](Scene& s) -> Answer { return s.cuda->cuStreamWaitEvent(s.stream, s.fresh, CU_EVENT_WAIT_EXTERNAL); }},
    {"stream_flags",
     [](Scene& s) -> Answer {
       unsigned flags = 0;
       return s.cuda->cuStreamGetFlags(s.stream, &flags);
     }},
    {"stream_context",
     [](Scene& s) -> Answer {
       CUcontext context = nullptr;
       return s.cuda->cuStreamGetCtx(s.stream, &context);
     }},
};

constexpr const char* mode_names[] = {"global", "thread_local", "relaxed"};

// "status=1 end=OK/graph": how the capture stands after the operation, and how it ends.
std::string end_capture(Scene& scene) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult asked = scene.cuda->cuStreamIsCapturing(scene.stream, &status);
  CUgraph graph = nullptr;
  const CUresult ended = scene.cuda->cuStreamEndCapture(scene.stream, &graph);
  const std::string standing = asked == CUDA_SUCCESS ? std::to_string(status) : result_name(asked);
  return "status=" + standing + " end=" + slashes({ended, graph == nullptr ? "null" : "graph"});
}

std::string during_capture(Environment& cuda, int mode, Act act) {
  Scene scene = make_scene(cuda);
  cuda.expect("begin", cuda->cuStreamBeginCapture(scene.stream, static_cast<CUstreamCaptureMode>(mode)));
  const Answer answer = act(scene);
  return spaces({answer, end_capture(scene)});
}

// The same with the thread's capture mode made relaxed, which guards only against what is impossible.
std::string during_capture_relaxed(Environment& cuda, int mode, Act act) {
  Scene scene = make_scene(cuda);
  cuda.expect("begin", cuda->cuStreamBeginCapture(scene.stream, static_cast<CUstreamCaptureMode>(mode)));
  CUstreamCaptureMode exchanged = CU_STREAM_CAPTURE_MODE_RELAXED;
  cuda.expect("exchange", cuda->cuThreadExchangeStreamCaptureMode(&exchanged));
  const Answer answer = act(scene);
  cuda.expect("exchange", cuda->cuThreadExchangeStreamCaptureMode(&exchanged));
  return spaces({answer, end_capture(scene)});
}

// The same with the operation in another thread.
std::string during_capture_elsewhere(Environment& cuda, int mode, Act act) {
  Scene scene = make_scene(cuda);
  cuda.expect("begin", cuda->cuStreamBeginCapture(scene.stream, static_cast<CUstreamCaptureMode>(mode)));
  std::string answer;
  std::thread{[&] {
    cuda.make_current(cuda.context());
    answer = act(scene).text();
  }}.join();
  return spaces({answer, end_capture(scene)});
}

// Operations that are asked about in the two variations above.
bool worth_varying(std::string_view name) {
  for (const std::string_view each :
       {"allocate", "free", "host_alloc", "event_query", "event_synchronize", "other_stream_query",
        "other_stream_synchronize", "context_synchronize", "copy_to_device", "memset", "legacy_stream_memset",
        "legacy_stream_synchronize", "module_load", "stream_create"})
    if (name == each) return true;
  return false;
}

}  // namespace

void add_capture_cases(Table& table) {
  for (int mode = 0; mode < 3; ++mode) {
    const std::string prefix = std::string{"capture."} + mode_names[mode] + ".";
    for (const Operation& each : participants)
      table.add(prefix + each.name,
                [mode, act = each.act](Environment& cuda) { return during_capture(cuda, mode, act); });
    for (const Operation& each : bystanders) {
      table.add(prefix + each.name,
                [mode, act = each.act](Environment& cuda) { return during_capture(cuda, mode, act); });
      if (!worth_varying(each.name)) continue;
      if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        table.add(prefix + each.name + ".exchanged",
                  [mode, act = each.act](Environment& cuda) { return during_capture_relaxed(cuda, mode, act); });
      table.add(prefix + each.name + ".other_thread",
                [mode, act = each.act](Environment& cuda) { return during_capture_elsewhere(cuda, mode, act); });
    }
  }
}

}  // namespace cuvmm::conformance
