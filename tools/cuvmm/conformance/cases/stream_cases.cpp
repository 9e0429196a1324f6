// Streams: creation, queries, host functions, and order between streams.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"

namespace cuvmm::conformance {

namespace {

CUresult try_create(Environment& cuda, unsigned flags) {
  CUstream stream = nullptr;
  return cuda->cuStreamCreate(&stream, flags);
}

void add_creation(Table& table) {
  for (const unsigned flags : {0U, 1U, 2U, 3U, 0x100U})
    table.add("stream.create_flags_" + std::to_string(flags), [flags](Environment& cuda) -> Answer {
      CUstream stream = nullptr;
      const CUresult result = cuda->cuStreamCreate(&stream, flags);
      if (result != CUDA_SUCCESS) return result;
      unsigned seen = 99;
      const CUresult asked = cuda->cuStreamGetFlags(stream, &seen);
      return spaces({result, slashes({asked, seen})});
    });
  table.add("stream.create_null_out", [](Environment& cuda) { return cuda->cuStreamCreate(nullptr, 0); });
  for (const int priority : {-100, -5, -1, 0, 1, 100})
    table.add("stream.create_priority_" + std::to_string(priority), [priority](Environment& cuda) {
      CUstream stream = nullptr;
      return cuda->cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority);
    });
  table.add("stream.create_priority_bad_flags", [](Environment& cuda) {
    CUstream stream = nullptr;
    return cuda->cuStreamCreateWithPriority(&stream, 2, 0);
  });
  table.add("stream.create_many", [](Environment& cuda) {
    for (int i = 0; i < 200; ++i)
      if (const CUresult result = try_create(cuda, CU_STREAM_NON_BLOCKING); result != CUDA_SUCCESS)
        return joined("@", {result, i});
    return std::string{"OK"};
  });
}

void add_destruction(Table& table) {
  table.add("stream.destroy_null", [](Environment& cuda) { return cuda->cuStreamDestroy(nullptr); });
  table.add("stream.destroy_legacy", [](Environment& cuda) { return cuda->cuStreamDestroy(legacy_stream()); });
  table.add("stream.destroy_per_thread", [](Environment& cuda) { return cuda->cuStreamDestroy(per_thread_stream()); });
  table.add("stream.destroy_busy", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 0);
    const CUstream stream = cuda.stream();
    Gate& gate = lasting_gate();
    gate.block(cuda, stream);
    cuda.expect("memset", cuda->cuMemsetD32Async(address, 5, 1, stream));
    const CUresult destroyed = cuda->cuStreamDestroy(stream);
    gate.open();
    const CUresult waited = cuda->cuCtxSynchronize();
    return spaces({destroyed, waited, cuda.read_word(address)});
  });
}

void add_queries(Table& table) {
  table.add("stream.query_idle", [](Environment& cuda) { return cuda->cuStreamQuery(cuda.stream()); });
  table.add(
      "stream.query_busy",
      [](Environment& cuda) {
        const CUstream stream = cuda.stream();
        Gate& gate = lasting_gate();
        gate.block(cuda, stream);
        const CUresult busy = cuda->cuStreamQuery(stream);
        gate.open();
        return spaces({busy, cuda->cuStreamSynchronize(stream), cuda->cuStreamQuery(stream)});
      },
      needs_concurrency);
  table.add("stream.query_default_ones", [](Environment& cuda) {
    return spaces(
        {cuda->cuStreamQuery(nullptr), cuda->cuStreamQuery(legacy_stream()), cuda->cuStreamQuery(per_thread_stream())});
  });
  table.add("stream.synchronize_default_ones", [](Environment& cuda) {
    return spaces({cuda->cuStreamSynchronize(nullptr), cuda->cuStreamSynchronize(legacy_stream()),
                   cuda->cuStreamSynchronize(per_thread_stream())});
  });
  table.add("stream.flags_of_default_ones", [](Environment& cuda) {
    unsigned of_null = 99;
    unsigned of_legacy = 99;
    unsigned of_per_thread = 99;
    const CUresult first = cuda->cuStreamGetFlags(nullptr, &of_null);
    const CUresult second = cuda->cuStreamGetFlags(legacy_stream(), &of_legacy);
    const CUresult third = cuda->cuStreamGetFlags(per_thread_stream(), &of_per_thread);
    return spaces({slashes({first, of_null}), slashes({second, of_legacy}), slashes({third, of_per_thread})});
  });
  table.add("stream.flags_null_out", [](Environment& cuda) { return cuda->cuStreamGetFlags(cuda.stream(), nullptr); });
  table.add("stream.context_of", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    cuda.new_context();
    CUcontext of_stream = nullptr;
    CUcontext of_null = nullptr;
    const CUresult first = cuda->cuStreamGetCtx(stream, &of_stream);
    const CUresult second = cuda->cuStreamGetCtx(nullptr, &of_null);
    const auto name = [&](CUcontext context) { return context == cuda.context() ? "primary" : "other"; };
    return spaces({slashes({first, name(of_stream)}), slashes({second, name(of_null)})});
  });
  table.add("stream.context_null_out", [](Environment& cuda) { return cuda->cuStreamGetCtx(cuda.stream(), nullptr); });
}

