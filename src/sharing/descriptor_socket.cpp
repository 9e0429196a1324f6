#include "cuvmm/sharing/descriptor_socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

#include "backoff.hpp"
#include "refusal.hpp"
#include "sharing/content.hpp"
#include "sharing/descriptor_facts.hpp"
#include "sharing/handles_message.hpp"
#include "sharing/outgoing.hpp"
#include "sharing/packet.hpp"
#include "sharing/socket_io.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::size_t most_kept_messages = 4096;
constexpr std::size_t most_kept_times_the_limits = 4;  // in bytes and descriptors, so that one message always fits

bool says_that_the_peer_is_gone(int error) noexcept {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN;
}

// Passing, and nobody announces the end of it.
bool passes(int error) noexcept {
  return error == ETOOMANYREFS || error == ENOBUFS;
}

Result<void> require_open(std::string_view call, std::span<const int> descriptors) {
  for (std::size_t index = 0; index < descriptors.size(); ++index)
    if (::fcntl(descriptors[index], F_GETFD) < 0)
      return invalid_use(call, fmt::format("descriptors[{}] = {}", index, descriptors[index]),
                         "The descriptor is not open in this process", "Keep descriptors open until they are sent");
  return {};
}

Failure bad_descriptor(std::string_view call, std::span<const int> all) {
  if (auto open = require_open(call, all); !open) return open.failure();
  return invalid_use(call, "descriptors", "A descriptor was closed while it was sent",
                     "Keep descriptors open until they are sent");
}

Failure too_many_on_their_way(std::string_view call, int error) {
  Failure failure = system_failure(call, "descriptors", error);
  if (error != ETOOMANYREFS) return failure;
  failure.kind = ErrorKind::out_of_descriptors;
  failure.rule =
      "As many descriptors may be on their way in sockets as a process may have open, and the peer takes none";
  failure.way_out = "Have the peer receive, or raise the limit (ulimit -n)";
  return failure;
}

// A peer that is awake answers sooner than the system would wake a thread that sleeps.
constexpr auto worth_staying_awake = std::chrono::microseconds(200);

bool comes_soon(int socket) noexcept {
  const auto until = std::chrono::steady_clock::now() + worth_staying_awake;
  do {
    pollfd asked{socket, POLLIN, 0};
    const int ready = ::poll(&asked, 1, 0);
    if (ready != 0) return ready > 0;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < until);
  return false;
}

}  // namespace

DescriptorSocket::DescriptorSocket(UniqueDescriptor socket, const MessageLimits& limits)
    : socket_(std::move(socket)), limits_(limits) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0)
    peer_ = {credentials.pid, credentials.uid, credentials.gid};
}

std::pair<DescriptorSocket, DescriptorSocket> DescriptorSocket::pair(const MessageLimits& limits) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    raise(system_failure("socketpair", "AF_UNIX, SOCK_SEQPACKET", errno));
  UniqueDescriptor one(ends[0]);
  UniqueDescriptor other(ends[1]);
  return {DescriptorSocket(made_safe(std::move(one)).value(), limits),
          DescriptorSocket(made_safe(std::move(other)).value(), limits)};
}

