#include "bench/reports.hpp"

#include <array>

namespace cuvmm::bench {

std::span<const ReportEntry> all_reports() noexcept {
  static constexpr std::array entries{
      ReportEntry{"mapping", "map + grant + unmap of one allocation, against the raw calls", report_mapping},
      ReportEntry{"growth", "growing by appends, against copying to larger memory and chunks of fixed sizes",
                  report_growth},
      ReportEntry{"reading", "a kernel that reads while the memory grows behind what it reads", report_reading},
      ReportEntry{"bandwidth", "kernels on grown, aliased and stitched memory, against memory of cuMemAlloc",
                  report_bandwidth},
      ReportEntry{"sleep", "sleeping and waking, against copies of the same bytes", report_sleep},
      ReportEntry{"retire", "retiring memory behind work and taking retired memory again", report_retire},
      ReportEntry{"attach", "attaching to a published range, against raw import + map + grant", report_attach},
  };
  return entries;
}

}  // namespace cuvmm::bench
