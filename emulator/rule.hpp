// The rules of CUDA virtual memory management, and of what is around it, by name.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace cuvmm::emulator {

// What a real driver does with a call that breaks a rule.
enum class Breach : unsigned char {
  refused,   // it answers an error
  accepted,  // it answers success and the harm comes later; the strict mode refuses
  crashes,   // it brings the process down; the emulated driver answers INVALID_VALUE
  emulated,  // nothing: the rule is one of the emulated driver alone
};

enum class Rule : unsigned char {
#define CUVMM_RULE(identifier, id, breach, says, answers, consequence, way_out, proof) identifier,
#include "emulator/rules.def"
};

struct RuleText {
  Rule rule{};
  std::string_view id;  // stable: what messages and documents call it
  Breach breach{};
  std::string_view says;         // the rule
  std::string_view answers;      // what a driver answers to a call that breaks it
  std::string_view consequence;  // what goes wrong in programs that break it
  std::string_view way_out;
  std::string_view proof;  // the conformance case that breaks it; where there is none, the test does it by itself
};

inline constexpr auto rule_book = std::to_array<RuleText>({
#define CUVMM_RULE(identifier, id, breach, says, answers, consequence, way_out, proof) \
  {Rule::identifier, id, Breach::breach, says, answers, consequence, way_out, proof},
#include "emulator/rules.def"
});

constexpr const RuleText& text(Rule rule) noexcept {
  return rule_book[static_cast<std::size_t>(rule)];
}

// The rule of that id, or nothing.
constexpr std::optional<Rule> find_rule(std::string_view id) noexcept {
  for (const RuleText& each : rule_book)
    if (each.id == id) return each.rule;
  return std::nullopt;
}

}  // namespace cuvmm::emulator
