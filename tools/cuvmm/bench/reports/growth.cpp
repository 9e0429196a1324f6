// Growing by appends: a DeviceBuffer with each policy, and what programs do without one.
#include <fmt/format.h>

#include <algorithm>
#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <vector>

#include "bench/reports.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using driver::call;
using driver::EntryPoint;

struct Work {
  std::size_t first = 0;   // bytes at the beginning
  std::size_t append = 0;  // bytes that are added each time
  std::size_t last = 0;    // bytes in the end
};

// How much memory there was beside what was asked for.
class Slack {
 public:
  void saw(std::size_t held, std::size_t content) {
    most_ = std::max(most_, held - content);
    shares_ += static_cast<double>(held - content) / static_cast<double>(held);
    ++times_;
  }
  void tell(Turn& turn, const std::string& way) const {
    turn.tell(way, {"unused at most", static_cast<double>(most_), Unit::bytes});
    turn.tell(way, {"unused on average", times_ == 0 ? 0 : 100 * shares_ / times_, Unit::percent});
  }

 private:
  std::size_t most_ = 0;
  double shares_ = 0;
  int times_ = 0;
};

// Calls grow(bytes) for each size, and slack of what it answers to be held then.
template <class Grow>
void grow_by_appends(const Work& work, Slack& slack, Grow grow) {
  for (std::size_t bytes = work.first; bytes < work.last;) {
    slack.saw(grow(bytes), bytes);
    bytes = std::min(bytes + work.append, work.last);
    if (bytes == work.last) slack.saw(grow(bytes), bytes);
  }
}

Contest::Contender with_policy(const std::string& name, const Work& work, const ChunkPolicy& policy) {
  return [=](Turn& turn) {
    auto buffer = DeviceBuffer::create(turn.meter().driver(), {.capacity = work.last, .chunks = policy});
    Slack slack;
    turn.measure(name, [&] {
      grow_by_appends(work, slack, [&](std::size_t bytes) {
        buffer.resize(bytes);
        return buffer.capacity();
      });
    });
    slack.tell(turn, name);
    turn.tell(name, {"chunks", static_cast<double>(buffer.range().chunks().size()), Unit::count});
    buffer.close();
  };
}

// Chunks of one size by raw calls, as programs write them; of 0: as large as each append.
class RawChunks {
 public:
  RawChunks(const Driver& driver, std::size_t chunk, const Work& work)
      : calls_(driver.interface()), chunk_(chunk), room_(work.last + chunk) {
    call<EntryPoint::cuMemAddressReserve>(calls_, &address_, room_, 0U, 0U, 0U);
  }
  RawChunks(const RawChunks&) = delete;
  RawChunks& operator=(const RawChunks&) = delete;
  RawChunks(RawChunks&&) = delete;
  RawChunks& operator=(RawChunks&&) = delete;
  ~RawChunks() {
    if (mapped_ != 0) calls_.cuMemUnmap(address_, mapped_);
    for (const auto each : handles_) calls_.cuMemRelease(each);
    calls_.cuMemAddressFree(address_, room_);
  }
  std::size_t grow(std::size_t bytes) {
    while (mapped_ < bytes) add(chunk_ != 0 ? chunk_ : bytes - mapped_);
    return mapped_;
  }
  [[nodiscard]] std::size_t chunks() const noexcept { return handles_.size(); }

 private:
  void add(std::size_t bytes) {
    abi::CUmemAllocationProp properties{};
    properties.type = abi::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const abi::CUmemAccessDesc access{properties.location, abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    abi::CUmemGenericAllocationHandle handle = 0;
    call<EntryPoint::cuMemCreate>(calls_, &handle, bytes, &properties, 0U);
    handles_.push_back(handle);
    call<EntryPoint::cuMemMap>(calls_, address_ + mapped_, bytes, 0U, handle, 0U);
    mapped_ += bytes;
    call<EntryPoint::cuMemSetAccess>(calls_, address_ + mapped_ - bytes, bytes, &access, 1U);
  }

  driver::Interface& calls_;
  std::size_t chunk_;
  std::size_t room_;
  abi::CUdeviceptr address_ = 0;
  std::size_t mapped_ = 0;
  std::vector<abi::CUmemGenericAllocationHandle> handles_;
};

Contest::Contender with_raw_chunks(const std::string& name, const Work& work, std::size_t chunk) {
  return [=](Turn& turn) {
    RawChunks memory(turn.meter().driver(), chunk, work);
    Slack slack;
    turn.measure(name, [&] { grow_by_appends(work, slack, [&](std::size_t bytes) { return memory.grow(bytes); }); });
    slack.tell(turn, name);
    turn.tell(name, {"chunks", static_cast<double>(memory.chunks()), Unit::count});
  };
}

// Memory that moves to twice as much whenever it is full, its content copied. In the null stream, or in one of its own
// with memory of the device's pool.
class Doubling {
 public:
  Doubling(const Driver& driver, bool ordered) : calls_(driver.interface()), ordered_(ordered) {
    if (ordered_) call<EntryPoint::cuStreamCreate>(calls_, &stream_, abi::CU_STREAM_NON_BLOCKING);
  }
  Doubling(const Doubling&) = delete;
  Doubling& operator=(const Doubling&) = delete;
  Doubling(Doubling&&) = delete;
  Doubling& operator=(Doubling&&) = delete;
  ~Doubling() {
    if (address_ != 0) free(address_);
    if (!ordered_) return;
    calls_.cuStreamSynchronize(stream_);
    calls_.cuStreamDestroy(stream_);
  }
  // The most that was held meanwhile.
  std::size_t grow(std::size_t bytes) {
    if (bytes <= held_) return held_;
    const std::size_t larger = std::max(2 * held_, bytes);
    abi::CUdeviceptr next = 0;
    if (ordered_) {
      call<EntryPoint::cuMemAllocAsync>(calls_, &next, larger, stream_);
    } else {
      call<EntryPoint::cuMemAlloc>(calls_, &next, larger);
    }
    if (address_ != 0) {
      call<EntryPoint::cuMemcpyDtoDAsync>(calls_, next, address_, content_, stream_);
      free(address_);
    }
    address_ = next;
    content_ = bytes;
    return std::exchange(held_, larger) + larger;
  }
  void finish() { call<EntryPoint::cuStreamSynchronize>(calls_, stream_); }
  void used(std::size_t bytes) noexcept { content_ = bytes; }

