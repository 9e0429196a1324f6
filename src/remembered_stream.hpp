// A stream whose work may use some memory.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "cuvmm/stream_uses.hpp"
#include "event_pool.hpp"
#include "work_answer.hpp"

namespace cuvmm {

// Never that of another thread; those of std::thread come again when a thread has ended.
[[nodiscard]] std::uint64_t this_thread_number() noexcept;

// Thread-safe.
class RememberedStream {
 public:
  // A default stream is one of its context; CU_STREAM_PER_THREAD is the calling thread's.
  RememberedStream(abi::CUstream stream, std::shared_ptr<ContextEvents> context) noexcept
      : stream_(stream), context_(std::move(context)) {}

  [[nodiscard]] ContextEvents& context() const noexcept { return *context_; }
  [[nodiscard]] const std::shared_ptr<ContextEvents>& shared_context() const noexcept { return context_; }

  // Whether that handle, of a thread with that context current, means this stream.
  [[nodiscard]] bool is(abi::CUstream stream, abi::CUcontext current) const noexcept;

  // What came of trying to record an event where the stream's work has come to.
  struct Recorded {
    WorkAnswer answer = WorkAnswer::open;
    std::shared_ptr<RecordedEvent> event{};     // if done
    bool capturing = false;                     // open, since a capture is: recording would become a part of it
    std::optional<CaptureId> capture{};         // its number, if it is valid
    std::optional<driver::EntryPoint> entry{};  // else what failed, and how
    abi::CUresult code = abi::CUDA_SUCCESS;
  };

  // Records an event. Waits for nobody: open if another thread is recording here. Throws std::bad_alloc alone.
  [[nodiscard]] Recorded try_record();
  // The same for the last time: if the answer is done, over or failed, every later one is that one.
  [[nodiscard]] Recorded record_last();
  // For a stream that the driver knows no more: waits for all work of its context (cuCtxSynchronize), after which the
  // stream's is over, too, and every later answer is that. Else what the driver failed with.
  [[nodiscard]] Recorded wait_for_context();

 private:
  [[nodiscard]] Recorded record();
  [[nodiscard]] Recorded record_with(bool made_current);
  [[nodiscard]] Recorded record_event(abi::CUstream stream, bool made_current);
  [[nodiscard]] bool context_is_gone() const;

  const abi::CUstream stream_;
  const std::shared_ptr<ContextEvents> context_;
  const std::uint64_t thread_ = this_thread_number();
  std::mutex mutex_;  // held while an event is recorded, by nobody who waits for it in a host function
  std::optional<Recorded> last_;
};

// null and CU_STREAM_LEGACY are the same stream.
[[nodiscard]] inline abi::CUstream same_name(abi::CUstream stream) noexcept {
  return stream == nullptr ? abi::legacy_stream() : stream;
}
[[nodiscard]] inline bool is_default_stream(abi::CUstream stream) noexcept {
  return stream == nullptr || stream == abi::legacy_stream() || stream == abi::per_thread_stream();
}

}  // namespace cuvmm
