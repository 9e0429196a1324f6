#include "tour/party.hpp"

#include <fmt/core.h>

#include <sstream>
#include <stdexcept>
#include <utility>

#include "cuvmm/error.hpp"
#include "tour/party_message.hpp"

namespace cuvmm::tour {
namespace {

using sharing::Deadline;
using sharing::DescriptorSocket;

constexpr auto end_patience = std::chrono::seconds(60);  // for a process that has nothing left to do

// Faults are counted in one process; in the others each call is as it is.
constexpr auto variable_of_faults = "CUVMM_INJECT_FAULT";

std::vector<std::string> arguments_of(const command::DriverPlace& place, const PartyOptions& options) {
  std::vector<std::string> words{party_command,
                                 "--driver",
                                 place.driver == command::DriverChoice::cuda ? "cuda" : "emulated",
                                 "--devices",
                                 std::to_string(place.devices),
                                 "--device",
                                 std::to_string(options.device)};
  if (!place.machine.empty())
    for (const auto& [name, value] : {std::pair<std::string, std::string>{"--machine", place.machine},
                                      {"--nodes", std::to_string(place.nodes)},
                                      {"--node", std::to_string((place.node + options.node) % place.nodes)}}) {
      words.push_back(name);
      words.push_back(value);
    }
  return words;
}

bool is_silence(const Failure& failure) {
  return failure.kind == ErrorKind::peer_gone || failure.kind == ErrorKind::timed_out;
}

}  // namespace

Party::Started Party::start(const command::DriverPlace& place, const PartyOptions& options) {
  auto [ours, theirs] = DescriptorSocket::pair();
  auto child =
      std::make_unique<command::ChildProcess>(arguments_of(place, options), theirs.descriptor(), variable_of_faults);
  return {std::move(ours), std::move(child)};
}

Party::Party(const command::DriverPlace& place, std::string name, const PartyOptions& options)
    : Party(start(place, options), std::move(name), options) {
  static_cast<void>(ask("begin"));
}

Party::Party(Started started, std::string name, const PartyOptions& options)
    : name_(std::move(name)),
      patience_(options.patience),
      socket_(std::move(started.socket)),
      child_(std::move(started.child)) {}

void Party::raise_silence(const Failure& why, const std::string& task) {
  const bool gone = why.kind == ErrorKind::peer_gone;
  const pid_t process = child_->process();
  const std::string how = gone ? child_->wait(end_patience) : "gave no answer in time";
  throw std::runtime_error(
      fmt::format("{}, process {}, {} when it was to {}", name_, process, how.empty() ? "ended too early" : how, task));
}

std::string Party::ask(const std::string& request) {
  const std::string task = request.substr(0, request.find(' '));
  auto answer =
      socket_.try_ask({.kind = request_message, .bytes = std::as_bytes(std::span(request))}, Deadline::in(patience_));
  if (answer) return text_of(*answer);
  if (is_silence(answer.failure())) raise_silence(answer.failure(), task);
  raise(answer.failure());
}

void Party::make(const std::string& file, std::size_t bytes, HandleType type) {
  static_cast<void>(ask(fmt::format("make {} {} {}", bytes, static_cast<unsigned>(type), file)));
}

std::vector<sharing::HandleOfMemory> Party::give() {
  static_cast<void>(ask("give"));
  auto handles = sharing::try_receive_handles(socket_, Deadline::in(patience_));
  if (!handles && is_silence(handles.failure())) raise_silence(handles.failure(), "give");
  return std::move(handles).value();
}

void Party::take(std::span<const sharing::HandleOfMemory> handles) {
  static_cast<void>(ask("take"));
  const auto sent = sharing::try_send_handles(socket_, handles, Deadline::in(patience_));
  if (!sent && is_silence(sent.failure())) raise_silence(sent.failure(), "take");
  sent.value();
  static_cast<void>(ask("map"));
}

abi::CUresult Party::import_number(int number) {
  return static_cast<abi::CUresult>(std::stoi(ask(fmt::format("import-number {}", number))));
}

std::uint64_t Party::checksum(std::size_t index, std::uint64_t bytes, std::uint64_t first_word) {
  return std::stoull(ask(fmt::format("sum {} {} {}", index, bytes, first_word)));
}

void Party::store(std::size_t index, const std::string& file, std::uint64_t offset, std::uint64_t bytes) {
  static_cast<void>(ask(fmt::format("store {} {} {} {}", index, offset, bytes, file)));
}

RankSums Party::reduce(const team::SocketTeam& team, const std::string& file, std::size_t bytes) {
  std::istringstream answer(ask(fmt::format("reduce {} {} {} {} {}", team.rank, team.size, team.session, bytes, file)));
  RankSums sums;
  answer >> sums.summed >> sums.stored >> sums.added;
  return sums;
}

void Party::drop() {
  static_cast<void>(ask("drop"));
}

void Party::end() {
  socket_.close();
  const pid_t process = child_->process();
  if (const std::string how = child_->wait(end_patience); !how.empty())
    throw std::runtime_error(fmt::format("{}, process {}, {} when it was to end", name_, process, how));
}

}  // namespace cuvmm::tour
