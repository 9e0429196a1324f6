#include "gpu/collective_checks.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "refusal.hpp"

namespace cuvmm::gpu {
namespace {

using Refusal = std::optional<Failure>;

Refusal refused(std::string_view collective, std::string arguments, std::string rule, std::string way_out) {
  return invalid_use(collective, std::move(arguments), std::move(rule), std::move(way_out));
}

Refusal check_team(std::string_view name, const Team& team, const CollectiveShape& shape, bool multicast) {
  if (team.ranks == 0 || team.ranks > max_ranks || team.rank >= team.ranks)
    return refused(name, fmt::format("rank = {}, ranks = {}", team.rank, team.ranks),
                   fmt::format("A team has 1 to {} ranks, numbered from 0", max_ranks),
                   "Give the rank's own number and that of all ranks");
  if (shape.blocks == 0 || shape.blocks > team.blocks || shape.threads == 0 || shape.threads > most_collective_threads)
    return refused(
        name, fmt::format("blocks = {}, threads = {}", shape.blocks, shape.threads),
        fmt::format("A call of this team has 1 to {} blocks of 1 to {} threads", team.blocks, most_collective_threads),
        "Launch it in such a shape, the same on all ranks");
  if (multicast && team.multicast_arrivals == nullptr)
    return refused(name, "team.multicast_arrivals = null",
                   "The ranks meet through the multicast address, and there is none",
                   "Make the team with multicast, on devices that have it (DeviceTeamOptions::multicast, "
                   "team::CollectivesOptions::multicast), or use the form without");
  return std::nullopt;
}

struct Bytes {
  std::uintptr_t begin;
  std::uint64_t size;
};
bool overlap(const Bytes& one, const Bytes& other) {
  return one.size != 0 && other.size != 0 && one.begin < other.begin + other.size && other.begin < one.begin + one.size;
}

Refusal check_addresses(std::string_view name, const detail::AnyAllReduce& call, bool all_inputs, bool all_outputs) {
  const Team& team = *call.team;
  const auto check = [&](std::string_view which, std::span<const std::uintptr_t> addresses, bool all) -> Refusal {
    for (std::uint32_t rank = 0; rank < team.ranks; ++rank) {
      if (rank != team.rank && !all) continue;
      const std::uintptr_t address = addresses[rank];
      if (address == 0 || address % call.element_bytes != 0)
        return refused(
            name, fmt::format("{}[{}] = {:#x}", which, rank, address),
            fmt::format("An address of values of {} bytes is a multiple of that, and not null", call.element_bytes),
            "Give the address of the first value, of every rank that this way uses");
      if (address % sizeof(Pack) != addresses[team.rank] % sizeof(Pack))
        return refused(
            name,
            fmt::format("{}[{}] = {:#x}, {}[{}] = {:#x}", which, rank, address, which, team.rank, addresses[team.rank]),
            "All ranks must divide the content alike, so their addresses are alike modulo 16",
            "Use the same offset of symmetric memory on every rank");
    }
    return std::nullopt;
  };
  if (auto refusal = check("inputs", call.inputs, all_inputs)) return refusal;
  return check("outputs", call.outputs, all_outputs);
}

Refusal check_multicast_address(std::string_view name, std::string_view which, std::uintptr_t multicast,
                                std::uintptr_t unicast) {
  if (multicast != 0 && multicast % sizeof(Pack) == unicast % sizeof(Pack)) return std::nullopt;
  return refused(name, fmt::format("{} = {:#x}, by unicast {:#x}", which, multicast, unicast),
                 "The multicast address of the same bytes is aligned as they are, and not null",
                 "Add the offset of the content to where the multicast object is mapped");
}

bool must_not_be_in_place(AllReduceWay way) {
  return way == AllReduceWay::one_shot || way == AllReduceWay::multimem_one_shot;
}

Refusal check_overlap(std::string_view name, const detail::AnyAllReduce& call, AllReduceWay way) {
  const std::uint64_t size = call.count * call.element_bytes;
  const Bytes input{call.inputs[call.team->rank], size};
  const Bytes output{call.outputs[call.team->rank], size};
  if (!overlap(input, output)) return std::nullopt;
  const std::string where = fmt::format("input = {:#x}, output = {:#x}, {} bytes", input.begin, output.begin, size);
  if (must_not_be_in_place(way))
    return refused(name, where,
                   "Other ranks still read the input when this one writes its output, so they must not overlap",
                   "Give another output, or use a way that may be in place: two_shot, staged or flagged");
  if (input.begin != output.begin)
    return refused(name, where, "Input and output are the same, or do not overlap", "Move one of them");
  return std::nullopt;
}

}  // namespace

Refusal detail::refusal_of(const AnyAllReduce& call, AllReduceWay way, const CollectiveShape& shape) {
  const std::string name = fmt::format("all_reduce_{}", name_of(way));
  const bool multicast = way == AllReduceWay::multimem_one_shot || way == AllReduceWay::multimem_two_shot;
  if (auto refusal = check_team(name, *call.team, shape, multicast)) return refusal;
  if (call.count > call.most)
    return refused(name, fmt::format("count = {}", call.count),
                   fmt::format("In this shape, and with the team's buffers, there is room for {} values", call.most),
                   "Use two_shot or staged_two_shot, which have no limit, or make the team with more room");
  // Who reads and writes which rank's memory.
  const bool reads_all = multicast || way == AllReduceWay::one_shot || way == AllReduceWay::two_shot;
  const bool writes_all =
      way == AllReduceWay::two_shot || way == AllReduceWay::staged_two_shot || way == AllReduceWay::multimem_two_shot;
  if (auto refusal = check_addresses(name, call, reads_all, writes_all)) return refusal;
  if (auto refusal = check_overlap(name, call, way)) return refusal;
  if (!multicast) return std::nullopt;
  const std::uint32_t rank = call.team->rank;
  if (auto refusal = check_multicast_address(name, "multicast_input", call.multicast_input, call.inputs[rank]))
    return refusal;
  if (way == AllReduceWay::multimem_one_shot) return std::nullopt;
  return check_multicast_address(name, "multicast_output", call.multicast_output, call.outputs[rank]);
}

Refusal refusal_of(std::string_view kernel, const Team& team, const CollectiveShape& shape) {
  return check_team(kernel, team, shape, kernel.find("multimem") != std::string_view::npos);
}

Refusal refusal_of(const Broadcast& call, const CollectiveShape& shape, bool multicast) {
  constexpr std::string_view name = "broadcast";
  if (auto refusal = check_team(name, call.team, shape, multicast)) return refusal;
  if (call.root >= call.team.ranks)
    return refused(name, fmt::format("root = {}, ranks = {}", call.root, call.team.ranks),
                   "The root is one of the ranks", "Give a number less than that of the ranks");
  const auto input = detail::bits_of(call.input);
  const auto output = detail::bits_of(call.outputs[call.team.rank]);
  if (input != output && overlap({input, call.bytes}, {output, call.bytes}))
    return refused(name, fmt::format("input = {:#x}, output = {:#x}, {} bytes", input, output, call.bytes),
                   "Input and output are the same, or do not overlap", "Move one of them");
  if (!multicast) return std::nullopt;
  return check_multicast_address(name, "multicast_output", detail::bits_of(call.multicast_output), output);
}

Refusal refusal_of(const AllGather& call, const CollectiveShape& shape, bool multicast) {
  constexpr std::string_view name = "all_gather";
  const Team& team = call.team;
  if (auto refusal = check_team(name, team, shape, multicast)) return refusal;
  const auto input = detail::bits_of(call.inputs[team.rank]);
  const auto output = detail::bits_of(call.outputs[team.rank]);
  if (input != output + team.rank * call.bytes && overlap({input, call.bytes}, {output, team.ranks * call.bytes}))
    return refused(name, fmt::format("input = {:#x}, output = {:#x}, {} bytes a rank", input, output, call.bytes),
                   "The input is the rank's own part of the output, or does not overlap with it",
                   "Put it there, or elsewhere");
  if (!multicast) return std::nullopt;
  return check_multicast_address(name, "multicast_output", detail::bits_of(call.multicast_output), output);
}

}  // namespace cuvmm::gpu
