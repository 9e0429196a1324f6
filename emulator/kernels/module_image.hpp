// What a module image says of itself, as far as the emulated driver needs it: the names of its kernels.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/abi.hpp"

namespace cuvmm::emulator {

// What the device's compiler takes at most.
struct PtxLimits {
  unsigned version = 90;  // tenths of a PTX version
  unsigned target = 90;   // tenths of a compute capability
};

// What the compiler has against PTX text, as far as it can be told without compiling it: SUCCESS, INVALID_PTX (its
// brackets do not match, or its target is above the device's) or UNSUPPORTED_PTX_VERSION. SUCCESS for anything else.
[[nodiscard]] abi::CUresult check_ptx(const void* image, const PtxLimits& limits);

// The kernels' names in an image as cuModuleLoadData is given: PTX text, which ends with a zero byte, or an
// uncompressed fatbin with PTX in it. Nothing for anything else: machine code names its kernels in a way that is of no
// use here. A fatbin must be as long as its header says.
[[nodiscard]] std::optional<std::vector<std::string>> kernel_names_in(const void* image);

}  // namespace cuvmm::emulator
