// What is known of each feature before any driver is asked.
#pragma once

#include <string_view>

#include "cuvmm/capabilities.hpp"
#include "driver/abi.hpp"

namespace cuvmm {

struct FeatureFacts {
  Feature feature;
  std::string_view identifier;
  std::string_view name;
  abi::CUdevice_attribute attribute;  // 0: there is none
  int since;                          // the CUDA version that brought the attribute
  std::string_view why_not;           // what it means that the device says no
  std::string_view remedy;            // what to do then
  std::string_view remedy_refused;    // what to do where it says yes and a trial fails
};

[[nodiscard]] const FeatureFacts& facts_of(Feature feature) noexcept;

}  // namespace cuvmm
