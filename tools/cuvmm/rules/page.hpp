// The rule book in text, JSON and Markdown.
#pragma once

#include <string>
#include <vector>

#include "emulator/rule.hpp"

namespace cuvmm::rules {

// A paragraph a rule, for terminals.
[[nodiscard]] std::string text_page(const std::vector<emulator::RuleText>& rules);

// {"rules": [{"id": ..., "rule": ..., "breach": ..., "answers": ..., "consequence": ..., "way_out": ..., "case": ...}]}
[[nodiscard]] std::string json_page(const std::vector<emulator::RuleText>& rules);

// docs/rules.md.
[[nodiscard]] std::string markdown_page(const std::vector<emulator::RuleText>& rules);

}  // namespace cuvmm::rules
