#include "missing_device.hpp"

#include <fmt/format.h>

#include "driver/abi.hpp"

namespace cuvmm {

std::optional<std::string> no_such_device(const Driver& driver, const Location& location) {
  if (location.kind != LocationKind::device) return std::nullopt;
  const int count = driver.device_count();
  if (location.id >= 0 && location.id < count) return std::nullopt;
  return fmt::format("There is no device {}: the driver shows {} device{}, numbered from 0", location.id, count,
                     count == 1 ? "" : "s");
}

Failure with_missing_device_told(Failure failure, const Driver& driver, const Location& location,
                                 std::string_view rule_id) try {
  if (failure.code != abi::CUDA_ERROR_INVALID_DEVICE && failure.code != abi::CUDA_ERROR_INVALID_VALUE) return failure;
  if (auto missing = no_such_device(driver, location)) {
    failure.kind = ErrorKind::invalid_use;
    failure.rule_ids = rule_id;
    failure.rule = std::move(*missing);
    failure.way_out = name_another_device;
  }
  return failure;
} catch (const Error&) {
  return failure;  // as the driver told it
}

}  // namespace cuvmm
