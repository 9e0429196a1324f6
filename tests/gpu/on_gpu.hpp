// The first GPU, its context current, and a kernel that spins.
#pragma once

#include <gtest/gtest.h>

#include <cuvmm/cuvmm.hpp>
#include <string>
#include <vector>

#include "driver/call.hpp"
#include "gpu/kernel_image.hpp"
#include "gpu/kernel_signatures.hpp"

namespace cuvmm::test {

using driver::call;
using driver::EntryPoint;

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> content(bytes);
  for (std::byte& each : content) {
    seed = seed * 1664525u + 1013904223u;
    each = static_cast<std::byte>(seed >> 24);
  }
  return content;
}

class OnGpu : public testing::Test {
 protected:
  OnGpu() {
    EXPECT_TRUE(gpu::kernel_image_runs_on_gpus());
    abi::CUmodule module = nullptr;
    call<EntryPoint::cuModuleLoadData>(api(), &module, gpu::kernel_image().data());
    call<EntryPoint::cuModuleGetFunction>(api(), &spin_, module, std::string(gpu::SpinParameters::kernel).c_str());
  }

  [[nodiscard]] driver::Interface& api() const { return driver_.interface(); }

  abi::CUstream stream(unsigned flags = abi::CU_STREAM_NON_BLOCKING) {
    abi::CUstream made = nullptr;
    call<EntryPoint::cuStreamCreate>(api(), &made, flags);
    return made;
  }

  // A kernel that reads the first word until it is not 0, or for some seconds.
  void spin(DeviceAddress flag, abi::CUstream stream) {
    gpu::SpinParameters parameters{flag.value, std::uint64_t{1} << 25};
    auto arguments = gpu::arguments(parameters);
    call<EntryPoint::cuLaunchKernel>(api(), spin_, 1U, 1U, 1U, 1U, 1U, 1U, 0U, stream, arguments.data(), nullptr);
  }

  Driver driver_ = Driver::cuda();
  Device device_ = driver_.device(DeviceOrdinal{0});
  CurrentContext context_{device_};

 private:
  abi::CUfunction spin_ = nullptr;
};

}  // namespace cuvmm::test
