// The PTX of the collectives' kernels, as the build has embedded it: which instruction, with which order and scope, and
// the fences between accesses through two addresses of one memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/collective_image.hpp"
#include "gpu/kernel_image.hpp"

namespace cuvmm::gpu {
namespace {

std::string_view image_text() {
  const std::span<const std::byte> image = collective_image();
  return {reinterpret_cast<const char*>(image.data()), image.size()};
}

const std::vector<AllReduceWay> ways{
    AllReduceWay::flagged,  AllReduceWay::staged_one_shot,   AllReduceWay::staged_two_shot,  AllReduceWay::one_shot,
    AllReduceWay::two_shot, AllReduceWay::multimem_one_shot, AllReduceWay::multimem_two_shot};
constexpr bool uses_multicast(AllReduceWay way) {
  return way == AllReduceWay::multimem_one_shot || way == AllReduceWay::multimem_two_shot;
}

template <class T>
void append_kernels(std::vector<std::string>& names, bool multicast) {
  for (const AllReduceWay way : ways)
    if (uses_multicast(way) == multicast) names.push_back(all_reduce_kernel<T>(way));
}
std::vector<std::string> kernels(bool multicast) {
  std::vector<std::string> names;
  append_kernels<float>(names, multicast);
  append_kernels<float16>(names, multicast);
  append_kernels<bfloat16>(names, multicast);
  append_kernels<std::int32_t>(names, multicast);
  append_kernels<std::uint32_t>(names, multicast);
  append_kernels<std::uint64_t>(names, multicast);
  for (const std::string_view each : {broadcast_kernel, all_gather_kernel, rank_barrier_kernel})
    names.push_back(multicast ? "cuvmm_multimem_" + std::string(each.substr(6)) : std::string(each));
  return names;
}

// The instructions of one kernel that this is about, in their order, without operands.
std::vector<std::string> instructions_of(std::string_view name) {
  const std::string entry = ".visible .entry " + std::string(name) + "(";
  const std::size_t begin = image_text().find(entry);
  std::vector<std::string> found;
  if (begin == std::string_view::npos) return found;
  const std::size_t end = image_text().find(".visible .entry ", begin + entry.size());
  std::string_view code = image_text().substr(begin, end == std::string_view::npos ? end : end - begin);
  while (!code.empty()) {
    const std::size_t line_end = std::min(code.find('\n'), code.size() - 1);
    std::string_view line = code.substr(0, line_end);
    code.remove_prefix(line_end + 1);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first == std::string_view::npos) continue;
    line.remove_prefix(first);
    const std::string_view word = line.substr(0, line.find_first_of(" \t;"));
    for (const std::string_view kind :
         {"multimem.", "fence.", "bar", "ld.acquire", "st.release", "ld.relaxed", "st.relaxed"})
      if (word.starts_with(kind)) {
        found.emplace_back(word);
        break;
      }
  }
  return found;
}

std::size_t count(const std::vector<std::string>& list, std::string_view what) {
  return static_cast<std::size_t>(std::count(list.begin(), list.end(), what));
}

// Where there was no nvcc, there is no PTX to read, only names.
class CollectivePtx : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernel_image_runs_on_gpus())
      std::puts("[ note ] built without nvcc: the kernels' names are tested, not their code");
  }
};

TEST_F(CollectivePtx, NamesEveryKernelAndNoOther) {
  std::vector<std::string> all = kernels(false);
  for (std::string& each : kernels(true)) all.push_back(std::move(each));
  for (const std::string& each : all)
    EXPECT_NE(image_text().find(".visible .entry " + each + "("), std::string_view::npos) << each;
  std::size_t entries = 0;
  for (std::size_t at = 0; (at = image_text().find(".visible .entry ", at)) != std::string_view::npos; ++at) ++entries;
  EXPECT_EQ(entries, all.size());
}

TEST_F(CollectivePtx, WithoutMulticastThereIsNoMultimem) {
  for (const std::string& each : kernels(false))
    for (const std::string& instruction : instructions_of(each))
      EXPECT_FALSE(instruction.starts_with("multimem") || instruction == "fence.proxy.alias")
          << each << ": " << instruction;
}

