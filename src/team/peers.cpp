#include "team/peers.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "sharing/content.hpp"
#include "sharing/wire.hpp"

namespace cuvmm::team {

std::string name_of_rank(std::size_t rank, std::uint32_t process) {
  return fmt::format("rank {} (process {})", rank, process);
}

std::uint32_t own_process() noexcept {
  return static_cast<std::uint32_t>(::getpid());
}

void give_up(sharing::DescriptorSocket& socket, const Failure& why, std::uint64_t operation) noexcept {
  try {
    const auto bytes = sharing::Writer().number(operation).raw(sharing::encode(why)).take();
    // If it cannot be told, the end of the connection tells.
    static_cast<void>(socket.try_send({.kind = given_up_message, .bytes = bytes}, at_once()));
  } catch (const std::bad_alloc&) {
  }
  socket.close();
}

void give_up(Peers& peers, const Failure& why, std::uint64_t operation) noexcept {
  for (auto& each : peers)
    if (each) give_up(each->socket, why, operation);
}

LastWord last_word_in(const sharing::Message& given_up) {
  sharing::Reader reader(given_up.bytes);
  const auto operation = reader.number<std::uint64_t>();
  if (auto failure = sharing::decode_failure(reader.raw(reader.left()))) return {operation, std::move(*failure)};
  Failure unknown;
  unknown.kind = ErrorKind::protocol_violation;
  unknown.reason = "a rank has given up, and its reason cannot be read";
  return {operation, std::move(unknown)};
}

// The reason names the ranks that it is about, and goes round as it is; who told comes behind it, once.
Failure failure_told_by(std::string_view rank, const sharing::Message& given_up) {
  Failure failure = last_word_in(given_up).why;
  if (failure.reason.find(", as told by rank ") == std::string::npos)
    failure.reason += fmt::format(", as told by {}", rank);
  return failure;
}

Failure failure_of_rank(std::string_view rank, const Failure& of_connection) {
  Failure failure = of_connection;
  if (of_connection.kind == ErrorKind::peer_gone)
    failure.reason = fmt::format("{} has ended, or has left the team", rank);
  else
    failure.reason = fmt::format("{}: {}", rank, of_connection.reason);
  return failure;
}

}  // namespace cuvmm::team
