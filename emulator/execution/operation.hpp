// One piece of work for a stream, as its owner describes it: the engine runs it and knows nothing of what it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/answer.hpp"
#include "emulator/execution/outcome.hpp"

namespace cuvmm::emulator::execution {

struct Event;

enum class OperationKind {
  copy,
  memory_set,
  kernel,
  host_function,
  wait_value,
  write_value,
  event_record,
  event_wait,
  graph,
  memory_allocation,
  memory_free,
};

[[nodiscard]] const char* name_of(OperationKind kind) noexcept;

// Device memory that an operation reads or writes, kept for Engine::first_unfinished_touching() alone.
struct TouchedRange {
  abi::CUdeviceptr address = 0;
  std::size_t bytes = 0;
  bool write = false;
};

// What a node of a graph does to memory that graphs allocate; the engine keeps it for the launches' sake.
struct GraphMemoryNode {
  abi::CUdeviceptr address = 0;  // 0: nothing
  bool frees = false;            // it does not allocate, but frees
  std::uint64_t id = 0;          // of what it frees, at whose address something else may lie later
};

// An operation is a value. The engine runs a copy of `run` that nothing has run before: state that `run` holds by value
// (how far a kernel has come) starts anew with every launch of a captured operation; what it holds by pointer is shared
// by all launches.
//
// `run` is called by one thread at a time, on any thread, with no lock held, until it answers done or fault. It must
// not call the engine's waiting functions. An exception that leaves it is a fault with LAUNCH_FAILED; std::bad_alloc,
// which must leave it before it has changed what it cannot change again, lets it be tried again for a while first.
struct Operation {
  OperationKind kind = OperationKind::kernel;
  std::string description{};  // for messages and traces: "kernel cuvmm_fill", "copy of 64 bytes to 0x7f0000000000"
  std::vector<TouchedRange> touches{};
  std::function<Outcome()> run{};
  std::shared_ptr<Event>
      external_event{};             // filled in by the engine: what an external node of a graph records or awaits
  std::function<Answer()> check{};  // whether a graph with it can be instantiated; empty if it always can
  GraphMemoryNode graph_memory{};
};

// Runs `operation` once: sets the mark of inside_host_function() or inside_kernel(), turns exceptions into faults.
[[nodiscard]] Outcome attempt(OperationKind kind, const std::function<Outcome()>& run) noexcept;

// Whether the calling thread is running a host function, from which the driver's API must not be called
// (cuLaunchHostFunc: such calls answer NOT_PERMITTED).
[[nodiscard]] bool inside_host_function() noexcept;

// Whether the calling thread is running a kernel. One that waited for its own stream would wait for ever, and code on a
// device has no driver to call, so such calls answer NOT_PERMITTED, too.
[[nodiscard]] bool inside_kernel() noexcept;

}  // namespace cuvmm::emulator::execution
