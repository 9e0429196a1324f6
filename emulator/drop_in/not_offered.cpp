#include <cstdio>

#include "emulator/drop_in/exported.hpp"

namespace cuvmm::emulator::drop_in {

abi::CUresult not_offered(const char* symbol, Told& told, const char* reason) noexcept {
  if (!told.test_and_set(std::memory_order_relaxed))
    std::fprintf(stderr, "cuvmm emulated driver: %s answers CUDA_ERROR_NOT_SUPPORTED: %s.\n", symbol,
                 reason != nullptr ? reason : "the emulated driver does not have it");
  return abi::CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace cuvmm::emulator::drop_in
