#include "gpu/collective_image.hpp"

namespace cuvmm::gpu {

// Defined in a source file that the build generates from the image.
extern const unsigned char collective_image_bytes[];
extern const std::size_t collective_image_size;

std::span<const std::byte> collective_image() noexcept {
  return std::as_bytes(std::span(collective_image_bytes, collective_image_size));
}

}  // namespace cuvmm::gpu
