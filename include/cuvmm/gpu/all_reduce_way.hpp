// The ways of all-reduce, which docs/collectives.md compares.
#pragma once

#include <string_view>

namespace cuvmm::gpu {

// The ways of all-reduce (cuvmm/gpu/all_reduce.cuh, staged_all_reduce.cuh and flagged_all_reduce.cuh).
enum class AllReduceWay {
  flagged,
  staged_one_shot,
  staged_two_shot,
  one_shot,
  two_shot,
  multimem_one_shot,
  multimem_two_shot,
};

[[nodiscard]] constexpr std::string_view name_of(AllReduceWay way) noexcept {
  switch (way) {
    case AllReduceWay::flagged:
      return "flagged";
    case AllReduceWay::staged_one_shot:
      return "staged_one_shot";
    case AllReduceWay::staged_two_shot:
      return "staged_two_shot";
    case AllReduceWay::one_shot:
      return "one_shot";
    case AllReduceWay::two_shot:
      return "two_shot";
    case AllReduceWay::multimem_one_shot:
      return "multimem_one_shot";
    case AllReduceWay::multimem_two_shot:
      return "multimem_two_shot";
  }
  return "";
}

}  // namespace cuvmm::gpu
