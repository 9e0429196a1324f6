// What a replay has found, ready to be shown.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "replay/fitting.hpp"
#include "replay/player.hpp"
#include "traces/allocation_trace.hpp"

namespace cuvmm::replay {

struct Findings {
  std::string driver{};
  std::string device{};
  std::string remark{};  // why it is not the driver that one may expect; empty if it is
  bool emulated = false;
  std::string trace{};  // the file, or what was drawn
  traces::AllocationTrace allocations{"", {}, {}, 0, {}};
  traces::MostLive most_live{};
  std::uint64_t scale = 1;
  std::optional<std::uint64_t> limit_bytes{};
  std::vector<Played> played{};
  std::optional<Fit> fit{};

  [[nodiscard]] std::uint64_t frees() const noexcept {
    return allocations.events.size() - allocations.allocations.size();
  }
};

// A table, for people.
[[nodiscard]] std::string as_page(const Findings& findings);
// One object, indented, with one line end at its end. docs/replay.md tells the fields.
[[nodiscard]] std::string as_json(const Findings& findings);
// A page of HTML that needs nothing else: live and physical memory over time, of each allocator, and what was held and
// where when most was live.
[[nodiscard]] std::string as_picture(const Findings& findings);

}  // namespace cuvmm::replay