void add_waiting(Table& table) {
  table.add("stream.wait_event_never_recorded",
            [](Environment& cuda) { return cuda->cuStreamWaitEvent(cuda.stream(), cuda.event(), 0); });
  table.add("stream.wait_event_null",
            [](Environment& cuda) { return cuda->cuStreamWaitEvent(cuda.stream(), nullptr, 0); });
  for (const unsigned flags : {1U, 2U})
    table.add("stream.wait_event_flags_" + std::to_string(flags),
              [flags](Environment& cuda) { return cuda->cuStreamWaitEvent(cuda.stream(), cuda.event(), flags); });
  table.add(
      "stream.wait_event_orders",
      [](Environment& cuda) {
        const CUstream first = cuda.stream();
        const CUstream second = cuda.stream();
        const CUevent event = cuda.event();
        Gate& gate = lasting_gate();
        gate.block(cuda, first);
        cuda.expect("record", cuda->cuEventRecord(event, first));
        cuda.expect("wait", cuda->cuStreamWaitEvent(second, event, 0));
        const CUresult held = cuda->cuStreamQuery(second);
        gate.open();
        return spaces({held, cuda->cuStreamSynchronize(second)});
      },
      needs_concurrency);
  table.add(
      "stream.wait_takes_last_record_before_it",
      [](Environment& cuda) {
        const CUstream first = cuda.stream();
        const CUstream second = cuda.stream();
        const CUevent event = cuda.event();
        cuda.expect("record", cuda->cuEventRecord(event, first));
        cuda.expect("wait", cuda->cuStreamWaitEvent(second, event, 0));
        Gate& gate = lasting_gate();
        gate.block(cuda, first);
        cuda.expect("record", cuda->cuEventRecord(event, first));
        const CUresult not_held = cuda->cuStreamSynchronize(second);
        gate.open();
        return not_held;
      },
      needs_concurrency);
}

// Whether work on one stream holds back the legacy default stream.
void add_legacy(Table& table) {
  for (const unsigned flags : {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING})
    table.add(
        flags == CU_STREAM_DEFAULT ? "stream.legacy_waits_for_blocking" : "stream.legacy_and_non_blocking",
        [flags](Environment& cuda) {
          const CUdeviceptr address = cuda.mapped();
          const CUstream stream = cuda.stream(flags);
          Gate& gate = lasting_gate();
          gate.block(cuda, stream);
          const CUresult queried = cuda->cuStreamQuery(nullptr);
          cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, nullptr));
          const CUevent event = cuda.event();
          cuda.expect("record", cuda->cuEventRecord(event, nullptr));
          CUresult done = CUDA_SUCCESS;
          if (flags == CU_STREAM_NON_BLOCKING)
            done = cuda->cuEventSynchronize(event);
          else
            done = cuda->cuEventQuery(event);
          gate.open();
          return spaces({queried, done, cuda->cuCtxSynchronize()});
        },
        needs_concurrency);
  table.add(
      "stream.blocking_waits_for_legacy",
      [](Environment& cuda) {
        const CUdeviceptr address = cuda.mapped();
        const CUstream blocking = cuda.stream(CU_STREAM_DEFAULT);
        const CUstream free = cuda.stream(CU_STREAM_NON_BLOCKING);
        Gate& gate = lasting_gate();
        gate.block(cuda, nullptr);
        cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, blocking));
        cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, free));
        const CUresult held = cuda->cuStreamQuery(blocking);
        const CUresult not_held = cuda->cuStreamSynchronize(free);
        gate.open();
        return spaces({held, not_held, cuda->cuCtxSynchronize()});
      },
      needs_concurrency);
}

