// Copies and memsets through mappings, and what they read.
#include <algorithm>
#include <cstring>

#include "conformance/sequences/drawing.hpp"
#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {
namespace {

constexpr int read_right = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr int write_right = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

// Ranges of content.

const MappedMemory* draw_touchable(const World& world, Random& random, int rights) {
  std::vector<const MappedMemory*> fitting;
  for (const MappedMemory& each : world.mappings)
    if (world.current >= 0 && (each.rights.at(static_cast<std::size_t>(world.current)) & rights) == rights)
      fitting.push_back(&each);
  return fitting.empty() ? nullptr : random.element(fitting);
}

std::int64_t draw_size(const MappedMemory& mapping, Random& random) {
  if (random.percent(12)) return mapping.bytes;
  if (random.percent(80)) return (1 + random.below(8)) * block_bytes;
  return random.one_of<std::int64_t>({0, 1, 2, 3, 4, 64, 4095, 4097, granule_bytes});
}

// Whether a real driver may die of copying there. It copies host memory with the CPU, which may touch what the host has
// been granted, or what nobody has. So host memory is drawn alone, never in a range with anything else; where the
// device may touch it; not to be written where the host may only read; and not after a grant of several mappings.
bool may_kill(const DrawnRange& range, const World& world, int rights) {
  const std::vector<const MappedMemory*> touched =
      world.mappings_in(range.place, std::max<std::int64_t>(range.bytes, 1));
  return std::any_of(touched.begin(), touched.end(), [&](const MappedMemory* each) {
    if (!world.is_on_host(*each)) return false;
    const bool whole =
        touched.size() == 1 && range.place.at >= each->place.at && range.place.at + range.bytes <= each->end();
    const bool allowed =
        world.current >= 0 && (each->rights.at(static_cast<std::size_t>(world.current)) & rights) == rights;
    const bool readable_only = rights == write_right && each->rights.at(2) == read_right;
    return !whole || !allowed || readable_only || each->granted_with_others;
  });
}

// Where somebody wants to write or read: where that is allowed, mostly, and over borders of mappings, sometimes.
std::optional<DrawnRange> draw_content(const World& world, Random& random, int rights) {
  if (world.mappings.empty()) return std::nullopt;
  const MappedMemory* mapping = draw_touchable(world, random, rights);
  if (mapping == nullptr && !random.percent(30)) return std::nullopt;
  if (mapping == nullptr || random.percent(8)) mapping = &random.element(world.mappings);
  DrawnRange range{mapping->place, draw_size(*mapping, random)};
  if (range.bytes < mapping->bytes) {
    if (random.percent(60)) range.place.at += random.below(16) * block_bytes;
    if (random.percent(15)) range.place.at = mapping->end() - range.bytes / 2 / block_bytes * block_bytes - block_bytes;
  }
  if (random.percent(4)) range.place = draw_place(world, random);
  if (random.percent(4)) range.place.at += random.one_of({1, 2, 4});
  if (range.bytes > most_copied_bytes || !is_within_space(range, world)) return std::nullopt;
  if (may_kill(range, world, rights)) return std::nullopt;
  return range;
}

CUdeviceptr address_of(const Call& call, std::size_t first, const Player& player) {
  return player.address(call[first], call[first + 1]);
}

std::vector<Segment> segments_of(const Call& call, std::size_t first, std::int64_t bytes, int rights,
                                 const World& world) {
  return world.segments({static_cast<int>(call[first]), call[first + 1]}, bytes, rights);
}

// Bytes that follow from a number.
void fill(unsigned char* bytes, std::int64_t count, std::int64_t number) {
  Random random{static_cast<std::uint64_t>(number)};
  for (std::int64_t at = 0; at < count; at += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes + at, &word, sizeof word);
  }
}

// A checksum of bytes, as four hexadecimal digits.
std::string checksum(const unsigned char* bytes, std::int64_t count) {
  std::uint64_t sum = 14695981039346656037U;
  std::int64_t at = 0;
  for (; at + 8 <= count; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    sum = (sum ^ word) * 1099511628211U;
    sum ^= sum >> 29;
  }
  for (; at < count; ++at) sum = (sum ^ bytes[at]) * 1099511628211U;
  sum ^= sum >> 32;
  sum ^= sum >> 16;
  std::string text;
  for (int shift = 12; shift >= 0; shift -= 4) text += "0123456789abcdef"[(sum >> shift) & 15];
  return text;
}

