// How a connection is made, and how both ends learn who the other one is.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backoff.hpp"
#include "cuvmm/sharing/descriptor_socket.hpp"
#include "refusal.hpp"
#include "sharing/content.hpp"
#include "sharing/descriptor_facts.hpp"
#include "sharing/locality_refusal.hpp"
#include "sharing/outgoing.hpp"
#include "sharing/packet.hpp"
#include "sharing/unix_address.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view connecting = "DescriptorSocket::connect";
constexpr std::string_view accepting = "DescriptorListener::accept";

// Takes as long for a wrong token as for a right one.
bool same_token(std::string_view one, std::string_view other) noexcept {
  if (one.size() != other.size()) return false;
  unsigned char difference = 0;
  for (std::size_t index = 0; index < one.size(); ++index)
    difference |= static_cast<unsigned char>(one[index] ^ other[index]);
  return difference == 0;
}

Failure nobody_listens(const SocketAddress& address, int error) {
  Failure failure;
  failure.kind = ErrorKind::peer_gone;
  failure.call = connecting;
  failure.arguments = fmt::format("address = {}", address.to_string());
  failure.reason = error == ENOENT ? "nobody has made this socket" : "nobody listens at this socket any more";
  failure.way_out = "Start the listener first, or set ConnectionOptions::wait_for_listener";
  return failure;
}

Failure cannot_connect(const SocketAddress& address, int error) {
  Failure failure = system_failure(connecting, fmt::format("address = {}", address.to_string()), error);
  if (error == EACCES || error == EPERM) {
    failure.kind = ErrorKind::not_permitted;
    failure.rule = "The directory of the socket is open to its user alone";
    failure.way_out = "Connect as the user who listens";
  } else if (error == EPROTOTYPE || error == ENOTSOCK) {
    failure.kind = ErrorKind::invalid_use;
    failure.rule = "Somebody listens there with a socket of another type";
    failure.way_out = "Connect to the address of a DescriptorListener";
  }
  return failure;
}

// A full queue of the listener, too, is answered at once and not waited for.
bool worth_another_try(int error, const ConnectionOptions& options) noexcept {
  if (error == EAGAIN || error == EINTR) return true;
  return options.wait_for_listener && (error == ENOENT || error == ECONNREFUSED);
}

Result<UniqueDescriptor> connected_socket(const SocketAddress& address, const ConnectionOptions& options,
                                          const Deadline& deadline) {
  UniqueDescriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return system_failure("socket", "AF_UNIX, SOCK_SEQPACKET", errno);
  auto socket = made_safe(std::move(made));
  if (!socket) return socket;
  const UnixAddress converted = unix_address(address);
  Backoff backoff;
  for (;;) {
    if (::connect(socket->get(), converted.pointer(), converted.size) == 0) return socket;
    const int error = errno;
    if (!worth_another_try(error, options))
      return error == ENOENT || error == ECONNREFUSED ? nobody_listens(address, error) : cannot_connect(address, error);
    if (deadline.passed()) {
      Failure failure = nobody_listens(address, error);
      failure.kind = ErrorKind::timed_out;
      if (error == EAGAIN) failure.reason = "the listener has a full queue and accepts nobody";
      return failure;
    }
    backoff.pause(deadline.time());
  }
}

}  // namespace

Result<void> require_sound(std::string_view call, const ConnectionOptions& options) {
  if (options.token.size() > most_token_bytes)
    return invalid_use(call, fmt::format("token of {} bytes", options.token.size()),
                       fmt::format("A token has at most {} bytes", most_token_bytes), "Use a shorter one");
  if (options.locality) return require_short_texts(call, *options.locality);
  return {};
}

ConnectionOptions with_locality(ConnectionOptions options) {
  if (!options.locality) options.locality = Locality::here();
  return options;
}

