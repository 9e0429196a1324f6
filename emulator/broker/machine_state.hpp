// What a machine that processes share has, who holds what of it, and for how long.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "emulator/broker/protocol.hpp"
#include "emulator/model/address_space.hpp"
#include "emulator/model/multicast.hpp"
#include "emulator/model/place.hpp"

namespace cuvmm::emulator::broker {

struct MachineShape {
  int nodes = 1;
  int devices = 1;  // of each node
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;  // of each node
  std::uint64_t host_gap = 0;    // bytes of a host file between neighbours
  int multicast_slots = 0;       // of each device
};

// Bytes that belong to nobody any more.
struct DeadExtent {
  NodePlace place;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The broker's rules and state, without descriptors and system calls. Memory lives as long as a process holds it, once
// however often, or an export of it is open. Not thread-safe.
class MachineState {
 public:
  using ClientId = std::uint64_t;
  using ExportId = std::uint64_t;

  explicit MachineState(const MachineShape& shape);

  // A process on that node; nothing if there is no such node.
  [[nodiscard]] std::optional<ClientId> add_client(int node);
  // Gives back everything that it holds.
  void remove_client(ClientId client);

  [[nodiscard]] bool exists(const NodePlace& place) const;
  [[nodiscard]] std::uint64_t free(const NodePlace& place) const;

  // New memory that the client holds, on its own node; null if the place does not exist there, if the size is no
  // multiple of 2 MiB, or if too little is left.
  [[nodiscard]] const SharedAllocation* create(ClientId client, const NodePlace& place, std::uint64_t bytes,
                                               const Properties& properties);
  // False if the client does not hold it.
  bool give_back(ClientId client, std::uint64_t id);

  // An export of memory (one allocation at least) that the client holds all of.
  [[nodiscard]] std::optional<ExportId> add_export(ClientId client, const std::vector<std::uint64_t>& ids,
                                                   bool importable);
  // Its descriptors are all closed.
  void close_export(ExportId id);
  // The memory of an importable export of the client's node, which the client then holds; null otherwise.
  [[nodiscard]] const SharedAllocation* import_export(ClientId client, ExportId id);

  // A number that stands for memory that the client holds, for as long as that lives. The same one each time.
  [[nodiscard]] std::optional<std::uint64_t> add_token(ClientId client, TokenKind kind, std::uint64_t id);
  [[nodiscard]] const SharedAllocation* import_token(ClientId client, TokenKind kind, std::uint64_t token);

  // Whether that number stands for a multicast object that is gone; it is made again for the client, which then has it.
  [[nodiscard]] bool is_lost_multicast(TokenKind kind, std::uint64_t token) const;
  [[nodiscard]] const SharedAllocation* make_again(ClientId client, std::uint64_t token);

  // Multicast objects live as memory does, and keep the memory that is bound to them. Nothing where the client does not
  // have the object, the device is none of its node, or it does not hold the memory.
  [[nodiscard]] const SharedAllocation& create_multicast(ClientId client, const CreateMulticast& wanted);
  [[nodiscard]] std::optional<model::JoinOutcome> join(ClientId client, const JoinMulticast& wanted);
  [[nodiscard]] std::optional<model::BindOutcome> bind(ClientId client, const BindMulticast& wanted);
  [[nodiscard]] std::optional<std::uint64_t> unbind(ClientId client, const UnbindMulticast& wanted);
  [[nodiscard]] std::optional<Multicast> multicast(ClientId client, const AskMulticast& asked) const;
  [[nodiscard]] bool is_bound(std::uint64_t memory) const { return teams_.is_bound(memory); }
  [[nodiscard]] std::size_t multicast_objects() const { return teams_.objects(); }

  // Whether the export stands for a pool; or for memory that can be imported.
  [[nodiscard]] bool is_of_pool(ExportId id) const;
  [[nodiscard]] bool is_of_memory(ExportId id) const;

  // Pools whose memory processes share. A pool lives as long as a process has it or an export of it is open, and keeps
  // the memory of its ranges. A number that stands for it; the client has it. Nothing unless the place is on the
  // client's node.
  [[nodiscard]] std::optional<std::uint64_t> add_pool(ClientId client, const NodePlace& place);
  [[nodiscard]] std::optional<ExportId> add_pool_export(ClientId client, std::uint64_t pool);
  // The pool of an export of the client's node, which the client then has; nothing otherwise.
  [[nodiscard]] std::optional<Pool> import_pool(ClientId client, ExportId id);
  // False if the client does not have it.
  bool drop_pool(ClientId client, std::uint64_t pool);

