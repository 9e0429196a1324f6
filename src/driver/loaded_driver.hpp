// The CUDA driver of this machine, loaded while the program runs.
#pragma once

#include <memory>
#include <string>

#include "driver/interface.hpp"

namespace cuvmm::driver {

struct LoadOptions {
  std::string library = "libcuda.so.1";  // a name that the dynamic linker searches for, or a path
  bool initialise = true;                // false: cuInit, and the check that there are devices, are left to the caller
};

// Opens the driver library, looks up each entry point of the list through cuGetProcAddress, and initialises it.
//
// An entry point is asked for by the version that the list gives, so that a newer driver hands out the form that is
// meant. One that is newer than the driver is not asked for: with a version above its own a driver answers
// INVALID_VALUE for every name, and with a lower one it may hand out an older form with other parameters. What is
// missing answers CUDA_ERROR_NOT_SUPPORTED and has an explanation; has() tells in advance.
//
// The multicast entry points are not looked up if the library was built with CUVMM_RESOLVE_MULTICAST=OFF, or if
// CUVMM_MULTICAST=0, NCCL_NVLS_ENABLE=0, TORCH_SYMM_MEM_DISABLE_MULTICAST=1 or NVSHMEM_DISABLE_NVLS=1 is in the
// environment.
//
// The library stays loaded until the process ends. Throws DriverUnavailable, telling what is missing and what to do:
// no library, one too old to have cuGetProcAddress, one that does not initialise, no device.
[[nodiscard]] std::shared_ptr<Interface> load_driver(const LoadOptions& options = {});

}  // namespace cuvmm::driver
