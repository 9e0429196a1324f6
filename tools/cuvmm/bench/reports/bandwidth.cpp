// What kernels get out of memory that was grown, that is mapped twice, or that is part of a stitched array, against
// memory of cuMemAlloc.
#include <fmt/format.h>

#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <optional>

#include "bench/kernels.hpp"
#include "bench/reports.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using driver::call;
using driver::EntryPoint;

constexpr std::size_t tile = 256_KiB;
const DeviceOrdinal peer_ordinal{1};

struct Bed {
  Bed(const Meter& its_meter, std::size_t its_bytes)
      : meter(its_meter), bytes(its_bytes), kernels(meter.driver()), stream(meter.driver()), timer(meter.driver()) {}

  [[nodiscard]] abi::CUdeviceptr progress() const noexcept { return state.address() + sizeof(gpu::ReadState); }

  const Meter& meter;
  std::size_t bytes;  // of each memory
  Kernels kernels;
  Stream stream;
  DeviceTimer timer;
  PlainMemory state{meter.driver(), 64};
};

// The cost of the work, its time as the device tells it.
template <class Work>
void measure_on_device(const Bed& bed, Turn& turn, const std::string& way, std::size_t bytes, Work work) {
  double milliseconds = 0;
  Cost cost = bed.meter.measure([&] { milliseconds = bed.timer.milliseconds(bed.stream.handle(), work); });
  cost.milliseconds = milliseconds;
  turn.record(way, cost);
  if (!bed.meter.counts() && milliseconds > 0)
    turn.tell(way, {"in the last round", static_cast<double>(bytes) / milliseconds / 1e6, Unit::gigabytes_a_second});
}

void read(const Bed& bed, Turn& turn, const std::string& way, abi::CUdeviceptr address) {
  constexpr std::size_t passes = 4;
  call<EntryPoint::cuMemsetD8Async>(bed.meter.driver().interface(), bed.state.address(), static_cast<unsigned char>(0),
                                    64U, bed.stream.handle());
  measure_on_device(bed, turn, way, passes * bed.bytes, [&] {
    bed.kernels.read({address, bed.bytes, tile, passes * bed.bytes / tile, bed.state.address(), bed.progress()},
                     bed.stream.handle());
  });
}

// The first quarter to the last: where memory is mapped twice those are not the same.
void copy(const Bed& bed, Turn& turn, const std::string& way, abi::CUdeviceptr address) {
  const std::size_t quarter = bed.bytes / 4;
  measure_on_device(bed, turn, way, 2 * quarter, [&] {
    bed.kernels.copy({address + 3 * quarter, address, quarter}, bed.stream.handle());
  });
}

DeviceBuffer grown(const Driver& driver, std::size_t bytes) {
  auto buffer = DeviceBuffer::create(driver, {.capacity = bytes});
  for (std::size_t size = 64_MiB; size < bytes; size += 64_MiB) buffer.resize(size);
  buffer.resize(bytes);
  return buffer;
}

MappedRange aliased(const Driver& driver, std::size_t bytes) {
  auto range = MappedRange::create(driver, {.capacity = bytes, .chunks = ChunkPolicy::exact()});
  range.append(bytes / 2);
  range.append(range.memory_at(0));
  return range;
}

// As large a part of device 0, and one of its peer where there is one.
StitchedMemory stitched(const Driver& driver, std::size_t bytes, bool with_peer) {
  StitchedOptions options;
  options.locations = {Location::device(DeviceOrdinal(0))};
  if (with_peer) options.locations.push_back(Location::device(peer_ordinal));
  return StitchedMemory::create(driver, bytes * options.locations.size(), options);
}

// Memory of cuMemAlloc on the peer, which kernels of the current context may read.
class PeerMemory {
 public:
  PeerMemory(const Driver& driver, std::size_t bytes)
      : calls_(driver.interface()), context_(driver.device(peer_ordinal)) {
    call<EntryPoint::cuMemAlloc>(calls_, &address_, bytes);
  }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  PeerMemory(PeerMemory&&) = delete;
  PeerMemory& operator=(PeerMemory&&) = delete;
  ~PeerMemory() { calls_.cuMemFree(address_); }

