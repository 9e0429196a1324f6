// Copies and memsets without a stream parameter, in their forms for programs whose default stream is the thread's own:
// the same work in that stream. The host's side of a copy is done when they return.
#include "emulator/drop_in/exported.hpp"

using namespace cuvmm::abi;
using namespace cuvmm::emulator::drop_in;
using cuvmm::driver::EntryPoint;

namespace {

CUresult when_done(CUresult submitted) noexcept {
  return submitted == CUDA_SUCCESS ? call<EntryPoint::cuStreamSynchronize>(per_thread_stream()) : submitted;
}

}  // namespace

extern "C" {

CUVMM_EXPORT CUresult cuMemcpy_ptds(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return when_done(call<EntryPoint::cuMemcpyAsync>(destination, source, bytes, per_thread_stream()));
}
CUVMM_EXPORT CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr destination, const void* source, size_t bytes) {
  return when_done(call<EntryPoint::cuMemcpyHtoDAsync>(destination, source, bytes, per_thread_stream()));
}
CUVMM_EXPORT CUresult cuMemcpyDtoH_v2_ptds(void* destination, CUdeviceptr source, size_t bytes) {
  return when_done(call<EntryPoint::cuMemcpyDtoHAsync>(destination, source, bytes, per_thread_stream()));
}
CUVMM_EXPORT CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  return call<EntryPoint::cuMemcpyDtoDAsync>(destination, source, bytes, per_thread_stream());
}
CUVMM_EXPORT CUresult cuMemcpyPeer_ptds(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                        CUcontext source_context, size_t bytes) {
  return call<EntryPoint::cuMemcpyPeerAsync>(destination, destination_context, source, source_context, bytes,
                                             per_thread_stream());
}
CUVMM_EXPORT CUresult cuMemsetD8_v2_ptds(CUdeviceptr destination, unsigned char value, size_t count) {
  return call<EntryPoint::cuMemsetD8Async>(destination, value, count, per_thread_stream());
}
CUVMM_EXPORT CUresult cuMemsetD16_v2_ptds(CUdeviceptr destination, unsigned short value, size_t count) {
  return call<EntryPoint::cuMemsetD16Async>(destination, value, count, per_thread_stream());
}
CUVMM_EXPORT CUresult cuMemsetD32_v2_ptds(CUdeviceptr destination, unsigned int value, size_t count) {
  return call<EntryPoint::cuMemsetD32Async>(destination, value, count, per_thread_stream());
}

}  // extern "C"