DescriptorSocket DescriptorSocket::adopt(UniqueDescriptor socket, const ConnectionOptions& options) {
  constexpr std::string_view call = "DescriptorSocket::adopt";
  int family = 0;
  int type = 0;
  socklen_t size = sizeof family;
  sockaddr_storage peer{};
  socklen_t peer_size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family != AF_UNIX ||
      ::getsockopt(socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET ||
      ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    raise(invalid_use(call, fmt::format("descriptor = {}, which is {}", socket.get(), what_it_is(socket.get())),
                      "It must be one end of a connection of type SOCK_SEQPACKET between Unix sockets",
                      "Make the pair with DescriptorSocket::pair, or socketpair(AF_UNIX, SOCK_SEQPACKET, ...)"));
  DescriptorSocket adopted(made_safe(std::move(socket)).value(), options.limits);
  adopted.check_user(call, options).value();
  return adopted;
}

std::string DescriptorSocket::peer_name() const {
  return peer_.process != 0 ? fmt::format("process {}", peer_.process) : "a process of another PID namespace";
}

Failure DescriptorSocket::failure_of_peer(ErrorKind kind, std::string_view call, std::string reason) const {
  Failure failure;
  failure.kind = kind;
  failure.call = call;
  failure.arguments = fmt::format("peer = {}", peer_name());
  failure.reason = std::move(reason);
  return failure;
}

Result<void> DescriptorSocket::wait_for(short events, std::string_view call, const Deadline& deadline) const {
  if ((events & POLLIN) != 0 && !deadline.passed() && comes_soon(socket_.get())) return {};
  while (!deadline.passed()) {
    const auto left = deadline.left();
    pollfd socket{socket_.get(), events, 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1'000'000)));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_failure("poll", fmt::format("peer = {}", peer_name()), errno);
  }
  return failure_of_peer(
      ErrorKind::timed_out, call,
      (events & POLLIN) != 0 ? "nothing arrived before the deadline" : "the peer took nothing before the deadline");
}

void DescriptorSocket::tell(const Failure& failure) noexcept {
  try {
    const auto bytes = encode(failure);
    PacketHeader header{.kind = failure_kind, .last = true, .total_bytes = bytes.size()};
    header.bytes = static_cast<std::uint32_t>(bytes.size());
    (void)send_now(socket_.get(), encode(header), bytes, {});  // if it cannot be told, the end of the connection tells
  } catch (const std::bad_alloc&) {
  }
}

Failure DescriptorSocket::give_up(Failure why) noexcept {
  if (why.kind != ErrorKind::peer_gone) tell(why);
  end(why);
  return why;
}

void DescriptorSocket::end(const Failure& why) noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);  // a forked child may have it, too
  close();
  try {
    why_closed_ = why.message();
  } catch (const std::bad_alloc&) {
  }
}

// --- Sending.

Result<void> DescriptorSocket::check_sendable(std::string_view call, const MessageView& message) const {
  if (message.kind < first_free_kind)
    return invalid_use(call, fmt::format("kind = {}", message.kind), "Kinds below 16 belong to the transport",
                       "Count kinds from cuvmm::sharing::first_free_kind");
  if (message.kind == handles_message)
    return invalid_use(call, fmt::format("kind = {}", message.kind), "This kind belongs to handles",
                       "Send handles by send_handles, and other messages as another kind");
  return check_limits(call, message);
}

Result<void> DescriptorSocket::check_limits(std::string_view call, const MessageView& message) const {
  if (message.bytes.size() > limits_.bytes || message.descriptors.size() > limits_.descriptors)
    return invalid_use(
        call, fmt::format("{} bytes, {} descriptors", message.bytes.size(), message.descriptors.size()),
        fmt::format("A message has at most {} bytes and {} descriptors", limits_.bytes, limits_.descriptors),
        "Send several messages, or give both ends larger MessageLimits");
  return {};
}

Result<void> DescriptorSocket::send_packet(const Outgoing& message, std::span<const std::byte> header,
                                           std::span<const std::byte> bytes, std::span<const int> descriptors,
                                           const Deadline& deadline) {
  Backoff backoff;
  for (;;) {
    const int error = send_now(socket_.get(), header, bytes, descriptors);
    if (error == 0) return {};
    if (error == EAGAIN || error == EWOULDBLOCK) {
      if (auto waited = wait_for(POLLOUT, message.call, deadline); !waited) return waited;
    } else if (passes(error) && !deadline.passed()) {
      backoff.pause(deadline.time());
    } else if (passes(error)) {
      return too_many_on_their_way(message.call, error);
    } else if (error == EBADF) {
      return bad_descriptor(message.call, message.content.descriptors);
    } else if (says_that_the_peer_is_gone(error)) {
      if (auto told = last_words(message.first_awaited)) return *told;
      return failure_of_peer(ErrorKind::peer_gone, message.call, "the peer has closed the connection, or has ended");
    } else {
      return system_failure(message.call, fmt::format("peer = {}", peer_name()), error);
    }
  }
}

