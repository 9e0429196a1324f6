// Beginning, ending, forking and joining captures.
#include <thread>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

CUresult begin(Environment& cuda, CUstream stream, int mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
  return cuda->cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode));
}

// The result and, of a graph, how many nodes it has: "OK/2".
std::string end(Environment& cuda, CUstream stream) {
  CUgraph graph = nullptr;
  const CUresult result = cuda->cuStreamEndCapture(stream, &graph);
  if (graph == nullptr) return slashes({result, "null"});
  std::size_t nodes = 0;
  cuda.expect("nodes", cuda->cuGraphGetNodes(graph, nullptr, &nodes));
  return slashes({result, nodes});
}

std::string status(Environment& cuda, CUstream stream) {
  CUstreamCaptureStatus value = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = cuda->cuStreamIsCapturing(stream, &value);
  return slashes({result, static_cast<int>(value)});
}

CUstream capturing(Environment& cuda, int mode = CU_STREAM_CAPTURE_MODE_RELAXED) {
  const CUstream stream = cuda.stream();
  cuda.expect("begin", begin(cuda, stream, mode));
  return stream;
}

// Lets `second` take part in the capture of `first`.
void fork(Environment& cuda, CUstream first, CUstream second) {
  const CUevent event = cuda.event();
  cuda.expect("record", cuda->cuEventRecord(event, first));
  cuda.expect("wait", cuda->cuStreamWaitEvent(second, event, 0));
}

void add_beginning(Table& table) {
  table.add("capture.begin_twice", [](Environment& cuda) {
    const CUstream stream = capturing(cuda);
    return spaces({begin(cuda, stream), status(cuda, stream), end(cuda, stream)});
  });
  for (const int mode : {-1, 3})
    table.add("capture.begin_mode_" + std::to_string(mode), [mode](Environment& cuda) {
      const CUstream stream = cuda.stream();
      return spaces({begin(cuda, stream, mode), status(cuda, stream)});
    });
  table.add("capture.begin_on_default_streams", [](Environment& cuda) {
    return spaces({begin(cuda, nullptr), begin(cuda, legacy_stream()), begin(cuda, per_thread_stream())});
  });
  table.add("capture.begin_again_after_end", [](Environment& cuda) {
    const CUstream stream = capturing(cuda);
    return spaces({end(cuda, stream), begin(cuda, stream), end(cuda, stream)});
  });
  table.add("capture.begin_on_forked_stream", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    return spaces({begin(cuda, second), status(cuda, second), status(cuda, first)});
  });
  for (const int first_mode : {0, 1, 2})
    for (const int second_mode : {0, 1, 2})
      table.add("capture.begin_second_mode_" + std::to_string(first_mode) + "_" + std::to_string(second_mode),
                [first_mode, second_mode](Environment& cuda) {
                  const CUstream second = cuda.stream();
                  const CUstream first = capturing(cuda, first_mode);
                  return spaces({begin(cuda, second, second_mode), end(cuda, second), end(cuda, first)});
                });
  table.add("capture.begin_while_busy", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    cuda.expect("memset", cuda->cuMemsetD8Async(cuda.mapped(), 1, 64, stream));
    return spaces({begin(cuda, stream), end(cuda, stream)});
  });
}

void add_ending(Table& table) {
  table.add("capture.end_not_capturing", [](Environment& cuda) { return end(cuda, cuda.stream()); });
  table.add("capture.end_default_stream", [](Environment& cuda) { return end(cuda, nullptr); });
  table.add("capture.end_null_out", [](Environment& cuda) {
    const CUstream stream = capturing(cuda);
    return spaces({cuda->cuStreamEndCapture(stream, nullptr), status(cuda, stream)});
  });
  for (const int mode : {0, 1, 2})
    table.add("capture.end_in_other_thread_mode_" + std::to_string(mode), [mode](Environment& cuda) {
      const CUstream stream = capturing(cuda, mode);
      std::string answer;
      std::thread{[&] {
        cuda.make_current(cuda.context());
        answer = end(cuda, stream);
      }}.join();
      return spaces({answer, status(cuda, stream), end(cuda, stream)});
    });
  table.add("capture.end_on_forked_stream", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    return spaces({end(cuda, second), status(cuda, first), status(cuda, second), end(cuda, first)});
  });
  table.add("capture.after_invalidation", [](Environment& cuda) {
    const CUstream stream = capturing(cuda);
    const CUresult broke = cuda->cuStreamSynchronize(stream);
    return spaces({broke, cuda->cuMemsetD8Async(cuda.mapped(), 1, 64, stream), cuda->cuStreamQuery(stream),
                   status(cuda, stream), end(cuda, stream), status(cuda, stream), cuda->cuStreamQuery(stream),
                   begin(cuda, stream), end(cuda, stream)});
  });
  table.add("capture.destroy_capturing_stream", [](Environment& cuda) {
    const CUstream stream = capturing(cuda);
    return cuda->cuStreamDestroy(stream);
  });
  table.add("capture.destroy_forked_stream", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    return spaces({cuda->cuStreamDestroy(second), status(cuda, first), end(cuda, first)});
  });
}