 private:
  void free(abi::CUdeviceptr address) {
    if (ordered_) {
      call<EntryPoint::cuMemFreeAsync>(calls_, address, stream_);
    } else {
      call<EntryPoint::cuMemFree>(calls_, address);
    }
  }

  driver::Interface& calls_;
  bool ordered_;
  abi::CUstream stream_ = nullptr;
  abi::CUdeviceptr address_ = 0;
  std::size_t held_ = 0;
  std::size_t content_ = 0;
};

Contest::Contender with_copies(const std::string& name, const Work& work, bool ordered) {
  return [=](Turn& turn) {
    Doubling memory(turn.meter().driver(), ordered);
    Slack slack;
    turn.measure(name, [&] {
      grow_by_appends(work, slack, [&](std::size_t bytes) {
        const std::size_t held = memory.grow(bytes);
        memory.used(bytes);
        return held;
      });
      memory.finish();
    });
    slack.tell(turn, name);
  };
}

}  // namespace

Report report_growth(const Meter& meter, const Settings& settings) {
  const Work work{2_MiB, 64_MiB, std::max(bytes_of(settings, meter, 64_GiB, 512_MiB), 4_MiB)};
  const ContestOptions options = contest_options(
      settings, meter, {.on_gpu = {.rounds = 7, .pause = std::chrono::seconds(3)}, .on_emulator = {.rounds = 1}});
  const std::string geometric = "DeviceBuffer, geometric without limit";
  const std::string bounded = "DeviceBuffer, bounded, 2 % unused";
  const std::string doubling = "cuMemAlloc, twice as much each time, copied";
  const std::string chunks_2 = "raw calls, chunks of 2 MiB";
  const std::string chunks_20 = "raw calls, chunks of 20 MiB";
  const std::string chunks_64 = "raw calls, chunks of 64 MiB";
  Contest contest(meter);
  contest.add(with_policy(geometric, work, ChunkPolicy::geometric(work.last)));
  contest.add(with_policy("DeviceBuffer, geometric up to 1 GiB", work, ChunkPolicy::geometric(1_GiB)));
  contest.add(with_policy("DeviceBuffer, geometric up to 256 MiB", work, ChunkPolicy::geometric()));
  contest.add(with_policy(bounded, work, ChunkPolicy::bounded(0.02)));
  contest.add(with_policy("DeviceBuffer, exact", work, ChunkPolicy::exact()));
  contest.add(with_raw_chunks(chunks_64, work, 0));
  contest.add(with_raw_chunks(chunks_20, work, 20_MiB));
  contest.add(with_raw_chunks(chunks_2, work, 2_MiB));
  contest.add(with_copies(doubling, work, false));
  contest.add(with_copies("cuMemAllocAsync, likewise", work, true));
  Report report;
  report.title = fmt::format("{} to {} in appends of {}", format_bytes(work.first), format_bytes(work.last),
                             format_bytes(work.append));
  report.settings = {in_words(options)};
  report.ways = contest.run(options);
  report.ratios = {{geometric, doubling, false, 0.1},       {geometric, chunks_2, false, 0.01},
                   {geometric, chunks_20, false, 1.0 / 15}, {geometric, "cuMemAllocAsync, likewise"},
                   {bounded, chunks_64, false, 1.0},        {"DeviceBuffer, exact", chunks_64}};
  report.notes = {"What is unused is all that is held beside the content, while it is copied the former memory, too."};
  return report;
}

}  // namespace cuvmm::bench