  [[nodiscard]] abi::CUdeviceptr address() const noexcept { return address_; }
  [[nodiscard]] abi::CUcontext context() const noexcept { return context_.handle(); }

 private:
  driver::Interface& calls_;
  CurrentContext context_;
  abi::CUdeviceptr address_ = 0;
};

// Reads of the peer's memory by this device, and copies of it by a copy engine.
std::vector<Way> compare_remote(const Bed& bed, abi::CUdeviceptr remote_part, abi::CUdeviceptr local,
                                const ContestOptions& options) {
  const Driver& driver = bed.meter.driver();
  driver::Interface& calls = driver.interface();
  abi::CUcontext own = nullptr;
  call<EntryPoint::cuCtxGetCurrent>(calls, &own);
  const PeerMemory plain(driver, bed.bytes);
  call<EntryPoint::cuCtxPushCurrent>(calls, own);
  call<EntryPoint::cuCtxEnablePeerAccess>(calls, plain.context(), 0U);
  Contest contest(bed.meter);
  contest.add([&](Turn& turn) { read(bed, turn, "read, cuMemAlloc of the peer", plain.address()); });
  contest.add([&](Turn& turn) { read(bed, turn, "read, stitched, remote part", remote_part); });
  contest.add([&](Turn& turn) {
    measure_on_device(bed, turn, "copy engine, from the peer, four times", 4 * bed.bytes, [&] {
      for (int time = 0; time < 4; ++time)
        call<EntryPoint::cuMemcpyPeerAsync>(calls, local, own, plain.address(), plain.context(), bed.bytes,
                                            bed.stream.handle());
    });
  });
  auto ways = contest.run(options);
  call<EntryPoint::cuCtxDisablePeerAccess>(calls, plain.context());
  abi::CUcontext popped = nullptr;
  call<EntryPoint::cuCtxPopCurrent>(calls, &popped);
  return ways;
}

}  // namespace

Report report_bandwidth(const Meter& meter, const Settings& settings) {
  const Driver& driver = meter.driver();
  const std::size_t bytes = align_up(bytes_of(settings, meter, 8_GiB, 8_MiB), 8_MiB);
  ContestOptions options = contest_options(settings, meter, {.on_gpu = {.rounds = 21}, .on_emulator = {.rounds = 1}});
  options.warming_rounds = meter.counts() ? 0 : 2;
  const bool with_peer = driver.device_count() > 1;
  const Bed bed(meter, bytes);
  const PlainMemory plain(driver, bytes);
  const auto vector = grown(driver, bytes);
  const auto twice = aliased(driver, bytes);
  const auto array = stitched(driver, bytes, with_peer);
  const struct {
    std::string name;
    abi::CUdeviceptr address;
  } memories[] = {{"cuMemAlloc", plain.address()},
                  {"grown", vector.address().value},
                  {"aliased", twice.address().value},
                  {"stitched, local part", array.address().value}};
  for (const auto& each : memories)
    call<EntryPoint::cuMemsetD8>(driver.interface(), each.address, static_cast<unsigned char>(1), bytes);
  call<EntryPoint::cuCtxSynchronize>(driver.interface());
  Report report;
  report.title =
      fmt::format("kernels on {} of each memory: four reads of all of it, copies of a quarter", format_bytes(bytes));
  report.settings = {in_words(options), "times of the device"};
  Contest contest(meter);
  for (const auto& each : memories) {
    contest.add([&bed, &each](Turn& turn) { read(bed, turn, "read, " + each.name, each.address); });
    contest.add([&bed, &each](Turn& turn) { copy(bed, turn, "copy, " + each.name, each.address); });
    if (&each == memories) continue;
    for (const std::string what : {"read, ", "copy, "})
      report.ratios.push_back({what + each.name, what + memories[0].name, true, 0.99});
  }
  report.ways = contest.run(options);
  if (!with_peer) return report;
  for (Way& each : compare_remote(bed, array.address().value + bytes, plain.address(), options))
    report.ways.push_back(std::move(each));
  report.ratios.push_back({"read, stitched, remote part", "read, cuMemAlloc of the peer", true, 0.99});
  report.ratios.push_back({"read, stitched, remote part", "copy engine, from the peer, four times", true});
  return report;
}

}  // namespace cuvmm::bench
