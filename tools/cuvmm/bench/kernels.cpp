#include "bench/kernels.hpp"

#include <string>

#include "bench/unavailable.hpp"
#include "clean_up.hpp"
#include "driver/call.hpp"
#include "gpu/kernel_image.hpp"

namespace cuvmm::bench {

using driver::call;
using driver::EntryPoint;

Stream::Stream(const Driver& driver) : calls_(driver.interface()) {
  call<EntryPoint::cuStreamCreate>(calls_, &stream_, abi::CU_STREAM_NON_BLOCKING);
}
Stream::~Stream() {
  clean_up<EntryPoint::cuStreamSynchronize>(calls_, stream_);
  clean_up<EntryPoint::cuStreamDestroy>(calls_, stream_);
}
void Stream::wait() const {
  call<EntryPoint::cuStreamSynchronize>(calls_, stream_);
}

Kernels::Kernels(const Driver& driver) : calls_(driver.interface()) {
  if (!driver.is_emulated() && !gpu::kernel_image_runs_on_gpus())
    throw Unavailable("it needs kernels, and this cuvmm was built without nvcc: build it where a CUDA toolkit is");
  call<EntryPoint::cuModuleLoadData>(calls_, &module_, gpu::kernel_image().data());
}
Kernels::~Kernels() {
  clean_up<EntryPoint::cuModuleUnload>(calls_, module_);
}

template <class Parameters>
void Kernels::launch(Parameters parameters, const gpu::LaunchShape& shape, abi::CUstream stream) const {
  abi::CUfunction function = nullptr;
  call<EntryPoint::cuModuleGetFunction>(calls_, &function, module_, std::string(Parameters::kernel).c_str());
  call<EntryPoint::cuLaunchKernel>(calls_, function, shape.blocks, 1U, 1U, shape.threads_per_block, 1U, 1U, 0U, stream,
                                   arguments(parameters).data(), nullptr);
}

void Kernels::read(const gpu::ReadParameters& parameters, abi::CUstream stream) const {
  launch(parameters, gpu::launch_shape(parameters.bytes / sizeof(std::uint64_t)), stream);
}
void Kernels::copy(const gpu::CopyParameters& parameters, abi::CUstream stream) const {
  launch(parameters, gpu::launch_shape(parameters.bytes / sizeof(std::uint64_t)), stream);
}
void Kernels::fill(const gpu::FillParameters& parameters, abi::CUstream stream) const {
  launch(parameters, gpu::launch_shape(parameters.bytes / sizeof(std::uint64_t)), stream);
}

DeviceTimer::DeviceTimer(const Driver& driver) : calls_(driver.interface()) {
  call<EntryPoint::cuEventCreate>(calls_, &before_, abi::CU_EVENT_DEFAULT);
  call<EntryPoint::cuEventCreate>(calls_, &after_, abi::CU_EVENT_DEFAULT);
}
DeviceTimer::~DeviceTimer() {
  clean_up<EntryPoint::cuEventDestroy>(calls_, before_);
  clean_up<EntryPoint::cuEventDestroy>(calls_, after_);
}
void DeviceTimer::start(abi::CUstream stream) const {
  call<EntryPoint::cuEventRecord>(calls_, before_, stream);
}
double DeviceTimer::stop(abi::CUstream stream) const {
  call<EntryPoint::cuEventRecord>(calls_, after_, stream);
  call<EntryPoint::cuEventSynchronize>(calls_, after_);
  float milliseconds = 0;
  call<EntryPoint::cuEventElapsedTime>(calls_, &milliseconds, before_, after_);
  return static_cast<double>(milliseconds);
}

PlainMemory::PlainMemory(const Driver& driver, std::size_t bytes) : calls_(driver.interface()) {
  call<EntryPoint::cuMemAlloc>(calls_, &address_, bytes);
}
PlainMemory::~PlainMemory() {
  clean_up<EntryPoint::cuMemFree>(calls_, address_);
}

}  // namespace cuvmm::bench
