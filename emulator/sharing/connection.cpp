#include "emulator/sharing/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "emulator/broker/machine_directory.hpp"
#include "emulator/broker/packet.hpp"

namespace cuvmm::emulator::sharing {

void Connection::lose(const std::string& why) {
  const bool first = !lost_;
  cut();
  const std::string text = fmt::format("the emulated machine '{}' is lost: {}", machine_, why);
  if (first) {
    std::fprintf(stderr,
                 "cuvmm emulated driver: %s. Calls that need it answer CUDA_ERROR_OPERATING_SYSTEM from now on; start "
                 "the processes that share it anew.\n",
                 text.c_str());
  }
  throw std::system_error(ECONNRESET, std::generic_category(), text);
}

void Connection::cut() noexcept {
  if (!lost_) (void)::shutdown(socket_.get(), SHUT_RDWR);
  lost_ = true;
}

namespace {

std::string words_for_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  return known ? fmt::format("its broker, process {},", peer.pid) : "its broker";
}

}  // namespace

// A broker of another version says so to whoever greets it, and nothing else.
void Connection::refuse(std::uint16_t version) {
  const std::string broker = words_for_peer(socket_.get());
  cut();
  throw std::system_error(
      EPROTO, std::generic_category(),
      fmt::format("the emulated machine '{}' is of another version of cuvmm: {} speaks protocol version {}, and this "
                  "program version {}; run all programs of a machine with one version, or name another machine "
                  "(machine=NAME in CUVMM_EMULATOR)",
                  machine_, broker, version, broker::protocol_version));
}

void Connection::wait_for(short events) {
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0)
      lose(fmt::format(
          "its broker, which serves the socket '{}/{}', did not answer within {} ms (broker-patience); end it, or "
          "name another machine",
          machine_, broker::socket_name, patience_.count()));
    pollfd socket{socket_.get(), events, 0};
    const int ready = ::poll(&socket, 1, static_cast<int>(left.count()));
    if (ready > 0) return;
    if (ready == 0 || errno == EINTR) continue;
    if (errno != ENOMEM && errno != EAGAIN) lose(fmt::format("poll: {}", std::strerror(errno)));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the system may have memory then
  }
}

broker::Reply Connection::ask(const broker::Request& request, int descriptor, memory::FileDescriptor* received) {
  if (lost_) lose("its broker has ended");
  const auto bytes = broker::encode(request);
  broker::Packet packet;
  packet.bytes.reserve(broker::most_message_bytes);  // what needs memory comes first: a reply that comes is read
  int error = broker::send_packet(socket_.get(), bytes, descriptor);
  while (error == EAGAIN) {
    wait_for(POLLOUT);
    error = broker::send_packet(socket_.get(), bytes, descriptor);
  }
  // What does not concern the broker: the descriptor, or too many of them on their way, or memory.
  if (error == EBADF || error == ETOOMANYREFS || error == ENOMEM || error == ENOBUFS || error == EMSGSIZE)
    throw std::system_error(error, std::generic_category(), "cannot ask the emulated machine");
  if (error != 0) lose("its broker has ended");
  try {
    return reply_in(packet, received);
  } catch (const std::bad_alloc&) {
    cut();  // the next reply would be taken for that of another request
    throw;
  }
}

broker::Reply Connection::reply_in(broker::Packet& packet, memory::FileDescriptor* received) {
  do {
    wait_for(POLLIN);
    packet = broker::receive_packet(socket_.get(), std::move(packet.bytes));
  } while (packet.fate == broker::Packet::Fate::none_yet);
  if (packet.fate == broker::Packet::Fate::ended) lose("its broker has ended");
  if (const auto version = broker::version_of(packet.bytes); version && *version != broker::protocol_version)
    refuse(*version);
  const auto reply = broker::decode_reply(packet.bytes);
  if (!reply) lose("its broker answered what is no reply");
  if (packet.descriptor_lost) throw std::system_error(EMFILE, std::generic_category(), "no descriptor is left");
  if (received != nullptr) *received = std::move(packet.descriptor);
  return *reply;
}

}  // namespace cuvmm::emulator::sharing
