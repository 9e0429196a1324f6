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

// The text of one kernel's PTX: from its entry to the next one.
std::string_view ptx_of(std::string_view name) {
  const std::string entry = ".visible .entry " + std::string(name) + "(";
  const std::size_t begin = image_text().find(entry);
  if (begin == std::string_view::npos) return {};
  return image_text().substr(begin, image_text().find(".visible .entry ", begin + entry.size()) - begin);
}

TEST(KernelImage, FencesAliasesBetweenTheStoreAndTheLoad) {
  if (!kernel_image_runs_on_gpus()) {
    EXPECT_EQ(image_text().find("fence.proxy"), std::string_view::npos) << "a text of names has no code";
    return;
  }
  const std::string_view code = ptx_of(AliasParameters::kernel);
  const std::size_t store = code.find("st.global"), fence = code.find("fence.proxy.alias;"),
                    barrier = code.find("bar.sync"), load = code.rfind("ld.volatile.global");
  ASSERT_NE(store, std::string_view::npos) << code;
  ASSERT_NE(load, std::string_view::npos) << code;
  EXPECT_LT(store, fence);
  EXPECT_LT(fence, barrier);
  EXPECT_LT(barrier, load);
  EXPECT_NE(barrier, std::string_view::npos);
}

TEST(KernelImage, FencesAliasesInThatKernelAlone) {
  for (const std::string_view name : kernel_names) {
    if (name != AliasParameters::kernel) {
      EXPECT_EQ(ptx_of(name).find("fence.proxy.alias"), std::string_view::npos) << name;
    }
  }
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