void add_host_functions(Table& table) {
  table.add("stream.host_function_null",
            [](Environment& cuda) { return cuda->cuLaunchHostFunc(cuda.stream(), nullptr, nullptr); });
  table.add("stream.host_function_runs_after_copies", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    static unsigned seen = 0;
    auto* host = static_cast<unsigned*>(cuda.allocate_host());
    *host = 0;
    const CUstream stream = cuda.stream();
    cuda.expect("memset", cuda->cuMemsetD32Async(address, 71, 1, stream));
    cuda.expect("copy", cuda->cuMemcpyDtoHAsync(host, address, 4, stream));
    const CUresult result = cuda->cuLaunchHostFunc(
        stream, [](void* data) { seen = *static_cast<unsigned*>(data); }, host);
    return spaces({result, cuda->cuStreamSynchronize(stream), seen});
  });
  const std::pair<const char*, CUresult (*)(Environment&)> calls[] = {
      {"memory_info",
       [](Environment& cuda) {
         std::size_t free = 0;
         std::size_t total = 0;
         return cuda->cuMemGetInfo(&free, &total);
       }},
      {"allocate",
       [](Environment& cuda) {
         CUdeviceptr address = 0;
         return cuda->cuMemAlloc(&address, 4096);
       }},
      {"create", [](Environment& cuda) { return cuda.try_create(granule, device_memory()); }},
      {"current",
       [](Environment& cuda) {
         CUcontext context = nullptr;
         return cuda->cuCtxGetCurrent(&context);
       }},
      {"version",
       [](Environment& cuda) {
         int version = 0;
         return cuda->cuDriverGetVersion(&version);
       }},
  };
  for (const auto& [name, call] : calls)
    table.add(std::string{"stream.host_function_calls_"} + name, [call = call](Environment& cuda) {
      struct Inside {
        Environment& cuda;
        CUresult (*call)(Environment&);
        CUresult result;
      };
      static Inside* inside = nullptr;
      inside = new Inside{cuda, call, CUDA_ERROR_UNKNOWN};
      const CUstream stream = cuda.stream();
      cuda.expect("host function", cuda->cuLaunchHostFunc(
                                       stream, [](void*) { inside->result = inside->call(inside->cuda); }, nullptr));
      return spaces({cuda->cuStreamSynchronize(stream), inside->result});
    });
}

void add_contexts(Table& table) {
  table.add("stream.of_other_context", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream stream = cuda.stream();
    cuda.new_context();
    return spaces({cuda->cuMemsetD8Async(address, 1, 64, stream), cuda->cuStreamSynchronize(stream),
                   cuda->cuStreamQuery(stream)});
  });
  table.add("stream.of_destroyed_context", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    const CUstream stream = cuda.stream();
    cuda.expect("destroy", cuda->cuCtxDestroy(created));
    cuda.make_current(cuda.context());
    return cuda->cuStreamQuery(stream);
  });
}

}  // namespace

void add_stream_cases(Table& table) {
  add_creation(table);
  add_destruction(table);
  add_queries(table);
  add_waiting(table);
  add_legacy(table);
  add_host_functions(table);
  add_contexts(table);
}

}  // namespace cuvmm::conformance