Result<void> DescriptorSocket::send_message(const Outgoing& message, const Deadline& deadline) {
  if (!socket_)
    return failure_of_peer(ErrorKind::peer_gone, message.call,
                           why_closed_.empty() ? "the connection was closed" : "it was given up: " + why_closed_);
  std::span<const std::byte> bytes = message.content.bytes;
  std::span<const int> descriptors = message.content.descriptors;
  // Of one packet the system takes all or nothing; of several, the first would have been sent.
  if (descriptors.size() > most_packet_descriptors)
    if (auto open = require_open(message.call, descriptors); !open) return open;
  PacketHeader header{.kind = message.content.kind, .number = message.number, .is_reply = message.is_reply};
  header.total_bytes = bytes.size();
  header.total_descriptors = static_cast<std::uint32_t>(descriptors.size());
  do {
    const auto content = bytes.first(std::min(bytes.size(), most_packet_content));
    const auto beside = descriptors.first(std::min(descriptors.size(), most_packet_descriptors));
    bytes = bytes.subspan(content.size());
    descriptors = descriptors.subspan(beside.size());
    header.bytes = static_cast<std::uint32_t>(content.size());
    header.descriptors = static_cast<std::uint32_t>(beside.size());
    header.last = bytes.empty() && descriptors.empty();
    if (auto sent = send_packet(message, encode(header), content, beside, deadline); !sent) {
      const bool gone = sent.failure().kind == ErrorKind::peer_gone;
      return header.index != 0 || gone ? give_up(sent.failure()) : sent.failure();
    }
    ++header.index;
  } while (!header.last);
  return {};
}

Result<void> DescriptorSocket::try_send(const MessageView& message, const Deadline& deadline) {
  constexpr std::string_view call = "DescriptorSocket::send";
  if (auto allowed = check_sendable(call, message); !allowed) return allowed;
  return send_message({call, message, ++last_number_}, deadline);
}

Result<void> DescriptorSocket::try_reply(const Message& request, const MessageView& answer, const Deadline& deadline) {
  constexpr std::string_view call = "DescriptorSocket::reply";
  if (auto allowed = check_sendable(call, answer); !allowed) return allowed;
  return send_message({call, answer, request.number, true}, deadline);
}

Result<void> DescriptorSocket::try_reply(const Message& request, const Failure& failure, const Deadline& deadline) {
  const auto bytes = encode(failure);
  return send_message({"DescriptorSocket::reply", {.kind = failure_kind, .bytes = bytes}, request.number, true},
                      deadline);
}

// --- Receiving.

namespace {

// Descriptors as handles may have them.
Result<void> make_all_safe(std::vector<UniqueDescriptor>& descriptors) {
  for (UniqueDescriptor& each : descriptors) {
    if (each.get() > 2) continue;
    auto safe = duplicate(each.get());
    if (!safe) return safe.failure();
    each = std::move(safe).value();
  }
  return {};
}

}  // namespace

Result<Message> DescriptorSocket::receive_any(std::string_view call, const Deadline& deadline) {
  Patience patience{deadline};
  return receive_any(call, patience);
}

