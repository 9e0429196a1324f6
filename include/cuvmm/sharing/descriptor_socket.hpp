// A connection to another process of this host that carries messages and descriptors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuvmm/result.hpp"
#include "cuvmm/sharing/deadline.hpp"
#include "cuvmm/sharing/locality.hpp"
#include "cuvmm/sharing/message.hpp"
#include "cuvmm/sharing/socket_address.hpp"
#include "cuvmm/unique_descriptor.hpp"

namespace cuvmm::sharing {

class AttachedRange;
class DescriptorListener;
class RangeService;
struct HandleOfMemory;

// Who is at the other end, as the system says (SO_PEERCRED).
struct PeerCredentials {
  int process = 0;  // 0 where it is of a PID namespace that this process cannot see
  unsigned user = 0;
  unsigned group = 0;
};

// What both ends of a connection agree on.
struct ConnectionOptions {
  std::string token{};                  // a secret, or the name of a job: both ends need the same; at most 4 KiB
  std::vector<unsigned> other_users{};  // who may be at the other end besides this process's effective user
  // What the other end is told; Locality::here() unless given. Locality::of(driver) tells the emulated node, too, so
  // that handles which mean nothing there are refused before they are sent.
  std::optional<Locality> locality{};
  bool wait_for_listener = false;  // connecting: nobody listens yet is no error before the deadline
  MessageLimits limits{};
};

// A connection over a Unix socket of type SOCK_SEQPACKET (guide 4.16.3.1: descriptors are sent, never their numbers;
// sendmsg and recvmsg with SCM_RIGHTS). The format of messages, and what is checked of them, is told in
// docs/sharing.md.
//
// - Every wait has a deadline: TimedOut. A peer that ended: PeerGone. What is no message: ProtocolViolation.
// - A failure that the peer sent in place of an answer is thrown here as the exception that it was there.
// - After a failure in the middle of a message, and after a protocol violation, the connection is given up: the peer
//   sees it end, and every later call throws PeerGone with the reason.
// - SIGPIPE is never raised, received descriptors are close-on-exec, interrupted calls go on.
//
// One thread at a time may use an object; different objects are independent. A moved-from one may only be assigned to
// or destroyed.
class DescriptorSocket {
 public:
  // Connects to a listener. Both ends check the version and the user of the other one, the listener token and kernel,
  // too. Throws PeerGone if nobody listens there, TimedOut, NotPermitted for another user or token, NotSupported for a
  // process of another host, OutOfDescriptors, and others as the listener answers.
  [[nodiscard]] static DescriptorSocket connect(const SocketAddress& address, const ConnectionOptions& options,
                                                const Deadline& deadline);
  [[nodiscard]] static Result<DescriptorSocket> try_connect(const SocketAddress& address,
                                                            const ConnectionOptions& options, const Deadline& deadline);

  // Both ends of a new connection, one of which a child process inherits: there is nothing to agree on.
  [[nodiscard]] static std::pair<DescriptorSocket, DescriptorSocket> pair(const MessageLimits& limits = {});

  // Takes over an end of a pair that was inherited. Throws InvalidUse unless it is a connected Unix socket of type
  // SOCK_SEQPACKET, NotPermitted if the process that made it is of a user who is not allowed.
  [[nodiscard]] static DescriptorSocket adopt(UniqueDescriptor socket, const ConnectionOptions& options = {});

  DescriptorSocket(DescriptorSocket&&) noexcept = default;
  DescriptorSocket& operator=(DescriptorSocket&&) noexcept = default;
  DescriptorSocket(const DescriptorSocket&) = delete;
  DescriptorSocket& operator=(const DescriptorSocket&) = delete;
  ~DescriptorSocket() = default;

  // Sends a message, in as many packets as it takes. Returns when the system has all of it, which the peer may not have
  // read; descriptors on their way keep their memory alive. Throws InvalidUse for a kind of the transport's or a
  // descriptor that is not open, and, before anything is sent, for more than the limits allow.
  void send(const MessageView& message, const Deadline& deadline) { try_send(message, deadline).value(); }
  [[nodiscard]] Result<void> try_send(const MessageView& message, const Deadline& deadline);

  // The next message. Throws OutOfDescriptors where this process has no room for the descriptors that came. A failure
  // that is no reply is the peer's last word, which ends the connection here, too.
  [[nodiscard]] Message receive(const Deadline& deadline) { return try_receive(deadline).value(); }
  [[nodiscard]] Result<Message> try_receive(const Deadline& deadline);

  // Sends a request and waits for its reply. Late replies to earlier requests are passed over, and what else arrives
  // meanwhile is kept for receive(): at most 4096 messages, and four times as many bytes and descriptors as
  // MessageLimits allow in one; more is a ProtocolViolation.
  [[nodiscard]] Message ask(const MessageView& request, const Deadline& deadline) {
    return try_ask(request, deadline).value();
  }
  [[nodiscard]] Result<Message> try_ask(const MessageView& request, const Deadline& deadline);

