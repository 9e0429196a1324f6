// What retiring memory behind work of the device, and re-using it, costs the thread that calls. Each turn gives a
// stream something to do, retires the memory behind it, waits for the stream, has the queue give back what is done, and
// takes memory of that size again; all but the waiting is measured. Once for memory alone, which takes no call of
// virtual memory management, and once for the end of a range, which is unmapped, mapped and granted again.
#include <fmt/format.h>

#include <cuvmm/cuvmm.hpp>
#include <memory>
#include <string>

#include "bench/kernels.hpp"
#include "bench/reports.hpp"
#include "driver/call.hpp"

namespace cuvmm::bench {
namespace {

using driver::call;
using driver::EntryPoint;

class Bed {
 public:
  Bed(const Driver& driver, std::size_t bytes)
      : driver_(driver),
        bytes_(bytes),
        source_(PhysicalSource::create(driver, {.budgets = {}, .recycle_limit = 4 * bytes})),
        queue_(RetireQueue::create(driver)),
        stream_(driver),
        uses_(driver),
        scratch_(driver, bytes),
        range_(MappedRange::create(
            driver, {.capacity = bytes, .chunks = ChunkPolicy::exact(), .source = source_, .retire_queue = queue_})) {
    uses_.used_on(stream_.handle());
    range_.used_on(stream_.handle());
    call<EntryPoint::cuMemAllocAsync>(driver_.interface(), &pooled_, bytes_, stream_.handle());
  }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;
  Bed(Bed&&) = delete;
  Bed& operator=(Bed&&) = delete;
  ~Bed() {
    driver_.interface().cuMemFreeAsync(pooled_, stream_.handle());
    range_.no_longer_used_on(stream_.handle());
    uses_.no_longer_used_on(stream_.handle());
  }

  void memory_alone(Turn& turn, const std::string& way) {
    SharedPhysicalMemory memory = source_->acquire({}, bytes_);
    const MemoryProperties properties = memory.properties();
    round(
        turn, way, [&] { queue_->retire(std::move(memory), uses_.so_far(), bytes_); },
        [&] { memory = source_->acquire(properties, bytes_); });
  }
  void end_of_a_range(Turn& turn, const std::string& way) {
    if (range_.size() == 0) range_.append(bytes_);
    round(
        turn, way, [&] { range_.truncate(0); }, [&] { range_.append(bytes_); });
  }
  void pool(Turn& turn, const std::string& way) {
    give_work();
    turn.measure(way, [&] {
      call<EntryPoint::cuMemFreeAsync>(driver_.interface(), pooled_, stream_.handle());
      call<EntryPoint::cuMemAllocAsync>(driver_.interface(), &pooled_, bytes_, stream_.handle());
    });
    stream_.wait();
  }

 private:
  void give_work() {
    call<EntryPoint::cuMemsetD8Async>(driver_.interface(), scratch_.address(), static_cast<unsigned char>(1), bytes_,
                                      stream_.handle());
  }
  template <class Retire, class Reuse>
  void round(Turn& turn, const std::string& way, Retire&& retire, Reuse&& reuse) {
    give_work();
    const Cost retiring = turn.meter().measure(retire);
    stream_.wait();
    const Cost giving_back = turn.meter().measure([&] { queue_->poll(); });
    const Cost reusing = turn.meter().measure(reuse);
    turn.record(way, retiring + giving_back + reusing);
    turn.record(way + ": retire", retiring);
    turn.record(way + ": give back", giving_back);
    turn.record(way + ": re-use", reusing);
  }

  Driver driver_;
  std::size_t bytes_;
  std::shared_ptr<PhysicalSource> source_;
  std::shared_ptr<RetireQueue> queue_;
  Stream stream_;
  StreamUses uses_;
  PlainMemory scratch_;
  MappedRange range_;
  abi::CUdeviceptr pooled_ = 0;
};

}  // namespace

Report report_retire(const Meter& meter, const Settings& settings) {
  const std::size_t bytes = align_up(bytes_of(settings, meter, 2_MiB, 2_MiB), 2_MiB);
  ContestOptions options =
      contest_options(settings, meter, {.on_gpu = {.rounds = 2000}, .on_emulator = {.rounds = 10}});
  options.warming_rounds = 1 + options.rounds / 10;
  const std::string memory = "memory alone";
  const std::string range = "end of a range";
  const std::string pool = "cuMemFreeAsync + cuMemAllocAsync";
  Bed bed(meter.driver(), bytes);
  Contest contest(meter);
  contest.add([&](Turn& turn) { bed.memory_alone(turn, memory); });
  contest.add([&](Turn& turn) { bed.end_of_a_range(turn, range); });
  contest.add([&](Turn& turn) { bed.pool(turn, pool); });
  Report report;
  report.title = fmt::format("{} retired behind work of a stream, given back and taken again", format_bytes(bytes));
  report.settings = {in_words(options)};
  report.ways = contest.run(options);
  report.ratios = {{memory, pool}, {range, pool}};
  report.limits = {{memory, 0.005}};
  return report;
}

}  // namespace cuvmm::bench
