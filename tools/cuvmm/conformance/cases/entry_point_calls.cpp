#include "conformance/cases/entry_point_calls.hpp"

#include <array>

#include "conformance/cases/entry_point_call_table.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

using driver::EntryPoint;
using driver::Interface;

// Room that calls write into or read from; each thread's own, so that all calls can be made by many threads at once.
alignas(4096) thread_local std::array<char, 4096> page{};

const CUmemAllocationProp* properties() {
  static const CUmemAllocationProp exportable_memory = exportable();
  return &exportable_memory;
}

const CUmemLocation* device_0() {
  static const CUmemLocation place = location(0);
  return &place;
}

std::vector<EntryPointCall> core_and_device_calls() {
  return {
      CUVMM_CALL(cuInit, 0),
      CUVMM_CALL(cuDriverGetVersion, out<int>()),
      CUVMM_CALL(cuGetErrorName, CUDA_SUCCESS, out<const char*>()),
      CUVMM_CALL(cuGetErrorString, CUDA_SUCCESS, out<const char*>()),
      CUVMM_CALL(cuDeviceGetCount, out<int>()),
      CUVMM_CALL(cuDeviceGet, out<CUdevice>(), 0),
      CUVMM_CALL(cuDeviceGetName, page.data(), 100, 0),
      CUVMM_CALL(cuDeviceTotalMem, out<std::size_t>(), 0),
      CUVMM_CALL(cuDeviceGetAttribute, out<int>(), CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0),
      CUVMM_CALL(cuDeviceGetUuid, out<CUuuid>(), 0),
      CUVMM_CALL(cuDeviceGetPCIBusId, page.data(), 100, 0),
      CUVMM_CALL(cuDeviceCanAccessPeer, out<int>(), 0, 0),
      CUVMM_CALL(cuDeviceGetP2PAttribute, out<int>(), CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0),
  };
}

std::vector<EntryPointCall> context_calls() {
  return {
      CUVMM_CALL(cuDevicePrimaryCtxRetain, out<CUcontext>(), 0),
      CUVMM_CALL(cuDevicePrimaryCtxRelease, 0),
      CUVMM_CALL(cuDevicePrimaryCtxReset, 0),
      CUVMM_CALL(cuDevicePrimaryCtxGetState, 0, out<unsigned>(), out<int>()),
      CUVMM_CALL(cuDevicePrimaryCtxSetFlags, 0, 0),
      CUVMM_CALL(cuCtxCreate, out<CUcontext>(), 0, 0),
      CUVMM_CALL(cuCtxDestroy, o.context),
      CUVMM_CALL(cuCtxPushCurrent, o.context),
      CUVMM_CALL(cuCtxPopCurrent, out<CUcontext>()),
      CUVMM_CALL(cuCtxSetCurrent, o.context),
      CUVMM_CALL(cuCtxGetCurrent, out<CUcontext>()),
      CUVMM_CALL(cuCtxGetDevice, out<CUdevice>()),
      CUVMM_CALL(cuCtxGetFlags, out<unsigned>()),
      CUVMM_CALL(cuCtxSynchronize),
      CUVMM_CALL(cuCtxEnablePeerAccess, o.context, 0),
      CUVMM_CALL(cuCtxDisablePeerAccess, o.context),
  };
}

