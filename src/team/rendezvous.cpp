#include "team/rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <list>

#include "backoff.hpp"
#include "cuvmm/sharing/descriptor_listener.hpp"
#include "refusal.hpp"
#include "sharing/wire.hpp"
#include "system_failure.hpp"

namespace cuvmm::team {

using namespace sharing;

namespace {

constexpr std::string_view joining = "SocketBootstrap::join";

std::string arguments_of(const MeetingPlace& place) {
  return fmt::format("rank = {}, size = {}, address = {}", place.rank, place.size, place.address.to_string());
}

Failure told_of(const MeetingPlace& place, Failure failure) {
  failure.call = joining;
  failure.arguments = arguments_of(place);
  return failure;
}

Failure not_all_have_come(const MeetingPlace& place, const std::vector<std::uint32_t>& missing) {
  Failure failure;
  failure.kind = ErrorKind::timed_out;
  failure.reason = fmt::format("before the deadline these ranks have not come: {}", fmt::join(missing, ", "));
  failure.way_out = "Start all ranks with the same session and size, or give them more time";
  return told_of(place, std::move(failure));
}

Failure wrong_message(const MeetingPlace& place, std::string_view from, const Message& message) {
  Failure failure;
  failure.kind = ErrorKind::protocol_violation;
  failure.reason = fmt::format("{} sent a message of kind {:#x} of {} bytes that has no place here", from, message.kind,
                               message.bytes.size());
  return told_of(place, std::move(failure));
}

// --- Rank 0.

// Who says which rank it is.
struct Newcomer {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t process = 0;
};

std::optional<Newcomer> newcomer_in(const Message& message) {
  Reader reader(message.bytes);
  Newcomer newcomer;
  newcomer.rank = reader.number<std::uint32_t>();
  newcomer.size = reader.number<std::uint32_t>();
  newcomer.process = reader.number<std::uint32_t>();
  if (message.kind != join_message || !reader.complete()) return std::nullopt;
  return newcomer;
}

// One attempt of rank 0 to bring all together.
class Gathering {
 public:
  explicit Gathering(const MeetingPlace& place)
      : place_(place), peers_(static_cast<std::size_t>(place.size)), ended_(peers_.size()) {}

  Result<Peers> run(const Deadline& deadline) {
    auto gathered = gather(deadline);
    // Others do not meet this listener any more, whoever tries again first.
    listener_.reset();
    if (gathered) gathered = connect_others(deadline);
    if (gathered) return std::move(peers_);
    for (auto& each : unknown_) send_away(each);
    give_up(peers_, gathered.failure());
    return gathered.failure();
  }

 private:
  Result<void> gather(const Deadline& deadline) try {
    ListenerOptions options;
    options.connection.token = place_.token;
    options.connection.limits = team_message_limits;
    listener_.emplace(DescriptorListener::listen(place_.address, options, deadline));
    for (;;) {
      const bool is_last = deadline.passed();
      look_at_those_who_have_come();
      if (auto accepted = accept(); !accepted) return accepted;
      if (auto taken = take_newcomers(); !taken) return taken;
      const auto awaited = ranks_that([&](std::size_t rank) { return !peers_[rank] && !ended_[rank]; });
      if (awaited.empty()) return first_end();
      if (is_last) return not_all_have_come(place_, awaited);
      if (auto waited = wait(deadline); !waited) return waited;
    }
  } catch (const Error& error) {
    return told_of(place_, error.failure());
  }

  template <class Condition>
  [[nodiscard]] std::vector<std::uint32_t> ranks_that(Condition&& condition) const {
    std::vector<std::uint32_t> found;
    for (std::size_t rank = 1; rank < peers_.size(); ++rank)
      if (condition(rank)) found.push_back(static_cast<std::uint32_t>(rank));
    return found;
  }

  // They have nothing to say but that they are gone. The others are awaited all the same, so that each of them learns
  // of it here; and who has gone may come again.
  void look_at_those_who_have_come() {
    for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
      if (!peers_[rank]) continue;
      const auto message = peers_[rank]->socket.try_receive(at_once());
      if (!message && would_wait(peers_[rank]->socket, message.failure())) continue;
      ended_[rank] = why_it_ended(name_of_rank(rank, peers_[rank]->process), message);
      peers_[rank].reset();
      tell_who_is_missing();
    }
  }

  [[nodiscard]] Failure why_it_ended(std::string_view name, const Result<Message>& last) const {
    if (!last) return told_of(place_, failure_of_rank(name, last.failure()));
    if (last->kind == given_up_message) return told_of(place_, failure_told_by(name, *last));
    return wrong_message(place_, name, *last);
  }

  [[nodiscard]] Result<void> first_end() const {
    for (const auto& each : ended_)
      if (each) return *each;
    return {};
  }

  Result<void> accept() {
    for (;;) {
      auto accepted = listener_->try_accept(at_once());
      if (accepted)
        unknown_.push_back(std::move(accepted).value());
      else if (accepted.failure().kind == ErrorKind::timed_out)
        return {};
      else
        return told_of(place_, accepted.failure());
    }
  }

