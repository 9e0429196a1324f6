// What a module image says of itself, as far as the emulated driver needs it: the names of its kernels.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cuvmm::emulator {

// The kernels' names in an image as cuModuleLoadData is given: PTX text, which ends with a zero byte, or an
// uncompressed fatbin with PTX in it. Nothing for anything else: machine code names its kernels in a way that is of no
// use here. A fatbin must be as long as its header says.
[[nodiscard]] std::optional<std::vector<std::string>> kernel_names_in(const void* image);

}  // namespace cuvmm::emulator
