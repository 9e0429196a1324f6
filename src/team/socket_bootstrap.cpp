#include "cuvmm/team/socket_bootstrap.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "refusal.hpp"
#include "team/rendezvous.hpp"
#include "team/session.hpp"
#include "team/socket_exchange.hpp"

namespace cuvmm::team {

namespace {

constexpr std::string_view joining = "SocketBootstrap::join";
constexpr std::string_view reading = "SocketTeam::from_environment";
constexpr int most_ranks = 4096;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_in(const char* name) {
  const std::string text = variable(name);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0)
    raise(invalid_use(reading, fmt::format("{} = '{}'", name, text),
                      "RANK and WORLD_SIZE tell each rank which one it is, and how many there are",
                      "Start the program by torchrun, set both for each rank, or fill in a SocketTeam yourself"));
  return number;
}

std::string session_in_environment() {
  const std::string address = variable("MASTER_ADDR");
  const std::string port = variable("MASTER_PORT");
  if (address.empty() || port.empty())
    raise(invalid_use(reading, fmt::format("MASTER_ADDR = '{}', MASTER_PORT = '{}'", address, port),
                      "Ranks find each other by a session that all of them name",
                      "Set both variables to the same for all ranks, or pass the name of a session"));
  return fmt::format("{}:{}:{}", address, port, variable("TORCHELASTIC_RUN_ID"));
}

Result<void> require_sound(const SocketTeam& team) {
  const std::string arguments = fmt::format("rank = {}, size = {}, session = '{}'", team.rank, team.size, team.session);
  if (team.size < 1 || team.size > most_ranks || team.rank < 0 || team.rank >= team.size)
    return invalid_use(joining, arguments,
                       fmt::format("A team has 1 to {} ranks, numbered from 0 to size - 1", most_ranks),
                       "Give each rank its number, and all the same size");
  if (team.session.empty() && team.size > 1)
    return invalid_use(joining, arguments, "Ranks find each other by a session that all of them name",
                       "Name the job, or take SocketTeam::from_environment()");
  return {};
}

}  // namespace

SocketTeam SocketTeam::from_environment(std::string session) {
  SocketTeam team;
  team.rank = number_in("RANK");
  team.size = number_in("WORLD_SIZE");
  if (!variable("LOCAL_WORLD_SIZE").empty() && number_in("LOCAL_WORLD_SIZE") != team.size) {
    Failure failure;
    failure.kind = ErrorKind::not_supported;
    failure.call = reading;
    failure.arguments = fmt::format("WORLD_SIZE = {}, LOCAL_WORLD_SIZE = {}", team.size, variable("LOCAL_WORLD_SIZE"));
    failure.feature = "a team over Unix sockets";
    failure.reason = "some of the ranks are on other nodes";
    failure.way_out = "Use MpiBootstrap, or a Bootstrap of your own";
    raise(failure);
  }
  team.session = session.empty() ? session_in_environment() : std::move(session);
  return team;
}

// The connections, until the first failure.
class SocketBootstrap::Impl {
 public:
  Impl(int rank, Peers peers) : rank_(rank), peers_(std::move(peers)) {}

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(peers_.size()); }

  Result<void> meet(const Deadline& deadline) {
    auto all = run({.call = joining, .step = "join", .meeting = true}, deadline);
    if (!all) return all.failure();
    return {};
  }

  Result<Contributions> exchange(std::string_view call, std::string_view step, std::span<const std::byte> mine,
                                 const Deadline& deadline) {
    return run({.call = call, .step = step, .mine = mine}, deadline);
  }

 private:
  Result<Contributions> run(Operation operation, const Deadline& deadline) {
    if (failed_) return *failed_;
    operation.number = ++operations_;
    operation.rank = rank_;
    if (auto sendable = require_sendable(operation); !sendable) return end(sendable.failure());
    auto contributions = SocketExchange(peers_, operation).run(deadline);
    if (!contributions) return end(contributions.failure());
    return contributions;
  }

  Failure end(Failure why) {
    if (why.way_out.empty()) why.way_out = "Form a new team: this one is at an end";
    give_up(peers_, why, operations_);
    failed_ = why;
    return why;
  }

  static Result<void> require_sendable(const Operation& operation) {
    if (operation.mine.size() > most_contribution_bytes || operation.step.size() > most_step_bytes)
      return invalid_use(
          operation.call,
          fmt::format("step of {} bytes, contribution of {} bytes", operation.step.size(), operation.mine.size()),
          fmt::format("A step's name has at most {} bytes, and a contribution {}", most_step_bytes,
                      most_contribution_bytes),
          "Send less at a time");
    return {};
  }

  int rank_;
  Peers peers_;
  std::uint64_t operations_ = 0;
  std::optional<Failure> failed_;
};

SocketBootstrap::SocketBootstrap(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
SocketBootstrap::~SocketBootstrap() = default;

Result<std::unique_ptr<SocketBootstrap>> SocketBootstrap::try_join(const SocketTeam& team,
                                                                   const Deadline& deadline) try {
  if (auto sound = require_sound(team); !sound) return sound.failure();
  auto peers = try_meet({address_of_session(team.session), team.session, team.rank, team.size}, deadline);
  if (!peers) return peers.failure();
  std::unique_ptr<SocketBootstrap> joined(
      new SocketBootstrap(std::make_unique<Impl>(team.rank, std::move(peers).value())));
  if (auto met = joined->impl_->meet(deadline); !met) return met.failure();
  return joined;
} catch (const Error& error) {  // of the directory for the socket
  return error.failure();
}

std::vector<std::unique_ptr<SocketBootstrap>> SocketBootstrap::within_process(int size) {
  if (size < 1)
    raise(invalid_use("SocketBootstrap::within_process", fmt::format("size = {}", size), "A team has one rank at least",
                      "Pass how many threads there are"));
  const auto count = static_cast<std::size_t>(size);
  std::vector<Peers> all(count);
  for (Peers& each : all) each.resize(count);
  for (std::size_t one = 0; one < count; ++one)
    for (std::size_t other = one + 1; other < count; ++other) {
      auto [end, other_end] = sharing::DescriptorSocket::pair(team_message_limits);
      all[one][other] = Peer{std::move(end), own_process()};
      all[other][one] = Peer{std::move(other_end), own_process()};
    }
  std::vector<std::unique_ptr<SocketBootstrap>> ranks;
  ranks.reserve(count);
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back(
        new SocketBootstrap(std::make_unique<Impl>(rank, std::move(all[static_cast<std::size_t>(rank)]))));
  return ranks;
}

int SocketBootstrap::rank() const noexcept {
  return impl_->rank();
}
int SocketBootstrap::size() const noexcept {
  return impl_->size();
}

Result<Contributions> SocketBootstrap::try_allgather(std::string_view step, std::span<const std::byte> mine,
                                                     const Deadline& deadline) {
  return impl_->exchange("SocketBootstrap::allgather", step, mine, deadline);
}

Result<void> SocketBootstrap::try_barrier(std::string_view step, const Deadline& deadline) {
  auto all = impl_->exchange("SocketBootstrap::barrier", step, {}, deadline);
  if (!all) return all.failure();
  return {};
}

}  // namespace cuvmm::team
