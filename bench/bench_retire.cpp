// What retiring memory behind work of the device, and re-using it, costs the thread that calls.
//
//   bench_retire [--driver auto|cuda|emulated] [--mib N] [--rounds N]
//
// Each round gives a stream something to do, retires the memory behind it, waits for the stream, has the queue give
// back what is done, and takes memory of that size from the source again; all but the waiting is timed. Once for memory
// alone, which takes no call of virtual memory management, and once for the end of a range, which is unmapped, mapped
// and granted again. Times mean something on a GPU only; the calls that are counted do everywhere.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <string>
#include <vector>

#include "chosen_driver.hpp"
#include "driver/call.hpp"
#include "driver/counting_driver.hpp"
#include "paired.hpp"

namespace {

using namespace cuvmm;
using driver::call;
using driver::EntryPoint;

// Microseconds of each part of a round.
struct Samples {
  std::vector<double> retire, give_back, reuse, together;
};

class Bed {
 public:
  Bed(const Driver& driver, std::size_t bytes)
      : driver_(driver),
        bytes_(bytes),
        source_(PhysicalSource::create(driver, {.budgets = {}, .recycle_limit = 4 * bytes})),
        queue_(RetireQueue::create(driver)),
        uses_(driver),
        scratch_(MappedRange::create(driver, {.capacity = bytes})),
        range_(MappedRange::create(
            driver, {.capacity = bytes, .chunks = ChunkPolicy::exact(), .source = source_, .retire_queue = queue_})) {
    scratch_.append(bytes);
    call<EntryPoint::cuStreamCreate>(driver_.interface(), &stream_, abi::CU_STREAM_NON_BLOCKING);
    uses_.used_on(stream_);
    range_.used_on(stream_);
  }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;
  Bed(Bed&&) = delete;
  Bed& operator=(Bed&&) = delete;
  ~Bed() {
    range_.no_longer_used_on(stream_);
    uses_.no_longer_used_on(stream_);
    static_cast<void>(driver_.interface().cuStreamSynchronize(stream_));
    static_cast<void>(driver_.interface().cuStreamDestroy(stream_));
  }

  void memory_alone(Samples& samples) {
    SharedPhysicalMemory memory = source_->acquire({}, bytes_);
    const MemoryProperties properties = memory.properties();
    round(
        samples, [&] { queue_->retire(std::move(memory), uses_.so_far(), bytes_); },
        [&] { memory = source_->acquire(properties, bytes_); });
  }

  void end_of_a_range(Samples& samples) {
    if (range_.size() == 0) range_.append(bytes_);
    round(
        samples, [&] { range_.truncate(0); }, [&] { range_.append(bytes_); });
  }

 private:
  template <class Retire, class Reuse>
  void round(Samples& samples, Retire&& retire, Reuse&& reuse) {
    call<EntryPoint::cuMemsetD8Async>(driver_.interface(), scratch_.address().value, static_cast<unsigned char>(1),
                                      bytes_, stream_);
    samples.retire.push_back(1000 * bench::milliseconds(retire));
    call<EntryPoint::cuStreamSynchronize>(driver_.interface(), stream_);
    samples.give_back.push_back(1000 * bench::milliseconds([&] { queue_->poll(); }));
    samples.reuse.push_back(1000 * bench::milliseconds(reuse));
    samples.together.push_back(samples.retire.back() + samples.give_back.back() + samples.reuse.back());
  }

  Driver driver_;
  std::size_t bytes_;
  std::shared_ptr<PhysicalSource> source_;
  std::shared_ptr<RetireQueue> queue_;
  StreamUses uses_;
  MappedRange scratch_;
  MappedRange range_;
  abi::CUstream stream_ = nullptr;
};

template <class Round>
void measure(const char* name, int rounds, driver::CountingDriver& calls, Round&& round) {
  Samples samples;
  for (int i = 0; i < 1 + rounds / 10; ++i) round(samples);  // not counted
  samples = {};
  calls.reset();
  for (int i = 0; i < rounds; ++i) round(samples);
  const auto median = [](std::vector<double>& each) { return bench::median_of(std::move(each)).value; };
  const bench::Estimate together = bench::median_of(std::move(samples.together));
  fmt::print("{:<15}  {:>7.2f}  {:>9.2f}  {:>7.2f}  {:.2f} ({:.2f} to {:.2f})\n", name, median(samples.retire),
             median(samples.give_back), median(samples.reuse), together.value, together.low, together.high);
  std::string counted;
  for (const auto& [entry, count] : calls.snapshot().called())
    counted += fmt::format("{}{} {:.2f}", counted.empty() ? "" : ", ", driver::name(entry),
                           static_cast<double>(count) / rounds);
  fmt::print("    calls a round: {}\n", counted);
}

void run(const Driver& chosen, std::size_t bytes, int rounds) {
  const auto calls = std::make_shared<driver::CountingDriver>(chosen.shared_interface());
  const Driver driver = Driver::wrap(calls);
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  Bed bed(driver, bytes);
  fmt::print("{}\n{} rounds with {}: medians in microseconds, the last with its 95 % interval\n\n",
             driver.description(), rounds, format_bytes(bytes));
  fmt::print("{:<15}  {:>7}  {:>9}  {:>7}  {}\n", "", "retire", "give back", "re-use", "together");
  measure("memory alone", rounds, *calls, [&](Samples& samples) { bed.memory_alone(samples); });
  measure("end of a range", rounds, *calls, [&](Samples& samples) { bed.end_of_a_range(samples); });
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app("retiring memory behind work of the device, and re-using it");
  app.allow_extras();  // the other benchmarks' options
  std::string name = "auto";
  std::size_t mib = 2;
  int rounds = 2000;
  app.add_option("--driver", name, "auto, cuda or emulated")->check(CLI::IsMember({"auto", "cuda", "emulated"}));
  app.add_option("--mib", mib, "how much memory at a time, a multiple of 2")->check(CLI::Range(2, 65'536));
  app.add_option("--rounds", rounds, "how many")->check(CLI::Range(10, 1'000'000));
  CLI11_PARSE(app, count, arguments);
  try {
    run(bench::chosen_driver(name), (mib + 1) / 2 * 2 << 20, rounds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_retire: {}\n", error.what());
    return 1;
  }
  return 0;
}
