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

const Form* better(const Form* one, const Form& other) noexcept {
  if (one == nullptr) return &other;
  if (one->default_stream != other.default_stream)
    return one->default_stream == DefaultStream::per_thread ? one : &other;
  return one->version >= other.version ? one : &other;
}

CUresult get_proc_address(const char* name, void** function, int version, unsigned long long flags,
                          CUdriverProcAddressQueryResult& status) noexcept {
  if (name == nullptr || function == nullptr || flags > per_thread_stream_flag) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  int newest = 0;
  if (const CUresult result = call<EntryPoint::cuDriverGetVersion>(&newest); result != CUDA_SUCCESS) return result;
  if (version > newest) return CUDA_ERROR_INVALID_VALUE;
  static_assert(legacy_stream_flag == 1, "as without a flag");
  const Found found = look_up(forms(), name, version,
                              flags == per_thread_stream_flag ? DefaultStream::per_thread : DefaultStream::legacy);
  *function = found.function;
  status = found.status;
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

// The form of CUDA 11.3 has no status to tell: what is not found is an error.
CUVMM_EXPORT CUresult cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = get_proc_address(name, function, version, flags, status);
  return result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_ERROR_NOT_FOUND : result;
}

CUVMM_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                                          CUdriverProcAddressQueryResult* status) {
  CUdriverProcAddressQueryResult told = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = get_proc_address(name, function, version, flags, told);
  if (result == CUDA_SUCCESS && status != nullptr) *status = told;
  return result;
}

}  // extern "C"
