#include "tour/stops/team_ranks.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <vector>

#include "tour/fabric.hpp"
#include "tour/party.hpp"
#include "tour/rank_work.hpp"

namespace cuvmm::tour {
namespace {

constexpr auto in_processes = "each rank of a team is a process of its own";
constexpr auto on_nodes = "the ranks of a team are on two nodes";
constexpr std::size_t most_ranks = 4;

// Why it cannot be shown here; empty if it can.
std::string why_no_processes(const Visit& visit, const TeamDevices& devices, std::size_t ranks) {
  try {
    for (std::size_t rank = 0; rank < ranks; ++rank) require_other_processes(visit, devices[rank].gpu(), 1);
    return {};
  } catch (const Unavailable& why) {
    return why.what();
  }
}

std::string why_no_nodes(const Visit& visit, const Gpu& gpu) {
  if (std::string why = why_no_fabric_handles(gpu.device(), gpu.location()); !why.empty()) return why;
  return visit.place.nodes < 2 ? "all processes of this tour are on one node: emulate a machine of two, "
                                 "CUVMM_EMULATOR=profile=h200-multicast,devices=8,imex-channels=1,nodes=2"
                               : "";
}

using Parties = std::vector<std::unique_ptr<Party>>;

// All at once, since each waits for the others.
void reduce_in(Visit& visit, const Parties& parties, std::size_t bytes, const std::string& what) {
  static int teams = 0;
  const std::string session = fmt::format("tour-{}-{}", ::getpid(), ++teams);
  std::vector<std::future<RankSums>> answers;
  for (std::size_t rank = 0; rank < parties.size(); ++rank)
    answers.push_back(std::async(std::launch::async, [&, rank] {
      return parties[rank]->reduce(
          {.rank = static_cast<int>(rank), .size = static_cast<int>(parties.size()), .session = session},
          visit.input.path(), bytes);
    }));
  std::vector<RankSums> sums;
  for (std::future<RankSums>& each : answers) each.wait();
  for (std::future<RankSums>& each : answers) sums.push_back(each.get());
  for (std::size_t rank = 0; rank < sums.size(); ++rank) {
    const std::string name = fmt::format("{}: {}", what, parties[rank]->name());
    require_checksum(visit, sums[rank].summed, name + " sums all shares to the input");
    require_checksum(visit, sums[rank].stored, name + " has the sum that rank 0 stored to all");
    require_checksum(visit, sums[rank].added, name + " has the sum that all ranks added in memory");
  }
}

std::unique_ptr<Party> party_of(const Visit& visit, std::size_t rank, int device, int node) {
  const std::string where = node == 0 ? "" : fmt::format(" of node {}", node);
  return std::make_unique<Party>(visit.place, fmt::format("rank {}, on device {}{}", rank, device, where),
                                 PartyOptions{.device = device, .node = node});
}

}  // namespace

void show_ranks(Visit& visit, const TeamDevices& devices, std::size_t bytes) {
  const std::size_t ranks = std::min(devices.size(), most_ranks) / 2 * 2;
  if (const std::string why = why_no_processes(visit, devices, ranks); !why.empty()) {
    visit.checks.leave_out(in_processes, why);
    visit.shown += "; ranks as processes unavailable: " + why;
    return;
  }
  Parties parties;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    parties.push_back(party_of(visit, rank, devices[rank].gpu().ordinal(), 0));
  reduce_in(visit, parties, bytes, "processes");
  visit.shown += fmt::format("; among {} processes", ranks);

  const std::string why = why_no_nodes(visit, devices.root().gpu());
  if (why.empty()) {
    for (std::size_t rank = ranks / 2; rank < ranks; ++rank) {
      parties[rank]->end();
      parties[rank] = party_of(visit, rank, devices[rank - ranks / 2].gpu().ordinal(), 1);
    }
    reduce_in(visit, parties, bytes, "two nodes");
    visit.shown += " and over two nodes";
  } else {
    visit.checks.leave_out(on_nodes, why);
    visit.shown += "; another node unavailable: " + why;
  }
  for (const auto& each : parties) each->end();
}

}  // namespace cuvmm::tour
