// The reports that there are.
#pragma once

#include <span>
#include <string_view>

#include "bench/report.hpp"
#include "bench/settings.hpp"

namespace cuvmm::bench {

// Device 0 is the one that is measured, with its context current; where the driver has another device, device 1 is the
// peer. Each throws cuvmm::Error where a call fails.
[[nodiscard]] Report report_mapping(const Meter& meter, const Settings& settings);
[[nodiscard]] Report report_attach(const Meter& meter, const Settings& settings);
[[nodiscard]] Report report_growth(const Meter& meter, const Settings& settings);
[[nodiscard]] Report report_reading(const Meter& meter, const Settings& settings);
[[nodiscard]] Report report_bandwidth(const Meter& meter, const Settings& settings);
[[nodiscard]] Report report_sleep(const Meter& meter, const Settings& settings);
[[nodiscard]] Report report_retire(const Meter& meter, const Settings& settings);

struct ReportEntry {
  std::string_view name;
  std::string_view description;
  Report (*run)(const Meter&, const Settings&);
};
[[nodiscard]] std::span<const ReportEntry> all_reports() noexcept;

}  // namespace cuvmm::bench