void add_forks(Table& table) {
  table.add("capture.fork_and_join", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    const CUresult on_first = cuda->cuMemsetD8Async(address, 1, 64, first);
    const CUresult on_second = cuda->cuMemsetD8Async(address + 4096, 1, 64, second);
    const std::string during = status(cuda, second);
    fork(cuda, second, first);
    return spaces({on_first, on_second, during, end(cuda, first), status(cuda, second)});
  });
  table.add("capture.fork_not_joined", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, second));
    return spaces({end(cuda, first), status(cuda, second), cuda->cuStreamQuery(second)});
  });
  table.add("capture.fork_without_work_not_joined", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    return spaces({end(cuda, first), status(cuda, second)});
  });
  table.add("capture.work_after_join_not_joined", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, second));
    fork(cuda, second, first);
    cuda.expect("memset", cuda->cuMemsetD8Async(address, 2, 64, second));
    return spaces({end(cuda, first), status(cuda, second)});
  });
  table.add("capture.merge_of_two", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUstream second = capturing(cuda);
    const CUevent event = cuda.event();
    cuda.expect("record", cuda->cuEventRecord(event, first));
    return spaces({cuda->cuStreamWaitEvent(second, event, 0), status(cuda, first), status(cuda, second),
                   end(cuda, first), end(cuda, second)});
  });
  table.add("capture.outside_stream_joins_by_waiting", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUstream second = cuda.stream();
    fork(cuda, first, second);
    return spaces({status(cuda, second), cuda->cuStreamQuery(second), status(cuda, first), end(cuda, first)});
  });
  table.add("capture.default_stream_waits_for_captured_event", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUevent event = cuda.event();
    cuda.expect("record", cuda->cuEventRecord(event, first));
    return spaces({cuda->cuStreamWaitEvent(nullptr, event, 0), status(cuda, first), end(cuda, first)});
  });
  table.add("capture.event_after_end", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUevent event = cuda.event();
    cuda.expect("record", cuda->cuEventRecord(event, first));
    const std::string ended = end(cuda, first);
    return spaces({ended, cuda->cuEventQuery(event), cuda->cuEventSynchronize(event),
                   cuda->cuStreamWaitEvent(cuda.stream(), event, 0), cuda->cuEventRecord(event, first),
                   cuda->cuEventSynchronize(event)});
  });
  table.add("capture.event_recorded_outside_during_capture", [](Environment& cuda) {
    const CUstream first = capturing(cuda);
    const CUevent event = cuda.event();
    cuda.expect("record", cuda->cuEventRecord(event, cuda.stream()));
    return spaces({cuda->cuStreamWaitEvent(first, event, 0), status(cuda, first), end(cuda, first)});
  });
}

