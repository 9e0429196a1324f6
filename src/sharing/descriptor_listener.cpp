#include "cuvmm/sharing/descriptor_listener.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

#include "backoff.hpp"
#include "refusal.hpp"
#include "sharing/content.hpp"
#include "sharing/descriptor_facts.hpp"
#include "sharing/outgoing.hpp"
#include "sharing/socket_file.hpp"
#include "sharing/unix_address.hpp"
#include "system_failure.hpp"

namespace cuvmm::sharing {

namespace {

constexpr std::string_view listening = "DescriptorListener::listen";
constexpr std::string_view accepting = "DescriptorListener::accept";
constexpr int queue_length = 128;
constexpr std::size_t most_newcomers = 256;
constexpr std::chrono::milliseconds rest{50};  // in which others may give descriptors back

std::string argument_of(const SocketAddress& address) {
  return fmt::format("address = {}", address.to_string());
}

Result<UniqueDescriptor> new_socket() {
  UniqueDescriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return system_failure("socket", "AF_UNIX, SOCK_SEQPACKET", errno);
  return made_safe(std::move(made));
}

Result<UniqueDescriptor> new_timer() {
  UniqueDescriptor made(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!made) return system_failure("timerfd_create", "CLOCK_MONOTONIC", errno);
  return made_safe(std::move(made));
}

// Whether the file is a socket that nobody listens at. Whoever does learns of a connection that says nothing.
bool is_stale(const UnixAddress& address) {
  struct stat facts {};
  // Connecting to a file of another kind is answered in the same way.
  if (::lstat(address.content.sun_path, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return false;
  const auto probe = new_socket();
  return probe && ::connect(probe->get(), address.pointer(), address.size) != 0 && errno == ECONNREFUSED;
}

Failure in_use(const SocketAddress& address) {
  return invalid_use(listening, argument_of(address), "Somebody listens at this address, or a file is in the way",
                     "Choose another name, or end the process that listens there");
}

// The directory is locked, so nobody else replaces the file meanwhile.
Result<void> bind_and_listen(const UniqueDescriptor& socket, const SocketAddress& address) {
  const UnixAddress converted = unix_address(address);
  int bound = ::bind(socket.get(), converted.pointer(), converted.size);
  if (bound != 0 && errno == EADDRINUSE && !address.is_abstract() && is_stale(converted)) {
    if (::unlink(address.name().c_str()) != 0 && errno != ENOENT)
      return system_failure("unlink", argument_of(address), errno);
    bound = ::bind(socket.get(), converted.pointer(), converted.size);
  }
  if (bound != 0) return errno == EADDRINUSE ? in_use(address) : system_failure("bind", argument_of(address), errno);
  if (::listen(socket.get(), queue_length) != 0) return system_failure("listen", argument_of(address), errno);
  return {};
}

}  // namespace

DescriptorListener::DescriptorListener(UniqueDescriptor socket, UniqueDescriptor timer, SocketAddress address,
                                       ListenerOptions options)
    : socket_(std::move(socket)),
      timer_(std::move(timer)),
      address_(std::move(address)),
      options_(std::move(options)) {}

DescriptorListener::DescriptorListener(DescriptorListener&& other) noexcept
    : socket_(std::move(other.socket_)),
      timer_(std::move(other.timer_)),
      rests_(other.rests_),
      address_(std::move(other.address_)),
      options_(std::move(other.options_)),
      file_(std::exchange(other.file_, std::nullopt)),
      newcomers_(std::move(other.newcomers_)) {}

DescriptorListener& DescriptorListener::operator=(DescriptorListener&& other) noexcept {
  if (this == &other) return *this;
  close();
  socket_ = std::move(other.socket_);
  timer_ = std::move(other.timer_);
  rests_ = other.rests_;
  address_ = std::move(other.address_);
  options_ = std::move(other.options_);
  file_ = std::exchange(other.file_, std::nullopt);
  newcomers_ = std::move(other.newcomers_);
  return *this;
}

DescriptorListener DescriptorListener::listen(const SocketAddress& address, const ListenerOptions& options,
                                              const Deadline& deadline) {
  require_sound(listening, options.connection).value();
  UniqueDescriptor lock;
  if (!address.is_abstract()) lock = lock_directory_of(address.name(), deadline).value();
  ListenerOptions complete = options;
  complete.connection = with_locality(options.connection);
  UniqueDescriptor timer = new_timer().value();
  UniqueDescriptor socket = new_socket().value();
  bind_and_listen(socket, address).value();
  DescriptorListener listener(std::move(socket), std::move(timer), address, std::move(complete));
  struct stat facts {};
  if (!address.is_abstract() && ::stat(address.name().c_str(), &facts) == 0)
    listener.file_ = File{facts.st_dev, facts.st_ino, ::getpid()};
  return listener;
}

void DescriptorListener::close() noexcept {
  newcomers_.clear();
  socket_.close();
  timer_.close();
  const auto file = std::exchange(file_, std::nullopt);
  if (!file || file->process != ::getpid()) return;  // a forked child leaves it to its parent
  const UniqueDescriptor lock = try_lock_directory_of(address_.name());
  struct stat facts {};
  if (lock && ::lstat(address_.name().c_str(), &facts) == 0 && facts.st_dev == file->device &&
      facts.st_ino == file->inode)
    ::unlink(address_.name().c_str());
}

void DescriptorListener::turn_away(DescriptorSocket& socket, const Failure& failure) const noexcept {
  if (socket.socket_) socket.tell(failure);
  socket.close();
  if (!options_.on_refusal) return;
  try {
    options_.on_refusal(failure);
  } catch (...) {
    report_cleanup_failure(failure);
  }
}

// Those that have connected; who they are is asked when they have said so.
Result<void> DescriptorListener::admit_newcomers() {
  while (newcomers_.size() < most_newcomers) {
    UniqueDescriptor accepted(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!accepted) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      return system_failure(accepting, argument_of(address_), errno);
    }
    auto safe = made_safe(std::move(accepted));
    if (!safe) return safe.failure();
    DescriptorSocket socket(std::move(safe).value(), introduction_limits);
    if (auto allowed = socket.check_user(accepting, options_.connection); !allowed)
      turn_away(socket, allowed.failure());
    else
      newcomers_.push_back({std::move(socket), Deadline::in(options_.introduction)});
  }
  return {};
}

// Lets the queue be for a while where there is no descriptor for those in it, who would be announced all the time.
Result<void> DescriptorListener::admit_or_rest() {
  auto admitted = admit_newcomers();
  rests_.reset();
  if (admitted || admitted.failure().kind != ErrorKind::out_of_descriptors) return admitted;
  const itimerspec until{.it_interval = {}, .it_value = {0, std::chrono::nanoseconds(rest).count()}};
  if (::timerfd_settime(timer_.get(), 0, &until, nullptr) == 0) rests_ = Deadline::in(rest);
  return admitted;
}

std::optional<DescriptorSocket> DescriptorListener::next_welcome() {
  const Deadline now = Deadline::at(Deadline::Clock::now());
  for (auto each = newcomers_.begin(); each != newcomers_.end();) {
    auto welcomed = each->socket.welcome(options_.connection, now);
    const bool silent = !welcomed && welcomed.failure().kind == ErrorKind::timed_out && each->socket.socket_;
    if (silent && !each->deadline.passed()) {
      ++each;
      continue;
    }
    DescriptorSocket socket = std::move(each->socket);
    each = newcomers_.erase(each);
    if (welcomed) return socket;
    turn_away(socket, welcomed.failure());
  }
  return std::nullopt;
}

std::vector<int> DescriptorListener::descriptors() const {
  std::vector<int> all;
  if (!socket_) return all;
  if (rests_ && !rests_->passed())
    all.push_back(timer_.get());
  else if (newcomers_.size() < most_newcomers)  // else there is no room for more
    all.push_back(socket_.get());
  for (const Newcomer& each : newcomers_) all.push_back(each.socket.descriptor());
  return all;
}

Result<void> DescriptorListener::wait(const Deadline& deadline) {
  Deadline first = deadline;
  for (const Newcomer& each : newcomers_) first = first.earlier(each.deadline);
  std::vector<pollfd> sockets;
  for (const int each : descriptors()) sockets.push_back({each, POLLIN, 0});
  const auto left = std::min<std::int64_t>(first.left().count(), 1'000'000);
  if (::poll(sockets.data(), sockets.size(), static_cast<int>(left)) < 0 && errno != EINTR)
    return system_failure("poll", argument_of(address_), errno);
  return {};
}

Result<DescriptorSocket> DescriptorListener::try_accept(const Deadline& deadline) {
  if (!socket_) return owns_nothing(accepting, "listener");
  for (;;) {
    const auto admitted = admit_or_rest();
    if (auto welcomed = next_welcome()) return std::move(*welcomed);
    if (!admitted && (!rests_ || deadline.passed())) return admitted.failure();
    if (deadline.passed()) {
      Failure failure;
      failure.kind = ErrorKind::timed_out;
      failure.call = accepting;
      failure.arguments = argument_of(address_);
      failure.reason = fmt::format(
          "nobody who is welcome connected before the deadline; {} have connected and said nothing", newcomers_.size());
      return failure;
    }
    if (auto waited = wait(deadline); !waited) return waited.failure();
  }
}

}  // namespace cuvmm::sharing
