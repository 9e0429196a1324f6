// Asking what the device has done. Nothing is recorded as long as nobody wants what was freed on another stream.
#include <algorithm>

#include "backoff.hpp"
#include "pool/device_pool.hpp"

namespace cuvmm::pool {

void DevicePool::poll() {
  Streams asked;
  {
    const Lock lock(mutex_);
    for (const auto& each : streams_) {
      if (!each || !each->has_unripe() || each->being_asked) continue;
      asked.push_back(each);
      each->being_asked = true;
    }
  }
  for (const auto& each : asked) ask(*each);
  ask_deferred();
}

// What the stream was given so far. Of a capture that it is in, only a pool for captures has memory that the graph
// uses.
PendingWork DevicePool::work_of(PoolStream& stream) const {
  PendingWork work = stream.uses.so_far();
  if (!setting_.for_capture)
    for (const CaptureId capture : work.held_captures()) stream.uses.graph_gone(capture);
  return work;
}

// Also what was out of the books when the device was found to be done.
void DevicePool::ripen(const PoolStream& stream) {
  packed_.ripen(stream.number, stream.done);
  spans_.ripen(stream.number, stream.done);
}

void DevicePool::ask(PoolStream& stream) {
  // What is done may have been asked for long ago: then once more, for what was freed since.
  for (int round = 0; round < 2; ++round) {
    std::optional<PendingWork> work;
    std::uint64_t at = 0;
    {
      const Lock lock(mutex_);
      work = std::exchange(stream.asked, std::nullopt);
      at = work ? stream.asked_at : stream.freed;
      if (!work) ++numbers_.calls.events;
    }
    bool done = false;
    try {
      if (!work) work = work_of(stream);
      done = work->is_done();
    } catch (const std::bad_alloc&) {  // asked another time
    }
    const Lock lock(mutex_);
    if (done) {
      stream.done = std::max(stream.done, at);
      ripen(stream);
      ++progress_;
    } else if (work) {
      stream.asked = std::move(work);
      stream.asked_at = at;
    }
    stream.being_asked = done && round == 0 && stream.has_unripe();
    if (!stream.being_asked) return;
  }
}

void DevicePool::ask_deferred() {
  std::list<Deferred> asked;
  {
    const Lock lock(mutex_);
    asked.swap(deferred_);
    asking_deferred_ += asked.empty() ? 0 : 1;
  }
  if (asked.empty()) return;
  std::list<Deferred> done;
  for (auto each = asked.begin(); each != asked.end();) {
    const auto next = std::next(each);
    if (each->work.is_done()) done.splice(done.end(), asked, each);
    each = next;
  }
  const Lock lock(mutex_);
  --asking_deferred_;
  for (const Deferred& each : done) give(each.offset, {});
  if (!done.empty()) ++progress_;
  deferred_.splice(deferred_.begin(), asked);
}

// Streams that were destroyed without forget(): nothing tells any more where their work has come to.
void DevicePool::look_for_destroyed_streams() {
  Streams asked;
  {
    const Lock lock(mutex_);
    for (const auto& [key, stream] : by_key_)
      if (!is_default_stream(stream->handle)) asked.push_back(stream);
  }
  for (const auto& each : asked) {
    abi::CUstreamCaptureStatus status = abi::CU_STREAM_CAPTURE_STATUS_NONE;
    const abi::CUresult code =
        setting_.driver.interface().cuStreamGetCaptureInfo(each->handle, &status, nullptr, nullptr, nullptr, nullptr);
    const Lock lock(mutex_);
    each->destroyed = code == abi::CUDA_ERROR_INVALID_HANDLE;
  }
}

bool DevicePool::anything_awaited() const {
  if (in_flight_ != 0 || asking_deferred_ != 0 || !deferred_.empty()) return true;
  return std::any_of(streams_.begin(), streams_.end(), [](const auto& each) { return each && each->has_unripe(); });
}

bool DevicePool::waiting_may_help() const {
  if (in_flight_ != 0 || asking_deferred_ != 0 || !deferred_.empty()) return true;
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& each) { return each && each->has_unripe() && !each->destroyed; });
}

bool DevicePool::wait_for_progress(Clock::time_point deadline) {
  std::uint64_t before = 0;
  std::size_t others = 0;
  {
    const Lock lock(mutex_);
    before = progress_;
    others = in_flight_;
  }
  for (Backoff backoff;; backoff.pause(deadline)) {
    poll();
    {
      const Lock lock(mutex_);
      if (progress_ != before || in_flight_ < others) return true;
      if (!waiting_may_help()) return false;
    }
    if (Clock::now() >= deadline) return false;
  }
}

// Captures end with their graphs, of which the caller says that they are gone.
bool DevicePool::drain(Clock::time_point deadline) {
  Streams streams;
  {
    const Lock lock(mutex_);
    streams = streams_;
  }
  for (const auto& each : streams) {
    if (!each) continue;
    for (const CaptureId capture : each->uses.so_far().held_captures()) each->uses.graph_gone(capture);
  }
  for (;;) {
    poll();
    {
      const Lock lock(mutex_);
      if (!waiting_may_help()) return numbers_.live_allocations == 0 && !anything_awaited();
    }
    if (!wait_for_progress(deadline) && Clock::now() >= deadline) return false;
  }
}

}  // namespace cuvmm::pool
