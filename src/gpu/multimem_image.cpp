#include "gpu/multimem_kernels.hpp"

namespace cuvmm::gpu {

// Defined in a source file that the build generates from the image.
extern const unsigned char multimem_image_bytes[];
extern const std::size_t multimem_image_size;

std::span<const std::byte> multimem_image() noexcept {
  return std::as_bytes(std::span(multimem_image_bytes, multimem_image_size));
}

}  // namespace cuvmm::gpu
