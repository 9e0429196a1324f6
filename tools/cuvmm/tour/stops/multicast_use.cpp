// 4.16.4.4: a multicast address in use: broadcast, reduction, barrier and fence, with teams of two, four and eight.
#include <fmt/core.h>

#include <algorithm>

#include "driver/result_names.hpp"
#include "tour/multicast_probe.hpp"
#include "tour/stops/team_ranks.hpp"
#include "tour/stops/team_use.hpp"

namespace cuvmm::tour {
namespace {

constexpr std::size_t most_bytes_of_rank = std::size_t{8} << 20;

// Teams of devices of this process.
void show_teams(Visit& visit, const TeamDevices& devices) {
  const std::size_t half = half_of_multicast_window(visit, devices);
  const std::vector<std::size_t> sizes = devices.team_sizes();
  std::string shown;
  bool had_others = false;
  for (const std::size_t ranks : sizes) {
    TeamUse team(visit, devices, ranks, half);
    team.broadcast();
    team.barrier();
    team.numbers();
    team.fence();
    had_others |= team.grants();
    const auto reduce = [&](std::uint64_t offset, std::span<std::byte> piece) { team.reduce(offset, piece); };
    if (ranks == sizes.back())
      for_each_piece(visit, team.most_bytes(), reduce);
    else
      read_pieces(visit.input, team.most_bytes(), reduce);
    team.require_input();
    shown += fmt::format("{}{}", shown.empty() ? "" : ranks == sizes.back() ? " and " : ", ", ranks);
  }
  if (!had_others)
    visit.checks.leave_out("granting access to a device that is not of the team", "all devices that take part are");
  visit.shown = fmt::format("broadcast, sums and barriers among {} devices", shown);
}

// What may touch multicast addresses, and what may not: in child processes, since a fault breaks the context.
void show_accesses(Visit& visit, const TeamDevices& devices) {
  using Touch = MulticastProbe::Touch;
  struct Case {
    Touch touch;
    const char* what;
    bool may;
  };
  constexpr Case cases[]{
      {Touch::multimem_store, "a kernel's multimem.st to a multicast address", true},
      {Touch::store, "a kernel's ordinary store to a multicast address", false},
      {Touch::load, "a kernel's ordinary load from a multicast address", false},
      {Touch::copy, "a copy to a multicast address", false},
      {Touch::memset, "a memset of a multicast address", false},
      {Touch::multimem_store_to_memory, "a kernel's multimem.st to the memory's own address", false}};
  for (const Case& each : cases) {
    const abi::CUresult touched = run_in_child(MulticastProbe{.driver = visit.choice,
                                                              .devices = visit.driver.device_count(),
                                                              .second = devices[1].gpu().ordinal(),
                                                              .touch = each.touch});
    if (each.may)
      require_accepted(visit.checks, touched, each.what);
    else
      visit.checks.require(is_fault(touched), fmt::format("{} faults", each.what),
                           fmt::format("the driver answered {}", driver::result_name(touched)));
  }
}

void visit_multicast_use(Visit& visit) {
  const TeamDevices devices(visit);
  show_teams(visit, devices);
  show_ranks(visit, devices, std::min(half_of_multicast_window(visit, devices), most_bytes_of_rank));
  show_accesses(visit, devices);
}

}  // namespace

Stop multicast_use_stop() {
  return {"4.16.4.4", "Multimem", "a multicast address in use: broadcast, sums, barriers and fences",
          visit_multicast_use};
}

}  // namespace cuvmm::tour
