// A driver library with hardly anything in it, built several times with other facts about it:
//   FAKE_VERSION      what cuDriverGetVersion answers; cuGetProcAddress refuses all versions above it
//   FAKE_FORM         0: no cuGetProcAddress, 1: the form of CUDA 11.3, 2: that of CUDA 12.0
//   FAKE_INIT_RESULT  what cuInit answers
//   FAKE_DEVICES      how many devices it shows
//   FAKE_LACKS        an entry point that it does not have although its version should
#include <cstring>

#include "driver/abi.hpp"

using namespace cuvmm::abi;

namespace {

int highest_version_asked = 0;
int multicast_asked = 0;

CUresult init(unsigned) {
  return static_cast<CUresult>(FAKE_INIT_RESULT);
}
CUresult device_count(int* count) {
  *count = FAKE_DEVICES;
  return CUDA_SUCCESS;
}
CUresult driver_version(int* version) {
  *version = FAKE_VERSION;
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
  return handle == 42 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
// The two forms of one function tell themselves apart, as real ones do by their parameters.
CUresult first_total_memory(unsigned*, CUdevice) {
  return CUDA_ERROR_UNKNOWN;
}
CUresult second_total_memory(size_t* bytes, CUdevice) {
  *bytes = 1;
  return CUDA_SUCCESS;
}
CUresult handle_for_range(void* handle, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long) {
  *static_cast<int*>(handle) = 5;
  return CUDA_SUCCESS;
}
CUresult first_bind(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,
                    unsigned long long) {
  return CUDA_ERROR_ILLEGAL_STATE;
}

CUresult second_bind(CUmemGenericAllocationHandle, CUdevice device, size_t, CUmemGenericAllocationHandle, size_t,
                     size_t, unsigned long long) {
  return device == 5 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult multicast_create(CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp*) {
  *handle = 7;
  return CUDA_SUCCESS;
}

struct Function {
  const char* name;
  int since;
  void* pointer;
};

void* find(const char* name, int version) {
  const Function functions[] = {
      {"cuInit", 2000, reinterpret_cast<void*>(&init)},
      {"cuDriverGetVersion", 2020, reinterpret_cast<void*>(&driver_version)},
      {"cuDeviceGetCount", 2000, reinterpret_cast<void*>(&device_count)},
      {"cuDeviceTotalMem", 2000, reinterpret_cast<void*>(&first_total_memory)},
      {"cuDeviceTotalMem", 3020, reinterpret_cast<void*>(&second_total_memory)},
      {"cuMemRelease", 10020, reinterpret_cast<void*>(&release)},
      {"cuMemGetHandleForAddressRange", 11070, reinterpret_cast<void*>(&handle_for_range)},
      {"cuMulticastCreate", 12010, reinterpret_cast<void*>(&multicast_create)},
      {"cuMulticastBindMem", 12010, reinterpret_cast<void*>(&first_bind)},
      {"cuMulticastBindMem", 13010, reinterpret_cast<void*>(&second_bind)},
  };
  void* found = nullptr;
  for (const Function& function : functions)
    if (std::strcmp(name, function.name) == 0 && version >= function.since && std::strcmp(name, FAKE_LACKS) != 0)
      found = function.pointer;
  return found;
}

[[maybe_unused]] CUresult look_up(const char* name, void** function, int version) {
  if (version > highest_version_asked) highest_version_asked = version;
  if (std::strncmp(name, "cuMulticast", 11) == 0) ++multicast_asked;
  *function = nullptr;
  if (version > FAKE_VERSION) return CUDA_ERROR_INVALID_VALUE;
  *function = find(name, version);
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace

extern "C" {

// What was asked of this library so far.
int fake_highest_version_asked() {
  return highest_version_asked;
}
int fake_multicast_asked() {
  return multicast_asked;
}

CUresult cuDriverGetVersion(int* version) {
  return driver_version(version);
}

#if FAKE_FORM == 1
CUresult cuGetProcAddress(const char* name, void** function, int version, unsigned long long) {
  return look_up(name, function, version);
}
#elif FAKE_FORM == 2
// As the real one does since CUDA 12.0: a missing name is success with a status, not an error.
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long,
                             CUdriverProcAddressQueryResult* status) {
  const CUresult result = look_up(name, function, version);
  if (result == CUDA_ERROR_INVALID_VALUE) return result;
  *status = result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}
#endif

}  // extern "C"
