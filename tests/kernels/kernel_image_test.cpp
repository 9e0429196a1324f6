#include "gpu/kernel_image.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "gpu/kernel_signatures.hpp"

namespace cuvmm::gpu {
namespace {

std::string_view image_text() {
  const std::span<const std::byte> image = kernel_image();
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

TEST(KernelImage, NamesEveryKernelInPlainText) {
  for (const std::string_view name : kernel_names) {
    const std::string entry = ".visible .entry " + std::string(name) + "(";
    EXPECT_NE(image_text().find(entry), std::string_view::npos) << entry;
  }
}

TEST(KernelImage, NamesNoOtherKernel) {
  std::size_t entries = 0;
  for (std::size_t at = 0; (at = image_text().find(".visible .entry ", at)) != std::string_view::npos; ++at) ++entries;
  EXPECT_EQ(entries, kernel_names.size());
}

TEST(KernelImage, IsAlignedAndZeroTerminated) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(kernel_image().data()) % 8, 0U);
  EXPECT_EQ(*(kernel_image().data() + kernel_image().size()), std::byte{0});
}

TEST(KernelImage, IsAFatbinIfAndOnlyIfItRunsOnGpus) {
  constexpr std::uint32_t fatbin_magic = 0xBA55ED50;
  std::uint32_t magic = 0;
  std::memcpy(&magic, kernel_image().data(), sizeof(magic));
  EXPECT_EQ(magic == fatbin_magic, kernel_image_runs_on_gpus());
}

}  // namespace
}  // namespace cuvmm::gpu