  // A number that stands for an allocation of such a pool, in memory that the client holds, for as long as the pool
  // lives. The same one each time.
  [[nodiscard]] std::optional<std::uint64_t> add_pool_range(ClientId client, const ExportPoolRange& range);
  // The range for a client that has the pool; nothing otherwise.
  [[nodiscard]] std::optional<PoolRange> pool_range(ClientId client, std::uint64_t pool, std::uint64_t token) const;
  // A piece of its memory, which the client then holds; null if there is none.
  [[nodiscard]] const SharedAllocation* open_pool_memory(ClientId client, const OpenPoolMemory& piece);

  // What died since this was last asked. It is used again once it was told to be zero.
  [[nodiscard]] std::vector<DeadExtent> take_dead_extents();
  void is_zero(const DeadExtent& extent);

  [[nodiscard]] std::size_t clients() const { return clients_.size(); }
  [[nodiscard]] bool is_client(ClientId client) const { return clients_.contains(client); }
  [[nodiscard]] std::size_t exports() const { return exports_.size(); }
  [[nodiscard]] std::size_t importable_exports_of(ClientId client) const;
  [[nodiscard]] std::size_t allocations() const { return allocations_.size(); }
  [[nodiscard]] std::size_t pools() const { return pools_.size(); }

 private:
  struct Client {
    int node = 0;
    std::set<std::uint64_t> holds;
    std::set<std::uint64_t> pools;
  };
  struct Held {
    SharedAllocation allocation;
    std::size_t references = 0;  // clients and exports
  };
  struct Export {
    std::vector<std::uint64_t> ids;
    ClientId exporter = 0;
    int node = 0;
    bool importable = true;
    std::uint64_t pool = 0;  // 0: it is one of memory
  };
  struct RangeOfPool {
    std::vector<std::uint64_t> ids;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    friend auto operator<=>(const RangeOfPool&, const RangeOfPool&) = default;
  };
  struct KnownPool {
    NodePlace place;
    std::size_t references = 0;                   // clients and exports
    std::map<std::uint64_t, RangeOfPool> ranges;  // by token
    std::map<RangeOfPool, std::uint64_t> token_of;
    std::set<std::uint64_t> keeps;  // the memory of its ranges
  };
  struct Room {
    model::AddressSpace offsets;
    std::uint64_t free = 0;  // bytes of memory
  };
  using Token = std::pair<TokenKind, std::uint64_t>;

  [[nodiscard]] const SharedAllocation* hold(ClientId client, std::uint64_t id);
  void drop(std::uint64_t id);
  void end_multicast(std::map<std::uint64_t, Held>::iterator object);
  // Whether the client has that multicast object.
  [[nodiscard]] bool has_multicast(ClientId client, std::uint64_t id) const;
  void release_pool(std::uint64_t pool);
  [[nodiscard]] const RangeOfPool* find_range(ClientId client, std::uint64_t pool, std::uint64_t token) const;
  [[nodiscard]] std::uint64_t extent_bytes(const SharedAllocation& allocation) const;

  const MachineShape shape_;
  std::map<NodePlace, Room> rooms_;
  std::map<ClientId, Client> clients_;
  std::map<std::uint64_t, Held> allocations_;
  std::map<ExportId, Export> exports_;
  std::map<std::uint64_t, KnownPool> pools_;
  std::map<Token, std::uint64_t> tokens_;    // -> allocation
  std::map<Token, std::uint64_t> token_of_;  // by kind and allocation
  model::MulticastTeams teams_;
  std::map<std::uint64_t, SharedAllocation> lost_multicasts_;  // by the number of their fabric handle
  std::vector<DeadExtent> dead_;
  std::uint64_t next_client_ = 1;
  std::uint64_t next_allocation_ = 1;
  std::uint64_t next_export_ = 1;
  std::uint64_t next_token_ = 1;
  std::uint64_t next_pool_ = 1;
};

}  // namespace cuvmm::emulator::broker