Result<Message> DescriptorSocket::receive_any(std::string_view call, Patience& patience) {
  if (!socket_)
    return failure_of_peer(ErrorKind::peer_gone, call,
                           why_closed_.empty() ? "the connection was closed" : "it was given up: " + why_closed_);
  const auto violation = [&](std::string reason) {
    return give_up(failure_of_peer(ErrorKind::protocol_violation, call, "a packet is refused: " + std::move(reason)));
  };
  MessageAssembler assembler(limits_);
  bool was_reset = false;
  const auto too_late = [&](Failure failure) { return assembler.begun() ? give_up(std::move(failure)) : failure; };
  while (!assembler.complete()) {
    if (patience.ends_before_next_packet())
      return too_late(
          failure_of_peer(ErrorKind::timed_out, call,
                          "the peer goes on sending, and what was waited for did not come before the deadline"));
    ReceivedPacket packet = receive_now(socket_.get());
    if (packet.error == EAGAIN || packet.error == EWOULDBLOCK) {
      if (auto waited = wait_for(POLLIN, call, patience.deadline); !waited) return too_late(waited.failure());
      continue;
    }
    // It is told once, before what arrived earlier.
    if (packet.error == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (packet.ended || says_that_the_peer_is_gone(packet.error))
      return give_up(failure_of_peer(ErrorKind::peer_gone, call,
                                     assembler.begun() ? "the peer ended in the middle of a message"
                                                       : "the peer has closed the connection, or has ended"));
    if (packet.error != 0) return give_up(system_failure(call, fmt::format("peer = {}", peer_name()), packet.error));
    if (packet.descriptors_lost)
      return give_up(system_failure(call, fmt::format("peer = {}, which sent descriptors", peer_name()), EMFILE));
    if (packet.cut) return violation(fmt::format("it is larger than {} bytes", most_packet_bytes));
    if (auto safe = make_all_safe(packet.descriptors); !safe) return give_up(safe.failure());
    if (auto fault = assembler.add(packet.bytes, std::move(packet.descriptors))) return violation(std::move(*fault));
  }
  return assembler.take();
}

// The failure that the peer sent, told as its own. Whoever sends one that answers nothing has given the connection up.
Failure DescriptorSocket::refusal_of(const Message& message, std::string_view call) {
  auto failure = decode_failure(message.bytes);
  if (!failure)
    return give_up(failure_of_peer(ErrorKind::protocol_violation, call, "the peer sent a failure that cannot be read"));
  failure->call = fmt::format("{}: {}", peer_name(), failure->call);
  if (!message.is_reply) end(*failure);
  return std::move(*failure);
}

// For receive(), unless there is too much of it already.
bool DescriptorSocket::keep(Message& message) {
  const auto fits = [](std::size_t sum, std::size_t limit) {  // divided, since limits may be as large as they like
    return sum / most_kept_times_the_limits + (sum % most_kept_times_the_limits != 0 ? 1 : 0) <= limit;
  };
  if (kept_.size() == most_kept_messages || !fits(kept_bytes_ + message.bytes.size(), limits_.bytes) ||
      !fits(kept_descriptors_ + message.descriptors.size(), limits_.descriptors))
    return false;
  kept_bytes_ += message.bytes.size();
  kept_descriptors_ += message.descriptors.size();
  kept_.push_back(std::move(message));
  return true;
}

std::optional<Failure> DescriptorSocket::last_words(std::uint32_t first_awaited) {
  constexpr std::string_view call = "DescriptorSocket::send";
  Patience now{Deadline::at(Deadline::Clock::now())};
  while (socket_) {
    auto message = receive_any(call, now);
    if (!message) return std::nullopt;
    const bool is_answer = message->is_reply && first_awaited != 0 && message->number >= first_awaited;
    if (message->kind == failure_kind && (is_answer || !message->is_reply)) return refusal_of(*message, call);
    const bool is_late = message->is_reply && !is_answer;
    if (message->kind != failure_kind && !is_late) static_cast<void>(keep(*message));
  }
  return std::nullopt;
}

Result<Message> DescriptorSocket::receive_next(const Deadline& deadline) {
  Patience patience{deadline};
  return receive_next(patience);
}

Result<Message> DescriptorSocket::receive_next(Patience& patience) {
  constexpr std::string_view call = "DescriptorSocket::receive";
  if (!kept_.empty()) {
    Message oldest = std::move(kept_.front());
    kept_.erase(kept_.begin());
    kept_bytes_ -= oldest.bytes.size();
    kept_descriptors_ -= oldest.descriptors.size();
    return oldest;
  }
  for (;;) {
    auto message = receive_any(call, patience);
    if (!message) return message;
    if (message->is_reply && message->number <= last_asked_) continue;  // nobody waits for it any more
    return message;
  }
}

Result<Message> DescriptorSocket::try_receive(const Deadline& deadline) {
  auto message = receive_next(deadline);
  if (message && message->kind == failure_kind) return refusal_of(*message, "DescriptorSocket::receive");
  return message;
}

// The number that its reply will have.
Result<std::uint32_t> DescriptorSocket::send_request(std::string_view call, const MessageView& request,
                                                     const Deadline& deadline, std::uint32_t first_awaited) {
  if (auto allowed = check_sendable(call, request); !allowed) return allowed.failure();
  last_asked_ = ++last_number_;
  const Outgoing message{.call = call, .content = request, .number = last_asked_, .first_awaited = first_awaited};
  if (auto sent = send_message(message, deadline); !sent) return sent.failure();
  return last_asked_;
}

// One that arrived while a later request could not be sent any more.
std::optional<Message> DescriptorSocket::take_kept_reply(std::uint32_t number) {
  const auto found = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const Message& each) { return each.is_reply && each.number == number; });
  if (found == kept_.end()) return std::nullopt;
  Message reply = std::move(*found);
  kept_.erase(found);
  kept_bytes_ -= reply.bytes.size();
  kept_descriptors_ -= reply.descriptors.size();
  return reply;
}

