// cuGetProcAddress.
#include "emulator/drop_in/look_up.hpp"

#include "emulator/drop_in/exported.hpp"

namespace cuvmm::emulator::drop_in {
namespace {

using namespace cuvmm::abi;
using driver::EntryPoint;

// CUdriverProcAddress_flags.
constexpr unsigned long long legacy_stream_flag = 1;
constexpr unsigned long long per_thread_stream_flag = 2;
constexpr unsigned long long known_flags = legacy_stream_flag | per_thread_stream_flag;

const Form* better(const Form* one, const Form& other) noexcept {
  if (one == nullptr) return &other;
  if (one->default_stream != other.default_stream)
    return one->default_stream == DefaultStream::per_thread ? one : &other;
  return one->version >= other.version ? one : &other;
}

// A version below zero finds what the newest does.
CUresult get_proc_address(const char* name, const void* place, int version, unsigned long long flags,
                          Found& found) noexcept {
  if (name == nullptr || place == nullptr || (flags & ~known_flags) != 0) return CUDA_ERROR_INVALID_VALUE;
  int newest = 0;
  if (const CUresult result = call<EntryPoint::cuDriverGetVersion>(&newest); result != CUDA_SUCCESS) return result;
  if (version > newest) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = (flags & per_thread_stream_flag) != 0;
  found = look_up(forms(), name, version < 0 ? newest : version,
                  per_thread ? DefaultStream::per_thread : DefaultStream::legacy);
  return CUDA_SUCCESS;
}

}  // namespace

Found look_up(std::span<const Form> all, std::string_view name, int version, DefaultStream wanted) noexcept {
  const Form* best = nullptr;
  bool known = false;
  for (const Form& form : all) {
    if (form.name != name) continue;
    known = true;
    if (form.version > version) continue;
    if (form.default_stream == DefaultStream::per_thread && wanted == DefaultStream::legacy) continue;
    best = better(best, form);
  }
  if (best != nullptr) return {best->function, CU_GET_PROC_ADDRESS_SUCCESS};
  return {nullptr, known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
}

}  // namespace cuvmm::emulator::drop_in

using namespace cuvmm::abi;
using namespace cuvmm::emulator::drop_in;

extern "C" {

// The form of CUDA 11.3 has no status to tell: what is not found is an error, which leaves the pointer as it is.
CUVMM_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  Found found;
  if (const CUresult result = get_proc_address(name, function, version, flags, found); result != CUDA_SUCCESS)
    return result;
  if (found.status != CU_GET_PROC_ADDRESS_SUCCESS) return CUDA_ERROR_NOT_FOUND;
  *function = found.function;
  return CUDA_SUCCESS;
}

CUVMM_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                                          CUdriverProcAddressQueryResult* status) {
  Found found;
  const CUresult result = get_proc_address(name, function, version, flags, found);
  if (result != CUDA_SUCCESS) return result;
  *function = found.function;
  if (status != nullptr) *status = found.status;
  return CUDA_SUCCESS;
}

}  // extern "C"
