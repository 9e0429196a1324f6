#include "tour/gpu.hpp"

#include <fmt/core.h>

#include <cstring>

#include "clean_up.hpp"
#include "command/words.hpp"
#include "driver/call.hpp"
#include "gpu/checksum.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::tour {

using driver::call;
using driver::EntryPoint;

ReachableHostMemory::ReachableHostMemory(const Driver& driver, std::size_t bytes) : driver_(driver), size_(bytes) {
  driver::Interface& interface = driver_.interface();
  call<EntryPoint::cuMemHostAlloc>(interface, &pointer_, bytes,
                                   abi::CU_MEMHOSTALLOC_PORTABLE | abi::CU_MEMHOSTALLOC_DEVICEMAP);
  if (interface.cuMemHostGetDevicePointer(&address_, pointer_, 0) != abi::CUDA_SUCCESS) {
    clean_up<EntryPoint::cuMemFreeHost>(interface, pointer_);
    throw Unavailable("its result cannot be seen: kernels cannot reach memory of the host here");
  }
}

ReachableHostMemory::~ReachableHostMemory() {
  clean_up<EntryPoint::cuMemFreeHost>(driver_.interface(), pointer_);
}

Gpu::Gpu(const Driver& driver, DeviceOrdinal ordinal)
    : device_(driver.device(ordinal)), interface_(driver.interface()) {
  call<EntryPoint::cuDevicePrimaryCtxRetain>(interface_, &context_, device_.handle());
}

Gpu::~Gpu() {
  clean_up<EntryPoint::cuCtxSetCurrent>(interface_, context_);
  host_sum_.reset();
  if (sum_ != 0) clean_up<EntryPoint::cuMemFree>(interface_, sum_);
  if (module_ != nullptr) clean_up<EntryPoint::cuModuleUnload>(interface_, module_);
  clean_up<EntryPoint::cuCtxSetCurrent>(interface_, nullptr);
  clean_up<EntryPoint::cuDevicePrimaryCtxRelease>(interface_, device_.handle());
}

void Gpu::finish_work() const noexcept {
  clean_up<EntryPoint::cuCtxSetCurrent>(interface_, context_);
  clean_up<EntryPoint::cuCtxSynchronize>(interface_);
}

void Gpu::make_current() const {
  call<EntryPoint::cuCtxSetCurrent>(interface_, context_);
}

std::uint64_t Gpu::free_memory() const {
  make_current();
  std::size_t free = 0;
  std::size_t total = 0;
  call<EntryPoint::cuMemGetInfo>(interface_, &free, &total);
  return free;
}

abi::CUresult Gpu::try_fill(abi::CUdeviceptr destination, std::uint64_t bytes, std::uint64_t pattern) {
  return launch(gpu::FillParameters{destination, bytes, pattern}, gpu::checksum_words(bytes));
}

void Gpu::copy(abi::CUdeviceptr destination, abi::CUdeviceptr source, std::uint64_t bytes) {
  require_success(launch(gpu::CopyParameters{destination, source, bytes}, gpu::checksum_words(bytes)));
}

// What the kernel adds to its sum.
template <typename Parameters>
Gpu::Sum Gpu::summed(Parameters parameters) {
  make_current();
  prepare_sum();
  call<EntryPoint::cuMemsetD8>(interface_, sum_, static_cast<unsigned char>(0), sizeof(std::uint64_t));
  parameters.sum = sum_;
  Sum answer{launch(parameters, gpu::checksum_words(parameters.bytes)), 0};
  if (answer.result == abi::CUDA_SUCCESS) {
    copy(host_sum_->address(), sum_, sizeof(answer.value));
    std::memcpy(&answer.value, host_sum_->bytes().data(), sizeof(answer.value));
  }
  return answer;
}

Gpu::Sum Gpu::try_checksum(abi::CUdeviceptr source, std::uint64_t bytes, std::uint64_t first_word) {
  return summed(gpu::ChecksumParameters{source, bytes, first_word, 0});
}

