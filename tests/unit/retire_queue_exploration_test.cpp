// Random interleavings of use, retirement, polling and the end of streams, events, contexts and graphs, on a strict
// machine whose work advances by seeded steps: to unmap memory under pending work is refused there, and so seen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "retirement.hpp"

namespace cuvmm {
namespace {

using namespace test;

class Exploration {
 public:
  explicit Exploration(std::uint64_t seed)
      : random_(seed), machine_(strict_machine(emulator::Scheduler::stepped, seed)) {
    call<EntryPoint::cuDevicePrimaryCtxRetain>(machine_.api(), &second_, 1);
    for (int count = 0; count < 2; ++count) add_stream();
  }

  // Ends with everything released; what went wrong is told to the handler.
  void run(int steps) {
    for (int step = 0; step < steps; ++step) take_step();
    finish();
  }

 private:
  struct Stream {
    CUstream handle = nullptr;
    int place = 0;                         // whose context: 0 and 1 the devices' primary ones, else a created one
    std::optional<CaptureId> capturing{};  // by this stream
  };
  struct Range {
    std::optional<Mapping> mapping;
    std::unique_ptr<StreamUses> uses;
  };
  struct Graph {
    CaptureId id;
    CUgraph graph = nullptr;
  };

  std::size_t below(std::size_t bound) { return random_() % bound; }

  CUstream stream_in(CUcontext context, unsigned flags) {
    call<EntryPoint::cuCtxPushCurrent>(machine_.api(), context);
    const CUstream stream = machine_.stream(flags);
    CUcontext popped = nullptr;
    call<EntryPoint::cuCtxPopCurrent>(machine_.api(), &popped);
    return stream;
  }

  void add_stream() {
    const int place = static_cast<int>(below(created_ ? 3 : 2));
    const CUcontext context = place == 0 ? machine_.context() : place == 1 ? second_ : created_->handle();
    streams_.push_back({stream_in(context, below(2) == 0 ? CU_STREAM_NON_BLOCKING : 0), place, {}});
  }

  void add_range() { ranges_.push_back({machine_.mapped(), std::make_unique<StreamUses>(machine_.driver())}); }

  // Named first or used first: both are allowed.
  void use() {
    if (ranges_.empty() || streams_.empty()) return;
    Range& range = ranges_[below(ranges_.size())];
    Stream& stream = streams_[below(streams_.size())];
    const bool named_first = below(2) == 0;
    if (named_first) range.uses->used_on(stream.handle);
    machine_.use(*range.mapping, stream.handle);
    if (!named_first) range.uses->used_on(stream.handle);
  }

  void use_default_stream() {
    if (ranges_.empty() || capturing()) return;
    Range& range = ranges_[below(ranges_.size())];
    const CUstream stream = below(2) == 0 ? nullptr : per_thread_stream();
    machine_.use(*range.mapping, stream);
    range.uses->used_on(stream);
  }

  void use_until_event() {
    if (ranges_.empty() || streams_.empty()) return;
    Range& range = ranges_[below(ranges_.size())];
    const Stream& stream = streams_[below(streams_.size())];
    if (stream.place != 0 || stream.capturing) return;
    CUevent event = nullptr;
    call<EntryPoint::cuEventCreate>(machine_.api(), &event, 0U);
    machine_.use(*range.mapping, stream.handle);
    call<EntryPoint::cuEventRecord>(machine_.api(), event, stream.handle);
    range.uses->used_until(event);
    if (below(2) == 0) call<EntryPoint::cuEventRecord>(machine_.api(), event, stream.handle);
    call<EntryPoint::cuEventDestroy>(machine_.api(), event);
  }

  void retire() {
    if (ranges_.empty()) return;
    const std::size_t index = below(ranges_.size());
    Range& range = ranges_[index];
    PendingWork work = range.uses->so_far();
    queue_->retire(*std::exchange(range.mapping, std::nullopt), std::move(work), 2_MiB);
    // Kept, since a stream that is captured has to be forgotten by it before it is destroyed.
    retired_uses_.push_back(std::move(ranges_[index]));
    ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  [[nodiscard]] bool capturing() const {
    for (const Stream& stream : streams_)
      if (stream.capturing) return true;
    return false;
  }

  void begin_capture() {
    if (streams_.empty() || capturing()) return;
    Stream& stream = streams_[below(streams_.size())];
    constexpr CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                             CU_STREAM_CAPTURE_MODE_RELAXED};
    machine_.begin_capture(stream.handle, modes[below(3)]);
    StreamUses probe(machine_.driver());
    stream.capturing = probe.used_on(stream.handle);
  }

