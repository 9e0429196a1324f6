// Initialisation, and where the emulated driver ends: machine code for GPUs, and tables of functions that NVIDIA alone
// knows.
#include <cstdint>
#include <cstring>

#include "emulator/drop_in/exported.hpp"

using namespace cuvmm::abi;
using namespace cuvmm::emulator::drop_in;
using cuvmm::driver::EntryPoint;

namespace {

// Whether an image begins as a program for GPUs does: an ELF file, a fatbin, or what nvcc wraps a fatbin in.
bool is_device_code(const void* image) noexcept {
  constexpr std::uint32_t elf = 0x464C457F;
  constexpr std::uint32_t fatbin = 0xBA55ED50;
  constexpr std::uint32_t wrapped_fatbin = 0x466243B1;
  std::uint32_t magic = 0;
  if (::strnlen(static_cast<const char*>(image), sizeof magic) < sizeof magic) return false;
  std::memcpy(&magic, image, sizeof magic);
  return magic == elf || magic == fatbin || magic == wrapped_fatbin;
}

}  // namespace

extern "C" {

CUVMM_EXPORT CUresult cuInit(unsigned int flags) {
  return initialise(flags);
}

CUVMM_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  static Told told;
  const CUresult result = call<EntryPoint::cuModuleLoadData>(module, image);
  if (result != CUDA_ERROR_INVALID_IMAGE || !is_device_code(image)) return result;
  return not_offered("cuModuleLoadData of device code", told,
                     "the emulated driver runs no machine code for GPUs; kernels are host functions, found by the "
                     "names in PTX text or in an uncompressed fatbin that holds some");
}

CUVMM_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  static Told told;
  const CUresult result = call<EntryPoint::cuModuleGetFunction>(function, module, name);
  if (result != CUDA_ERROR_NOT_SUPPORTED) return result;
  return not_offered("cuModuleGetFunction of a kernel of the program's own", told,
                     "the emulated driver runs no device code; it has host functions for the kernels of cuvmm alone");
}

CUVMM_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
  static Told told;
  if (table != nullptr) *table = nullptr;
  return not_offered("cuGetExportTable", told,
                     "the tables are known to NVIDIA's own libraries alone, so that programs on the CUDA runtime "
                     "(cudart) do not run on the emulated driver; programs on the driver's entry points do");
}

}  // extern "C"
