// The execution engine of the emulated driver: streams, events, capture and graphs over abstract operations.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/answer.hpp"
#include "emulator/execution/capture.hpp"
#include "emulator/execution/context.hpp"
#include "emulator/execution/event.hpp"
#include "emulator/execution/graph.hpp"
#include "emulator/execution/operation.hpp"
#include "emulator/execution/put_off_end.hpp"
#include "emulator/execution/scheduler.hpp"
#include "emulator/execution/scheduling.hpp"
#include "emulator/execution/stream.hpp"

namespace cuvmm::emulator::execution {

using ContextPointer = std::shared_ptr<Context>;
using StreamPointer = std::shared_ptr<Stream>;
using EventPointer = std::shared_ptr<Event>;
using GraphPointer = std::shared_ptr<Graph>;
using GraphExecPointer = std::shared_ptr<const GraphExec>;

// What first_unfinished_touching() finds.
struct UnfinishedOperation {
  std::uint64_t context = 0;  // Context::id
  std::uint64_t stream = 0;   // Stream::id
  OperationKind kind = OperationKind::kernel;
  std::string description{};
  TouchedRange range{};
};

// What cuStreamGetCaptureInfo tells. All but `status` is empty unless a capture is active.
struct CaptureInfo {
  abi::CUstreamCaptureStatus status = abi::CU_STREAM_CAPTURE_STATUS_NONE;
  std::uint64_t id = 0;
  GraphPointer graph{};
  std::vector<const GraphNode*> dependencies{};
};

// Each function answers as the driver call named beside it does: first the sticky error of the context where there is
// one, then the rules of capture, then its own. Null streams and events answer INVALID_HANDLE.
//
// Thread-safety: any function from any thread. No lock is held while an operation runs, so an operation may call the
// functions that do not wait; those that wait answer NOT_PERMITTED inside a host function or a kernel. When one of
// those that wait has answered the failure of a context, no operation of the context runs any more, host functions
// aside.
//
// Whether capture forbids a call follows the CUDA driver 580 on an H200, also where its manual says less.
class Engine {
 public:
  explicit Engine(const Scheduling& scheduling = {});
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Drops what is pending and waits for operations that run. No other thread may be in a call.
  ~Engine();

  // Whether the calling thread is running one of its operations, which must not end it (put_off_end.hpp).
  [[nodiscard]] bool running_here() const noexcept { return execution::running_here(scheduler_); }

  // Contexts.

  // A context that fails alone, or together with the others of its group.
  [[nodiscard]] ContextPointer create_context();
  [[nodiscard]] ContextPointer create_context(FaultGroup group);
  // Drops what is pending in its streams (an operation that is being tried is waited for, not tried again), ends its
  // captures. Every later call with its streams and events answers CONTEXT_IS_DESTROYED. cuCtxDestroy, primary reset.
  Answer destroy_context(const ContextPointer& context);
  // The sticky error as an answer: what every call that needs the context begins with.
  Answer check_context(const ContextPointer& context);
  [[nodiscard]] std::optional<Fault> fault(const ContextPointer& context);
  // The first failure of a group, be its contexts gone: SUCCESS while none has failed.
  Answer check_group(FaultGroup group);
  // Puts the context (and its fault group) into the failed state, as if an operation had failed.
  void fail_context(const ContextPointer& context, const Fault& fault);
  // Waits for all work submitted to the context before. cuCtxSynchronize.
  Answer synchronize_context(const ContextPointer& context);
  // The same wait, which no capture forbids: what cuMemFree does before it frees.
  Answer drain_context(const ContextPointer& context);

  // Streams.

  // `flags` and `priority` are kept as given; the caller has judged them. cuStreamCreateWithPriority.
  Answer create_stream(const ContextPointer& context, unsigned flags, int priority, StreamPointer& stream);
  // CU_STREAM_LEGACY and CU_STREAM_PER_THREAD (of the calling thread) of a context; null if it is destroyed.
  [[nodiscard]] StreamPointer legacy_stream(const ContextPointer& context);
  [[nodiscard]] StreamPointer per_thread_stream(const ContextPointer& context);
  // How many streams the context keeps beside the legacy one; those of ended threads may be among them.
  [[nodiscard]] std::size_t stream_count(const ContextPointer& context);
  // What was submitted still runs. The default streams answer INVALID_HANDLE. A capture that began in the stream ends
  // without a graph; one that the stream joined stays unjoined. cuStreamDestroy.
  Answer destroy_stream(const StreamPointer& stream);
  // For the legacy stream: of all blocking streams too. SUCCESS or NOT_READY. cuStreamQuery.
  Answer query_stream(const StreamPointer& stream);
  Answer synchronize_stream(const StreamPointer& stream);
  // cuStreamGetFlags, which a capturing stream does not allow.
  Answer stream_flags(const StreamPointer& stream, unsigned& flags);

