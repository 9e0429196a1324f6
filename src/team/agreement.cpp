#include "cuvmm/team/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sharing/content.hpp"
#include "sharing/wire.hpp"
#include "team/peers.hpp"

namespace cuvmm::team {

using namespace sharing;

namespace {

constexpr std::string_view voting = "cuvmm::team::vote";
constexpr std::size_t most_where_bytes = 4096;
constexpr std::uint8_t yes = 1;
constexpr std::uint8_t no = 0;

// Only of an emulated driver there is more than the host to tell.
std::string words_for(const Locality& place) {
  std::string words = fmt::format("process {} on host '{}'", own_process(), place.host);
  if (!place.machine.empty() && place.machine != "real") words += fmt::format(", emulated node {}", place.node);
  return words;
}

Bytes encode_vote(const Result<Bytes>& mine, const Locality& place) {
  Writer writer;
  writer.number(mine ? yes : no);
  if (mine) return writer.raw(*mine).take();
  return writer.text(std::string_view(words_for(place)).substr(0, most_where_bytes)).raw(encode(mine.failure())).take();
}

// Nothing for bytes that are no vote.
std::optional<Votes::Vote> decode_vote(std::span<const std::byte> bytes, std::size_t rank) {
  Reader reader(bytes);
  const auto said = reader.number<std::uint8_t>();
  if (reader.failed() || said > yes) return std::nullopt;
  if (said == yes) {
    const auto rest = reader.raw(reader.left());
    return Votes::Vote{Bytes(rest.begin(), rest.end())};
  }
  const std::string words = reader.text(most_where_bytes);
  const auto failure = decode_failure(reader.raw(reader.left()));
  if (!failure) return std::nullopt;
  return Votes::Vote{*failure, fmt::format("rank {} ({})", rank, words)};
}

Failure no_vote(std::string_view step, std::size_t rank) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.call = voting;
  failure.arguments = fmt::format("step = '{}'", step);
  failure.reason = fmt::format("rank {} sent what is no vote", rank);
  failure.way_out = "Have all ranks call the same functions, with one version of cuvmm";
  return failure;
}

}  // namespace

bool Votes::unanimous() const noexcept {
  return std::all_of(of_rank.begin(), of_rank.end(), [](const Vote& each) { return each.said.has_value(); });
}

Failure Votes::verdict() const {
  std::vector<std::string> refusals;
  Failure failure;
  for (const Vote& each : of_rank) {
    if (each.said) continue;
    if (refusals.empty()) failure = each.said.failure();
    refusals.push_back(fmt::format("{}: {}", each.where, each.said.failure().message()));
  }
  failure.call = voting;
  failure.arguments = fmt::format("step = '{}', refused by {} of {} ranks", step, refusals.size(), of_rank.size());
  failure.feature.clear();
  failure.reason = fmt::format("{}", fmt::join(refusals, "; "));
  failure.rule_ids.clear();
  failure.rule = "No rank goes on unless all have done the step";
  return failure;
}

Result<Votes> try_collect_votes(Bootstrap& bootstrap, std::string_view step, const Result<Bytes>& mine,
                                const Deadline& deadline, const Locality& where) {
  auto gathered = bootstrap.try_allgather(step, encode_vote(mine, where), deadline);
  if (!gathered) return gathered.failure();
  Votes votes{std::string(step)};
  for (std::size_t rank = 0; rank < gathered->size(); ++rank) {
    auto vote = decode_vote((*gathered)[rank], rank);
    if (!vote) return no_vote(step, rank);
    votes.of_rank.push_back(std::move(*vote));
  }
  // Whoever has not heard of all does not come here, and then nobody goes on.
  if (votes.unanimous())
    if (auto confirmed = bootstrap.try_barrier(step, deadline); !confirmed) return confirmed.failure();
  return votes;
}

Result<Contributions> try_agree(Bootstrap& bootstrap, std::string_view step, const Result<Bytes>& mine,
                                const Deadline& deadline, const Locality& where) {
  auto votes = try_collect_votes(bootstrap, step, mine, deadline, where);
  if (!votes) return votes.failure();
  if (!votes->unanimous()) return votes->verdict();
  Contributions all;
  all.reserve(votes->of_rank.size());
  for (auto& each : votes->of_rank) all.push_back(std::move(*each.said));
  return all;
}

Result<void> try_vote(Bootstrap& bootstrap, std::string_view step, const Result<void>& mine, const Deadline& deadline,
                      const Locality& where) {
  const Result<Bytes> vote = mine ? Result<Bytes>(Bytes()) : Result<Bytes>(mine.failure());
  const auto agreed = try_agree(bootstrap, step, vote, deadline, where);
  if (!agreed) return agreed.failure();
  return {};
}

}  // namespace cuvmm::team
