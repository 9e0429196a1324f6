// What a process and the broker of its emulated machine say to each other.
//
// A process sends one request at a time over its connection, a socket of type SOCK_SEQPACKET, and waits for the reply.
// Each message is one packet: a mark, the version, the kind of message, its fields. Descriptors go beside a packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/model/place.hpp"

namespace cuvmm::emulator::broker {

inline constexpr std::uint16_t protocol_version = 4;
inline constexpr std::size_t most_message_bytes = std::size_t{1} << 16;

enum class PlaceKind : std::uint8_t { device, host, multicast };
constexpr bool valid(PlaceKind kind) {
  return kind <= PlaceKind::multicast;
}

// A place on one of the machine's nodes.
struct NodePlace {
  std::int32_t node = 0;
  PlaceKind kind = PlaceKind::device;
  std::int32_t device = 0;  // 0 but for a device

  NodePlace() = default;
  NodePlace(int on_node, const model::Place& place)
      : node(on_node), kind(static_cast<PlaceKind>(place.kind)), device(kind == PlaceKind::device ? place.device : 0) {}
  [[nodiscard]] model::Place place() const {
    if (kind == PlaceKind::multicast) return model::Place::of_multicast();
    return kind == PlaceKind::host ? model::Place::on_host() : model::Place::on_device(device);
  }
  static void fields(auto& self, auto&& field) {
    field(self.node);
    field(self.kind);
    field(self.device);
  }
  friend auto operator<=>(const NodePlace&, const NodePlace&) = default;
};

// Of an allocation, as its creator asked for them and the driver granted them.
struct Properties {
  std::int32_t type = 0;
  std::int32_t handle_types = 0;
  std::int32_t location_type = 0;
  std::int32_t location = 0;
  std::uint8_t compression = 0;
  std::uint8_t rdma = 0;
  std::uint16_t usage = 0;

  Properties() = default;
  explicit Properties(const abi::CUmemAllocationProp& from);
  [[nodiscard]] abi::CUmemAllocationProp driver_form() const;
  static void fields(auto& self, auto&& field) {
    field(self.type);
    field(self.handle_types);
    field(self.location_type);
    field(self.location);
    field(self.compression);
    field(self.rdma);
    field(self.usage);
  }
  friend bool operator==(const Properties&, const Properties&) = default;
};

// Physical memory of the machine, or a multicast object, which has no bytes of its own.
struct SharedAllocation {
  std::uint64_t id = 0;
  NodePlace place;
  std::uint64_t bytes = 0;
  Properties properties;
  std::uint64_t offset = 0;   // of its bytes in the place's file
  std::uint32_t devices = 0;  // for how many a multicast object is