  // Appends an operation to a stream, or adds it to the graph that the stream is captured into.
  Answer submit(const StreamPointer& stream, Operation operation);
  // As submit(), then waits for it: synchronous copies, which go to the legacy stream. Cannot be captured.
  Answer submit_and_wait(const StreamPointer& stream, Operation operation);

  // The oldest pending or running operation, of any context, whose touched ranges overlap the given one. Costs no lock
  // while nothing is unfinished.
  [[nodiscard]] std::optional<UnfinishedOperation> first_unfinished_touching(abi::CUdeviceptr address,
                                                                             std::size_t bytes);

  // Events.

  // `flags` as the caller has judged them. cuEventCreate.
  Answer create_event(const ContextPointer& context, unsigned flags, EventPointer& event);
  // The event may be pending; whoever waits for it already goes on waiting. cuEventDestroy.
  Answer destroy_event(const EventPointer& event);
  // `flags`: CU_EVENT_RECORD_*; EXTERNAL only while capturing, where it makes a node. cuEventRecordWithFlags.
  Answer record_event(const EventPointer& event, const StreamPointer& stream, unsigned flags = 0);
  // `flags`: CU_EVENT_WAIT_*. Across contexts too. An event never recorded is not waited for. cuStreamWaitEvent.
  Answer wait_event(const StreamPointer& stream, const EventPointer& event, unsigned flags = 0);
  Answer query_event(const EventPointer& event);
  Answer synchronize_event(const EventPointer& event);
  // INVALID_HANDLE without timing, without a record or across contexts; NOT_READY. cuEventElapsedTime.
  Answer elapsed_time(const EventPointer& start, const EventPointer& end, float& milliseconds);

  // Capture.

  Answer begin_capture(const StreamPointer& stream, abi::CUstreamCaptureMode mode);
  // `graph` is null unless the answer is SUCCESS. cuStreamEndCapture.
  Answer end_capture(const StreamPointer& stream, GraphPointer& graph);
  Answer is_capturing(const StreamPointer& stream, abi::CUstreamCaptureStatus& status);
  Answer capture_info(const StreamPointer& stream, CaptureInfo& info);
  // Nodes that the stream's next captured operation depends on: added to those that it has, or in their place.
  // cuStreamUpdateCaptureDependencies.
  Answer update_capture_dependencies(const StreamPointer& stream, const std::vector<const GraphNode*>& nodes,
                                     bool replace);
  // Sets the calling thread's mode and puts the former one into `mode`. A mode that does not exist, which the caller
  // may have judged, works as THREAD_LOCAL. cuThreadExchangeStreamCaptureMode.
  Answer exchange_capture_mode(abi::CUstreamCaptureMode& mode);
  // For calls that a capture may forbid (cuMemAlloc, cuMemFree, host allocation and registration): answers
  // STREAM_CAPTURE_UNSUPPORTED and invalidates the captures that forbid it. Costs no lock while there is no capture.
  Answer check_unsafe_call();
  // For calls that cannot be captured: answers STREAM_CAPTURE_UNSUPPORTED and invalidates the stream's capture, if
  // there is one.
  Answer check_not_captured(const StreamPointer& stream, const char* what);
  // Whether the stream's capture frees that memory of a graph already.
  [[nodiscard]] bool captures_free_of(const StreamPointer& stream, std::uint64_t id);
  // STREAM_CAPTURE_INVALIDATED if the stream belongs to a capture that was invalidated. Costs no lock while there is no
  // capture.
  Answer check_capture_of(const StreamPointer& stream);
  // Whether a capture is still adding to the graph: it must not be destroyed then (ILLEGAL_STATE).
  [[nodiscard]] bool being_captured(const GraphPointer& graph);

  // Graphs. A graph is destroyed by letting go of it.

