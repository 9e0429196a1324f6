// The image of the project's kernels, embedded in the program: what cuModuleLoadData is given, on either driver.
#pragma once

#include <cstddef>
#include <span>

namespace cuvmm::gpu {

// An uncompressed fatbin (PTX for compute_75, machine code for sm_90) where the project was built with nvcc; else a
// text that only names the entries, enough for the emulated driver, refused by a CUDA driver. Aligned to 8 bytes and
// followed by a zero byte that is not part of the span. Lives as long as the process.
[[nodiscard]] std::span<const std::byte> kernel_image() noexcept;

// Whether the image holds code for GPUs: whether the project was built with nvcc.
[[nodiscard]] bool kernel_image_runs_on_gpus() noexcept;

}  // namespace cuvmm::gpu
