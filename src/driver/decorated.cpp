#include "driver/decorated.hpp"

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuvmm/error.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "driver/lying_driver.hpp"
#include "driver/recording_driver.hpp"

namespace cuvmm::driver {

namespace {

// Passes the text of the variable to `add`, if it has one. What cannot be read is blamed on the variable.
template <class Add>
void with_variable(const char* name, const Add& add) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  try {
    add(std::string_view(text));
  } catch (const InvalidUse& error) {
    Failure failure = error.failure();
    failure.call = std::string("environment variable ") + name;
    raise(failure);
  }
}

}  // namespace

std::shared_ptr<Interface> decorated_from_environment(std::shared_ptr<Interface> driver) {
  with_variable("CUVMM_LIE", [&](std::string_view text) {
    const Lies lies = parse_lies(text);
    driver = std::make_shared<LyingDriver>(std::move(driver), lies);
  });
  with_variable("CUVMM_INJECT_FAULT", [&](std::string_view text) {
    const std::vector<Fault> faults = parse_faults(text);
    driver = std::make_shared<FaultInjectingDriver>(std::move(driver), faults);
  });
  with_variable("CUVMM_RECORD", [&](std::string_view text) {
    LineSink sink = append_to_file(std::string(text));
    driver = std::make_shared<RecordingDriver>(std::move(driver), std::move(sink));
  });
  return driver;
}

}  // namespace cuvmm::driver