Result<Message> DescriptorSocket::receive_reply(std::string_view call, std::uint32_t number, Patience& patience) {
  if (auto kept = take_kept_reply(number)) return std::move(*kept);
  for (;;) {
    auto message = receive_any(call, patience);
    if (!message) return message;
    if (message->is_reply && message->number != number) continue;
    if (message->kind == failure_kind) return refusal_of(*message, call);
    if (message->is_reply) return message;
    if (!keep(*message))
      return give_up(failure_of_peer(
          ErrorKind::protocol_violation, call,
          fmt::format("{} messages of {} bytes and {} descriptors came and no reply, and one of {} bytes more is too "
                      "much to be kept",
                      kept_.size(), kept_bytes_, kept_descriptors_, message->bytes.size())));
  }
}

Result<Message> DescriptorSocket::try_ask(const MessageView& request, const Deadline& deadline) {
  constexpr std::string_view call = "DescriptorSocket::ask";
  const auto number = send_request(call, request, deadline);
  if (!number) return number.failure();
  Patience patience{deadline};
  return receive_reply(call, *number, patience);
}

DescriptorSocket::SentRequests DescriptorSocket::send_requests(std::span<const MessageView> requests,
                                                               const Deadline& deadline) {
  SentRequests numbers;
  for (const MessageView& each : requests)
    numbers.push_back(
        send_request("DescriptorSocket::ask", each, deadline, numbers.empty() ? 0 : numbers.front().value_or(0)));
  return numbers;
}

std::vector<Result<Message>> DescriptorSocket::receive_replies(const SentRequests& requests, const Deadline& deadline) {
  Patience patience{deadline};
  const auto welcomed = receive_welcome(patience);
  std::vector<Result<Message>> replies;
  for (const auto& number : requests) {
    if (!number)
      replies.emplace_back(number.failure());
    else if (!welcomed)
      replies.emplace_back(welcomed.failure());
    else
      replies.push_back(receive_reply("DescriptorSocket::ask", *number, patience));
  }
  // Sending a later one may have been what learned why the peer has ended.
  for (auto& each : replies)
    if (!each && each.failure().kind == ErrorKind::peer_gone && !replies.back()) each = replies.back().failure();
  return replies;
}

}  // namespace cuvmm::sharing
