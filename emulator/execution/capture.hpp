// A stream capture: what is submitted to its streams becomes nodes of a graph instead of running.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/execution/graph.hpp"
#include "emulator/execution/stream.hpp"

namespace cuvmm::emulator::execution {

// Guarded by the engine's mutex.
struct Capture {
  Capture(std::uint64_t id_, abi::CUstreamCaptureMode mode_, std::uint64_t thread_, std::shared_ptr<Graph> graph_)
      : id(id_), mode(mode_), thread(thread_), graph(std::move(graph_)) {}

  const std::uint64_t id;  // unique in the engine
  const abi::CUstreamCaptureMode mode;
  const std::uint64_t thread;  // this_thread_number() of the thread that began it

  std::shared_ptr<Graph> graph;                  // null once ended
  std::vector<std::shared_ptr<Stream>> streams;  // the one it began in first; empty once ended
  bool invalidated = false;
  bool ended = false;

  // Of Scheduler::Lock, until its mutex is released.
  std::shared_ptr<Graph> ended_graph;
  std::shared_ptr<Capture> kept_before;

  [[nodiscard]] abi::CUstreamCaptureStatus status() const noexcept {
    return invalidated ? abi::CU_STREAM_CAPTURE_STATUS_INVALIDATED : abi::CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
};

}  // namespace cuvmm::emulator::execution