// A capturing stream that is not made non-blocking, and the default stream.
void add_implicit(Table& table) {
  for (const int mode : {0, 1, 2}) {
    const std::string suffix = std::string{"_mode_"} + std::to_string(mode);
    table.add("capture.blocking_stream_and_legacy_memset" + suffix, [mode](Environment& cuda) {
      const CUdeviceptr address = cuda.mapped();
      const CUstream stream = cuda.stream(CU_STREAM_DEFAULT);
      cuda.expect("begin", begin(cuda, stream, mode));
      return spaces({cuda->cuMemsetD8Async(address, 1, 64, nullptr), status(cuda, stream), end(cuda, stream)});
    });
    table.add("capture.blocking_stream_and_legacy_copy" + suffix, [mode](Environment& cuda) {
      const CUdeviceptr address = cuda.mapped();
      const CUstream stream = cuda.stream(CU_STREAM_DEFAULT);
      cuda.expect("begin", begin(cuda, stream, mode));
      const unsigned word = 1;
      return spaces({cuda->cuMemcpyHtoD(address, &word, 4), status(cuda, stream), end(cuda, stream)});
    });
  }
  table.add("capture.status_of_legacy_stream", [](Environment& cuda) {
    const CUstream stream = cuda.stream(CU_STREAM_DEFAULT);
    const std::string before = status(cuda, nullptr);
    cuda.expect("begin", begin(cuda, stream));
    return spaces({before, status(cuda, nullptr), status(cuda, stream)});
  });
  table.add("capture.status_of_legacy_stream_and_non_blocking", [](Environment& cuda) {
    const CUstream stream = capturing(cuda);
    return spaces({status(cuda, nullptr), status(cuda, stream)});
  });
}

void add_questions(Table& table) {
  table.add("capture.status_idle", [](Environment& cuda) { return status(cuda, cuda.stream()); });
  table.add("capture.status_null_out",
            [](Environment& cuda) { return cuda->cuStreamIsCapturing(cuda.stream(), nullptr); });
  table.add("capture.info_idle", [](Environment& cuda) {
    CUstreamCaptureStatus value{};
    unsigned long long id = 99;
    const CUresult result = cuda->cuStreamGetCaptureInfo(cuda.stream(), &value, &id, nullptr, nullptr, nullptr);
    return slashes({result, static_cast<int>(value), id == 99 ? "untouched" : id == 0 ? "zero" : "id"});
  });
  table.add("capture.info", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream stream = capturing(cuda);
    cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, stream));
    CUstreamCaptureStatus value{};
    unsigned long long id = 0;
    CUgraph graph = nullptr;
    const CUgraphNode* dependencies = nullptr;
    std::size_t count = 99;
    const CUresult result = cuda->cuStreamGetCaptureInfo(stream, &value, &id, &graph, &dependencies, &count);
    return slashes({result, static_cast<int>(value), id == 0 ? "zero" : "id", graph == nullptr ? "null" : "graph",
                    dependencies == nullptr ? "null" : "nodes", count});
  });
  table.add("capture.info_ids_differ", [](Environment& cuda) {
    unsigned long long ids[2] = {0, 0};
    for (unsigned long long& id : ids) {
      CUstreamCaptureStatus value{};
      cuda.expect("info", cuda->cuStreamGetCaptureInfo(capturing(cuda), &value, &id, nullptr, nullptr, nullptr));
    }
    return ids[0] == ids[1] ? "same" : "distinct";
  });
  table.add("capture.exchange_mode", [](Environment& cuda) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const CUresult first = cuda->cuThreadExchangeStreamCaptureMode(&mode);
    const int before = mode;
    const CUresult second = cuda->cuThreadExchangeStreamCaptureMode(&mode);
    return spaces({slashes({first, before}), slashes({second, static_cast<int>(mode)})});
  });
  for (const int mode : {-1, 3})
    table.add("capture.exchange_mode_" + std::to_string(mode), [mode](Environment& cuda) {
      auto value = static_cast<CUstreamCaptureMode>(mode);
      return cuda->cuThreadExchangeStreamCaptureMode(&value);
    });
  table.add("capture.exchange_null",
            [](Environment& cuda) { return cuda->cuThreadExchangeStreamCaptureMode(nullptr); });
  table.add("capture.launch", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const Kernels kernels{cuda};
    const CUstream stream = capturing(cuda, CU_STREAM_CAPTURE_MODE_GLOBAL);
    return spaces({kernels.store(address, 3, stream), status(cuda, stream), end(cuda, stream)});
  });
  table.add("capture.of_other_context", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream stream = cuda.stream();
    cuda.new_context();
    return spaces({begin(cuda, stream), cuda->cuMemsetD8Async(address, 1, 64, stream), end(cuda, stream)});
  });
}

}  // namespace

void add_capture_structure_cases(Table& table) {
  add_beginning(table);
  add_ending(table);
  add_forks(table);
  add_implicit(table);
  add_questions(table);
}

}  // namespace cuvmm::conformance
