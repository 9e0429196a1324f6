#include "team/socket_exchange.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "refusal.hpp"
#include "sharing/wire.hpp"
#include "system_failure.hpp"

namespace cuvmm::team {

using namespace sharing;

SocketExchange::SocketExchange(Peers& peers, const Operation& operation)
    : peers_(peers), operation_(operation), progress_(peers.size()), received_(peers.size()) {
  received_[static_cast<std::size_t>(operation.rank)].assign(operation.mine.begin(), operation.mine.end());
}

Failure SocketExchange::told(Failure of_rank) const {
  of_rank.call = operation_.call;
  of_rank.arguments = fmt::format("step = '{}', rank = {} of {}", operation_.step, operation_.rank, peers_.size());
  return of_rank;
}

Failure SocketExchange::failure(ErrorKind kind, std::string reason) const {
  Failure failure;
  failure.kind = kind;
  failure.reason = std::move(reason);
  return told(std::move(failure));
}

Failure SocketExchange::others_are_missing() const {
  std::vector<std::string> missing;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank] && !progress_[rank].received) missing.push_back(name_of(rank));
  // They have given, and take nothing.
  for (std::size_t rank = 0; missing.empty() && rank < peers_.size(); ++rank)
    if (peers_[rank] && !progress_[rank].all_sent) missing.push_back(name_of(rank));
  Failure late = failure(ErrorKind::timed_out, fmt::format("before the deadline these did not come to this step: {}",
                                                           fmt::join(missing, ", ")));
  late.way_out = "See what keeps them, or give the step more time; then form a new team";
  return late;
}

Failure SocketExchange::out_of_step(std::size_t rank, std::string_view theirs) const {
  return told(
      invalid_use({}, {},
                  fmt::format("All ranks have to take the same steps in the same order, and {} is in '{}' where "
                              "this one is in '{}'",
                              name_of(rank), theirs, operation_.step),
                  "Have all ranks of a team call the same functions"));
}

void SocketExchange::send_to(std::size_t rank) {
  Progress& progress = progress_[rank];
  while (!progress.all_sent) {
    const auto part =
        operation_.mine.subspan(progress.sent).first(std::min(most_part_bytes, operation_.mine.size() - progress.sent));
    Writer writer;
    writer.number(operation_.number).text(operation_.step).number(std::uint64_t{operation_.mine.size()}).raw(part);
    const auto bytes = writer.take();
    const auto sent = peers_[rank]->socket.try_send({.kind = contribution_message, .bytes = bytes}, at_once());
    if (!sent && would_wait(peers_[rank]->socket, sent.failure())) return;
    progress.sent += part.size();
    progress.all_sent = !sent || progress.sent == operation_.mine.size();
  }
}

Result<void> SocketExchange::take(std::size_t rank, const Message& message) {
  if (message.kind == given_up_message) return told(failure_told_by(name_of(rank), message));
  Reader reader(message.bytes);
  const auto number = reader.number<std::uint64_t>();
  const std::string step = reader.text(most_step_bytes);
  const auto total = reader.number<std::uint64_t>();
  const auto part = reader.raw(reader.left());
  Progress& progress = progress_[rank];
  Bytes& received = received_[rank];
  if (message.kind != contribution_message || reader.failed() || total > most_contribution_bytes ||
      part.size() > total - received.size() || (progress.begun && total != progress.expected))
    return failure(ErrorKind::protocol_violation, fmt::format("{} sent what is no contribution", name_of(rank)));
  if (number != operation_.number || step != operation_.step) return out_of_step(rank, step);
  progress.begun = true;
  progress.expected = static_cast<std::size_t>(total);
  received.insert(received.end(), part.begin(), part.end());
  progress.received = received.size() == progress.expected;
  return {};
}

// Whether there was a message.
Result<bool> SocketExchange::receive_one_from(std::size_t rank) {
  Peer& peer = *peers_[rank];
  Progress& progress = progress_[rank];
  if (!progress.received && !peer.ahead.empty()) {
    const Message message = std::move(peer.ahead.front());
    peer.ahead.pop_front();
    if (auto taken = take(rank, message); !taken) return taken.failure();
    return true;
  }
  if (progress.ended) return false;
  auto message = peer.socket.try_receive(at_once());
  if (!message && would_wait(peer.socket, message.failure())) return false;
  if (!message && progress.received) {
    progress.ended = true;
    return false;
  }
  if (!message) {
    Failure end = told(failure_of_rank(name_of(rank), message.failure()));
    if (rank == 0 || !awaits_word_of_rank_0()) return end;
    if (!ended_silently_) ended_silently_ = std::move(end);
    progress.ended = true;
    return false;
  }
  // Whoever fails in a later operation has done its part of this one.
  if (message->kind == given_up_message && last_word_in(*message).operation <= operation_.number)
    return told(failure_told_by(name_of(rank), *message));
  if (progress.received)
    peer.ahead.push_back(std::move(message).value());
  else if (auto taken = take(rank, *message); !taken)
    return taken.failure();
  return true;
}

Result<void> SocketExchange::receive_from(std::size_t rank) {
  for (;;) {
    const auto received = receive_one_from(rank);
    if (!received) return received.failure();
    if (!*received) return {};
  }
}

bool SocketExchange::awaits_word_of_rank_0() const {
  return operation_.meeting && operation_.rank != 0 && !progress_[0].received;
}

bool SocketExchange::complete() const {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank] && !(progress_[rank].received && progress_[rank].all_sent)) return false;
  return true;
}

Result<void> SocketExchange::wait(const Deadline& deadline) const {
  std::vector<pollfd> sockets;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (!peers_[rank]) continue;
    const int events = (progress_[rank].ended ? 0 : POLLIN) | (progress_[rank].all_sent ? 0 : POLLOUT);
    if (events != 0) sockets.push_back({peers_[rank]->socket.descriptor(), static_cast<short>(events), 0});
  }
  const auto left = std::min<std::int64_t>(deadline.left().count(), 1'000'000);
  if (::poll(sockets.data(), sockets.size(), static_cast<int>(left)) < 0 && errno != EINTR)
    return told(system_failure("poll", {}, errno));
  return {};
}

// What has come is looked at before the deadline is: nobody is missing who is there.
Result<Contributions> SocketExchange::run(const Deadline& deadline) {
  for (;;) {
    const bool is_last = deadline.passed();
    for (std::size_t rank = 0; rank < peers_.size(); ++rank)
      if (peers_[rank]) send_to(rank);
    for (std::size_t rank = 0; rank < peers_.size(); ++rank)
      if (peers_[rank])
        if (auto received = receive_from(rank); !received) return received.failure();
    if (ended_silently_ && (is_last || !awaits_word_of_rank_0())) return std::move(*ended_silently_);
    if (complete()) return std::move(received_);
    if (is_last) return others_are_missing();
    if (auto waited = wait(deadline); !waited) return waited.failure();
  }
}

}  // namespace cuvmm::team
