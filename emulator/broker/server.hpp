// The broker: answers the processes of one machine until the last of them is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "emulator/broker/machine_state.hpp"
#include "emulator/broker/packet.hpp"
#include "emulator/broker/place_file.hpp"
#include "emulator/broker/protocol.hpp"
#include "emulator/memory/file_descriptor.hpp"

namespace cuvmm::emulator::broker {

// Runs in one thread. A connection is a live process: it ends when its socket is closed, or when the process that made
// it is gone, whose forked children may have the socket, too. Whoever sends what is no request, or does not read its
// replies, is treated as gone.
class Server {
 public:
  // `listener` is a listening socket of type SOCK_SEQPACKET that does not block. Throws std::system_error.
  Server(memory::FileDescriptor listener, const MachineShape& shape, std::string settings);

  // Answers what there is to answer, and waits for it for at most `milliseconds`, for ever if that is negative.
  void serve(int milliseconds);

  // Whether there is no process, and no export of one, left.
  [[nodiscard]] bool idle() const { return connections_.empty() && state_.exports() == 0; }

  // Takes in those who have connected.
  void accept_all();

 private:
  using Identity = std::pair<std::uint64_t, std::uint64_t>;  // device and inode of a pipe

  struct Connection {
    memory::FileDescriptor socket;
    memory::FileDescriptor process;                // a pidfd, if the system has them
    std::optional<MachineState::ClientId> client;  // once it has said hello
  };
  struct Kept {
    memory::FileDescriptor end;  // the other one was given out
    Identity identity;
  };
  // A reply, and the descriptor beside it.
  struct Answer {
    Reply reply;
    int descriptor = -1;
    memory::FileDescriptor owned;  // that descriptor, if it is to be closed once sent
  };

  // Notices processes that are gone and exports whose descriptors are closed, all that there are by now.
  void notice_losses();
  void accept_one(memory::FileDescriptor socket);
  void refuse_one();
  void hear(std::uint64_t number);
  void drop(std::uint64_t number);
  void forget_export(MachineState::ExportId id);
  void reuse_dead_extents();
  [[nodiscard]] PlaceFile& file(const NodePlace& place);

  [[nodiscard]] Answer answer(Connection& connection, const Request& request, const Packet& packet);
  [[nodiscard]] Answer answer(Connection& connection, const Hello& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const Create& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const GiveBack& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const AskUsage& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const AskFile& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const ExportDescriptor& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const ExportToken& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const ImportToken& request);
  [[nodiscard]] Answer import_descriptor(MachineState::ClientId client, const Packet& packet);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const ExportPool& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const DropPool& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const ExportPoolRange& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const ImportPoolRange& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const OpenPoolMemory& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const CreateMulticast& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const JoinMulticast& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const BindMulticast& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const UnbindMulticast& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const AskMulticast& request);
  [[nodiscard]] Answer answer(MachineState::ClientId client, const AskBound& request);
  [[nodiscard]] Answer import_pool(MachineState::ClientId client, const Packet& packet);
  // A new descriptor for the export that `add` adds to the state; beside that reply.
  template <class Add>
  [[nodiscard]] Answer give_descriptor(const Reply& reply, Add&& add);
  [[nodiscard]] bool too_many_exports(MachineState::ClientId client, std::uint64_t limit) const;
  [[nodiscard]] std::optional<MachineState::ExportId> export_of(const Packet& packet) const;

  memory::FileDescriptor listener_;
  memory::FileDescriptor requests_;  // an epoll: the listener and the connections
  memory::FileDescriptor losses_;    // an epoll: connections that end, processes that are gone, exports that are closed
  memory::FileDescriptor spare_;     // given up for a moment to tell a process that no descriptor is left
  const MachineShape shape_;
  const std::string settings_;
  const std::uint64_t machine_;
  MachineState state_;
  std::map<NodePlace, PlaceFile> files_;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::unordered_map<MachineState::ExportId, Kept> kept_;
  std::map<Identity, MachineState::ExportId> exports_;
  std::uint64_t next_connection_ = 1;
};

}  // namespace cuvmm::emulator::broker
