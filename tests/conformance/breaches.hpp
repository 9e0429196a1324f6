// Breaches of the rules that no recorded case breaks: those of the emulated driver, and those that depend on the
// machine.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "driver/interface.hpp"
#include "emulator/configuration.hpp"
#include "emulator/rule.hpp"

namespace cuvmm::conformance {

using DriverPointer = std::shared_ptr<driver::Interface>;

struct Breach {
  std::function<void(emulator::Configuration&)> configure;
  // Breaks the rule, with device 0's primary context current, and answers what the breaking call did.
  std::function<abi::CUresult(const DriverPointer&)> break_rule;
};

[[nodiscard]] const std::map<emulator::Rule, Breach>& breaches();

// In a process of its own: "refused", or "accepted", or what else became of the process. `rule_off` may be empty.
[[nodiscard]] std::string run_breach(const Breach& breach, std::string_view rule_off);

}  // namespace cuvmm::conformance
