// An event: a point in a stream that can be waited for, or in a capture that can be depended on.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "driver/abi.hpp"
#include "emulator/execution/completion.hpp"

namespace cuvmm::emulator::execution {

struct Capture;
struct Context;
struct GraphNode;

// What is beneath the constants belongs to the engine and is guarded by its mutex.
struct Event {
  Event(std::uint64_t id_, std::shared_ptr<Context> context_, unsigned flags_)
      : id(id_), context(std::move(context_)), flags(flags_) {}

  const std::uint64_t id;
  const std::shared_ptr<Context> context;
  const unsigned flags;

  [[nodiscard]] bool timed() const noexcept { return (flags & abi::CU_EVENT_DISABLE_TIMING) == 0; }

  std::shared_ptr<Completion> record;  // the latest one; null if never recorded, or if recorded in a capture
  std::shared_ptr<Capture> capture;    // the capture in which it was recorded last; kept when that one has ended
  std::vector<const GraphNode*> captured_dependencies;
};

}  // namespace cuvmm::emulator::execution