std::vector<EntryPointCall> memory_calls() {
  return {
      CUVMM_CALL(cuMemGetInfo, out<std::size_t>(), out<std::size_t>()),
      CUVMM_CALL(cuMemAlloc, out<CUdeviceptr>(), 4096),
      CUVMM_CALL(cuMemFree, o.second_allocation),
      CUVMM_CALL(cuMemGetAddressRange, out<CUdeviceptr>(), out<std::size_t>(), o.allocation),
      CUVMM_CALL(cuMemHostAlloc, out<void*>(), 4096, 0),
      CUVMM_CALL(cuMemAllocHost, out<void*>(), 4096),
      CUVMM_CALL(cuMemFreeHost, o.host),
      CUVMM_CALL(cuMemHostRegister, page.data(), page.size(), 0),
      CUVMM_CALL(cuMemHostUnregister, o.registered),
      CUVMM_CALL(cuMemHostGetDevicePointer, out<CUdeviceptr>(), o.host, 0),
      CUVMM_CALL(cuMemHostGetFlags, out<unsigned>(), o.host),
      CUVMM_CALL(cuPointerGetAttribute, &call_word, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, o.allocation),
      EntryPointCall{EntryPoint::cuPointerGetAttributes,
                     [](Interface& cuda, Objects& o) {
                       CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
                       void* data = &call_word;
                       return cuda.cuPointerGetAttributes(1, &attribute, &data, o.allocation);
                     }},
  };
}

