// An emulated driver for tests: strict, small, with the first device's primary context current.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../sanitizers.hpp"
#include "emulator/api/emulated_driver.hpp"
#include "emulator/emulated_driver.hpp"

// Fails the test, with the driver's explanation, unless the call answers that code. `call` is a member of Interface
// with its arguments.
#define EXPECT_ANSWER(code, driver, call)                                                     \
  do {                                                                                        \
    const ::cuvmm::abi::CUresult answer_ = (driver).call;                                     \
    EXPECT_EQ(answer_, ::cuvmm::abi::CUDA_##code) << #call << "\n" << (driver).explanation(); \
  } while (false)
#define ASSERT_ANSWER(code, driver, call)                                                     \
  do {                                                                                        \
    const ::cuvmm::abi::CUresult answer_ = (driver).call;                                     \
    ASSERT_EQ(answer_, ::cuvmm::abi::CUDA_##code) << #call << "\n" << (driver).explanation(); \
  } while (false)

namespace cuvmm::emulator::test {

using namespace cuvmm::abi;

inline constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
inline constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;
inline constexpr std::uint64_t chunk = 2 * mebibyte;

using cuvmm::test::address_sanitizer;
using cuvmm::test::thread_sanitizer;

inline Configuration strict(int devices = 1) {
  Configuration configuration;
  configuration.mode = Mode::strict;
  configuration.devices = devices;
  return configuration;
}

inline CUmemAllocationProp on_device(int device, int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  return properties;
}

inline CUmemAllocationProp on_host(CUmemLocationType type, int handle_types = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemAllocationProp properties = on_device(0, handle_types);
  properties.location = {type, 0};
  return properties;
}

inline CUmemAccessDesc grant_device(int device, CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

inline CUmemAccessDesc grant_host(CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  return {{CU_MEM_LOCATION_TYPE_HOST, 0}, flags};
}

// A driver that is initialised and has device 0's primary context current to the calling thread.
class Emulated {
 public:
  explicit Emulated(const Configuration& configuration = strict())
      : driver_((configuration.validate(), std::make_shared<api::EmulatedDriver>(configuration))) {
    EXPECT_EQ(driver_->cuInit(0), CUDA_SUCCESS);
    use(0);
  }

  api::EmulatedDriver& operator*() const { return *driver_; }
  api::EmulatedDriver* operator->() const { return driver_.get(); }

  // Makes a device's primary context current to the calling thread, and answers it.
  CUcontext use(int device) {
    CUcontext context = nullptr;
    EXPECT_EQ(driver_->cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(driver_->cuCtxSetCurrent(context), CUDA_SUCCESS);
    return context;
  }

  CUmemGenericAllocationHandle create(const CUmemAllocationProp& properties, std::uint64_t bytes = chunk) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(driver_->cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS) << driver_->explanation();
    return handle;
  }

  CUdeviceptr reserve(std::uint64_t bytes = chunk) {
    CUdeviceptr address = 0;
    EXPECT_EQ(driver_->cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS) << driver_->explanation();
    return address;
  }

  void map(CUdeviceptr address, CUmemGenericAllocationHandle handle, std::uint64_t bytes = chunk) {
    EXPECT_EQ(driver_->cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS) << driver_->explanation();
  }

  CUresult grant(CUdeviceptr address, std::uint64_t bytes, const CUmemAccessDesc& access) {
    return driver_->cuMemSetAccess(address, bytes, &access, 1);
  }

  // New memory, mapped, and open to that device; its handle is released, so that it goes when it is unmapped.
  CUdeviceptr mapped(std::uint64_t bytes = chunk, const CUmemAllocationProp& properties = on_device(0),
                     const CUmemAccessDesc& access = grant_device(0)) {
    const CUmemGenericAllocationHandle handle = create(properties, bytes);
    const CUdeviceptr address = reserve(bytes);
    map(address, handle, bytes);
    EXPECT_EQ(grant(address, bytes, access), CUDA_SUCCESS) << driver_->explanation();
    EXPECT_EQ(driver_->cuMemRelease(handle), CUDA_SUCCESS);
    return address;
  }

  void unmap_and_free(CUdeviceptr address, std::uint64_t bytes = chunk) {
    EXPECT_EQ(driver_->cuMemUnmap(address, bytes), CUDA_SUCCESS) << driver_->explanation();
    EXPECT_EQ(driver_->cuMemAddressFree(address, bytes), CUDA_SUCCESS) << driver_->explanation();
  }

  std::vector<unsigned char> read(CUdeviceptr address, std::size_t bytes) {
    std::vector<unsigned char> content(bytes);
    EXPECT_EQ(driver_->cuMemcpyDtoH(content.data(), address, bytes), CUDA_SUCCESS) << driver_->explanation();
    return content;
  }

  void write(CUdeviceptr address, const std::vector<unsigned char>& content) {
    EXPECT_EQ(driver_->cuMemcpyHtoD(address, content.data(), content.size()), CUDA_SUCCESS) << driver_->explanation();
  }

  // A function of a module whose image only names it.
  CUfunction function(const std::string& name) {
    const std::string image = ".version 8.0\n.visible .entry " + name + "()\n";
    CUmodule module = nullptr;
    CUfunction found = nullptr;
    EXPECT_EQ(driver_->cuModuleLoadData(&module, image.c_str()), CUDA_SUCCESS) << driver_->explanation();
    EXPECT_EQ(driver_->cuModuleGetFunction(&found, module, name.c_str()), CUDA_SUCCESS) << driver_->explanation();
    return found;
  }

  // Launches with these arguments, each an object of the size that the kernel declares.
  template <class... Arguments>
  CUresult launch(CUfunction kernel, CUstream stream, Arguments... arguments) {
    void* parameters[] = {&arguments..., nullptr};
    return driver_->cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }

  [[nodiscard]] api::Machine::LiveObjects live() { return driver_->machine().live_objects(); }
  // Of a device, whether or not its contexts are whole.
  [[nodiscard]] std::size_t free_memory_of(int device) {
    std::size_t free = 0;
    driver_->machine().memory_info(device, &free, nullptr);
    return free;
  }
  // Of the device of the current context.
  [[nodiscard]] std::size_t free_memory() {
    std::size_t free = 0;
    EXPECT_EQ(driver_->cuMemGetInfo(&free, nullptr), CUDA_SUCCESS);
    return free;
  }

 private:
  std::shared_ptr<api::EmulatedDriver> driver_;
};

}  // namespace cuvmm::emulator::test
