#include "conformance/cases/drivers.hpp"
#include "driver/loaded_driver.hpp"

namespace cuvmm::conformance {

DriverFactory cuda_driver() {
  return [] {
    driver::LoadOptions options;
    options.initialise = false;
    return driver::load_driver(options);
  };
}

}  // namespace cuvmm::conformance
