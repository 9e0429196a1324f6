// A kernel reads the part of a DeviceBuffer that there is, again and again, while the buffer grows behind it: how fast
// it reads meanwhile, and before and after.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cuvmm/cuvmm.hpp>
#include <stdexcept>
#include <thread>

#include "bench/kernels.hpp"
#include "bench/reports.hpp"
#include "clean_up.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using namespace std::chrono_literals;
using driver::call;
using driver::EntryPoint;
using Clock = std::chrono::steady_clock;

// Eight bytes of the host that kernels write to while the host reads them.
class SeenProgress {
 public:
  explicit SeenProgress(const Driver& driver) : calls_(driver.interface()) {
    call<EntryPoint::cuMemHostAlloc>(calls_, &pointer_, sizeof(std::uint64_t),
                                     abi::CU_MEMHOSTALLOC_PORTABLE | abi::CU_MEMHOSTALLOC_DEVICEMAP);
    *static_cast<std::uint64_t*>(pointer_) = 0;
  }
  SeenProgress(const SeenProgress&) = delete;
  SeenProgress& operator=(const SeenProgress&) = delete;
  SeenProgress(SeenProgress&&) = delete;
  SeenProgress& operator=(SeenProgress&&) = delete;
  ~SeenProgress() { clean_up<EntryPoint::cuMemFreeHost>(calls_, pointer_); }

  [[nodiscard]] abi::CUdeviceptr address() const {
    abi::CUdeviceptr address = 0;
    call<EntryPoint::cuMemHostGetDevicePointer>(calls_, &address, pointer_, 0U);
    return address;
  }
  [[nodiscard]] std::uint64_t tiles() const noexcept {
    return std::atomic_ref(*static_cast<std::uint64_t*>(pointer_)).load(std::memory_order_relaxed);
  }

 private:
  driver::Interface& calls_;
  void* pointer_ = nullptr;
};

struct Work {
  std::size_t read = 0;    // bytes that there are at first, and are read
  std::size_t append = 0;  // bytes that are added each time
  std::size_t last = 0;    // bytes in the end
  std::size_t tile = 0;
};

