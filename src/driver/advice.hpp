// What a driver's code means for a call, which rule it tells of, and the way out: knowledge that the code alone does
// not carry.
#pragma once

#include <string_view>

#include "cuvmm/error.hpp"
#include "driver/abi.hpp"
#include "driver/entry_point.hpp"

namespace cuvmm::driver {

struct Advice {
  std::string_view rule_ids;  // of the rule book, those that the code can mean
  std::string_view rule;
  std::string_view way_out;
};

// What is known of that code from that entry point, else of that code from any, else two empty texts.
[[nodiscard]] Advice advice_for(EntryPoint entry, abi::CUresult result) noexcept;

// What a user of the library does about that rule of the rule book; empty where the rule book itself says it as well.
// `emulated`: where the machine is.
[[nodiscard]] std::string_view way_out_for_rule(std::string_view rule_id, bool emulated = false) noexcept;
// The same where it differs from what helps on a real machine; else empty.
[[nodiscard]] std::string_view way_out_where_emulated(std::string_view rule_id) noexcept;

// The kind of that failure. `concerns_host_memory`: the call was about memory of the host.
[[nodiscard]] ErrorKind kind_of(EntryPoint entry, abi::CUresult result, bool concerns_host_memory) noexcept;

}  // namespace cuvmm::driver