// The streams of asynchronous calls.

// A stream of device 0's context, which must be current; one that captures only where that is asked for.
std::optional<std::int64_t> draw_stream(const World& world, Random& random, bool may_capture) {
  if (world.current != 0) return std::nullopt;
  if (may_capture && world.captures() && random.percent(70)) {
    const auto joined = draw_slot(
        world.streams, random, [](const StreamSlot& each) { return each.joined; }, true);
    return joined && random.percent(30) ? *joined : world.capturing;
  }
  if (world.captures()) return std::nullopt;
  if (random.percent(15)) return legacy_stream_pending;
  return draw_slot(
      world.streams, random, [](const StreamSlot& each) { return each.exists; }, true);
}

// cuMemcpyHtoD: space at size number; cuMemcpyHtoDAsync: the same after a stream

std::optional<Call> draw_to_device(const World& world, Random& random) {
  const auto range = draw_content(world, random, write_right);
  if (!range) return std::nullopt;
  return Call{nullptr, {range->place.space, range->place.at, range->bytes, random.below(65536)}};
}

Step to_device(const Call& call, Player& player) {
  fill(player.buffer(), call[2], call[3]);
  return {player->cuMemcpyHtoD(address_of(call, 0, player), player.buffer(), static_cast<std::size_t>(call[2])), ""};
}

void written_to(const Call& call, World& world) {
  world.mark_written(segments_of(call, 0, call[2], write_right, world));
}

// A drawn call with a stream before its arguments. Recorded sequences were drawn in this order: the stream last.
template <class Draw>
std::optional<Call> draw_behind_stream(const World& world, Random& random, bool may_capture, Draw draw) {
  const std::optional<Call> call = draw(world, random);
  const std::optional<std::int64_t> stream = draw_stream(world, random, may_capture);
  if (!stream || !call) return std::nullopt;
  Call with{nullptr, {*stream}};
  for (std::size_t each = 0; each + 1 < Call::most_arguments; ++each) with.arguments[each + 1] = (*call)[each];
  return with;
}

std::optional<Call> draw_to_device_async(const World& world, Random& random) {
  return draw_behind_stream(world, random, false, draw_to_device);
}

Step to_device_async(const Call& call, Player& player) {
  fill(player.buffer(), call[3], call[4]);
  return {player->cuMemcpyHtoDAsync(address_of(call, 1, player), player.buffer(), static_cast<std::size_t>(call[3]),
                                    player.stream(call[0])),
          ""};
}

void written_to_async(const Call& call, World& world) {
  world.mark_written(segments_of(call, 1, call[3], write_right, world));
}

// cuMemcpyDtoH: space at size; cuMemcpyDtoHAsync: the same after a stream

std::optional<Call> draw_to_host(const World& world, Random& random) {
  const auto range = draw_content(world, random, read_right);
  if (!range) return std::nullopt;
  return Call{nullptr, {range->place.space, range->place.at, range->bytes}};
}

// What is read is told where it follows from the calls before; new memory may hold anything.
std::string seen_in(const Call& call, std::size_t first, std::int64_t bytes, Player& player) {
  const bool known = player.world->is_known(segments_of(call, first, bytes, read_right, *player.world));
  return known ? checksum(player.buffer(), bytes) : "";
}

Step to_host(const Call& call, Player& player) {
  const CUresult code =
      player->cuMemcpyDtoH(player.buffer(), address_of(call, 0, player), static_cast<std::size_t>(call[2]));
  return {code, code == CUDA_SUCCESS ? seen_in(call, 0, call[2], player) : ""};
}

std::optional<Call> draw_to_host_async(const World& world, Random& random) {
  return draw_behind_stream(world, random, false, draw_to_host);
}

Step to_host_async(const Call& call, Player& player) {
  const CUstream stream = player.stream(call[0]);
  const CUresult code = player->cuMemcpyDtoHAsync(player.buffer(), address_of(call, 1, player),
                                                  static_cast<std::size_t>(call[3]), stream);
  if (code != CUDA_SUCCESS) return {code, ""};
  const CUresult waited = player->cuStreamSynchronize(stream);
  return {waited, waited == CUDA_SUCCESS ? seen_in(call, 1, call[3], player) : ""};
}

