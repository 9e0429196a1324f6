// The names of the driver's result codes, without asking a driver.
#pragma once

#include <optional>
#include <string_view>

#include "driver/abi.hpp"

namespace cuvmm::driver {

// "CUDA_ERROR_OUT_OF_MEMORY"; empty for a code that CUDA 13.0 does not have.
[[nodiscard]] std::string_view result_name(abi::CUresult result) noexcept;

// The code of that name, given whole or without its "CUDA_" or "CUDA_ERROR_": "OUT_OF_MEMORY". Nothing if none has it.
[[nodiscard]] std::optional<abi::CUresult> find_result(std::string_view name) noexcept;

}  // namespace cuvmm::driver
