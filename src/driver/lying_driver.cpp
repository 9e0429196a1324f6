#include "driver/lying_driver.hpp"

namespace cuvmm::driver {

namespace {

constexpr unsigned char flipped_bit = 0x10;

}  // namespace

LyingDriver::LyingDriver(std::shared_ptr<Interface> next, const Lies& lies) : Decorator(std::move(next)), lies_(lies) {}

std::string LyingDriver::description() const {
  return next().description() + ", lying on purpose";
}

// Copies.

bool LyingDriver::flips_this_copy(CUresult result, std::size_t bytes) {
  if (!lies_.flip_copied_byte || result != CUDA_SUCCESS || bytes == 0) return false;
  const std::lock_guard lock(mutex_);
  ++copies_;
  return lies_.only_copy == 0 || lies_.only_copy == copies_;
}

bool LyingDriver::flips_this_streamed_copy(CUresult result, std::size_t bytes, CUstream stream) {
  return lies_.flip_streamed_byte && result == CUDA_SUCCESS && bytes != 0 && waited_for(stream);
}

bool LyingDriver::waited_for(CUstream stream) {
  auto status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (next().cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE)
    return false;
  return next().cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

void LyingDriver::flip_on_host(void* destination, std::size_t bytes) {
  static_cast<unsigned char*>(destination)[bytes / 2] ^= flipped_bit;
}

void LyingDriver::flip_anywhere(CUdeviceptr destination, std::size_t bytes) {
  unsigned char byte = 0;
  const CUdeviceptr address = destination + bytes / 2;
  const auto here = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(&byte));
  if (next().cuMemcpy(here, address, 1) != CUDA_SUCCESS) return;
  byte ^= flipped_bit;
  static_cast<void>(next().cuMemcpy(address, here, 1));
}

void LyingDriver::flip_in_context(CUcontext context, CUdeviceptr destination, std::size_t bytes) {
  if (next().cuCtxPushCurrent(context) != CUDA_SUCCESS) return;
  flip_anywhere(destination, bytes);
  CUcontext popped = nullptr;
  static_cast<void>(next().cuCtxPopCurrent(&popped));
}

CUresult LyingDriver::cuMemcpy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  const CUresult result = next().cuMemcpy(destination, source, bytes);
  if (flips_this_copy(result, bytes)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  const CUresult result = next().cuMemcpyAsync(destination, source, bytes, stream);
  if (flips_this_streamed_copy(result, bytes, stream)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoH(void* destination, CUdeviceptr source, size_t bytes) {
  const CUresult result = next().cuMemcpyDtoH(destination, source, bytes);
  if (flips_this_copy(result, bytes)) flip_on_host(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoHAsync(void* destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  const CUresult result = next().cuMemcpyDtoHAsync(destination, source, bytes, stream);
  if (flips_this_streamed_copy(result, bytes, stream)) flip_on_host(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoD(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  const CUresult result = next().cuMemcpyDtoD(destination, source, bytes);
  if (flips_this_copy(result, bytes)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyDtoDAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  const CUresult result = next().cuMemcpyDtoDAsync(destination, source, bytes, stream);
  if (flips_this_streamed_copy(result, bytes, stream)) flip_anywhere(destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyPeer(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                   CUcontext source_context, size_t bytes) {
  const CUresult result = next().cuMemcpyPeer(destination, destination_context, source, source_context, bytes);
  if (flips_this_copy(result, bytes)) flip_in_context(destination_context, destination, bytes);
  return result;
}

CUresult LyingDriver::cuMemcpyPeerAsync(CUdeviceptr destination, CUcontext destination_context, CUdeviceptr source,
                                        CUcontext source_context, size_t bytes, CUstream stream) {
  const CUresult result =
      next().cuMemcpyPeerAsync(destination, destination_context, source, source_context, bytes, stream);
  if (flips_this_streamed_copy(result, bytes, stream)) flip_in_context(destination_context, destination, bytes);
  return result;
}

// Events.

CUresult LyingDriver::cuEventQuery(CUevent event) {
  const CUresult result = next().cuEventQuery(event);
  return lies_.report_events_done && result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

}  // namespace cuvmm::driver