TEST_F(CollectivePtx, RanksMeetByReleaseAndAcquireAtSystemScope) {
  if (!kernel_image_runs_on_gpus()) return;
  for (const std::string& each : kernels(false)) {
    const auto code = instructions_of(each);
    if (each.starts_with("cuvmm_all_reduce_flagged")) continue;
    EXPECT_GE(count(code, "st.release.sys.global.u32"), 1U) << each;
    EXPECT_GE(count(code, "ld.acquire.sys.global.u32"), 1U) << each;
  }
}

TEST_F(CollectivePtx, FlaggedLinesAreTwoRelaxedHalves) {
  if (!kernel_image_runs_on_gpus()) return;
  const auto code = instructions_of(all_reduce_kernel<bfloat16>(AllReduceWay::flagged));
  EXPECT_GE(count(code, "st.relaxed.sys.global.v2.u64"), 1U);
  EXPECT_GE(count(code, "ld.relaxed.sys.global.v2.u64"), 1U);
  EXPECT_EQ(count(code, "st.release.sys.global.u32"), 0U);
}

TEST_F(CollectivePtx, TheMulticastBarrierFencesAliasesOnBothSides) {
  if (!kernel_image_runs_on_gpus()) return;
  const auto code = instructions_of(multimem_rank_barrier_kernel);
  const auto at = [&](std::string_view what, std::size_t from) {
    return static_cast<std::size_t>(std::find(code.begin() + static_cast<std::ptrdiff_t>(from), code.end(), what) -
                                    code.begin());
  };
  const std::size_t before = at("fence.proxy.alias", 0);
  const std::size_t arrives = at("multimem.red.release.sys.global.add.u32", before);
  const std::size_t between = at("fence.proxy.alias", arrives);
  const std::size_t waits = at("ld.acquire.sys.global.u32", between);
  const std::size_t behind = at("fence.proxy.alias", waits);
  EXPECT_LT(before, arrives);
  EXPECT_LT(arrives, between);
  EXPECT_LT(between, waits);
  EXPECT_LT(waits, behind);
  EXPECT_LT(behind, code.size());
  EXPECT_EQ(count(code, "st.release.sys.global.u32"), 0U);
}

TEST_F(CollectivePtx, MultimemSumsAreTheFormsOfTheirTypes) {
  if (!kernel_image_runs_on_gpus()) return;
  const auto expect = [](const std::string& kernel, std::string_view load) {
    const auto code = instructions_of(kernel);
    EXPECT_GE(count(code, load), 1U) << kernel;
    for (const std::string& each : code)
      EXPECT_TRUE(!each.starts_with("multimem.ld_reduce") || each == load) << kernel << ": " << each;
  };
  for (const AllReduceWay way : {AllReduceWay::multimem_one_shot, AllReduceWay::multimem_two_shot}) {
    expect(all_reduce_kernel<float>(way), "multimem.ld_reduce.relaxed.sys.global.add.v4.f32");
    expect(all_reduce_kernel<float16>(way), "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2");
    expect(all_reduce_kernel<bfloat16>(way), "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2");
    expect(all_reduce_kernel<std::int32_t>(way), "multimem.ld_reduce.relaxed.sys.global.add.s32");
    expect(all_reduce_kernel<std::uint32_t>(way), "multimem.ld_reduce.relaxed.sys.global.add.u32");
    expect(all_reduce_kernel<std::uint64_t>(way), "multimem.ld_reduce.relaxed.sys.global.add.u64");
  }
}

TEST_F(CollectivePtx, MultimemWritesMoveSixteenBytesAndAreFencedBehind) {
  if (!kernel_image_runs_on_gpus()) return;
  std::vector<std::string> names{std::string(multimem_broadcast_kernel), std::string(multimem_all_gather_kernel)};
  names.push_back(all_reduce_kernel<float>(AllReduceWay::multimem_two_shot));
  for (const std::string& each : names) {
    const auto code = instructions_of(each);
    const auto store = std::find(code.rbegin(), code.rend(), "multimem.st.relaxed.sys.global.v4.f32");
    ASSERT_NE(store, code.rend()) << each;
    EXPECT_NE(std::find(code.rbegin(), store, "fence.proxy.alias"), store) << each;
    EXPECT_NE(std::find(code.rbegin(), store, "multimem.red.release.sys.global.add.u32"), store) << each;
  }
}

}  // namespace
}  // namespace cuvmm::gpu
