// Forms of entry points, other than the one in entry_points.def, that programs built with today's headers call, and
// that the same work answers.
#include "emulator/drop_in/exported.hpp"

using namespace cuvmm::abi;
using namespace cuvmm::emulator::drop_in;
using cuvmm::driver::EntryPoint;

namespace {

// Runs `work(driver's call)` with another context current; a null one stands for the current one.
template <class Work>
CUresult with_current(CUcontext context, Work&& work) {
  if (context == nullptr) return work();
  if (const CUresult result = call<EntryPoint::cuCtxPushCurrent>(context); result != CUDA_SUCCESS) return result;
  const CUresult result = work();
  CUcontext popped = nullptr;
  (void)call<EntryPoint::cuCtxPopCurrent>(&popped);
  return result;
}

constexpr unsigned long long upload_flag = 2;  // CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD

// CUDA_GRAPH_INSTANTIATE_PARAMS.
struct GraphInstantiation {
  unsigned long long flags;
  CUstream upload_stream;
  CUgraphNode error_node;
  int result;  // CUgraphInstantiateResult: 0 is success, 1 an error that has no name of its own
};

constexpr const char* no_context_parameters =
    "contexts with parameters (execution affinity, CUDA in graphics) are not emulated; create one without";

}  // namespace

extern "C" {

// What CUexecAffinityParam and CUctxCreateParams hold is never looked at.
CUVMM_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, void* affinities, int count, unsigned int flags,
                                     CUdevice device) {
  static Told told;
  if (affinities != nullptr || count != 0) return not_offered("cuCtxCreate_v3", told, no_context_parameters);
  return call<EntryPoint::cuCtxCreate>(context, flags, device);
}
CUVMM_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, void* parameters, unsigned int flags, CUdevice device) {
  static Told told;
  if (parameters != nullptr) return not_offered("cuCtxCreate_v4", told, no_context_parameters);
  return call<EntryPoint::cuCtxCreate>(context, flags, device);
}

CUVMM_EXPORT CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  return with_current(context, [&] { return call<EntryPoint::cuCtxGetDevice>(device); });
}
CUVMM_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  return with_current(context, [] { return call<EntryPoint::cuCtxSynchronize>(); });
}

CUVMM_EXPORT CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  const CUresult result =
      call<EntryPoint::cuDeviceGetAttribute>(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (result != CUDA_SUCCESS) return result;
  return call<EntryPoint::cuDeviceGetAttribute>(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
}

// Devices have such identifiers under Windows alone.
CUVMM_EXPORT CUresult cuDeviceGetLuid(const char* luid, const unsigned int* node_mask, CUdevice device) {
  int warp_size = 0;
  const CUresult result = call<EntryPoint::cuDeviceGetAttribute>(&warp_size, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
  if (result != CUDA_SUCCESS) return result;
  return luid == nullptr || node_mask == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
}

// These differ from the older form on devices that are divided (MIG), of which there are none here.
CUVMM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call<EntryPoint::cuDeviceGetUuid>(uuid, device);
}

CUVMM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return call<EntryPoint::cuDevicePrimaryCtxRelease>(device);
}
CUVMM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
  return call<EntryPoint::cuDevicePrimaryCtxReset>(device);
}
CUVMM_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return call<EntryPoint::cuDevicePrimaryCtxSetFlags>(device, flags);
}

CUVMM_EXPORT CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return call<EntryPoint::cuEventElapsedTime>(milliseconds, start, end);
}

CUVMM_EXPORT CUresult cuGraphInstantiate(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                                         size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes > 0) *log = '\0';
  return call<EntryPoint::cuGraphInstantiateWithFlags>(exec, graph, 0ULL);
}
CUVMM_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                                            size_t log_bytes) {
  return cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
}
CUVMM_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, GraphInstantiation* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  parameters->error_node = nullptr;
  CUresult result = call<EntryPoint::cuGraphInstantiateWithFlags>(exec, graph, parameters->flags & ~upload_flag);
  if (result == CUDA_SUCCESS && (parameters->flags & upload_flag) != 0)
    result = call<EntryPoint::cuGraphUpload>(*exec, parameters->upload_stream);
  parameters->result = result == CUDA_SUCCESS ? 0 : 1;
  return result;
}
CUVMM_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec* exec, CUgraph graph,
                                                        GraphInstantiation* parameters) {
  if (parameters != nullptr) parameters->upload_stream = of_this_thread(parameters->upload_stream);
  return cuGraphInstantiateWithParams(exec, graph, parameters);
}

// The first form knew one mode only.
CUVMM_EXPORT CUresult cuStreamBeginCapture(CUstream stream) {
  return call<EntryPoint::cuStreamBeginCapture>(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUVMM_EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return cuStreamBeginCapture(of_this_thread(stream));
}

CUVMM_EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, unsigned long long* id) {
  return call<EntryPoint::cuStreamGetCaptureInfo>(stream, status, id, nullptr, nullptr, nullptr);
}
CUVMM_EXPORT CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                                  unsigned long long* id) {
  return cuStreamGetCaptureInfo(of_this_thread(stream), status, id);
}

// There are no green contexts here: a stream always has an ordinary one.
CUVMM_EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, void** green_context) {
  const CUresult result = call<EntryPoint::cuStreamGetCtx>(stream, context);
  if (result == CUDA_SUCCESS && green_context != nullptr) *green_context = nullptr;
  return result;
}
CUVMM_EXPORT CUresult cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* context, void** green_context) {
  return cuStreamGetCtx_v2(of_this_thread(stream), context, green_context);
}
CUVMM_EXPORT CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  CUcontext context = nullptr;
  const CUresult result = call<EntryPoint::cuStreamGetCtx>(stream, &context);
  return result == CUDA_SUCCESS ? cuCtxGetDevice_v2(device, context) : result;
}
CUVMM_EXPORT CUresult cuStreamGetDevice_ptsz(CUstream stream, CUdevice* device) {
  return cuStreamGetDevice(of_this_thread(stream), device);
}

// The dependencies' data is not looked at: edges here are all of one kind.
CUVMM_EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* dependencies, const void*,
                                                           size_t count, unsigned int flags) {
  return call<EntryPoint::cuStreamUpdateCaptureDependencies>(stream, dependencies, count, flags);
}
CUVMM_EXPORT CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode* dependencies,
                                                                const void* data, size_t count, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2(of_this_thread(stream), dependencies, data, count, flags);
}

// Dependencies here carry no data of their own: the edges' data would be all zero, for which null stands.
CUVMM_EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, unsigned long long* id,
                                                CUgraph* graph, const CUgraphNode** dependencies,
                                                const void** edge_data, size_t* count) {
  const CUresult result = call<EntryPoint::cuStreamGetCaptureInfo>(stream, status, id, graph, dependencies, count);
  if (result == CUDA_SUCCESS && edge_data != nullptr) *edge_data = nullptr;
  return result;
}
CUVMM_EXPORT CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                                     unsigned long long* id, CUgraph* graph,
                                                     const CUgraphNode** dependencies, const void** edge_data,
                                                     size_t* count) {
  return cuStreamGetCaptureInfo_v3(of_this_thread(stream), status, id, graph, dependencies, edge_data, count);
}

}  // extern "C"
