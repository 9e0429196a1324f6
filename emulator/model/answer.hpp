// What the model says to a call: the driver's code and, where that is not success, which rule stands behind it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "driver/abi.hpp"

namespace cuvmm::emulator::model {

using namespace cuvmm::abi;

enum class Rule : unsigned char {
#define CUVMM_RULE(identifier, id, says, way_out) identifier,
#include "emulator/model/rules.def"
};

struct RuleText {
  std::string_view id;
  std::string_view says;
  std::string_view way_out;
};

inline constexpr auto rule_texts = std::to_array<RuleText>({
#define CUVMM_RULE(identifier, id, says, way_out) {id, says, way_out},
#include "emulator/model/rules.def"
});

constexpr const RuleText& text(Rule rule) noexcept {
  return rule_texts[static_cast<std::size_t>(rule)];
}

// An answer to a call. `detail` says what was wrong in this very call, with the numbers that matter.
struct [[nodiscard]] Answer {
  CUresult code = CUDA_SUCCESS;
  Rule rule{};
  std::string detail;
  bool crashes = false;  // the real driver brings the process down here

  Answer() = default;
  Answer(CUresult refusal, Rule broken, std::string what) : code(refusal), rule(broken), detail(std::move(what)) {}

  [[nodiscard]] bool ok() const noexcept { return code == CUDA_SUCCESS; }
};

}  // namespace cuvmm::emulator::model