// cuMemcpyDtoD, cuMemcpy: to_space to_at from_space from_at size; their asynchronous forms: the same after a stream

std::optional<Call> draw_on_device(const World& world, Random& random) {
  const auto to = draw_content(world, random, write_right);
  const auto from = draw_content(world, random, read_right);
  if (!to || !from || !is_within_space({to->place, from->bytes}, world)) return std::nullopt;
  if (may_kill({to->place, from->bytes}, world, write_right)) return std::nullopt;
  return Call{nullptr, {to->place.space, to->place.at, from->place.space, from->place.at, from->bytes}};
}

// For calls that find out themselves what an address is: one that is no memory of devices would be the host's to them,
// and touching it would end the process.
std::optional<Call> draw_unified(const World& world, Random& random) {
  auto call = draw_on_device(world, random);
  if (!call) return call;
  const Place to{static_cast<int>((*call)[0]), (*call)[1]};
  const Place from{static_cast<int>((*call)[2]), (*call)[3]};
  const std::int64_t bytes = (*call)[4];
  if (world.segments(to, bytes, write_right).empty() || world.segments(from, bytes, read_right).empty())
    return std::nullopt;
  return call;
}

bool overlap(const std::vector<Segment>& left, const std::vector<Segment>& right) {
  for (const Segment& one : left)
    for (const Segment& other : right)
      if (one.memory == other.memory && one.offset < other.offset + other.bytes &&
          other.offset < one.offset + one.bytes)
        return true;
  return false;
}

void copied(const Call& call, std::size_t first, World& world) {
  const std::vector<Segment> to = segments_of(call, first, call[first + 4], write_right, world);
  const std::vector<Segment> from = segments_of(call, first + 2, call[first + 4], read_right, world);
  if (world.is_known(from) && !overlap(to, from))
    world.mark_written(to);
  else
    world.mark_unknown(to);
}

template <CUresult (driver::Interface::*copy)(CUdeviceptr, CUdeviceptr, std::size_t)>
Step on_device(const Call& call, Player& player) {
  return {(player.operator->()->*copy)(address_of(call, 0, player), address_of(call, 2, player),
                                       static_cast<std::size_t>(call[4])),
          ""};
}

void copied_on_device(const Call& call, World& world) {
  copied(call, 0, world);
}

std::optional<Call> draw_on_device_async(const World& world, Random& random) {
  return draw_behind_stream(world, random, false, draw_on_device);
}

std::optional<Call> draw_unified_async(const World& world, Random& random) {
  return draw_behind_stream(world, random, false, draw_unified);
}

template <CUresult (driver::Interface::*copy)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)>
Step on_device_async(const Call& call, Player& player) {
  return {(player.operator->()->*copy)(address_of(call, 1, player), address_of(call, 3, player),
                                       static_cast<std::size_t>(call[5]), player.stream(call[0])),
          ""};
}

void copied_on_device_async(const Call& call, World& world) {
  copied(call, 1, world);
}

// cuMemsetD8, D16, D32: space at count value; their asynchronous forms: the same after a stream

template <int width>
std::optional<Call> draw_memset(const World& world, Random& random) {
  const auto range = draw_content(world, random, write_right);
  if (!range) return std::nullopt;
  return Call{nullptr, {range->place.space, range->place.at, range->bytes / width, random.below(256)}};
}

template <int width, class Value, CUresult (driver::Interface::*set)(CUdeviceptr, Value, std::size_t)>
Step memset_now(const Call& call, Player& player) {
  return {(player.operator->()->*set)(address_of(call, 0, player), static_cast<Value>(call[3] * 0x01010101),
                                      static_cast<std::size_t>(call[2])),
          ""};
}

template <int width>
void was_set(const Call& call, World& world) {
  world.mark_written(segments_of(call, 0, call[2] * width, write_right, world));
}

template <int width>
std::optional<Call> draw_memset_async(const World& world, Random& random) {
  return draw_behind_stream(world, random, true, draw_memset<width>);
}

