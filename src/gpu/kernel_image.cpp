#include "gpu/kernel_image.hpp"

namespace cuvmm::gpu {

// Defined in a source file that the build generates from the image.
extern const unsigned char kernel_image_bytes[];
extern const std::size_t kernel_image_size;

std::span<const std::byte> kernel_image() noexcept {
  return std::as_bytes(std::span(kernel_image_bytes, kernel_image_size));
}

bool kernel_image_runs_on_gpus() noexcept {
  return CUVMM_KERNEL_IMAGE_RUNS_ON_GPUS != 0;
}

}  // namespace cuvmm::gpu