  // Answers a request: with a message, or with why not, which is thrown at the other end.
  void reply(const Message& request, const MessageView& answer, const Deadline& deadline) {
    try_reply(request, answer, deadline).value();
  }
  [[nodiscard]] Result<void> try_reply(const Message& request, const MessageView& answer, const Deadline& deadline);
  [[nodiscard]] Result<void> try_reply(const Message& request, const Failure& failure, const Deadline& deadline);

  [[nodiscard]] const PeerCredentials& peer() const noexcept { return peer_; }
  // What the peer told of its host when the connection was made; nothing for a pair.
  [[nodiscard]] const std::optional<Locality>& peer_locality() const noexcept { return peer_locality_; }

  // For poll(): readable when there is something to receive, the peer's end included. -1 if the connection is closed.
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  // Ends the connection now.
  void close() noexcept { socket_.close(); }

 private:
  friend class AttachedRange;
  friend class DescriptorListener;
  friend class RangeService;
  friend Result<void> try_send_handles(DescriptorSocket& socket, std::span<const HandleOfMemory> handles,
                                       const Deadline& deadline);
  friend Result<std::vector<HandleOfMemory>> try_receive_handles(DescriptorSocket& socket, const Deadline& deadline);
  struct Outgoing;
  struct Patience;
  DescriptorSocket(UniqueDescriptor socket, const MessageLimits& limits);

  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] Failure failure_of_peer(ErrorKind kind, std::string_view call, std::string reason) const;
  [[nodiscard]] Result<void> wait_for(short events, std::string_view call, const Deadline& deadline) const;
  [[nodiscard]] Result<void> check_sendable(std::string_view call, const MessageView& message) const;
  [[nodiscard]] Result<void> check_limits(std::string_view call, const MessageView& message) const;
  [[nodiscard]] Result<void> send_message(const Outgoing& message, const Deadline& deadline);
  [[nodiscard]] Result<void> send_packet(const Outgoing& message, std::span<const std::byte> header,
                                         std::span<const std::byte> bytes, std::span<const int> descriptors,
                                         const Deadline& deadline);
  [[nodiscard]] Result<Message> receive_any(std::string_view call, const Deadline& deadline);
  [[nodiscard]] Result<Message> receive_any(std::string_view call, Patience& patience);
  // A few small requests, and then their replies, which come in the same order: a single round trip, that of the
  // introduction included where its answer is still due. A result for each. Where the peer refuses one and ends, those
  // that follow have failed for the same reason.
  using SentRequests = std::vector<Result<std::uint32_t>>;
  [[nodiscard]] SentRequests send_requests(std::span<const MessageView> requests, const Deadline& deadline);
  [[nodiscard]] std::vector<Result<Message>> receive_replies(const SentRequests& requests, const Deadline& deadline);
  [[nodiscard]] Result<std::uint32_t> send_request(std::string_view call, const MessageView& request,
                                                   const Deadline& deadline, std::uint32_t first_awaited = 0);
  [[nodiscard]] Result<Message> receive_reply(std::string_view call, std::uint32_t number, Patience& patience);
  [[nodiscard]] std::optional<Message> take_kept_reply(std::uint32_t number);
  [[nodiscard]] bool keep(Message& message);
  [[nodiscard]] Failure refusal_of(const Message& message, std::string_view call);
  // What the peer said before it ended, if it said why: by itself, or in reply to one of the requests from that number.
  [[nodiscard]] std::optional<Failure> last_words(std::uint32_t first_awaited);
  // As try_receive, but a failure that the peer sent comes as the message that it is.
  [[nodiscard]] Result<Message> receive_next(const Deadline& deadline);
  [[nodiscard]] Result<Message> receive_next(Patience& patience);

  [[nodiscard]] Result<void> check_user(std::string_view call, const ConnectionOptions& options) const;
  // Connected and introduced; whether the listener welcomes it is not known yet. It reads what is sent meanwhile after
  // the introduction, or not at all.
  [[nodiscard]] static Result<DescriptorSocket> try_begin_to_connect(const SocketAddress& address,
                                                                     const ConnectionOptions& options,
                                                                     const Deadline& deadline);
  [[nodiscard]] Result<void> introduce(const ConnectionOptions& options, const Deadline& deadline);
  [[nodiscard]] Result<void> receive_welcome(Patience& patience);  // if it is due
  void take_limits(const MessageLimits& limits) noexcept { (welcome_is_due_ ? later_limits_ : limits_) = limits; }
  [[nodiscard]] Result<void> welcome(const ConnectionOptions& options, const Deadline& deadline);
  void tell(const Failure& failure) noexcept;
  Failure give_up(Failure why) noexcept;
  void end(const Failure& why) noexcept;  // as why_closed_ tells it

  UniqueDescriptor socket_;
  MessageLimits limits_;
  MessageLimits later_limits_;  // from the welcome on, where that is due
  bool welcome_is_due_ = false;
  PeerCredentials peer_;
  std::optional<Locality> locality_;  // that the peer was told
  std::optional<Locality> peer_locality_;
  std::string why_closed_;
  std::vector<Message> kept_;  // arrived while something else was done
  std::size_t kept_bytes_ = 0;
  std::size_t kept_descriptors_ = 0;
  std::uint32_t last_number_ = 0;
  std::uint32_t last_asked_ = 0;
};

}  // namespace cuvmm::sharing
