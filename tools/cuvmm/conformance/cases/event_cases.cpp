// Events.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"

namespace cuvmm::conformance {

namespace {

std::string elapsed(Environment& cuda, CUevent start, CUevent end) {
  float milliseconds = -7;
  const CUresult result = cuda->cuEventElapsedTime(&milliseconds, start, end);
  if (result != CUDA_SUCCESS) return result_name(result);
  return slashes({result, milliseconds >= 0 ? "not negative" : "negative"});
}

CUevent recorded(Environment& cuda, CUstream stream, unsigned flags = CU_EVENT_DEFAULT) {
  const CUevent event = cuda.event(flags);
  cuda.expect("record", cuda->cuEventRecord(event, stream));
  return event;
}

void add_creation(Table& table) {
  for (const unsigned flags : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 16U})
    table.add("event.create_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      CUevent event = nullptr;
      return cuda->cuEventCreate(&event, flags);
    });
  table.add("event.create_null_out", [](Environment& cuda) { return cuda->cuEventCreate(nullptr, 0); });
  table.add("event.destroy_null", [](Environment& cuda) { return cuda->cuEventDestroy(nullptr); });
  table.add("event.null", [](Environment& cuda) {
    return spaces(
        {cuda->cuEventRecord(nullptr, cuda.stream()), cuda->cuEventQuery(nullptr), cuda->cuEventSynchronize(nullptr)});
  });
  table.add("event.destroy_pending", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    Gate& gate = lasting_gate();
    gate.block(cuda, stream);
    const CUresult destroyed = cuda->cuEventDestroy(recorded(cuda, stream));
    gate.open();
    return spaces({destroyed, cuda->cuStreamSynchronize(stream)});
  });
}

void add_queries(Table& table) {
  table.add("event.unrecorded", [](Environment& cuda) {
    const CUevent event = cuda.event();
    return spaces({cuda->cuEventQuery(event), cuda->cuEventSynchronize(event)});
  });
  table.add(
      "event.pending",
      [](Environment& cuda) {
        const CUstream stream = cuda.stream();
        Gate& gate = lasting_gate();
        gate.block(cuda, stream);
        const CUevent event = recorded(cuda, stream);
        const CUresult pending = cuda->cuEventQuery(event);
        gate.open();
        return spaces({pending, cuda->cuEventSynchronize(event), cuda->cuEventQuery(event)});
      },
      needs_concurrency);
  table.add(
      "event.recorded_again_while_pending",
      [](Environment& cuda) {
        const CUstream blocked = cuda.stream();
        const CUstream idle = cuda.stream();
        Gate& gate = lasting_gate();
        gate.block(cuda, blocked);
        const CUevent event = recorded(cuda, blocked);
        cuda.expect("record", cuda->cuEventRecord(event, idle));
        const CUresult result = cuda->cuEventSynchronize(event);
        gate.open();
        return result;
      },
      needs_concurrency);
  table.add("event.query_from_other_context", [](Environment& cuda) {
    const CUevent event = recorded(cuda, cuda.stream());
    cuda.new_context();
    return spaces({cuda->cuEventSynchronize(event), cuda->cuEventQuery(event)});
  });
}

void add_elapsed(Table& table) {
  table.add("event.elapsed", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUevent start = recorded(cuda, stream);
    const CUevent end = recorded(cuda, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return elapsed(cuda, start, end);
  });
  table.add("event.elapsed_of_itself", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUevent event = recorded(cuda, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return elapsed(cuda, event, event);
  });
  table.add("event.elapsed_unrecorded_end", [](Environment& cuda) {
    const CUevent start = recorded(cuda, cuda.stream());
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return elapsed(cuda, start, cuda.event(CU_EVENT_DEFAULT));
  });
  table.add("event.elapsed_unrecorded_start", [](Environment& cuda) {
    const CUevent end = recorded(cuda, cuda.stream());
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return elapsed(cuda, cuda.event(CU_EVENT_DEFAULT), end);
  });
  table.add("event.elapsed_unrecorded_both", [](Environment& cuda) {
    return elapsed(cuda, cuda.event(CU_EVENT_DEFAULT), cuda.event(CU_EVENT_DEFAULT));
  });
  table.add("event.elapsed_timing_disabled", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUevent start = recorded(cuda, stream, CU_EVENT_DISABLE_TIMING);
    const CUevent end = recorded(cuda, stream);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return elapsed(cuda, start, end);
  });
  table.add("event.elapsed_not_finished", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUevent start = recorded(cuda, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    Gate& gate = lasting_gate();
    gate.block(cuda, stream);
    const CUevent end = recorded(cuda, stream);
    const std::string early = elapsed(cuda, start, end);
    gate.open();
    return spaces({early, cuda->cuStreamSynchronize(stream)});
  });
  table.add("event.elapsed_null", [](Environment& cuda) {
    const CUevent event = recorded(cuda, cuda.stream());
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    float milliseconds = 0;
    return spaces({cuda->cuEventElapsedTime(nullptr, event, event),
                   cuda->cuEventElapsedTime(&milliseconds, nullptr, event),
                   cuda->cuEventElapsedTime(&milliseconds, event, nullptr)});
  });
}

void add_recording(Table& table) {
  for (const unsigned flags : {0U, 1U, 2U})
    table.add("event.record_flags_" + std::to_string(flags),
              [flags](Environment& cuda) { return cuda->cuEventRecordWithFlags(cuda.event(), cuda.stream(), flags); });
  table.add("event.record_on_default_streams", [](Environment& cuda) {
    const CUevent event = cuda.event();
    return spaces({cuda->cuEventRecord(event, nullptr), cuda->cuEventRecord(event, legacy_stream()),
                   cuda->cuEventRecord(event, per_thread_stream())});
  });
  table.add("event.record_in_other_contexts_stream", [](Environment& cuda) {
    const CUevent event = cuda.event();
    cuda.new_context();
    return spaces({cuda->cuEventRecord(event, cuda.stream()), cuda->cuEventRecord(event, nullptr)});
  });
  table.add("event.record_from_other_context", [](Environment& cuda) {
    const CUevent event = cuda.event();
    const CUstream stream = cuda.stream();
    cuda.new_context();
    return cuda->cuEventRecord(event, stream);
  });
  table.add("event.waited_for_across_contexts", [](Environment& cuda) {
    const CUevent event = recorded(cuda, cuda.stream());
    cuda.new_context();
    const CUstream stream = cuda.stream();
    return spaces({cuda->cuStreamWaitEvent(stream, event, 0), cuda->cuStreamSynchronize(stream)});
  });
  table.add("event.of_destroyed_context", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    const CUevent event = cuda.event();
    cuda.expect("destroy", cuda->cuCtxDestroy(created));
    cuda.make_current(cuda.context());
    return cuda->cuEventQuery(event);
  });
}

}  // namespace

void add_event_cases(Table& table) {
  add_creation(table);
  add_queries(table);
  add_elapsed(table);
  add_recording(table);
}

}  // namespace cuvmm::conformance