std::vector<EntryPointCall> vmm_calls() {
  return {
      CUVMM_CALL(cuMemGetAllocationGranularity, out<std::size_t>(), properties(), CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      CUVMM_CALL(cuMemCreate, out<CUmemGenericAllocationHandle>(), granule, properties(), 0),
      CUVMM_CALL(cuMemRelease, o.handle),
      CUVMM_CALL(cuMemAddressReserve, out<CUdeviceptr>(), granule, 0, 0, 0),
      CUVMM_CALL(cuMemAddressFree, o.free_reservation, granule),
      CUVMM_CALL(cuMemMap, o.reservation + granule, granule, 0, o.handle, 0),
      CUVMM_CALL(cuMemUnmap, o.reservation, granule),
      CUVMM_CALL(cuMemSetAccess, o.reservation, granule, read_write(), 1),
      CUVMM_CALL(cuMemGetAccess, &call_word, device_0(), o.reservation),
      CUVMM_CALL(cuMemRetainAllocationHandle, out<CUmemGenericAllocationHandle>(), as_pointer(o.reservation)),
      CUVMM_CALL(cuMemGetAllocationPropertiesFromHandle, out<CUmemAllocationProp>(), o.handle),
      CUVMM_CALL(cuMemExportToShareableHandle, out<int>(), o.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUVMM_CALL(cuMemImportFromShareableHandle, out<CUmemGenericAllocationHandle>(), as_os_handle(o.descriptor),
                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      CUVMM_CALL(cuMemGetHandleForAddressRange, out<int>(), o.reservation, granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                 0),
      CUVMM_CALL(cuIpcGetMemHandle, out<CUipcMemHandle>(), o.allocation),
      CUVMM_CALL(cuIpcOpenMemHandle, out<CUdeviceptr>(), CUipcMemHandle{}, 1),
      CUVMM_CALL(cuIpcCloseMemHandle, o.allocation),
  };
}

std::vector<EntryPointCall> copy_calls() {
  return {
      CUVMM_CALL(cuMemcpy, o.allocation, as_address(page.data()), 64),
      CUVMM_CALL(cuMemcpyAsync, o.allocation, as_address(page.data()), 64, o.stream),
      CUVMM_CALL(cuMemcpyHtoD, o.allocation, page.data(), 64),
      CUVMM_CALL(cuMemcpyDtoH, page.data(), o.allocation, 64),
      CUVMM_CALL(cuMemcpyDtoD, o.allocation, o.reservation, 64),
      CUVMM_CALL(cuMemcpyHtoDAsync, o.allocation, page.data(), 64, o.stream),
      CUVMM_CALL(cuMemcpyDtoHAsync, page.data(), o.allocation, 64, o.stream),
      CUVMM_CALL(cuMemcpyDtoDAsync, o.allocation, o.reservation, 64, o.stream),
      CUVMM_CALL(cuMemcpyPeer, o.allocation, o.context, o.reservation, o.context, 64),
      CUVMM_CALL(cuMemcpyPeerAsync, o.allocation, o.context, o.reservation, o.context, 64, o.stream),
      CUVMM_CALL(cuMemsetD8, o.allocation, 1, 64),
      CUVMM_CALL(cuMemsetD16, o.allocation, 1, 64),
      CUVMM_CALL(cuMemsetD32, o.allocation, 1, 64),
      CUVMM_CALL(cuMemsetD8Async, o.allocation, 1, 64, o.stream),
      CUVMM_CALL(cuMemsetD16Async, o.allocation, 1, 64, o.stream),
      CUVMM_CALL(cuMemsetD32Async, o.allocation, 1, 64, o.stream),
  };
}

std::vector<EntryPointCall> stream_calls() {
  return {
      CUVMM_CALL(cuStreamCreate, out<CUstream>(), CU_STREAM_NON_BLOCKING),
      CUVMM_CALL(cuStreamCreateWithPriority, out<CUstream>(), CU_STREAM_NON_BLOCKING, 0),
      CUVMM_CALL(cuStreamDestroy, o.stream),
      CUVMM_CALL(cuStreamSynchronize, o.stream),
      CUVMM_CALL(cuStreamQuery, o.stream),
      CUVMM_CALL(cuStreamWaitEvent, o.stream, o.event, 0),
      CUVMM_CALL(cuLaunchHostFunc, o.stream, nothing, nullptr),
      CUVMM_CALL(cuStreamWriteValue32, o.stream, o.allocation, 1, 0),
      CUVMM_CALL(cuStreamWriteValue64, o.stream, o.allocation, 1, 0),
      CUVMM_CALL(cuStreamWaitValue32, o.stream, o.allocation, 0, CU_STREAM_WAIT_VALUE_GEQ),
      CUVMM_CALL(cuStreamWaitValue64, o.stream, o.allocation, 0, CU_STREAM_WAIT_VALUE_GEQ),
      CUVMM_CALL(cuStreamBeginCapture, o.capturing, CU_STREAM_CAPTURE_MODE_RELAXED),
      CUVMM_CALL(cuStreamEndCapture, o.capturing, out<CUgraph>()),
      CUVMM_CALL(cuStreamIsCapturing, o.stream, out<CUstreamCaptureStatus>()),
      CUVMM_CALL(cuStreamGetCaptureInfo, o.stream, out<CUstreamCaptureStatus>(), nullptr, nullptr, nullptr, nullptr),
      CUVMM_CALL(cuStreamGetCtx, o.stream, out<CUcontext>()),
      CUVMM_CALL(cuStreamGetFlags, o.stream, out<unsigned>()),
      EntryPointCall{EntryPoint::cuThreadExchangeStreamCaptureMode,
                     [](Interface& cuda, Objects&) {
                       CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
                       return cuda.cuThreadExchangeStreamCaptureMode(&mode);
                     }},
      CUVMM_CALL(cuEventCreate, out<CUevent>(), CU_EVENT_DEFAULT),
      CUVMM_CALL(cuEventRecord, o.event, o.stream),
      CUVMM_CALL(cuEventRecordWithFlags, o.event, o.stream, 0),
      CUVMM_CALL(cuEventQuery, o.event),
      CUVMM_CALL(cuEventSynchronize, o.event),
      CUVMM_CALL(cuEventDestroy, o.event),
      CUVMM_CALL(cuEventElapsedTime, out<float>(), o.event, o.second_event),
  };
}

std::vector<EntryPointCall> graph_and_kernel_calls() {
  return {
      CUVMM_CALL(cuGraphInstantiateWithFlags, out<CUgraphExec>(), o.graph, 0),
      CUVMM_CALL(cuGraphLaunch, o.graph_exec, o.stream),
      CUVMM_CALL(cuGraphExecDestroy, o.graph_exec),
      CUVMM_CALL(cuGraphDestroy, o.graph),
      CUVMM_CALL(cuGraphGetNodes, o.graph, nullptr, out<std::size_t>()),
      CUVMM_CALL(cuModuleLoadData, out<CUmodule>(), kernel_image()),
      CUVMM_CALL(cuModuleUnload, o.module),
      CUVMM_CALL(cuModuleGetFunction, out<CUfunction>(), o.module, store_kernel),
      EntryPointCall{EntryPoint::cuLaunchKernel,
                     [](Interface& cuda, Objects& o) {
                       unsigned value = 1;
                       void* parameters[] = {&o.allocation, &value};
                       return cuda.cuLaunchKernel(o.function, 1, 1, 1, 1, 1, 1, 0, o.stream, parameters, nullptr);
                     }},
  };
}

// A graph of one memset of the allocation.
CUgraph captured_memset(Environment& cuda, CUstream stream, CUdeviceptr allocation) {
  CUgraph graph = nullptr;
  cuda.expect("begin capture", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuda.expect("memset", cuda->cuMemsetD8Async(allocation, 1, 64, stream));
  cuda.expect("end capture", cuda->cuStreamEndCapture(stream, &graph));
  return graph;
}

void make_memory(Environment& cuda, Objects& objects) {
  alignas(4096) thread_local std::array<char, 4096> registered{};
  objects.allocation = cuda.allocate();
  objects.second_allocation = cuda.allocate();
  cuda.expect("memset", cuda->cuMemsetD8(objects.allocation, 0, 4096));
  objects.reservation = cuda.reserve(2 * granule);
  cuda.map_new(objects.reservation, granule);
  cuda.grant(objects.reservation, granule);
  objects.free_reservation = cuda.reserve(granule);
  const Exported exported = cuda.export_new();
  objects.handle = exported.handle;
  objects.descriptor = exported.descriptor;
  objects.host = cuda.allocate_host();
  objects.registered = registered.data();
  cuda.expect("register", cuda->cuMemHostRegister(registered.data(), registered.size(), 0));
}

void make_streams(Environment& cuda, Objects& objects) {
  objects.stream = cuda.stream();
  objects.capturing = cuda.stream();
  objects.event = cuda.event(CU_EVENT_DEFAULT);
  objects.second_event = cuda.event(CU_EVENT_DEFAULT);
  cuda.expect("record", cuda->cuEventRecord(objects.event, objects.stream));
  cuda.expect("record", cuda->cuEventRecord(objects.second_event, objects.stream));
  cuda.expect("synchronize", cuda->cuStreamSynchronize(objects.stream));
  objects.graph = captured_memset(cuda, objects.stream, objects.allocation);
  cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&objects.graph_exec, objects.graph, 0));
}

}  // namespace

Objects make_objects(Environment& cuda) {
  Objects objects;
  objects.context = cuda.context();
  make_memory(cuda, objects);
  make_streams(cuda, objects);
  const Kernels kernels{cuda};
  objects.module = kernels.module();
  objects.function = kernels.function(store_kernel);
  make_further_objects(cuda, objects);
  return objects;
}

const std::vector<EntryPointCall>& entry_point_calls() {
  static const std::vector<EntryPointCall> calls = [] {
    std::vector<EntryPointCall> all = first_entry_point_calls();
    all.insert(all.end(), further_entry_point_calls().begin(), further_entry_point_calls().end());
    all.insert(all.end(), pool_sharing_calls().begin(), pool_sharing_calls().end());
    return all;
  }();
  return calls;
}

const std::vector<EntryPointCall>& first_entry_point_calls() {
  static const std::vector<EntryPointCall> calls = [] {
    std::vector<EntryPointCall> all;
    for (const auto& group : {core_and_device_calls(), context_calls(), memory_calls(), vmm_calls(), copy_calls(),
                              stream_calls(), graph_and_kernel_calls()})
      all.insert(all.end(), group.begin(), group.end());
    return all;
  }();
  return calls;
}

}  // namespace cuvmm::conformance