  void end_capture() {
    for (Stream& stream : streams_)
      if (stream.capturing) {
        Graph graph{*stream.capturing, machine_.end_capture(stream.handle)};
        graphs_.push_back(graph);
        stream.capturing.reset();
      }
  }

  void drop_graph() {
    if (graphs_.empty()) return;
    const std::size_t index = below(graphs_.size());
    call<EntryPoint::cuGraphDestroy>(machine_.api(), graphs_[index].graph);
    queue_->graph_gone(graphs_[index].id);
    for (Range& range : ranges_) range.uses->graph_gone(graphs_[index].id);
    graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void destroy_stream() {
    if (streams_.size() < 2) return;
    const std::size_t index = below(streams_.size());
    if (streams_[index].capturing) return;
    end_stream(streams_[index].handle);
    streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void end_stream(CUstream stream) {
    for (auto* ranges : {&ranges_, &retired_uses_})
      for (Range& range : *ranges) range.uses->no_longer_used_on(stream);
    machine_.destroy(stream);
  }

  // With all that pends in it, or in order.
  void end_created_context() {
    if (!created_ || capturing()) return;
    const bool in_order = below(2) == 0;
    for (std::size_t index = streams_.size(); index-- > 0;) {
      if (streams_[index].place != 2) continue;
      if (in_order) end_stream(streams_[index].handle);
      streams_.erase(streams_.begin() + static_cast<std::ptrdiff_t>(index));
    }
    if (in_order) {
      const Result<void> drained = queue_->drain_for(60s);
      EXPECT_TRUE(drained || drained.failure().kind == ErrorKind::invalid_use) << drained.failure().message();
    }
    created_->destroy();
    created_.reset();
  }

  void take_step() {
    switch (below(16)) {
      case 0:
      case 1:
        return add_range();
      case 2:
      case 3:
      case 4:
      case 5:
        return use();
      case 6:
        return use_default_stream();
      case 7:
        return use_until_event();
      case 8:
      case 9:
        return retire();
      case 10:
        return static_cast<void>(queue_->poll());
      case 11:
        return capturing() ? end_capture() : begin_capture();
      case 12:
        return drop_graph();
      case 13:
        return below(2) == 0 ? add_stream() : destroy_stream();
      case 14:
        if (created_) return end_created_context();
        created_.emplace(machine_);
        return;
      default:
        return static_cast<void>(queue_->reclaim(2_MiB, std::chrono::steady_clock::now()));
    }
  }

  void finish() {
    end_capture();
    while (!graphs_.empty()) drop_graph();
    while (!ranges_.empty()) retire();
    const Result<void> drained = queue_->drain_for(60s);
    EXPECT_TRUE(drained) << drained.failure().message();
    EXPECT_EQ(queue_->pending(), 0u);
  }

  std::mt19937_64 random_;
  RetirementMachine machine_;
  std::optional<CreatedContext> created_;
  CUcontext second_ = nullptr;  // of device 1
  std::shared_ptr<RetireQueue> queue_ = RetireQueue::create(machine_.driver(), {.max_pending = 256});
  std::vector<Stream> streams_;
  std::vector<Range> ranges_;
  std::vector<Range> retired_uses_;
  std::vector<Graph> graphs_;
};

TEST(RetireQueueExploration, NothingIsUnmappedUnderPendingWork) {
  const bool thorough = std::getenv("CUVMM_TEST_LONG") != nullptr;
  const std::uint64_t seeds = thorough ? 20000 : 1000;
  SafeRecordingHandler handler;
  for (std::uint64_t seed = 1; seed <= seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Exploration(seed).run(100);
    for (const Failure& failure : handler.take()) ADD_FAILURE() << failure.message();
  }
}

}  // namespace
}  // namespace cuvmm