std::uint64_t Gpu::copy_and_checksum(abi::CUdeviceptr written, abi::CUdeviceptr source, abi::CUdeviceptr read,
                                     std::uint64_t bytes, std::uint64_t first_word) {
  const Sum answer = summed(gpu::AliasParameters{written, source, read, bytes, first_word, 0});
  require_success(answer.result);
  return answer.value;
}

void Gpu::start_spin(abi::CUstream stream, abi::CUdeviceptr flag, std::uint64_t most_polls) {
  make_current();
  require_success(start(gpu::SpinParameters{flag, most_polls}, 1, stream));
}

void Gpu::start_copy(abi::CUstream stream, abi::CUdeviceptr destination, abi::CUdeviceptr source, std::uint64_t bytes) {
  make_current();
  require_success(start(gpu::CopyParameters{destination, source, bytes}, gpu::checksum_words(bytes), stream));
}

std::uint64_t Gpu::checksum(abi::CUdeviceptr source, std::uint64_t bytes, std::uint64_t first_word) {
  const Sum answer = try_checksum(source, bytes, first_word);
  require_success(answer.result);
  return answer.value;
}

void Gpu::require_kernels() const {
  if (interface_.emulated() || gpu::kernel_image_runs_on_gpus()) return;
  throw Unavailable("it needs kernels, and this cuvmm was built without nvcc: build it where a CUDA toolkit is");
}

void Gpu::require_room(std::size_t granularity, int other_processes) const {
  const std::uint64_t least = ((sum_ == 0 ? 3U : 2U) + static_cast<unsigned>(other_processes)) * granularity;
  const std::uint64_t free = free_memory();
  if (free >= least) return;
  throw Unavailable(fmt::format("it takes {} of free device memory at least, and device {} has {}",
                                command::bytes_in_words(least), ordinal(), command::bytes_in_words(free)));
}

void Gpu::require_virtual_memory() const {
  if (device_.supports_virtual_memory_management()) return;
  throw Unavailable(fmt::format("device {} has no virtual memory management", ordinal()));
}

template <typename Parameters>
abi::CUresult Gpu::start(Parameters parameters, std::uint64_t elements, abi::CUstream stream) {
  const gpu::LaunchShape shape = gpu::launch_shape(elements);
  const abi::CUfunction kernel = function(Parameters::kernel);
  return interface_.cuLaunchKernel(kernel, shape.blocks, 1, 1, shape.threads_per_block, 1, 1, 0, stream,
                                   arguments(parameters).data(), nullptr);
}

template <typename Parameters>
abi::CUresult Gpu::launch(Parameters parameters, std::uint64_t elements) {
  make_current();
  const abi::CUresult launched = start(parameters, elements, nullptr);
  return launched == abi::CUDA_SUCCESS ? interface_.cuCtxSynchronize() : launched;
}

abi::CUfunction Gpu::function(std::string_view kernel) {
  if (module_ == nullptr) {
    require_kernels();
    call<EntryPoint::cuModuleLoadData>(interface_, &module_, static_cast<const void*>(gpu::kernel_image().data()));
  }
  abi::CUfunction found = nullptr;
  call<EntryPoint::cuModuleGetFunction>(interface_, &found, module_, kernel.data());
  return found;
}

void Gpu::prepare_sum() {
  if (!host_sum_) host_sum_.emplace(device_.driver(), sizeof(std::uint64_t));
  if (sum_ == 0) call<EntryPoint::cuMemAlloc>(interface_, &sum_, sizeof(std::uint64_t));
}

void Gpu::require_success(abi::CUresult result) const {
  if (result == abi::CUDA_SUCCESS) return;
  raise(driver::describe_failure(interface_, EntryPoint::cuCtxSynchronize, result, "", {}));
}

}  // namespace cuvmm::tour