Result<void> DescriptorSocket::check_user(std::string_view call, const ConnectionOptions& options) const {
  const auto& others = options.other_users;
  if (peer_.user == ::geteuid() || std::find(others.begin(), others.end(), peer_.user) != others.end()) return {};
  Failure failure = failure_of_peer(ErrorKind::not_permitted, call,
                                    fmt::format("it is of user {}, and this process of {}", peer_.user, ::geteuid()));
  failure.feature = "a connection between processes";
  failure.way_out = "Run both as one user, or name the other one in ConnectionOptions::other_users";
  return failure;
}

Result<DescriptorSocket> DescriptorSocket::try_begin_to_connect(const SocketAddress& address,
                                                                const ConnectionOptions& options,
                                                                const Deadline& deadline) {
  if (auto sound = require_sound(connecting, options); !sound) return sound.failure();
  const ConnectionOptions complete = with_locality(options);  // before the socket takes the last descriptor
  auto connected = connected_socket(address, options, deadline);
  if (!connected) return connected.failure();
  DescriptorSocket socket(std::move(connected).value(), introduction_limits);
  if (auto allowed = socket.check_user(connecting, options); !allowed) return allowed.failure();
  if (auto introduced = socket.introduce(complete, deadline); !introduced) return introduced.failure();
  return socket;
}

Result<DescriptorSocket> DescriptorSocket::try_connect(const SocketAddress& address, const ConnectionOptions& options,
                                                       const Deadline& deadline) {
  auto socket = try_begin_to_connect(address, options, deadline);
  if (!socket) return socket;
  Patience patience{deadline};
  if (auto welcomed = socket->receive_welcome(patience); !welcomed) return welcomed.failure();
  return socket;
}

DescriptorSocket DescriptorSocket::connect(const SocketAddress& address, const ConnectionOptions& options,
                                           const Deadline& deadline) {
  return try_connect(address, options, deadline).value();
}

Result<void> DescriptorSocket::introduce(const ConnectionOptions& options, const Deadline& deadline) {
  const auto hello = encode(Introduction{*options.locality, options.token});
  if (auto said = send_message({connecting, {.kind = hello_kind, .bytes = hello}}, deadline); !said) return said;
  locality_ = options.locality;
  later_limits_ = options.limits;
  welcome_is_due_ = true;
  return {};
}

Result<void> DescriptorSocket::receive_welcome(Patience& patience) {
  if (!welcome_is_due_) return {};
  auto answer = receive_any(connecting, patience);
  if (!answer) return answer.failure();
  if (answer->kind == failure_kind) return refusal_of(*answer, connecting);
  const auto theirs = decode_introduction(answer->bytes);
  if (answer->kind != welcome_kind || !theirs)
    return give_up(failure_of_peer(ErrorKind::protocol_violation, connecting, "the listener's answer is no welcome"));
  peer_locality_ = theirs->locality;
  limits_ = later_limits_;
  welcome_is_due_ = false;
  return {};
}

// The newcomer's introduction, if it is there, and the answer to it.
Result<void> DescriptorSocket::welcome(const ConnectionOptions& options, const Deadline& deadline) {
  const Locality& mine = *options.locality;
  auto hello = receive_any(accepting, deadline);
  if (!hello) return hello.failure();
  const auto theirs = decode_introduction(hello->bytes);
  if (hello->kind != hello_kind || !theirs)
    return failure_of_peer(ErrorKind::protocol_violation, accepting, "the first message is no introduction");
  if (!same_token(theirs->token, options.token)) {
    Failure failure = failure_of_peer(ErrorKind::not_permitted, accepting, "its token is another one");
    failure.feature = "a connection between processes";
    failure.way_out = "Give both ends the same ConnectionOptions::token";
    return failure;
  }
  if (!same_kernel(mine, theirs->locality))
    return different_hosts(accepting, "The listener", mine, "the newcomer", theirs->locality);
  const auto answer = encode(Introduction{mine, {}});
  if (auto said = send_message({accepting, {.kind = welcome_kind, .bytes = answer}}, deadline); !said) return said;
  locality_ = mine;
  peer_locality_ = theirs->locality;
  limits_ = options.limits;
  return {};
}

}  // namespace cuvmm::sharing