  static void fields(auto& self, auto&& field) {
    field(self.id);
    field(self.place);
    field(self.bytes);
    field(self.properties);
    field(self.offset);
    field(self.devices);
  }
  friend bool operator==(const SharedAllocation&, const SharedAllocation&) = default;
};

// Handles that are numbers: those of the fabric reach other nodes, those of legacy IPC do not.
enum class TokenKind : std::uint8_t { fabric, ipc };
constexpr bool valid(TokenKind kind) {
  return kind <= TokenKind::ipc;
}

// Requests.

struct Hello {  // the first one of a connection; answered by Welcome
  std::int32_t node = 0;
  static void fields(auto& self, auto&& field) { field(self.node); }
};
struct Create {  // answered by Memory
  NodePlace place;
  std::uint64_t bytes = 0;
  Properties properties;
  static void fields(auto& self, auto&& field) {
    field(self.place);
    field(self.bytes);
    field(self.properties);
  }
};
struct GiveBack {  // the process refers to it no more; answered by Done
  std::uint64_t id = 0;
  static void fields(auto& self, auto&& field) { field(self.id); }
};
struct AskUsage {  // answered by Usage
  NodePlace place;
  static void fields(auto& self, auto&& field) { field(self.place); }
};
struct AskFile {  // answered by Done with the place's file beside it
  NodePlace place;
  static void fields(auto& self, auto&& field) { field(self.place); }
};
struct ExportDescriptor {  // answered by Done with the descriptor beside it
  std::vector<std::uint64_t> ids;
  bool importable = true;
  std::uint64_t limit = ~std::uint64_t{0};  // of importable exports of this process open at once
  static void fields(auto& self, auto&& field) {
    field(self.ids);
    field(self.importable);
    field(self.limit);
  }
};
struct ImportDescriptor {  // the descriptor is beside it; answered by Memory
  static void fields(auto&, auto&&) {}
};
struct ExportToken {  // answered by Token
  TokenKind kind = TokenKind::fabric;
  std::uint64_t id = 0;
  static void fields(auto& self, auto&& field) {
    field(self.kind);
    field(self.id);
  }
};
struct ImportToken {  // answered by Memory
  TokenKind kind = TokenKind::fabric;
  std::uint64_t token = 0;
  std::uint64_t owner = 0;  // of legacy IPC: the process that made the handle
  bool anew = false;        // a multicast object that is gone is made again, without anything in it
  static void fields(auto& self, auto&& field) {
    field(self.kind);
    field(self.token);
    field(self.owner);
    field(self.anew);
  }
};

struct ExportPool {                         // answered by Token, the pool's number, with the descriptor beside it
  std::uint64_t pool = 0;                   // 0: one that was not shared before
  NodePlace place;                          // of its memory
  std::uint64_t limit = ~std::uint64_t{0};  // as of ExportDescriptor
  static void fields(auto& self, auto&& field) {
    field(self.pool);
    field(self.place);
    field(self.limit);
  }
};
struct ImportPool {  // the descriptor is beside it; answered by Pool
  static void fields(auto&, auto&&) {}
};
struct DropPool {  // the process has the pool no more; answered by Done
  std::uint64_t pool = 0;
  static void fields(auto& self, auto&& field) { field(self.pool); }
};
struct ExportPoolRange {  // an allocation of a shared pool; answered by Token
  std::uint64_t pool = 0;
  std::vector<std::uint64_t> ids;  // of the memory in which it lies, as if one followed the other
  std::uint64_t offset = 0;        // in the first
  std::uint64_t bytes = 0;
  static void fields(auto& self, auto&& field) {
    field(self.pool);
    field(self.ids);
    field(self.offset);
    field(self.bytes);
  }
};
struct ImportPoolRange {  // answered by PoolRange
  std::uint64_t pool = 0;
  std::uint64_t token = 0;
  static void fields(auto& self, auto&& field) {
    field(self.pool);
    field(self.token);
  }
};
struct OpenPoolMemory {  // one piece of what such a range lies in; answered by Memory
  std::uint64_t pool = 0;
  std::uint64_t token = 0;
  std::uint64_t index = 0;
  static void fields(auto& self, auto&& field) {
    field(self.pool);
    field(self.token);
    field(self.index);
  }
};

// Devices are those of the process's node.
struct CreateMulticast {  // answered by Memory
  std::uint32_t devices = 0;
  std::uint64_t bytes = 0;
  Properties properties;
  static void fields(auto& self, auto&& field) {
    field(self.devices);
    field(self.bytes);
    field(self.properties);
  }
};
struct JoinMulticast {  // answered by Done or Refusal::multicast
  std::uint64_t id = 0;
  std::int32_t device = 0;
  static void fields(auto& self, auto&& field) {
    field(self.id);
    field(self.device);
  }
};
struct BindMulticast {  // answered by Done or Refusal::multicast
  std::uint64_t id = 0;
  std::int32_t device = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t memory = 0;  // which the process holds
  std::uint64_t memory_offset = 0;
  static void fields(auto& self, auto&& field) {
    field(self.id);
    field(self.device);
    field(self.offset);
    field(self.bytes);
    field(self.memory);
    field(self.memory_offset);
  }
};
struct UnbindMulticast {  // answered by Token, the memory's id
  std::uint64_t id = 0;
  std::int32_t device = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  static void fields(auto& self, auto&& field) {
    field(self.id);
    field(self.device);
    field(self.offset);
    field(self.bytes);
  }
};
struct AskMulticast {  // answered by Multicast
  std::uint64_t id = 0;
  std::uint64_t offset = 0;  // the part of the object of which the binds are told
  std::uint64_t bytes = 0;
  std::uint64_t skip = 0;  // so many of them
  static void fields(auto& self, auto&& field) {
    field(self.id);
    field(self.offset);
    field(self.bytes);
    field(self.skip);
  }
};
struct AskBound {  // whether memory is bound to a multicast object; answered by Token, 1 or 0
  std::uint64_t memory = 0;
  static void fields(auto& self, auto&& field) { field(self.memory); }
};

using Request =
    std::variant<Hello, Create, GiveBack, AskUsage, AskFile, ExportDescriptor, ImportDescriptor, ExportToken,
                 ImportToken, ExportPool, ImportPool, DropPool, ExportPoolRange, ImportPoolRange, OpenPoolMemory,
                 CreateMulticast, JoinMulticast, BindMulticast, UnbindMulticast, AskMulticast, AskBound>;

// Replies.

struct Welcome {
  std::uint64_t client = 0;   // a number of this process's own
  std::uint64_t machine = 0;  // a number of the machine's own
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
  std::string settings;  // what the machine is made of, as settings in a list
  static void fields(auto& self, auto&& field) {
    field(self.client);
    field(self.machine);
    field(self.device_bytes);
    field(self.host_bytes);
    field(self.settings);
  }
};
struct Done {
  static void fields(auto&, auto&&) {}
};
struct Memory {
  SharedAllocation allocation;
  static void fields(auto& self, auto&& field) { field(self.allocation); }
};
struct Usage {
  std::uint64_t free = 0;     // bytes
  std::uint64_t exports = 0;  // of this process, whose descriptors are open
  static void fields(auto& self, auto&& field) {
    field(self.free);
    field(self.exports);
  }
};
struct Token {
  std::uint64_t token = 0;
  static void fields(auto& self, auto&& field) { field(self.token); }
};

enum class Refusal : std::uint8_t {
  no_such_node,
  full,              // the broker can serve no more processes
  too_little_left,   // of the place's memory
  file_limit,        // the system lets the place's file grow no more; detail: errno
  not_known,         // no such memory, export or handle, or none that this process may have
  descriptor_limit,  // detail: how many are open
  no_descriptor,     // the system gives none; detail: errno
  owner_gone,        // the process that made the handle has ended
  other_kind,        // it is a pool's where memory's is wanted, or the other way round
  multicast,         // detail: model::JoinOutcome or model::BindOutcome
  lost_multicast,    // the fabric handle is that of a multicast object that is gone
};
constexpr bool valid(Refusal refusal) {
  return refusal <= Refusal::lost_multicast;
}

struct Refused {
  Refusal why = Refusal::not_known;
  std::uint64_t detail = 0;
  static void fields(auto& self, auto&& field) {
    field(self.why);
    field(self.detail);
  }
};

struct Pool {
  std::uint64_t pool = 0;
  NodePlace place;
  static void fields(auto& self, auto&& field) {
    field(self.pool);
    field(self.place);
  }
};
struct PoolRange {
  std::uint64_t pieces = 0;  // of memory in which it lies
  std::uint64_t offset = 0;  // in the first
  std::uint64_t bytes = 0;
  static void fields(auto& self, auto&& field) {
    field(self.pieces);
    field(self.offset);
    field(self.bytes);
  }
};

struct Multicast {
  // Of each bind in `binds`: the member, its number in the team; where it begins in the object; bytes; the device's
  // node and ordinal; where the bytes are in that place's file.
  static constexpr std::size_t fields_of_bind = 6;
  std::uint32_t missing = 0;         // devices
  bool others = false;               // another process has the object, or can still come by it
  std::int32_t in_reach = 0;         // devices that may be added, those that were included
  std::vector<std::uint64_t> team;   // node and device of each
  std::vector<std::uint64_t> binds;  // as many as a message has room for
  bool more = false;                 // than these
  static void fields(auto& self, auto&& field) {
    field(self.missing);
    field(self.others);
    field(self.in_reach);
    field(self.team);
    field(self.binds);
    field(self.more);
  }
};

using Reply = std::variant<Welcome, Done, Memory, Usage, Token, Refused, Pool, PoolRange, Multicast>;

[[nodiscard]] std::vector<std::byte> encode(const Request& request);
[[nodiscard]] std::vector<std::byte> encode(const Reply& reply);

// Nothing for bytes that are no message of this version.
[[nodiscard]] std::optional<Request> decode_request(std::span<const std::byte> bytes);
[[nodiscard]] std::optional<Reply> decode_reply(std::span<const std::byte> bytes);

// The version of a message of any version; nothing for bytes that are none.
[[nodiscard]] std::optional<std::uint16_t> version_of(std::span<const std::byte> bytes);

}  // namespace cuvmm::emulator::broker
