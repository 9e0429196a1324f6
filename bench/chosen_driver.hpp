// The driver that a benchmark is told to measure.
#pragma once

#include <string>

#include "cuvmm/driver.hpp"
#include "cuvmm/error.hpp"

namespace cuvmm::bench {

// cuda, emulated, or auto: what Driver::open() opens, and the emulated driver where that is not there.
inline Driver chosen_driver(const std::string& name) {
  if (name == "cuda") return Driver::cuda();
  if (name == "emulated") return Driver::emulated();
  try {
    return Driver::open();
  } catch (const DriverUnavailable&) {
    return Driver::emulated();
  }
}

}  // namespace cuvmm::bench
