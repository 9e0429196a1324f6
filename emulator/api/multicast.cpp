// Multicast: the emulated devices have none, say so by their attribute, and answer accordingly.
#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

Answer unsupported() {
  return {CUDA_ERROR_NOT_SUPPORTED, Rule::multicast_supported, "the attribute is 0 on this device"};
}

}  // namespace

CUresult EmulatedDriver::cuMulticastCreate(CUmemGenericAllocationHandle*, const CUmulticastObjectProp*) {
  return initialised(unsupported);
}

CUresult EmulatedDriver::cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice) {
  return initialised(unsupported);
}

CUresult EmulatedDriver::cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t,
                                            size_t, unsigned long long) {
  return initialised(unsupported);
}

CUresult EmulatedDriver::cuMulticastBindAddr(CUmemGenericAllocationHandle, size_t, CUdeviceptr, size_t,
                                             unsigned long long) {
  return initialised(unsupported);
}

CUresult EmulatedDriver::cuMulticastUnbind(CUmemGenericAllocationHandle, CUdevice, size_t, size_t) {
  return initialised(unsupported);
}

CUresult EmulatedDriver::cuMulticastGetGranularity(size_t*, const CUmulticastObjectProp*,
                                                   CUmulticastGranularity_flags) {
  return initialised(unsupported);
}

}  // namespace cuvmm::emulator::api
