// What putting memory to sleep and waking it costs, against copies of the same bytes. Backups are kept, and so touched,
// as is the memory of the plain copies: what is compared is copying.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <cuvmm/cuvmm.hpp>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/kernels.hpp"
#include "bench/reports.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using driver::call;
using driver::EntryPoint;

struct Work {
  std::size_t bytes = 0;
  SleepableMemoryOptions options{};
  ContestOptions contest{};

  [[nodiscard]] double gibibytes() const noexcept { return static_cast<double>(bytes) / static_cast<double>(1_GiB); }
};

// Memory of the host that plain copies use, touched beforehand.
class HostMemory {
 public:
  HostMemory(const Driver& driver, std::size_t bytes, bool pinned) : driver_(driver), pinned_(pinned) {
    if (pinned_)
      call<EntryPoint::cuMemHostAlloc>(driver_.interface(), &data_, bytes, 0U);
    else
      data_ = std::malloc(bytes);
    if (data_ == nullptr) throw std::bad_alloc();
    touch({static_cast<std::byte*>(data_), bytes});
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  HostMemory(HostMemory&&) = delete;
  HostMemory& operator=(HostMemory&&) = delete;
  ~HostMemory() {
    if (pinned_)
      static_cast<void>(driver_.interface().cuMemFreeHost(data_));
    else
      std::free(data_);
  }
  [[nodiscard]] void* data() const noexcept { return data_; }

 private:
  // By several threads, since first touches are slow.
  static void touch(std::span<std::byte> bytes) {
    const std::size_t threads = std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
    const std::size_t part = bytes.size() / threads;
    std::vector<std::jthread> workers;
    for (std::size_t index = 0; index < threads; ++index)
      workers.emplace_back([=] {
        const auto mine = index + 1 < threads ? bytes.subspan(index * part, part) : bytes.subspan(index * part);
        std::memset(mine.data(), 1, mine.size());
      });
  }

  Driver driver_;
  bool pinned_;
  void* data_ = nullptr;
};

// Grown by appends of 64 MiB, with the chunks that this makes.
MappedRange range_of(const Driver& driver, std::size_t bytes) {
  auto range = MappedRange::create(driver, {.capacity = bytes});
  while (range.size() < bytes) range.append(std::min(bytes - range.size(), 64_MiB));
  return range;
}

void tell_speed(Turn& turn, const std::string& way, const Cost& cost, const Work& work) {
  turn.record(way, cost);
  if (!turn.meter().counts())
    turn.tell(way, {"in the last round", static_cast<double>(work.bytes) / cost.milliseconds / 1e6,
                    Unit::gigabytes_a_second});
}

template <class Copy>
void measure_copy(Turn& turn, const std::string& way, const Work& work, Copy&& copy) {
  tell_speed(turn, way, turn.meter().measure(std::forward<Copy>(copy)), work);
}

void copy_out(const Driver& driver, const HostMemory& host, DeviceAddress device, const Work& work) {
  call<EntryPoint::cuMemcpyDtoH>(driver.interface(), host.data(), device.value, work.bytes);
}
void copy_in(const Driver& driver, const HostMemory& host, DeviceAddress device, const Work& work) {
  call<EntryPoint::cuMemcpyHtoD>(driver.interface(), device.value, host.data(), work.bytes);
  call<EntryPoint::cuStreamSynchronize>(driver.interface(), nullptr);  // such copies may return before they are done
}

// The same as sleeping and waking in one allocation, by raw calls.
class RawMemory {
 public:
  RawMemory(const Driver& driver, std::size_t bytes) : calls_(driver.interface()), bytes_(bytes) {
    call<EntryPoint::cuMemAddressReserve>(calls_, &address_, bytes_, 0U, 0U, 0U);
    map();
  }
  RawMemory(const RawMemory&) = delete;
  RawMemory& operator=(const RawMemory&) = delete;
  RawMemory(RawMemory&&) = delete;
  RawMemory& operator=(RawMemory&&) = delete;
  ~RawMemory() {
    if (handle_ != 0) {
      calls_.cuMemUnmap(address_, bytes_);
      calls_.cuMemRelease(handle_);
    }
    calls_.cuMemAddressFree(address_, bytes_);
  }
  void map() {
    abi::CUmemAllocationProp properties{};
    properties.type = abi::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {abi::CU_MEM_LOCATION_TYPE_DEVICE, 0};
    const abi::CUmemAccessDesc access{properties.location, abi::CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    call<EntryPoint::cuMemCreate>(calls_, &handle_, bytes_, &properties, 0U);
    call<EntryPoint::cuMemMap>(calls_, address_, bytes_, 0U, handle_, 0U);
    call<EntryPoint::cuMemSetAccess>(calls_, address_, bytes_, &access, 1U);
  }
  void unmap() {
    call<EntryPoint::cuMemUnmap>(calls_, address_, bytes_);
    call<EntryPoint::cuMemRelease>(calls_, std::exchange(handle_, 0));
  }
  [[nodiscard]] DeviceAddress address() const noexcept { return DeviceAddress(address_); }

 private:
  driver::Interface& calls_;
  std::size_t bytes_;
  abi::CUdeviceptr address_ = 0;
  abi::CUmemGenericAllocationHandle handle_ = 0;
};

void pause(const Work& work) {
  if (work.contest.pause.count() > 0) std::this_thread::sleep_for(work.contest.pause);
}

void append(Report& report, std::vector<Way> ways) {
  for (Way& each : ways) report.ways.push_back(std::move(each));
}

// Sleeping and waking with a backup that is kept, against copies to and from the same kind of memory.
void compare_kept(const Meter& meter, SleepingContent kind, const Work& work, double goal, Report& report) {
  const Driver& driver = meter.driver();
  const std::string name(to_string(kind));
  const bool pinned = kind == SleepingContent::pinned;
  auto memory = SleepableMemory::create(driver, work.options);
  auto range = memory.add("group", range_of(driver, work.bytes), {.content = kind, .keep_backup = true});
  const HostMemory host(driver, work.bytes, pinned);
  const PlainMemory plain(driver, work.bytes);
  std::optional<RawMemory> raw;
  Contest contest(meter);
  contest.add([&](Turn& turn) {
    const DeviceAddress address(plain.address());
    measure_copy(turn, "plain copy out, " + name, work, [&] { copy_out(driver, host, address, work); });
    measure_copy(turn, "plain copy in, " + name, work, [&] { copy_in(driver, host, address, work); });
  });
  contest.add([&](Turn& turn) {
    measure_copy(turn, "sleep, " + name, work, [&] { memory.sleep("group"); });
    pause(work);
    measure_copy(turn, "wake, " + name, work, [&] { memory.wake("group"); });
  });
  report.ratios.push_back({"sleep, " + name, "plain copy out, " + name, true, goal});
  report.ratios.push_back({"wake, " + name, "plain copy in, " + name, true, goal});
  if (pinned) {
    raw.emplace(driver, work.bytes);
    contest.add([&](Turn& turn) {
      memory.sleep("group");
      measure_copy(turn, "wake, pinned, straight after sleep", work, [&] { memory.wake("group"); });
    });
    contest.add([&](Turn& turn) {
      measure_copy(turn, "raw: copy out, unmap, release", work, [&] {
        copy_out(driver, host, raw->address(), work);
        raw->unmap();
      });
      pause(work);
      measure_copy(turn, "raw: create, map, grant, copy in", work, [&] {
        raw->map();
        copy_in(driver, host, raw->address(), work);
      });
    });
    report.ratios.push_back({"wake, pinned, straight after sleep", "plain copy in, pinned", true});
    report.ratios.push_back({"sleep, pinned", "raw: copy out, unmap, release", true});
    report.ratios.push_back({"wake, pinned", "raw: create, map, grant, copy in", true});
  }
  append(report, contest.run(work.contest));
}

void discard(const Meter& meter, const Work& work, Report& report) {
  auto memory = SleepableMemory::create(meter.driver(), work.options);
  auto range = memory.add("group", range_of(meter.driver(), work.bytes), {.content = SleepingContent::discarded});
  const std::string sleep = "sleep, discarded";
  const std::string wake = "wake, discarded";
  const std::string at_once = "wake, discarded, straight after sleep";
  Contest contest(meter);
  contest.add([&](Turn& turn) {
    turn.measure(sleep, [&] { memory.sleep("group"); });
    pause(work);
    turn.measure(wake, [&] { memory.wake("group"); });
  });
  contest.add([&](Turn& turn) {
    memory.sleep("group");
    turn.measure(at_once, [&] { memory.wake("group"); });
  });
  append(report, contest.run(work.contest));
  report.limits.push_back({sleep, 2, "a GiB", work.gibibytes()});
  report.limits.push_back({wake, 1, "a GiB", work.gibibytes()});
  report.limits.push_back({at_once, 1, "a GiB", work.gibibytes()});
  report.notes.push_back(fmt::format("Chunks of the range: {}.", range.range().chunks().size()));
}

}  // namespace

Report report_sleep(const Meter& meter, const Settings& settings) {
  Work work;
  work.bytes = align_up(bytes_of(settings, meter, 32_GiB, 8_MiB), 2_MiB);
  work.contest = contest_options(
      settings, meter, {.on_gpu = {.rounds = 5, .pause = std::chrono::seconds(1)}, .on_emulator = {.rounds = 1}});
  work.contest.warming_rounds = 1;  // makes the backups
  work.options.copy_threads = settings.threads.value_or(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
  work.options.staging_bytes = settings.staging_bytes.value_or(meter.counts() ? 1_MiB : 256_MiB);
  Report report;
  report.title = fmt::format("{} that sleep and wake", format_bytes(work.bytes));
  report.settings = {in_words(work.contest) + " and while it sleeps",
                     fmt::format("{} threads", work.options.copy_threads),
                     fmt::format("{} of pinned memory to go through", format_bytes(work.options.staging_bytes))};
  compare_kept(meter, SleepingContent::pinned, work, 0.9, report);
  compare_kept(meter, SleepingContent::pageable, work, 2.5, report);
  discard(meter, work, report);
  return report;
}

}  // namespace cuvmm::bench
