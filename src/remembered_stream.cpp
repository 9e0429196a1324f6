#include "remembered_stream.hpp"

#include <atomic>

#include "made_current.hpp"
#include "relaxed_capture_mode.hpp"

namespace cuvmm {

using driver::EntryPoint;
using Recorded = RememberedStream::Recorded;

namespace {

Recorded failed(EntryPoint entry, abi::CUresult code) {
  Recorded recorded;
  recorded.answer = work_answer(entry, code);
  if (recorded.answer == WorkAnswer::lost) recorded.answer = WorkAnswer::open;
  recorded.entry = entry;
  recorded.code = code;
  return recorded;
}

bool is_final(WorkAnswer answer) noexcept {
  return answer == WorkAnswer::done || answer == WorkAnswer::over || answer == WorkAnswer::failed;
}

}  // namespace

std::uint64_t this_thread_number() noexcept {
  static std::atomic<std::uint64_t> next = 1;
  thread_local const std::uint64_t number = next++;
  return number;
}

bool RememberedStream::is(abi::CUstream stream, abi::CUcontext current) const noexcept {
  if (same_name(stream) != stream_) return false;
  if (!is_default_stream(stream)) return true;
  return context_->handle() == current && (stream != abi::per_thread_stream() || thread_ == this_thread_number());
}

Recorded RememberedStream::try_record() {
  // Whoever holds the lock may be in a driver call that waits for a host function, and this may be that one.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock ? record() : Recorded();
}

Recorded RememberedStream::record_last() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    abi::CUcontext current = nullptr;
    const abi::CUresult code = context_->interface().cuCtxGetCurrent(&current);
    if (code == abi::CUDA_ERROR_NOT_PERMITTED) return failed(EntryPoint::cuCtxGetCurrent, code);
    lock.lock();
  }
  Recorded recorded = record();
  if (is_final(recorded.answer)) last_ = recorded;
  return recorded;
}

// Not with the lock: the device is waited for.
Recorded RememberedStream::wait_for_context() {
  driver::Interface& interface = context_->interface();
  {
    const MadeCurrent current(interface, context_->handle());
    if (current.answer() != abi::CUDA_SUCCESS) return failed(EntryPoint::cuCtxPushCurrent, current.answer());
    const RelaxedCaptureMode relaxed(interface);
    const abi::CUresult code = interface.cuCtxSynchronize();
    if (code != abi::CUDA_SUCCESS) return failed(EntryPoint::cuCtxSynchronize, code);
  }
  Recorded over;
  over.answer = WorkAnswer::over;
  const std::lock_guard lock(mutex_);
  last_ = over;
  return over;
}

Recorded RememberedStream::record() {
  if (last_) return *last_;
  // A stream of a context that is gone crashes the driver, and so does making such a context current.
  if (context_->gone()) return failed(EntryPoint::cuEventQuery, abi::CUDA_ERROR_CONTEXT_IS_DESTROYED);
  const bool made_current = is_default_stream(stream_);
  Recorded recorded = record_with(made_current);
  if (recorded.answer != WorkAnswer::over) return recorded;
  // Perhaps it is only that no context was current. Else a stream that was destroyed is not one whose work is over.
  if (!made_current) recorded = record_with(true);
  if (recorded.answer == WorkAnswer::over && !context_is_gone()) recorded.answer = WorkAnswer::open;
  return recorded;
}

Recorded RememberedStream::record_with(bool made_current) {
  driver::Interface& interface = context_->interface();
  std::optional<MadeCurrent> current;
  if (made_current) {
    current.emplace(interface, context_->handle());
    if (current->answer() != abi::CUDA_SUCCESS) return failed(EntryPoint::cuCtxPushCurrent, current->answer());
  }
  // Another thread's own default stream cannot be named, but it is one that the legacy default stream waits for.
  const bool of_other_thread = stream_ == abi::per_thread_stream() && thread_ != this_thread_number();
  const abi::CUstream stream = of_other_thread ? abi::legacy_stream() : stream_;

  abi::CUstreamCaptureStatus status = abi::CU_STREAM_CAPTURE_STATUS_NONE;
  unsigned long long id = 0;
  const abi::CUresult code = interface.cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr);
  Recorded capturing;
  capturing.capturing = true;
  if (code == abi::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return capturing;  // of a stream that the legacy one waits for
  if (code != abi::CUDA_SUCCESS) return failed(EntryPoint::cuStreamGetCaptureInfo, code);
  if (status == abi::CU_STREAM_CAPTURE_STATUS_NONE) return record_event(stream, made_current);
  if (status == abi::CU_STREAM_CAPTURE_STATUS_ACTIVE) capturing.capture = CaptureId{id};
  return capturing;
}

Recorded RememberedStream::record_event(abi::CUstream stream, bool made_current) {
  driver::Interface& interface = context_->interface();
  for (;;) {
    abi::CUevent event = context_->take();
    const bool recycled = event != nullptr;
    if (!recycled) {
      std::optional<MadeCurrent> current;
      if (!made_current) current.emplace(interface, context_->handle());
      if (current && current->answer() != abi::CUDA_SUCCESS)
        return failed(EntryPoint::cuCtxPushCurrent, current->answer());
      const abi::CUresult code = context_->create(&event);
      if (code != abi::CUDA_SUCCESS) return failed(EntryPoint::cuEventCreate, code);
    }
    auto recorded = std::make_shared<RecordedEvent>(context_, event);
    const abi::CUresult code = interface.cuEventRecord(event, stream);
    if (code == abi::CUDA_SUCCESS) {
      Recorded done;
      done.answer = WorkAnswer::done;
      done.event = std::move(recorded);
      return done;
    }
    Recorded refused = failed(EntryPoint::cuEventRecord, code);
    if (refused.answer != WorkAnswer::over) return refused;
    recorded->discard();
    // An event of a context's former life, where it was reset; a fresh one tells more.
    if (!recycled) return refused;
  }
}

bool RememberedStream::context_is_gone() const {
  if (!context_->primary()) return context_->gone();
  driver::Interface& interface = context_->interface();
  const MadeCurrent current(interface, context_->handle());
  if (current.answer() != abi::CUDA_SUCCESS)
    return work_answer(EntryPoint::cuCtxPushCurrent, current.answer()) == WorkAnswer::over;
  abi::CUdevice device = 0;
  return work_answer(EntryPoint::cuCtxGetDevice, interface.cuCtxGetDevice(&device)) == WorkAnswer::over;
}

}  // namespace cuvmm
