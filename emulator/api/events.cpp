// Events: the engine keeps them; here they get handles.
#include <fmt/format.h>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {

CUresult EmulatedDriver::cuEventCreate(CUevent* event, unsigned int flags) {
  return with_context([&](const ActiveContext& context) -> Answer {
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    const bool untimed_between_processes =
        (flags & CU_EVENT_INTERPROCESS) == 0 || (flags & CU_EVENT_DISABLE_TIMING) != 0;
    if (event == nullptr || (flags & ~known) != 0 || !untimed_between_processes)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid,
              fmt::format("phEvent must not be null, flags must be known (are {:#x}), and INTERPROCESS goes with "
                          "DISABLE_TIMING alone",
                          flags)};
    execution::EventPointer created;
    if (Answer refused = engine_.create_event(context.execution, flags, created); !refused.ok()) return refused;
    *event = events_.add(std::move(created));
    return give_owner(context, {});
  });
}

CUresult EmulatedDriver::cuEventRecord(CUevent event, CUstream stream) {
  return record_event(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult EmulatedDriver::cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return record_event(event, stream, flags);
}

CUresult EmulatedDriver::record_event(CUevent event, CUstream stream, unsigned flags, const char* call) noexcept {
  const auto record = [&]() -> Answer {
    if (flags > CU_EVENT_RECORD_EXTERNAL)
      return {CUDA_ERROR_INVALID_VALUE, Rule::argument_valid, fmt::format("flags are {:#x}", flags)};
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    const auto found = events_.find(event);
    Answer recorded = engine_.record_event(found, entry.stream, flags);
    if (recorded.ok() && !is_captured(entry.stream))
      machine_.with_pools([&](model::StreamOrderedMemory& memory) { memory.note_record(found->id, entry.stream->id); });
    return recorded;
  };
  return initialised(record, call);
}

CUresult EmulatedDriver::cuEventQuery(CUevent event) {
  return initialised_else(CUDA_ERROR_INVALID_HANDLE, [&] { return engine_.query_event(events_.find(event)); });
}

CUresult EmulatedDriver::cuEventSynchronize(CUevent event) {
  return initialised_else(CUDA_ERROR_INVALID_HANDLE,
                          [&] { return synchronized(engine_.synchronize_event(events_.find(event))); });
}

CUresult EmulatedDriver::cuEventDestroy(CUevent event) {
  return initialised_else(CUDA_ERROR_INVALID_HANDLE, [&]() -> Answer {
    if (Answer refused = engine_.destroy_event(events_.find(event)); !refused.ok()) return refused;
    (void)events_.take(event);
    return {};
  });
}

CUresult EmulatedDriver::cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return initialised_else(CUDA_ERROR_INVALID_HANDLE, [&]() -> Answer {
    if (milliseconds == nullptr)  // as the driver: not INVALID_VALUE
      return {CUDA_ERROR_INVALID_HANDLE, Rule::output_pointer, "pMilliseconds must not be null"};
    return engine_.elapsed_time(events_.find(start), events_.find(end), *milliseconds);
  });
}

}  // namespace cuvmm::emulator::api
