#include "emulator/broker/server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "emulator/broker/event_tag.hpp"

namespace cuvmm::emulator::broker {
namespace {

using memory::FileDescriptor;

FileDescriptor checked(int descriptor, const char* what) {
  if (descriptor < 0) throw std::system_error(errno, std::generic_category(), what);
  return FileDescriptor(descriptor);
}

bool watch(const FileDescriptor& epoll, int descriptor, std::uint32_t events, std::uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

using Events = std::array<epoll_event, 64>;

std::size_t events_now(const FileDescriptor& epoll, Events& events) {
  const int count = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), 0);
  return count < 0 ? 0 : static_cast<std::size_t>(count);
}

FileDescriptor dev_null() {
  return checked(::open("/dev/null", O_RDONLY | O_CLOEXEC), "cannot open /dev/null");
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number)
    throw std::system_error(errno, std::generic_category(), "no random number (getrandom)");
  return number;
}

}  // namespace

Server::Server(FileDescriptor listener, const MachineShape& shape, std::string settings)
    : listener_(std::move(listener)),
      requests_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      losses_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      spare_(dev_null()),
      shape_(shape),
      settings_(std::move(settings)),
      machine_(random_number()),
      state_(shape) {
  if (!watch(requests_, listener_.get(), EPOLLIN, tag(Source::listener, 0)))
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
}

void Server::serve(int milliseconds) {
  pollfd both[] = {{losses_.get(), POLLIN, 0}, {requests_.get(), POLLIN, 0}};
  if (::poll(both, 2, milliseconds) <= 0) return;
  notice_losses();
  Events events;
  const std::size_t count = events_now(requests_, events);
  for (std::size_t index = 0; index < count; ++index) {
    // What happened before a request was made is to be known when it is answered.
    notice_losses();
    const std::uint64_t tag = events[index].data.u64;
    if (source_of(tag) == Source::listener)
      accept_all();
    else
      hear(number_of(tag));
  }
}

void Server::notice_losses() {
  Events events;
  while (const std::size_t count = events_now(losses_, events)) {
    for (std::size_t index = 0; index < count; ++index) {
      const std::uint64_t tag = events[index].data.u64;
      if (source_of(tag) == Source::kept_end)
        forget_export(number_of(tag));
      else
        drop(number_of(tag));
    }
  }
}

void Server::accept_all() {
  while (true) {
    FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      accept_one(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE) {
      refuse_one();
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

// The spare descriptor's place serves to tell one process that there is none for it.
void Server::refuse_one() {
  spare_ = FileDescriptor();
  {
    const FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) (void)send_packet(socket.get(), encode(Reply(Refused{Refusal::full, connections_.size()})), -1);
  }
  spare_ = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

void Server::accept_one(FileDescriptor socket) {
  Connection connection;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0) {
    connection.process = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    if (!connection.process && errno == ESRCH) return;
    if (!connection.process && (errno == EMFILE || errno == ENFILE)) {
      (void)send_packet(socket.get(), encode(Reply(Refused{Refusal::full, connections_.size()})), -1);
      return;
    }
  }
  const std::uint64_t number = next_connection_++;
  const bool watched =
      watch(requests_, socket.get(), EPOLLIN, tag(Source::connection, number)) &&
      watch(losses_, socket.get(), EPOLLRDHUP, tag(Source::connection, number)) &&
      (!connection.process || watch(losses_, connection.process.get(), EPOLLIN, tag(Source::process, number)));
  if (!watched) return;
  connection.socket = std::move(socket);
  connections_.emplace(number, std::move(connection));
}

void Server::hear(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  const Packet packet = receive_packet(connection.socket.get());
  if (packet.fate == Packet::Fate::none_yet) return;
  const auto request = packet.fate == Packet::Fate::arrived ? decode_request(packet.bytes) : std::optional<Request>();
  // Who says hello has not done so before, and others have.
  if (!request || std::holds_alternative<Hello>(*request) == connection.client.has_value()) {
    // A process of another version is told which one this is: the version of any reply.
    if (version_of(packet.bytes).value_or(protocol_version) != protocol_version)
      (void)send_packet(connection.socket.get(), encode(Reply(Refused{})), -1);
    drop(number);
    return;
  }
  const Answer given = answer(connection, *request, packet);
  reuse_dead_extents();
  int error = send_packet(connection.socket.get(), encode(given.reply), given.descriptor);
  if (error == ETOOMANYREFS)  // too many descriptors are on their way to processes
    error = send_packet(connection.socket.get(),
                        encode(Reply(Refused{Refusal::no_descriptor, static_cast<std::uint64_t>(error)})), -1);
  if (error != 0) drop(number);
}

void Server::drop(std::uint64_t number) {
  const auto gone = connections_.extract(number);
  if (gone.empty()) return;
  if (gone.mapped().client) state_.remove_client(*gone.mapped().client);
  reuse_dead_extents();
}

void Server::forget_export(MachineState::ExportId id) {
  const auto gone = kept_.extract(id);
  if (gone.empty()) return;
  exports_.erase(gone.mapped().identity);
  state_.close_export(id);
  reuse_dead_extents();
}

void Server::reuse_dead_extents() {
  for (const DeadExtent& extent : state_.take_dead_extents())
    if (const auto known = files_.find(extent.place);
        known == files_.end() || known->second.make_zero(extent.offset, extent.bytes))
      state_.is_zero(extent);
}

PlaceFile& Server::file(const NodePlace& place) {
  const auto known = files_.find(place);
  if (known != files_.end()) return known->second;
  const std::string name = "cuvmm-node-" + std::to_string(place.node) +
                           (place.kind == PlaceKind::host ? "-host" : "-device-" + std::to_string(place.device));
  return files_.emplace(place, PlaceFile(name.c_str())).first->second;
}

}  // namespace cuvmm::emulator::broker
