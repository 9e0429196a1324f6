// What the broker answers to each request.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <type_traits>

#include "emulator/broker/event_tag.hpp"
#include "emulator/broker/server.hpp"

namespace cuvmm::emulator::broker {
namespace {

Reply refused(Refusal why, std::uint64_t detail = 0) {
  return Refused{why, detail};
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> identify(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return std::nullopt;
  return std::pair<std::uint64_t, std::uint64_t>(status.st_dev, status.st_ino);
}

Reply memory_or_refusal(const SharedAllocation* allocation) {
  if (allocation == nullptr) return refused(Refusal::not_known);
  return Memory{*allocation};
}

}  // namespace

Server::Answer Server::answer(Connection& connection, const Request& request, const Packet& packet) {
  return std::visit(
      [&](const auto& one) -> Answer {
        using One = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<One, Hello>)
          return answer(connection, one);
        else if constexpr (std::is_same_v<One, ImportDescriptor>)
          return import_descriptor(*connection.client, packet);
        else if constexpr (std::is_same_v<One, ImportPool>)
          return import_pool(*connection.client, packet);
        else
          return answer(*connection.client, one);
      },
      request);
}

Server::Answer Server::answer(Connection& connection, const Hello& request) {
  connection.client = state_.add_client(request.node);
  if (!connection.client) return {refused(Refusal::no_such_node, static_cast<std::uint64_t>(shape_.nodes)), -1, {}};
  return {Welcome{*connection.client, machine_, shape_.device_bytes, shape_.host_bytes, settings_}, -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const Create& request) {
  const SharedAllocation* const made = state_.create(client, request.place, request.bytes, request.properties);
  if (made == nullptr)
    return {refused(Refusal::too_little_left, state_.exists(request.place) ? state_.free(request.place) : 0), -1, {}};
  int error = 0;
  try {
    error = file(made->place).grow(made->offset + made->bytes);
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  if (error == 0) return {Memory{*made}, -1, {}};
  state_.give_back(client, made->id);
  return {refused(Refusal::file_limit, static_cast<std::uint64_t>(error)), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const GiveBack& request) {
  return {state_.give_back(client, request.id) ? Reply(Done{}) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const AskUsage& request) {
  if (!state_.exists(request.place)) return {refused(Refusal::not_known), -1, {}};
  return {Usage{state_.free(request.place), state_.importable_exports_of(client)}, -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId, const AskFile& request) {
  const auto known = files_.find(request.place);
  if (known == files_.end()) return {refused(Refusal::not_known), -1, {}};
  return {Done{}, known->second.descriptor(), {}};
}

bool Server::too_many_exports(MachineState::ClientId client, std::uint64_t limit) const {
  return limit != ~std::uint64_t{0} && state_.importable_exports_of(client) >= limit;
}

template <class Add>
Server::Answer Server::give_descriptor(const Reply& reply, Add&& add) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return {refused(Refusal::no_descriptor, static_cast<std::uint64_t>(errno)), -1, {}};
  memory::FileDescriptor kept(ends[0]);
  memory::FileDescriptor given(ends[1]);
  const auto identity = identify(given.get());
  const std::optional<MachineState::ExportId> id = identity ? add() : std::nullopt;
  if (!id) return {refused(Refusal::not_known), -1, {}};
  epoll_event hang_up{};  // reported always
  hang_up.data.u64 = tag(Source::kept_end, *id);
  if (::epoll_ctl(losses_.get(), EPOLL_CTL_ADD, kept.get(), &hang_up) != 0) {
    state_.close_export(*id);
    return {refused(Refusal::no_descriptor, static_cast<std::uint64_t>(errno)), -1, {}};
  }
  exports_[*identity] = *id;
  kept_.emplace(*id, Kept{std::move(kept), *identity});
  const int descriptor = given.get();
  return {reply, descriptor, std::move(given)};
}

Server::Answer Server::answer(MachineState::ClientId client, const ExportDescriptor& request) {
  if (request.importable && too_many_exports(client, request.limit))
    return {refused(Refusal::descriptor_limit, state_.importable_exports_of(client)), -1, {}};
  return give_descriptor(Done{}, [&] { return state_.add_export(client, request.ids, request.importable); });
}

std::optional<MachineState::ExportId> Server::export_of(const Packet& packet) const {
  const auto identity = identify(packet.descriptor.get());
  const auto found = identity ? exports_.find(*identity) : exports_.end();
  return found == exports_.end() ? std::nullopt : std::optional(found->second);
}

Server::Answer Server::import_descriptor(MachineState::ClientId client, const Packet& packet) {
  if (packet.descriptor_lost) return {refused(Refusal::no_descriptor, EMFILE), -1, {}};
  const auto id = export_of(packet);
  if (id && state_.is_of_pool(*id)) return {refused(Refusal::other_kind), -1, {}};
  return {memory_or_refusal(id ? state_.import_export(client, *id) : nullptr), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const ExportPool& request) {
  if (too_many_exports(client, request.limit))
    return {refused(Refusal::descriptor_limit, state_.importable_exports_of(client)), -1, {}};
  const bool is_new = request.pool == 0;
  const auto pool = is_new ? state_.add_pool(client, request.place) : std::optional(request.pool);
  if (!pool) return {refused(Refusal::not_known), -1, {}};
  Answer given = give_descriptor(Token{*pool}, [&] { return state_.add_pool_export(client, *pool); });
  if (is_new && given.descriptor < 0) state_.drop_pool(client, *pool);
  return given;
}

Server::Answer Server::import_pool(MachineState::ClientId client, const Packet& packet) {
  if (packet.descriptor_lost) return {refused(Refusal::no_descriptor, EMFILE), -1, {}};
  const auto id = export_of(packet);
  if (id && state_.is_of_memory(*id)) return {refused(Refusal::other_kind), -1, {}};
  const auto pool = id ? state_.import_pool(client, *id) : std::nullopt;
  return {pool ? Reply(*pool) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const DropPool& request) {
  return {state_.drop_pool(client, request.pool) ? Reply(Done{}) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const ExportPoolRange& request) {
  const auto token = state_.add_pool_range(client, request);
  return {token ? Reply(Token{*token}) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const ImportPoolRange& request) {
  const auto range = state_.pool_range(client, request.pool, request.token);
  return {range ? Reply(*range) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const OpenPoolMemory& request) {
  return {memory_or_refusal(state_.open_pool_memory(client, request)), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const ExportToken& request) {
  const auto token = state_.add_token(client, request.kind, request.id);
  return {token ? Reply(Token{*token}) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const ImportToken& request) {
  if (request.kind == TokenKind::ipc && !state_.is_client(request.owner)) return {refused(Refusal::owner_gone), -1, {}};
  if (state_.is_lost_multicast(request.kind, request.token))
    return {
        request.anew ? memory_or_refusal(state_.make_again(client, request.token)) : refused(Refusal::lost_multicast),
        -1,
        {}};
  return {memory_or_refusal(state_.import_token(client, request.kind, request.token)), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const CreateMulticast& request) {
  if (request.devices == 0) return {refused(Refusal::not_known), -1, {}};
  return {Memory{state_.create_multicast(client, request)}, -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const JoinMulticast& request) {
  const auto outcome = state_.join(client, request);
  if (!outcome) return {refused(Refusal::not_known), -1, {}};
  if (*outcome == model::JoinOutcome::joined) return {Done{}, -1, {}};
  return {refused(Refusal::multicast, static_cast<std::uint64_t>(*outcome)), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const BindMulticast& request) {
  const auto outcome = state_.bind(client, request);
  if (!outcome) return {refused(Refusal::not_known), -1, {}};
  if (*outcome == model::BindOutcome::bound) return {Done{}, -1, {}};
  return {refused(Refusal::multicast, static_cast<std::uint64_t>(*outcome)), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const UnbindMulticast& request) {
  const auto memory = state_.unbind(client, request);
  return {memory ? Reply(Token{*memory}) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId client, const AskMulticast& request) {
  const auto facts = state_.multicast(client, request);
  return {facts ? Reply(*facts) : refused(Refusal::not_known), -1, {}};
}

Server::Answer Server::answer(MachineState::ClientId, const AskBound& request) {
  return {Token{state_.is_bound(request.memory) ? 1U : 0U}, -1, {}};
}

}  // namespace cuvmm::emulator::broker