// The kernel that reads, from its launch until it was told to stop.
class Reader {
 public:
  Reader(const Driver& driver, const Kernels& kernels, const Work& work, DeviceBuffer& buffer)
      : calls_(driver.interface()),
        work_(work),
        buffer_(buffer),
        reading_(driver),
        telling_(driver),
        state_(driver, 64),
        progress_(driver) {
    call<EntryPoint::cuMemsetD32>(calls_, buffer_.address().value, one, work_.read / sizeof one);
    call<EntryPoint::cuMemsetD8>(calls_, state_.address(), static_cast<unsigned char>(0), sizeof(gpu::ReadState));
    call<EntryPoint::cuCtxSynchronize>(calls_);
    buffer_.used_on(reading_.handle());
    kernels.read({buffer_.address().value, work_.read, work_.tile, most_tiles, state_.address(), progress_.address()},
                 reading_.handle());
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  Reader(Reader&&) = delete;
  Reader& operator=(Reader&&) = delete;
  ~Reader() {
    try {
      stop();
    } catch (const Error& error) {
      report_cleanup_failure(error.failure());
    }
  }

  // GiB that were read so far, at that time.
  struct Sample {
    Clock::time_point time{};
    double gibibytes = 0;
  };
  [[nodiscard]] Sample sample() const noexcept {
    const std::uint64_t tiles = progress_.tiles();
    return {Clock::now(), static_cast<double>(tiles * work_.tile) / static_cast<double>(1_GiB)};
  }
  // Waits until it has read more than then; throws what became of it where it does not.
  void wait_beyond(const Sample& before) const {
    const auto deadline = Clock::now() + 10s;
    while (sample().gibibytes <= before.gibibytes) {
      if (Clock::now() > deadline) raise(no_progress());
      std::this_thread::yield();
    }
  }
  void stop() {
    if (stopped_) return;
    stopped_ = true;
    constexpr std::uint32_t told = 1;
    call<EntryPoint::cuMemcpyHtoDAsync>(calls_, state_.address() + offsetof(gpu::ReadState, stop), &told, sizeof told,
                                        telling_.handle());
    telling_.wait();
    reading_.wait();
    buffer_.no_longer_used_on(reading_.handle());
  }
  // Whether it read what is there; after stop().
  [[nodiscard]] bool has_read_right() const {
    gpu::ReadState state{};
    call<EntryPoint::cuMemcpyDtoH>(calls_, &state, state_.address(), sizeof state);
    constexpr std::uint64_t word = (std::uint64_t{one} << 32) + one;
    return state.sum == std::min(state.begun, most_tiles) * (work_.tile / sizeof word) * word;
  }

 private:
  static constexpr unsigned one = 1;
  static constexpr std::uint64_t most_tiles = std::uint64_t{1} << 27;  // some seconds

  static Failure no_progress() {
    Failure failure;
    failure.kind = ErrorKind::timed_out;
    failure.call = "cuvmm_read";
    failure.reason = "the kernel reads nothing";
    return failure;
  }

  driver::Interface& calls_;
  const Work& work_;
  DeviceBuffer& buffer_;
  Stream reading_;
  Stream telling_;
  PlainMemory state_;
  SeenProgress progress_;
  bool stopped_ = false;
};

// Milliseconds for a GiB between the two.
Cost cost_between(const Reader::Sample& begin, const Reader::Sample& end) {
  Cost cost;
  cost.milliseconds = std::chrono::duration<double, std::milli>(end.time - begin.time).count() /
                      std::max(end.gibibytes - begin.gibibytes, 1e-9);
  return cost;
}

void grow(DeviceBuffer& buffer, const Work& work) {
  for (std::size_t bytes = work.read; bytes < work.last;) {
    bytes = std::min(bytes + work.append, work.last);
    buffer.resize(bytes);
  }
}

struct Names {
  std::string before, meanwhile;
};

void take_turn(Turn& turn, const Kernels& kernels, const Work& work, const ChunkPolicy& policy, const Names& names,
               bool& right) {
  const Driver& driver = turn.meter().driver();
  const auto window = turn.meter().counts() ? 1ms : 50ms;
  auto buffer = DeviceBuffer::create(driver, {.capacity = work.last, .chunks = policy});
  buffer.resize(work.read);
  Reader reader(driver, kernels, work, buffer);
  reader.wait_beyond({});
  std::this_thread::sleep_for(window);
  const auto first = reader.sample();
  std::this_thread::sleep_for(window);
  reader.wait_beyond(first);
  const auto begin = reader.sample();
  Cost growth = turn.meter().measure([&] { grow(buffer, work); });
  const auto end = reader.sample();
  std::this_thread::sleep_for(window);
  reader.wait_beyond(end);
  const auto last = reader.sample();
  reader.stop();
  right = right && reader.has_read_right();
  const double took = growth.milliseconds;
  growth.milliseconds = cost_between(begin, end).milliseconds;
  Cost outside = cost_between(first, begin);
  outside.milliseconds = (outside.milliseconds + cost_between(end, last).milliseconds) / 2;
  turn.record(names.before, outside);
  turn.record(names.meanwhile, growth);
  if (!turn.meter().counts()) turn.tell(names.meanwhile, {"ms of growth in the last round", took});
  buffer.close();
}

}  // namespace

Report report_reading(const Meter& meter, const Settings& settings) {
  const bool small = meter.counts();
  Work work{small ? 4_MiB : 4_GiB, 64_MiB, bytes_of(settings, meter, 64_GiB, 512_MiB), small ? 4_KiB : 256_KiB};
  work.last = std::max(work.last, work.read + work.append);
  const ContestOptions options = contest_options(
      settings, meter, {.on_gpu = {.rounds = 10, .pause = std::chrono::seconds(1)}, .on_emulator = {.rounds = 1}});
  const Kernels kernels(meter.driver());
  Report report;
  report.title = fmt::format("a kernel reads {} while the memory grows to {} in appends of {}; times are of a GiB read",
                             format_bytes(work.read), format_bytes(work.last), format_bytes(work.append));
  report.settings = {in_words(options)};
  bool right = true;
  Contest contest(meter);
  for (const ChunkPolicy& policy :
       {ChunkPolicy::geometric(work.last), ChunkPolicy::geometric(), ChunkPolicy::exact()}) {
    const Names names{policy.to_string() + ": before and after", policy.to_string() + ": during growth"};
    contest.add([&, policy, names](Turn& turn) { take_turn(turn, kernels, work, policy, names, right); });
    report.ratios.push_back({names.meanwhile, names.before, true, 0.98});
  }
  report.ways = contest.run(options);
  if (!right) throw std::runtime_error("bytes that the kernel read were not those that are there");
  report.notes = {"No fault, and the sum of all that was read is right."};
  return report;
}

}  // namespace cuvmm::bench