  Result<void> take_newcomers() {
    for (auto each = unknown_.begin(); each != unknown_.end();) {
      auto message = each->try_receive(at_once());
      if (!message && would_wait(*each, message.failure())) {
        ++each;
        continue;
      }
      if (message)  // who has gone again without a word is nobody
        if (auto taken = take_newcomer(*each, *message); !taken) return taken;
      each = unknown_.erase(each);
    }
    return {};
  }

  Result<void> take_newcomer(DescriptorSocket& socket, const Message& message) {
    const auto newcomer = newcomer_in(message);
    if (!newcomer) {
      give_up(socket, wrong_message(place_, "a process that is no rank", message));
      return {};
    }
    if (auto wrong = wrong_with(*newcomer)) {
      give_up(socket, *wrong);
      return *wrong;
    }
    auto& place = peers_[newcomer->rank];
    if (place) look_at_those_who_have_come();  // it may have come again before its end was seen here
    if (place) {
      const Failure twice = claimed_twice(*newcomer, place->process);
      give_up(socket, twice);
      return twice;
    }
    place = Peer{std::move(socket), newcomer->process};
    ended_[newcomer->rank].reset();
    tell_who_is_missing();
    return {};
  }

  [[nodiscard]] std::optional<Failure> wrong_with(const Newcomer& newcomer) const {
    const std::string name = name_of_rank(newcomer.rank, newcomer.process);
    if (newcomer.size != peers_.size())
      return told_of(place_, invalid_use(joining, {},
                                         fmt::format("All ranks have to name the same size, and {} says {}, rank 0 {}",
                                                     name, newcomer.size, peers_.size()),
                                         "Give all ranks the same size, or another session to another team"));
    if (newcomer.rank == 0 || newcomer.rank >= peers_.size())
      return told_of(place_, invalid_use(joining, {}, fmt::format("{} cannot be one of this team besides rank 0", name),
                                         "Number the ranks from 0 to size - 1"));
    return std::nullopt;
  }

  [[nodiscard]] Failure claimed_twice(const Newcomer& newcomer, std::uint32_t process) const {
    return told_of(place_, invalid_use(joining, {},
                                       fmt::format("Each rank is one, and both process {} and process {} say that they "
                                                   "are rank {}",
                                                   process, newcomer.process, newcomer.rank),
                                       "Give each its own rank, or another session to another team"));
  }

  // So that each of them can say at its deadline whom it has waited for. One that cannot be told is found to be gone.
  void tell_who_is_missing() {
    Writer writer;
    for (const std::uint32_t each : ranks_that([&](std::size_t rank) { return !peers_[rank]; })) writer.number(each);
    const auto bytes = writer.take();
    for (auto& each : peers_)
      if (each) static_cast<void>(each->socket.try_send({.kind = missing_message, .bytes = bytes}, at_once()));
  }

  // Whoever comes to an attempt that has failed already, comes to the next one.
  static void send_away(DescriptorSocket& socket) noexcept {
    static_cast<void>(socket.try_send({.kind = begin_anew_message}, at_once()));
    socket.close();
  }

  Result<void> wait(const Deadline& deadline) {
    std::vector<pollfd> sockets;
    for (const int each : listener_->descriptors()) sockets.push_back({each, POLLIN, 0});
    for (const auto& each : unknown_) sockets.push_back({each.descriptor(), POLLIN, 0});
    for (const auto& each : peers_)
      if (each) sockets.push_back({each->socket.descriptor(), POLLIN, 0});
    // Newcomers that say nothing are dropped by the listener, which has to be asked for that from time to time.
    const auto left = std::min<std::int64_t>(deadline.left().count(), 1'000);
    if (::poll(sockets.data(), sockets.size(), static_cast<int>(left)) < 0 && errno != EINTR)
      return system_failure("poll", arguments_of(place_), errno);
    return {};
  }

  // Two descriptors at a time, however many ranks there are.
  Result<void> connect_others(const Deadline& deadline) try {
    for (std::size_t one = 1; one < peers_.size(); ++one)
      for (std::size_t other = one + 1; other < peers_.size(); ++other) {
        const auto [end, other_end] = DescriptorSocket::pair(team_message_limits);
        if (auto sent = send_connection(one, end, other, deadline); !sent) return sent;
        if (auto sent = send_connection(other, other_end, one, deadline); !sent) return sent;
      }
    return {};
  } catch (const Error& error) {
    return told_of(place_, error.failure());
  }

  Result<void> send_connection(std::size_t rank, const DescriptorSocket& end, std::size_t to,
                               const Deadline& deadline) {
    Writer writer;
    writer.number(static_cast<std::uint32_t>(to)).number(peers_[to]->process);
    const auto bytes = writer.take();
    const int descriptor = end.descriptor();
    const auto sent = peers_[rank]->socket.try_send(
        {.kind = connection_message, .bytes = bytes, .descriptors = std::span(&descriptor, 1)}, deadline);
    if (sent) return {};
    const std::string name = name_of_rank(rank, peers_[rank]->process);
    const auto last = peers_[rank]->socket.try_receive(at_once());
    if (last && last->kind == given_up_message) return told_of(place_, failure_told_by(name, *last));
    return told_of(place_, failure_of_rank(name, sent.failure()));
  }

  const MeetingPlace& place_;
  std::optional<DescriptorListener> listener_;
  std::list<DescriptorSocket> unknown_;  // they have connected, and are to say who they are
  Peers peers_;
  std::vector<std::optional<Failure>> ended_;  // by rank: that it had come, and why it is gone
};

// --- The other ranks.

// One attempt of another rank. Nothing is told where rank 0 was at the end of an attempt, and it is to be tried again.
class Arrival {
 public:
  explicit Arrival(const MeetingPlace& place) : place_(place), peers_(static_cast<std::size_t>(place.size)) {}