template <int width, class Value, CUresult (driver::Interface::*set)(CUdeviceptr, Value, std::size_t, CUstream)>
Step memset_async(const Call& call, Player& player) {
  return {(player.operator->()->*set)(address_of(call, 1, player), static_cast<Value>(call[4] * 0x01010101),
                                      static_cast<std::size_t>(call[3]), player.stream(call[0])),
          ""};
}

// What a capture took is written when its graph is launched, if it may be: not if it depends on chance who writes last.
template <int width>
void was_set_async(const Call& call, World& world) {
  const std::vector<Segment> segments = segments_of(call, 1, call[3] * width, write_right, world);
  if (!world.captures(call[0])) {
    world.mark_written(segments);
    return;
  }
  if (call[0] != world.capturing) world.graph.parallel = true;
  if (segments.empty() || (world.graph.parallel && overlap(segments, world.graph.written)))
    world.graph.launchable = false;
  world.graph.written.insert(world.graph.written.end(), segments.begin(), segments.end());
}

std::vector<Operation> copies() {
  using driver::Interface;
  constexpr std::string_view to_device_parameters = "space at size number";
  constexpr std::string_view on_device_parameters = "to_space to_at from_space from_at size";
  constexpr std::string_view on_device_async_parameters = "stream to_space to_at from_space from_at size";
  return {
      {"cuMemcpyHtoD", to_device_parameters, 70, Order::by_legacy, draw_to_device, to_device, written_to},
      {"cuMemcpyHtoDAsync", "stream space at size number", 60, Order::by_stream, draw_to_device_async, to_device_async,
       written_to_async},
      {"cuMemcpyDtoH", "space at size", 130, Order::by_legacy, draw_to_host, to_host, nullptr},
      {"cuMemcpyDtoHAsync", "stream space at size", 110, Order::by_stream, draw_to_host_async, to_host_async, nullptr},
      {"cuMemcpyDtoD", on_device_parameters, 50, Order::by_legacy, draw_on_device, on_device<&Interface::cuMemcpyDtoD>,
       copied_on_device},
      {"cuMemcpy", on_device_parameters, 40, Order::by_legacy, draw_unified, on_device<&Interface::cuMemcpy>,
       copied_on_device},
      {"cuMemcpyDtoDAsync", on_device_async_parameters, 60, Order::by_stream, draw_on_device_async,
       on_device_async<&Interface::cuMemcpyDtoDAsync>, copied_on_device_async},
      {"cuMemcpyAsync", on_device_async_parameters, 50, Order::by_stream, draw_unified_async,
       on_device_async<&Interface::cuMemcpyAsync>, copied_on_device_async},
  };
}

std::vector<Operation> memsets() {
  using driver::Interface;
  constexpr std::string_view now = "space at count value";
  constexpr std::string_view async = "stream space at count value";
  return {
      {"cuMemsetD8", now, 50, Order::by_legacy, draw_memset<1>, memset_now<1, unsigned char, &Interface::cuMemsetD8>,
       was_set<1>},
      {"cuMemsetD16", now, 30, Order::by_legacy, draw_memset<2>, memset_now<2, unsigned short, &Interface::cuMemsetD16>,
       was_set<2>},
      {"cuMemsetD32", now, 50, Order::by_legacy, draw_memset<4>, memset_now<4, unsigned int, &Interface::cuMemsetD32>,
       was_set<4>},
      {"cuMemsetD8Async", async, 90, Order::by_stream, draw_memset_async<1>,
       memset_async<1, unsigned char, &Interface::cuMemsetD8Async>, was_set_async<1>},
      {"cuMemsetD16Async", async, 60, Order::by_stream, draw_memset_async<2>,
       memset_async<2, unsigned short, &Interface::cuMemsetD16Async>, was_set_async<2>},
      {"cuMemsetD32Async", async, 90, Order::by_stream, draw_memset_async<4>,
       memset_async<4, unsigned int, &Interface::cuMemsetD32Async>, was_set_async<4>},
  };
}

}  // namespace

std::vector<Operation> content_operations() {
  std::vector<Operation> all = copies();
  for (const Operation& each : memsets()) all.push_back(each);
  return all;
}

}  // namespace cuvmm::conformance
