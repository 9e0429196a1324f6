#include <unistd.h>

#include <array>

#include "entry_point_world.hpp"

namespace cuvmm::test {
namespace {

using conformance::granule;

CUdeviceptr mapped(EntryPointWorld& world, const CUmemAllocationProp& properties) {
  return world.environment.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, properties);
}

CUresult grant_host(EntryPointWorld& world, CUdeviceptr address, std::size_t bytes, int flags) {
  const CUmemAccessDesc access = conformance::access_of(0, flags, CU_MEM_LOCATION_TYPE_HOST);
  return world->cuMemSetAccess(address, bytes, &access, 1);
}

// Three mappings of host memory that follow each other.
void three_of_the_host(EntryPointWorld& world) {
  world.address = world.environment.reserve(3 * granule);
  for (std::size_t index = 0; index < 3; ++index)
    world.environment.map_new(world.address + index * granule, granule,
                              conformance::host_memory(CU_MEM_LOCATION_TYPE_HOST));
}

void three_that_the_host_may_touch(EntryPointWorld& world) {
  three_of_the_host(world);
  world.environment.expect("grant", grant_host(world, world.address, 3 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

// Memory of the second device, of which no byte has been touched yet.
void untouched(EntryPointWorld& world) {
  world.address = mapped(world, conformance::device_memory(1));
}

void begin_capture(EntryPointWorld& world) {
  world.environment.expect("capture",
                           world->cuStreamBeginCapture(world.objects.capturing, CU_STREAM_CAPTURE_MODE_RELAXED));
}

void capture_a_memset(EntryPointWorld& world) {
  begin_capture(world);
  world.environment.expect("memset", world->cuMemsetD8Async(world.objects.allocation, 1, 64, world.objects.capturing));
}

// The event stands for what was captured, and another stream is there that may join.
void capture_an_event(EntryPointWorld& world) {
  capture_a_memset(world);
  world.environment.expect("record", world->cuEventRecord(world.objects.event, world.objects.capturing));
}

// Work of several kinds in a stream, none of which has run.
void submit_work(EntryPointWorld& world) {
  static std::array<char, 64> bytes{};
  const CUstream stream = world.objects.stream;
  world.environment.expect("memset", world->cuMemsetD8Async(world.objects.allocation, 1, 64, stream));
  world.environment.expect(
      "copy", world->cuMemcpyDtoDAsync(world.objects.allocation + 64, world.objects.allocation, 64, stream));
  world.environment.expect("function", world->cuLaunchHostFunc(
                                           stream, [](void*) {}, nullptr));
  world.environment.expect("write", world->cuStreamWriteValue32(stream, world.objects.allocation, 7, 0));
  world.environment.expect("graph", world->cuGraphLaunch(world.objects.graph_exec, stream));
  world.environment.expect("record", world->cuEventRecord(world.objects.event, stream));
  world.environment.expect("copy", world->cuMemcpyDtoHAsync(bytes.data(), world.objects.allocation, 64, stream));
}

// The same, and a second stream that waits for it.
void submit_work_of_two_streams(EntryPointWorld& world) {
  submit_work(world);
  world.stream = world.environment.stream();
  world.environment.expect("wait", world->cuStreamWaitEvent(world.stream, world.objects.event, 0));
  world.environment.expect("memset", world->cuMemsetD8Async(world.objects.allocation, 2, 64, world.stream));
}

// A kernel of the builtin ones is launched over two mappings.
void launch_over_two_mappings(EntryPointWorld& world) {
  const char* image = ".version 8.0\n.visible .entry cuvmm_fill()\n";
  CUmodule module = nullptr;
  world.environment.expect("module", world->cuModuleLoadData(&module, image));
  world.environment.expect("function", world->cuModuleGetFunction(&world.function, module, "cuvmm_fill"));
  world.address = world.environment.reserve(2 * granule);
  for (const CUdeviceptr offset : {CUdeviceptr{0}, CUdeviceptr{granule}})
    world.environment.map_new(world.address + offset, granule);
  world.environment.grant(world.address, 2 * granule);
  CUdeviceptr begin = world.address + granule - 4096;
  std::uint64_t words = 1024;
  std::uint64_t seed = 1;
  void* parameters[] = {&begin, &words, &seed};
  world.environment.expect(
      "launch", world->cuLaunchKernel(world.function, 1, 1, 1, 1, 1, 1, 0, world.objects.stream, parameters, nullptr));
}

// An instantiated graph that waits for an event and records another.
void graph_with_events(EntryPointWorld& world) {
  begin_capture(world);
  const CUstream stream = world.objects.capturing;
  world.environment.expect("wait", world->cuStreamWaitEvent(stream, world.objects.event, CU_EVENT_WAIT_EXTERNAL));
  world.environment.expect("record",
                           world->cuEventRecordWithFlags(world.objects.second_event, stream, CU_EVENT_RECORD_EXTERNAL));
  CUgraph graph = nullptr;
  world.environment.expect("end", world->cuStreamEndCapture(stream, &graph));
  world.environment.expect("instantiate", world->cuGraphInstantiateWithFlags(&world.graph_exec, graph, 0));
  submit_work(world);  // which the event stands for
}

void second_context(EntryPointWorld& world) {
  world.context = world.environment.new_context();
  const CUstream stream = world.environment.stream();
  (void)world.environment.event();
  const CUdeviceptr memory = world.environment.allocate();
  (void)world.environment.allocate_host();
  world.environment.expect("memset", world->cuMemsetD8Async(memory, 1, 64, stream));
  world.environment.make_current(world.objects.context);
}

void context_of_the_other_device(EntryPointWorld& world) {
  world.context = world.environment.primary(1);
}

// A descriptor of an export, closed: the memory is taken back at the next opportunity.
void close_an_export(EntryPointWorld& world) {
  const conformance::Exported exported = world.environment.export_new();
  ::close(exported.descriptor);
}

void import_pool(EntryPointWorld& world) {
  world.environment.expect("import", world->cuMemPoolImportFromShareableHandle(
                                         &world.pool, conformance::as_os_handle(world.objects.pool_descriptor),
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

std::vector<EntryPointCase> memory_cases() {
  static std::array<char, 4096> bytes{};
  return {
      {"cuMemPoolImportPointer of an exported allocation", import_pool,
       [](EntryPointWorld& w) { return w->cuMemPoolImportPointer(&w.address, w.pool, &w.objects.pointer_data); }},
      {"cuMemSetAccess for the host, of untouched memory", three_of_the_host,
       [](EntryPointWorld& w) { return grant_host(w, w.address, 3 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE); }},
      {"cuMemSetAccess that lets the host read only", three_that_the_host_may_touch,
       [](EntryPointWorld& w) { return grant_host(w, w.address, 3 * granule, CU_MEM_ACCESS_FLAGS_PROT_READ); }},
      {"cuMemSetAccess that takes memory from the host", three_that_the_host_may_touch,
       [](EntryPointWorld& w) { return grant_host(w, w.address, 3 * granule, CU_MEM_ACCESS_FLAGS_PROT_NONE); }},
      {"cuMemUnmap of memory that the host may touch", three_that_the_host_may_touch,
       [](EntryPointWorld& w) { return w->cuMemUnmap(w.address, 3 * granule); }},
      {"cuMemsetD8 of untouched memory", untouched,
       [](EntryPointWorld& w) { return w->cuMemsetD8(w.address, 1, granule); }},
      {"cuMemcpyHtoD to untouched memory", untouched,
       [](EntryPointWorld& w) { return w->cuMemcpyHtoD(w.address, bytes.data(), bytes.size()); }},
      {"cuMemcpyDtoH of untouched memory", untouched,
       [](EntryPointWorld& w) { return w->cuMemcpyDtoH(bytes.data(), w.address, bytes.size()); }},
      {"cuMemAlloc of much",
       {},
       [](EntryPointWorld& w) {
         CUdeviceptr address = 0;
         return w->cuMemAlloc(&address, 64 * granule);
       }},
      {"cuMemFree behind work", submit_work, [](EntryPointWorld& w) { return w->cuMemFree(w.objects.allocation); }},
      {"cuMemFreeHost behind work", submit_work, [](EntryPointWorld& w) { return w->cuMemFreeHost(w.objects.host); }},
      {"cuMemMap beyond the reservation",
       [](EntryPointWorld& w) {
         w.address = w.environment.reserve(granule);
         w.handle = w.environment.create(2 * granule);
       },
       [](EntryPointWorld& w) { return w->cuMemMap(w.address, 2 * granule, 0, w.handle, 0); }},
      {"cuMemCreate after an export was closed", close_an_export,
       [](EntryPointWorld& w) {
         const CUmemAllocationProp properties = conformance::device_memory();
         return w->cuMemCreate(&w.handle, granule, &properties, 0);
       }},
      {"cuMemGetHandleForAddressRange over two mappings",
       [](EntryPointWorld& w) {
         w.address = w.environment.reserve(2 * granule);
         for (const CUdeviceptr offset : {CUdeviceptr{0}, CUdeviceptr{granule}})
           w.environment.map_new(w.address + offset, granule);
       },
       [](EntryPointWorld& w) {
         int descriptor = -1;
         const CUresult code = w->cuMemGetHandleForAddressRange(&descriptor, w.address, 2 * granule,
                                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
         if (code == CUDA_SUCCESS) ::close(descriptor);
         return code;
       }},
  };
}

std::vector<EntryPointCase> capture_cases() {
  return {
      {"cuStreamBeginCapture",
       {},
       [](EntryPointWorld& w) { return w->cuStreamBeginCapture(w.objects.capturing, CU_STREAM_CAPTURE_MODE_GLOBAL); }},
      {"cuMemsetD8Async, captured", capture_a_memset,
       [](EntryPointWorld& w) { return w->cuMemsetD8Async(w.objects.allocation, 1, 64, w.objects.capturing); }},
      {"cuMemcpyDtoDAsync, captured", capture_a_memset,
       [](EntryPointWorld& w) {
         return w->cuMemcpyDtoDAsync(w.objects.allocation, w.objects.reservation, 64, w.objects.capturing);
       }},
      {"cuEventRecord, captured", capture_a_memset,
       [](EntryPointWorld& w) { return w->cuEventRecord(w.objects.event, w.objects.capturing); }},
      {"cuEventRecordWithFlags of an external event, captured", capture_a_memset,
       [](EntryPointWorld& w) {
         return w->cuEventRecordWithFlags(w.objects.event, w.objects.capturing, CU_EVENT_RECORD_EXTERNAL);
       }},
      {"cuStreamWaitEvent that joins a capture", capture_an_event,
       [](EntryPointWorld& w) { return w->cuStreamWaitEvent(w.objects.stream, w.objects.event, 0); }},
      {"cuStreamGetCaptureInfo", capture_a_memset,
       [](EntryPointWorld& w) {
         CUstreamCaptureStatus status{};
         unsigned long long id = 0;
         CUgraph graph = nullptr;
         const CUgraphNode* dependencies = nullptr;
         std::size_t count = 0;
         return w->cuStreamGetCaptureInfo(w.objects.capturing, &status, &id, &graph, &dependencies, &count);
       }},
      {"cuStreamEndCapture", capture_a_memset,
       [](EntryPointWorld& w) {
         CUgraph graph = nullptr;
         return w->cuStreamEndCapture(w.objects.capturing, &graph);
       }},
      {"cuStreamDestroy while capturing", capture_a_memset,
       [](EntryPointWorld& w) { return w->cuStreamDestroy(w.objects.capturing); }},
      {"cuGraphLaunch with events", graph_with_events,
       [](EntryPointWorld& w) { return w->cuGraphLaunch(w.graph_exec, w.objects.stream); }},
      {"cuGraphLaunch behind a launch",
       [](EntryPointWorld& w) {
         w.environment.expect("launch", w->cuGraphLaunch(w.objects.graph_exec, w.objects.stream));
       },
       [](EntryPointWorld& w) { return w->cuGraphLaunch(w.objects.graph_exec, w.objects.stream); }},
  };
}

std::vector<EntryPointCase> stream_cases() {
  return {
      {"cuMemsetD8Async in the thread's own stream",
       {},
       [](EntryPointWorld& w) {
         return w->cuMemsetD8Async(w.objects.allocation, 1, 64, reinterpret_cast<CUstream>(2));
       }},
      {"cuMemsetD8Async in the legacy stream behind work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuMemsetD8Async(w.objects.allocation, 1, 64, nullptr); }},
      {"cuStreamWaitEvent of pending work",
       [](EntryPointWorld& w) {
         submit_work(w);
         w.stream = w.environment.stream();
       },
       [](EntryPointWorld& w) { return w->cuStreamWaitEvent(w.stream, w.objects.event, 0); }},
      {"cuEventRecord behind work", submit_work,
       [](EntryPointWorld& w) { return w->cuEventRecord(w.objects.event, w.objects.stream); }},
      {"cuStreamQuery of work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuStreamQuery(w.objects.stream); }},
      {"cuStreamSynchronize of work", submit_work,
       [](EntryPointWorld& w) { return w->cuStreamSynchronize(w.objects.stream); }},
      {"cuStreamSynchronize of a stream that waits", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuStreamSynchronize(w.stream); }},
      {"cuEventSynchronize of work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuEventSynchronize(w.objects.event); }},
      {"cuCtxSynchronize of work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuCtxSynchronize(); }},
      {"cuMemcpyDtoD and what is pending", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuMemcpyDtoD(w.objects.allocation, w.objects.reservation, 64); }},
      {"cuStreamDestroy behind work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuStreamDestroy(w.objects.stream); }},
      {"cuEventDestroy behind work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuEventDestroy(w.objects.event); }},
      {"cuStreamSynchronize of a kernel over two mappings", launch_over_two_mappings,
       [](EntryPointWorld& w) { return w->cuStreamSynchronize(w.objects.stream); }},
  };
}

std::vector<EntryPointCase> context_cases() {
  return {
      {"cuDevicePrimaryCtxRetain of another device",
       {},
       [](EntryPointWorld& w) { return w->cuDevicePrimaryCtxRetain(&w.context, 1); }},
      {"cuDevicePrimaryCtxReset behind work", submit_work_of_two_streams,
       [](EntryPointWorld& w) { return w->cuDevicePrimaryCtxReset(0); }},
      {"cuCtxDestroy with all that belongs to it", second_context,
       [](EntryPointWorld& w) { return w->cuCtxDestroy(w.context); }},
      {"cuCtxEnablePeerAccess", context_of_the_other_device,
       [](EntryPointWorld& w) { return w->cuCtxEnablePeerAccess(w.context, 0); }},
      {"cuCtxDisablePeerAccess",
       [](EntryPointWorld& w) {
         context_of_the_other_device(w);
         w.environment.expect("enable", w->cuCtxEnablePeerAccess(w.context, 0));
       },
       [](EntryPointWorld& w) { return w->cuCtxDisablePeerAccess(w.context); }},
      {"cuCtxSetCurrent of no context",
       {},
       [](EntryPointWorld& w) {
         (void)w;
         return w->cuCtxSetCurrent(w.objects.context);
       }},
  };
}

}  // namespace

std::vector<EntryPointCase> entry_point_variants() {
  std::vector<EntryPointCase> all;
  for (auto&& group : {memory_cases(), capture_cases(), stream_cases(), context_cases()})
    all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace cuvmm::test