  // Copies the graph. Null: INVALID_VALUE; being captured: ILLEGAL_STATE. cuGraphInstantiateWithFlags.
  Answer instantiate(const GraphPointer& graph, GraphExecPointer& exec);
  // Null: INVALID_VALUE. The launch keeps `exec` alive. cuGraphLaunch.
  Answer launch(const GraphExecPointer& exec, const StreamPointer& stream);

  // The stepped scheduler. Step functions throw std::logic_error in threaded mode.

  [[nodiscard]] const Scheduling& scheduling() const noexcept { return scheduler_.scheduling(); }
  Step step();
  // Steps until nothing is left to run, or all that is left (values that do not come) has been tried in vain.
  void run_until_idle();
  // The operations that finished since the last call, in their order; needs Scheduling::keep_trace.
  [[nodiscard]] std::vector<TraceEntry> take_trace();
  // Worker threads that exist now.
  [[nodiscard]] std::size_t worker_count();

 private:
  using Lock = Scheduler::Lock;
  using Completions = std::vector<std::shared_ptr<Completion>>;
  struct Awaited {
    std::shared_ptr<Completion> completion;
    StreamPointer stream;
  };

  static Answer forbid_waiting_inside();
  Answer usable(const Lock&, const ContextPointer& context) const;
  Answer usable(const Lock& lock, const StreamPointer& stream) const;
  Answer usable(const Lock& lock, const EventPointer& event) const;
  template <typename Pointer>
  Answer usable_for_waiting(Lock& lock, const Pointer& object);
  ContextPointer begin_context(ContextPointer context);
  StreamPointer make_stream(Lock&, const ContextPointer& context, StreamRole role, unsigned flags, int priority);
  void forget_ended_threads(Lock& lock, Context& context);
  Answer accept(Lock& lock, const StreamPointer& stream, Operation&& operation);
  std::shared_ptr<Completion> enqueue(Lock& lock, const StreamPointer& stream, Operation operation,
                                      Completions waits_for, bool wait_here = false, Completions also_completes = {});
  std::vector<Awaited> unfinished_work(const Lock&, const StreamPointer& stream) const;
  static std::vector<Awaited> unfinished_work(const Lock&, const ContextPointer& context);
  void step_for_query(Lock& lock);
  Answer wait_for(Lock& lock, const std::vector<Awaited>& awaited, const ContextPointer& context);

  // Operations pass by reference, since a refused one must be destroyed by the caller, after its lock is released.

  // Capture (engine_capture.cpp).
  Answer forbid_implicit_use(Lock& lock, const StreamPointer& stream, bool invalidate = true);
  Answer forbid_observing_capture(Lock& lock, const StreamPointer& stream, const char* what);
  Answer forbid_unsafe_call(Lock& lock, const char* what);
  Answer captured_event_answer(Lock& lock, Event& event, bool invalidate);
  Answer capture_operation(Lock& lock, Stream& stream, Operation&& operation);
  Answer capture_wait(Lock& lock, const StreamPointer& stream, const EventPointer& event);
  Answer check_capture_of(Lock& lock, const StreamPointer& stream);
  Answer forbid_lost_event(Lock& lock, const StreamPointer& stream, const EventPointer& event);
  void finish_capture(Lock& lock, Capture& capture);
  void end_captures_of(Lock& lock, const Context& context);
  abi::CUstreamCaptureMode thread_mode(const Lock&) const;

  // External nodes of graphs (engine_graphs.cpp).
  Answer capture_external(Lock& lock, Stream& stream, OperationKind kind, const EventPointer& event);
  using Records = std::vector<std::pair<EventPointer, std::shared_ptr<Completion>>>;
  Operation prepare_launch(const Lock&, const GraphExecPointer& exec, Records& records);
  std::function<Outcome()> external_wait(const Lock&, const GraphExec& exec, std::size_t node);
  std::function<Outcome()> external_record(const std::shared_ptr<Completion>& record);

  std::atomic<std::uint64_t> next_id_{1};
  std::uint64_t next_capture_id_ = 1;
  std::vector<std::shared_ptr<Capture>> captures_;  // those not ended
  std::atomic<std::size_t> capture_count_{0};       // captures_.size(), readable without the lock
  struct ThreadMode {
    abi::CUstreamCaptureMode mode = abi::CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::weak_ptr<const void> thread;  // this_thread_life()
  };
  std::map<std::uint64_t, ThreadMode> thread_modes_;  // by this_thread_number(); GLOBAL is left out
  Scheduler scheduler_;                               // last: its end needs the rest
};

}  // namespace cuvmm::emulator::execution
