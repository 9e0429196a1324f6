// Which work of the device may still use some memory, and waiting for it.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <memory>
#include <optional>
#include <vector>

#include "cuvmm/driver.hpp"
#include "cuvmm/result.hpp"

struct CUevent_st;
struct CUstream_st;

namespace cuvmm {

// The number of a stream capture, one of a kind in its driver (cuStreamGetCaptureInfo).
struct CaptureId {
  unsigned long long value = 0;

  friend constexpr auto operator<=>(const CaptureId&, const CaptureId&) noexcept = default;
};

// Work that has to be done before some memory may be unmapped: what streams were given up to a moment, and graphs that
// may still run. Driver calls do not wait for that by themselves (cuMemUnmap, guide 4.16.2.4).
//
// Where a context has ended (cuCtxDestroy, cuDevicePrimaryCtxReset) or failed (an illegal address, say), its work is
// over. A failure is not swallowed: waiting returns it; is_done() passes it to the clean-up failure handler, once for
// each context.
//
// Asking neither disturbs captures (cuThreadExchangeStreamCaptureMode) nor changes the thread's current context. Within
// host functions (cuLaunchHostFunc), where the driver may not be called, the answer is "not done".
//
// A value that is moved only; one that is made or left empty waits for nothing. Different objects may be used from
// different threads, also if they come from the same StreamUses.
class PendingWork {
 public:
  PendingWork() noexcept;
  PendingWork(PendingWork&& other) noexcept;
  PendingWork& operator=(PendingWork&& other) noexcept;
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;
  ~PendingWork();

  // Whether all of it is done. Never waits for the device. One cuEventQuery for each event that is open.
  [[nodiscard]] bool is_done();

  // Waits until all of it is done. Failures: TimedOut, which tells how much is open; InvalidUse at once if a graph may
  // still run, since nothing but graph_gone() ends that; NotPermitted at once within a host function; what a context
  // failed with, and then the work is over.
  [[nodiscard]] Result<void> wait_until(std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] Result<void> wait_for(std::chrono::nanoseconds duration);

  // Takes over what the other one waits for. Throws InvalidUse, with both unchanged, if they are of different drivers.
  void merge(PendingWork&& other);

  // As StreamUses::graph_gone: for this work and all that came from the same StreamUses. Whether that capture was held.
  bool graph_gone(CaptureId capture) noexcept;

  // The captures whose graphs may still run, in ascending order.
  [[nodiscard]] std::vector<CaptureId> held_captures() const;

 private:
  friend class StreamUses;
  friend class RetireQueue;
  class State;

  explicit PendingWork(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;  // null: nothing to wait for
};

// The streams, events and captures whose work may use some memory. Tell it of each before the work is given to the
// stream or after, but before so_far() is asked, which stands between the uses and the release:
//
//   uses.used_on(stream);                       // once for a stream
//   PendingWork work = uses.so_far();           // when the memory is not used any more
//   work.wait_for(std::chrono::seconds(10)).value();  // or RetireQueue::retire(owner, work); then it may be unmapped
//
// A MappedRange has one of its own, MappedRange::uses(), and asks it by itself.
//
// Thread-safe. No lock is held while the device is waited for.
//
// What the program has to do:
// - Call no_longer_used_on() before it destroys a stream, and before a thread ends whose CU_STREAM_PER_THREAD it named.
// - Call used_on() in each capture that uses the memory.
// - Before it destroys a created context: that for each of its streams, and wait for the pending work of it (or drain
//   the queue that has it). Primary contexts are kept as long as they are needed; resetting one
//   (cuDevicePrimaryCtxReset) is the same as destroying it.
// - Begin no capture in a stream, nor in a blocking stream where the legacy default stream is used, while another
//   thread calls so_far().
class StreamUses {
 public:
  explicit StreamUses(const Driver& driver);
  StreamUses(const StreamUses&) = delete;
  StreamUses& operator=(const StreamUses&) = delete;
  StreamUses(StreamUses&&) = delete;
  StreamUses& operator=(StreamUses&&) = delete;
  ~StreamUses();

  // Work given to this stream so far and from now on may use the memory. The default streams (null, CU_STREAM_LEGACY,
  // CU_STREAM_PER_THREAD) are those of the current context, and of the calling thread. If the stream is being captured,
  // the graph may use the memory as well: it is held until graph_gone(), and the capture's number is the answer. Throws
  // Error if the driver refuses the stream, or within a host function.
  std::optional<CaptureId> used_on(CUstream_st* stream);

  // Work that this stream is given from now on does not use the memory any more: records where its work has come to,
  // and forgets the stream, which may be destroyed after that. One that is not remembered is left alone. Throws
  // InvalidUse while the stream is being captured, Error if the driver fails; the stream is then still remembered. Of a
  // stream that was destroyed before (the driver answers INVALID_HANDLE) it waits for all work of the context.
  void no_longer_used_on(CUstream_st* stream);

  // Work that this event stands for now may use the memory. The event may be recorded again or destroyed at once after:
  // an event of the library's own takes its place. Needs a current context, of any device. An event that was recorded
  // in a capture stands for the capture, whose number is then the answer, as for used_on(). Throws Error if the driver
  // refuses the event.
  std::optional<CaptureId> used_until(CUevent_st* event);

  // The graph of that capture and all that was instantiated from it are destroyed, and their launches are done: they no
  // longer use the memory. Also for PendingWork that came from here.
  void graph_gone(CaptureId capture) noexcept;

  // What has to be done before memory may be unmapped that is given no more work: a snapshot, of one event for each
  // remembered stream, recorded now, and the captures that are held. In a stream that is being captured nothing is
  // recorded; its capture is held, and the record is made when the capture has ended. So it is, too, where the driver
  // cannot record now, within a host function above all: such a stream has to live until the work is done or
  // no_longer_used_on() is told of it. Throws std::bad_alloc alone.
  [[nodiscard]] PendingWork so_far();

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }

 private:
  class State;

  std::atomic<bool> used_ = false;  // something was told of; the common case of none is quick
  std::unique_ptr<State> state_;
  Driver driver_;
};

}  // namespace cuvmm