  std::optional<Result<Peers>> run(const Deadline& deadline) {
    ConnectionOptions options{.token = place_.token, .wait_for_listener = true, .limits = team_message_limits};
    auto connected = DescriptorSocket::try_connect(place_.address, options, deadline);
    if (!connected) {
      if (connected.failure().kind == ErrorKind::peer_gone) return std::nullopt;  // before it was let in
      return nobody_has_called(connected.failure());
    }
    peers_[0] = Peer{std::move(connected).value(), 0};
    peers_[0]->process = static_cast<std::uint32_t>(peers_[0]->socket.peer().process);
    Writer writer;
    writer.number(static_cast<std::uint32_t>(place_.rank)).number(static_cast<std::uint32_t>(place_.size));
    writer.number(own_process());
    const auto bytes = writer.take();
    // If rank 0 has gone, what it said before tells why.
    static_cast<void>(peers_[0]->socket.try_send({.kind = join_message, .bytes = bytes}, deadline));
    return take_connections(deadline);
  }

 private:
  [[nodiscard]] Failure nobody_has_called(const Failure& of_connection) const {
    return of_connection.kind == ErrorKind::timed_out ? not_all_have_come(place_, {0}) : told_of(place_, of_connection);
  }

  std::optional<Result<Peers>> take_connections(const Deadline& deadline) {
    std::size_t open = peers_.size() - 2;  // but to rank 0, and to itself
    while (!all_have_come_ || open > 0) {
      auto message = peers_[0]->socket.try_receive(deadline);
      if (!message) return failed(why_it_ended(message.failure()));
      if (message->kind == begin_anew_message) return std::nullopt;
      if (message->kind == given_up_message) return failed(told_of(place_, failure_told_by(root(), *message)));
      auto wrong = message->kind == missing_message ? take_missing(*message) : take_connection(*message);
      if (wrong) return failed(std::move(*wrong));
      if (message->kind == connection_message) --open;
    }
    return Result<Peers>(std::move(peers_));
  }

  [[nodiscard]] std::string root() const { return name_of_rank(0, peers_[0]->process); }

  [[nodiscard]] Failure why_it_ended(const Failure& of_connection) const {
    if (of_connection.kind != ErrorKind::timed_out) return told_of(place_, failure_of_rank(root(), of_connection));
    return not_all_have_come(place_, missing_.empty() ? std::vector<std::uint32_t>{0} : missing_);
  }

  std::optional<Failure> take_missing(const Message& message) {
    Reader reader(message.bytes);
    std::vector<std::uint32_t> missing;
    while (reader.left() != 0) missing.push_back(reader.number<std::uint32_t>());
    if (!reader.complete()) return wrong_message(place_, root(), message);
    missing_ = std::move(missing);
    all_have_come_ = missing_.empty();
    return std::nullopt;
  }

  std::optional<Failure> take_connection(Message& message) try {
    Reader reader(message.bytes);
    const auto rank = reader.number<std::uint32_t>();
    const auto process = reader.number<std::uint32_t>();
    if (message.kind != connection_message || !reader.complete() || message.descriptors.size() != 1)
      return wrong_message(place_, root(), message);
    if (rank == 0 || rank >= peers_.size() || rank == static_cast<std::uint32_t>(place_.rank) || peers_[rank])
      return wrong_message(place_, root(), message);
    ConnectionOptions options;
    options.limits = team_message_limits;
    peers_[rank] = Peer{DescriptorSocket::adopt(std::move(message.descriptors.front()), options), process};
    return std::nullopt;
  } catch (const Error& error) {
    return told_of(place_, error.failure());
  }

  std::optional<Result<Peers>> failed(Failure why) {
    give_up(peers_, why);
    return Result<Peers>(std::move(why));
  }

  const MeetingPlace& place_;
  Peers peers_;
  std::vector<std::uint32_t> missing_;
  bool all_have_come_ = false;
};

}  // namespace

Result<Peers> try_meet(const MeetingPlace& place, const Deadline& deadline) {
  if (place.size == 1) return Peers(1);
  if (place.rank == 0) return Gathering(place).run(deadline);
  Backoff backoff;
  for (;;) {
    if (auto arrived = Arrival(place).run(deadline)) return std::move(*arrived);
    if (deadline.passed()) return not_all_have_come(place, {0});
    backoff.pause(deadline.time());
  }
}

}  // namespace cuvmm::team
