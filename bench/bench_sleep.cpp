// What putting memory to sleep and waking it costs, against plain copies of the same bytes in the same run.
//
//   bench_sleep [--driver auto|cuda|emulated] [--mib N] [--rounds N] [--threads N] [--staging-mib N]
//
// Each round copies the range to the host and back by single driver calls, then sleeps and wakes, or the other way
// round. Backups are kept, and so touched, as is the memory of the plain copies: what is compared is copying. Times
// mean something on a GPU only.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "chosen_driver.hpp"
#include "driver/call.hpp"
#include "paired.hpp"

namespace {

using namespace cuvmm;
using namespace std::chrono_literals;
using driver::call;
using driver::EntryPoint;

struct Settings {
  std::size_t bytes = 0;
  int rounds = 5;
  SleepableMemoryOptions options{};
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
    std::memset(data_, 1, bytes);
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
  Driver driver_;
  bool pinned_;
  void* data_ = nullptr;
};

MappedRange range_of(const Driver& driver, std::size_t bytes) {
  auto range = MappedRange::create(driver, {.capacity = bytes});
  range.append(bytes);
  return range;
}

void print(std::string_view what, const bench::Estimate& ours, const bench::Estimate& plain, std::size_t bytes) {
  const double gibibytes = static_cast<double>(bytes) / static_cast<double>(1_GiB);
  fmt::print("{:<22} {:>10.1f} {:>10.1f} {:>10.2f} {:>14.2f} ({:.2f} to {:.2f})\n", what, plain.value, ours.value,
             gibibytes / ours.value * 1e3, plain.value / ours.value, plain.low / ours.high, plain.high / ours.low);
}

// Sleeping and waking with a backup that is kept, against copies to and from the same kind of memory.
void compare(const Driver& driver, SleepingContent kind, const Settings& settings) {
  auto memory = SleepableMemory::create(driver, settings.options);
  auto range = memory.add("group", range_of(driver, settings.bytes), {.content = kind, .keep_backup = true});
  const HostMemory host(driver, settings.bytes, kind == SleepingContent::pinned);
  const DeviceAddress address = range.address();
  std::vector<double> out, in, asleep, awake;
  const auto plain = [&] {
    out.push_back(bench::milliseconds(
        [&] { call<EntryPoint::cuMemcpyDtoH>(driver.interface(), host.data(), address.value, settings.bytes); }));
    in.push_back(bench::milliseconds([&] {
      call<EntryPoint::cuMemcpyHtoD>(driver.interface(), address.value, host.data(), settings.bytes);
      call<EntryPoint::cuStreamSynchronize>(driver.interface(), nullptr);
    }));
  };
  const auto ours = [&] {
    asleep.push_back(bench::milliseconds([&] { memory.sleep("group"); }));
    awake.push_back(bench::milliseconds([&] { memory.wake("group"); }));
  };
  plain();
  ours();  // allocates the backup
  for (auto* each : {&out, &in, &asleep, &awake}) each->clear();
  for (int round = 0; round < settings.rounds; ++round) {
    if (round % 2 == 0) plain();
    ours();
    if (round % 2 != 0) plain();
  }
  const std::string name(to_string(kind));
  print("sleep, " + name, bench::median_of(asleep), bench::median_of(out), settings.bytes);
  print("wake, " + name, bench::median_of(awake), bench::median_of(in), settings.bytes);
}

void discard(const Driver& driver, const Settings& settings, std::chrono::seconds pause) {
  auto memory = SleepableMemory::create(driver, settings.options);
  auto range = memory.add("group", range_of(driver, settings.bytes), {.content = SleepingContent::discarded});
  std::vector<double> asleep, awake;
  for (int round = 0; round < settings.rounds; ++round) {
    asleep.push_back(bench::milliseconds([&] { memory.sleep("group"); }));
    std::this_thread::sleep_for(pause);
    awake.push_back(bench::milliseconds([&] { memory.wake("group"); }));
    std::this_thread::sleep_for(pause);
  }
  const double gibibytes = static_cast<double>(settings.bytes) / static_cast<double>(1_GiB);
  fmt::print("content discarded, {} s of pause: sleep {:.2f} ms a GiB, wake {:.2f} ms a GiB, {} chunks\n",
             pause.count(), bench::median_of(asleep).value / gibibytes, bench::median_of(awake).value / gibibytes,
             range.range().chunks().size());
}

void run(const Driver& driver, const Settings& settings) {
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  fmt::print("{}\n{}, {} rounds, {} threads, {} of staging\n\n", driver.description(), format_bytes(settings.bytes),
             settings.rounds, settings.options.copy_threads, format_bytes(settings.options.staging_bytes));
  fmt::print("{:<22} {:>10} {:>10} {:>10} {:>14}\n", "", "plain, ms", "ours, ms", "GiB/s", "plain / ours");
  compare(driver, SleepingContent::pinned, settings);
  compare(driver, SleepingContent::pageable, settings);
  const std::chrono::seconds pause = driver.is_emulated() ? 0s : 3s;
  fmt::print("\n");
  discard(driver, settings, 0s);
  if (pause != 0s) discard(driver, settings, pause);
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("sleeping and waking against plain copies");
  app.allow_extras();  // the other benchmarks' options
  std::string name = "auto";
  std::size_t mib = 0;
  std::size_t staging_mib = 64;
  Settings settings;
  app.add_option("--driver", name, "auto, cuda or emulated")->check(CLI::IsMember({"auto", "cuda", "emulated"}));
  app.add_option("--mib", mib, "size of the range; 8192 on a GPU, 64 on the emulated driver unless given");
  app.add_option("--rounds", settings.rounds, "how many")->check(CLI::Range(1, 1000));
  app.add_option("--threads", settings.options.copy_threads, "that copy pageable memory")->check(CLI::Range(1, 64));
  app.add_option("--staging-mib", staging_mib, "pinned memory that they copy through")->check(CLI::Range(1, 4096));
  CLI11_PARSE(app, count, arguments);
  try {
    const Driver driver = bench::chosen_driver(name);
    if (mib == 0) mib = driver.is_emulated() ? 64 : 8192;
    settings.bytes = mib << 20;
    settings.options.staging_bytes = staging_mib << 20;
    run(driver, settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_sleep: {}\n", error.what());
    return 1;
  }
  return 0;
}
