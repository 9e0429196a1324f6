#include "team/node_connections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "sharing/wire.hpp"
#include "team/rendezvous.hpp"
#include "team/session.hpp"

namespace cuvmm::team {

using namespace sharing;

std::string new_meeting_name() {
  std::random_device random;
  std::string name = "node";
  for (int word = 0; word < 4; ++word) name += fmt::format("-{:08x}", random());
  return name;
}

Result<NodeConnections> NodeConnections::meet(const std::string& name, const std::vector<int>& ranks, int rank,
                                              const Deadline& deadline) {
  NodeConnections connections;
  for (const int each : ranks) connections.place_of_rank_.emplace(each, connections.place_of_rank_.size());
  const auto place = static_cast<int>(connections.place_of_rank_.at(rank));
  auto peers = try_meet({address_of_session(name), name, place, static_cast<int>(ranks.size())}, deadline);
  if (!peers) return peers.failure();
  connections.peers_ = std::move(peers).value();
  return connections;
}

Failure NodeConnections::told(int rank, const Failure& of_connection) {
  const std::string name = name_of_rank(static_cast<std::size_t>(rank), peer(rank).process);
  Failure failure = of_connection.kind == ErrorKind::timed_out ? of_connection : failure_of_rank(name, of_connection);
  if (of_connection.kind == ErrorKind::timed_out)
    failure.reason = fmt::format("{} has not sent, or taken, a descriptor before the deadline", name);
  failure.call = "Team::exchange_handles";
  failure.arguments = fmt::format("with {}", name);
  if (peer(rank).socket.descriptor() < 0) ended_ = failure;
  return failure;
}

Result<void> NodeConnections::send(int to, std::uint64_t exchange, const HandleOfMemory& handle,
                                   const Deadline& deadline) {
  const auto bytes = Writer().number(exchange).number(std::uint64_t{handle.bytes}).take();
  const int descriptor = handle.handle.descriptor();
  const auto sent = peer(to).socket.try_send(
      {.kind = memory_message, .bytes = bytes, .descriptors = std::span(&descriptor, 1)}, deadline);
  if (!sent) return told(to, sent.failure());
  return {};
}

Result<HandleOfMemory> NodeConnections::receive(int from, std::uint64_t exchange, const Deadline& deadline) try {
  for (;;) {
    auto message = peer(from).socket.try_receive(deadline);
    if (!message) return told(from, message.failure());
    Reader reader(message->bytes);
    const auto number = reader.number<std::uint64_t>();
    const auto bytes = reader.number<std::uint64_t>();
    if (message->kind != memory_message || !reader.complete() || message->descriptors.size() != 1 || bytes == 0 ||
        number > exchange) {
      Failure failure;
      failure.kind = ErrorKind::protocol_violation;
      failure.reason = "what it sent is no descriptor of memory";
      return told(from, failure);
    }
    if (number == exchange)
      return HandleOfMemory{ShareableHandle::adopt(std::move(message->descriptors.front())),
                            static_cast<std::size_t>(bytes)};
  }
} catch (const Error& error) {  // of a descriptor that could not be moved
  return error.failure();
}

}  // namespace cuvmm::team
