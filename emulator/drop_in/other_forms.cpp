// Forms of entry points, other than the one in entry_points.def, that programs built with today's headers call, and
// that the same work answers.
#include "emulator/drop_in/exported.hpp"

using namespace cuvmm::abi;
using namespace cuvmm::emulator::drop_in;
using cuvmm::driver::EntryPoint;

namespace {

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
