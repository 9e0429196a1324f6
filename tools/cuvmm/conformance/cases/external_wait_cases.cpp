// Graphs that wait for, and record, events outside of them.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"

namespace cuvmm::conformance {

namespace {

// A graph captured from a wait for the event, or a record of it, and a memset behind that.
template <class Work>
CUgraphExec executable(Environment& cuda, Work work) {
  const CUstream stream = cuda.stream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  work(stream);
  cuda.expect("end", cuda->cuStreamEndCapture(stream, &graph));
  cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

CUgraphExec waiting_for(Environment& cuda, CUevent event, CUdeviceptr address, unsigned value) {
  return executable(cuda, [&](CUstream stream) {
    cuda.expect("wait", cuda->cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    cuda.expect("memset", cuda->cuMemsetD32Async(address, value, 1, stream));
  });
}

// Each tells what the launch answered, whether its stream was idle afterwards, and what was written in the end.

Answer wait_for_done_event(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped();
  const CUevent event = cuda.event();
  const CUstream stream = cuda.stream();
  cuda.expect("record", cuda->cuEventRecord(event, stream));
  cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
  const CUresult launched = cuda->cuGraphLaunch(waiting_for(cuda, event, address, 5), stream);
  return spaces({launched, cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
}

Answer wait_for_unrecorded_event(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped();
  const CUstream stream = cuda.stream();
  const CUresult launched = cuda->cuGraphLaunch(waiting_for(cuda, cuda.event(), address, 6), stream);
  return spaces({launched, cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
}

// The event stands for blocked work when the graph is launched.
Answer wait_for_pending_event(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped();
  const CUevent event = cuda.event();
  const CUstream blocked = cuda.stream();
  const CUstream stream = cuda.stream();
  const CUgraphExec exec = waiting_for(cuda, event, address, 7);
  Gate& gate = lasting_gate();
  gate.block(cuda, blocked);
  cuda.expect("record", cuda->cuEventRecord(event, blocked));
  const CUresult launched = cuda->cuGraphLaunch(exec, stream);
  const CUresult before = cuda->cuStreamQuery(stream);
  gate.open();
  return spaces({launched, before, cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
}

// It is recorded behind blocked work after the launch, before the graph can have run.
Answer wait_for_event_recorded_after_launch(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped();
  const CUevent event = cuda.event();
  const CUstream blocked = cuda.stream();
  const CUstream stream = cuda.stream();
  const CUgraphExec exec = waiting_for(cuda, event, address, 8);
  const CUresult launched = cuda->cuGraphLaunch(exec, stream);
  const CUresult run = cuda->cuStreamSynchronize(stream);
  Gate& gate = lasting_gate();
  gate.block(cuda, blocked);
  cuda.expect("record", cuda->cuEventRecord(event, blocked));
  const CUresult again = cuda->cuGraphLaunch(exec, stream);
  const CUresult waits = cuda->cuStreamQuery(stream);
  gate.open();
  return spaces({launched, run, again, waits, cuda->cuStreamSynchronize(stream)});
}

Answer record_in_graph(Environment& cuda) {
  const CUevent event = cuda.event();
  const CUstream stream = cuda.stream();
  const CUgraphExec exec = executable(cuda, [&](CUstream capturing) {
    cuda.expect("record", cuda->cuEventRecordWithFlags(event, capturing, CU_EVENT_RECORD_EXTERNAL));
  });
  const CUresult captured = cuda->cuEventQuery(event);
  Gate& gate = lasting_gate();
  gate.block(cuda, stream);
  const CUresult launched = cuda->cuGraphLaunch(exec, stream);
  const CUresult pending = cuda->cuEventQuery(event);
  gate.open();
  return spaces({captured, launched, pending, cuda->cuEventSynchronize(event), cuda->cuEventQuery(event)});
}

// One graph records what the other waits for.
Answer wait_for_record_of_other_graph(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped();
  const CUevent event = cuda.event();
  const CUstream first = cuda.stream();
  const CUstream second = cuda.stream();
  const CUgraphExec records = executable(cuda, [&](CUstream capturing) {
    cuda.expect("record", cuda->cuEventRecordWithFlags(event, capturing, CU_EVENT_RECORD_EXTERNAL));
  });
  const CUgraphExec waits = waiting_for(cuda, event, address, 9);
  Gate& gate = lasting_gate();
  gate.block(cuda, first);
  const CUresult recorded = cuda->cuGraphLaunch(records, first);
  const CUresult launched = cuda->cuGraphLaunch(waits, second);
  const CUresult before = cuda->cuStreamQuery(second);
  gate.open();
  return spaces({recorded, launched, before, cuda->cuStreamSynchronize(second), cuda.read_word(address)});
}

// What an event answers whose last record was captured, when the capture is over.
Answer captured_record_after_end(Environment& cuda) {
  const CUevent event = cuda.event();
  const CUstream stream = cuda.stream();
  const CUgraphExec exec =
      executable(cuda, [&](CUstream capturing) { cuda.expect("record", cuda->cuEventRecord(event, capturing)); });
  const std::string before =
      commas({cuda->cuEventQuery(event), cuda->cuEventSynchronize(event), cuda->cuStreamWaitEvent(stream, event, 0)});
  const CUresult launched = cuda->cuGraphLaunch(exec, stream);
  cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
  const std::string after =
      commas({cuda->cuEventQuery(event), cuda->cuEventSynchronize(event), cuda->cuStreamWaitEvent(stream, event, 0)});
  const CUresult again = cuda->cuEventRecord(event, stream);
  return spaces({before, launched, after, again, cuda->cuEventSynchronize(event)});
}

// The same after a capture that was invalidated.
Answer captured_record_after_invalidation(Environment& cuda) {
  const CUevent event = cuda.event();
  const CUstream stream = cuda.stream();
  cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuda.expect("record", cuda->cuEventRecord(event, stream));
  const CUresult invalidating = cuda->cuStreamSynchronize(stream);
  const std::string during = commas({cuda->cuEventQuery(event), cuda->cuEventSynchronize(event)});
  CUgraph graph = nullptr;
  const CUresult ended = cuda->cuStreamEndCapture(stream, &graph);
  const std::string after = commas({cuda->cuEventQuery(event), cuda->cuEventSynchronize(event)});
  return spaces({invalidating, during, ended, after, cuda->cuEventRecord(event, stream)});
}

}  // namespace

void add_external_wait_cases(Table& table) {
  table.add("external.wait_for_done_event", wait_for_done_event);
  table.add("external.wait_for_unrecorded_event", wait_for_unrecorded_event);
  table.add("external.wait_for_pending_event", wait_for_pending_event, needs_concurrency);
  table.add("external.wait_for_event_recorded_after_launch", wait_for_event_recorded_after_launch, needs_concurrency);
  table.add("external.record_in_graph", record_in_graph, needs_concurrency);
  table.add("external.wait_for_record_of_other_graph", wait_for_record_of_other_graph, needs_concurrency);
  table.add("external.captured_record_after_end", captured_record_after_end);
  table.add("external.captured_record_after_invalidation", captured_record_after_invalidation);
}

}  // namespace cuvmm::conformance
