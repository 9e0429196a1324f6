// cuStreamWriteValue and cuStreamWaitValue.
#include <atomic>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// What to write to or wait for, by the kind of memory.
struct Place {
  const char* name;
  CUdeviceptr (*make)(Environment&);
  bool harmless = false;  // whatever a driver lets pass elsewhere may break the context
};

CUdeviceptr stack_word(Environment&) {
  static unsigned long long local = 0;
  return as_address(&local);
}

constexpr Place places[] = {
    {"mapped", [](Environment& cuda) { return cuda.mapped(); }, true},
    {"mapped_offset_1", [](Environment& cuda) { return cuda.mapped() + 1; }},
    {"mapped_offset_2", [](Environment& cuda) { return cuda.mapped() + 2; }},
    {"mapped_offset_4", [](Environment& cuda) { return cuda.mapped() + 4; }},
    {"mapped_last_word", [](Environment& cuda) { return cuda.mapped() + granule - 4; }},
    {"read_only", [](Environment& cuda) { return cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ); }},
    {"no_access", [](Environment& cuda) { return cuda.mapped(granule, 0); }},
    {"reserved", [](Environment& cuda) { return cuda.reserve(granule); }},
    {"allocated", [](Environment& cuda) { return cuda.allocate(); }, true},
    {"host_alloc", [](Environment& cuda) { return as_address(cuda.allocate_host()); }, true},
    {"host_numa",
     [](Environment& cuda) { return cuda.mapped(granule, 3, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)); }},
    {"stack", stack_word},
    {"null", [](Environment&) { return CUdeviceptr{0}; }},
};

// The call's result; and, if it was accepted, that of waiting for it.
Answer enqueued(Environment& cuda, CUstream stream, CUresult result) {
  if (result != CUDA_SUCCESS) return result;
  return spaces({result, cuda->cuStreamSynchronize(stream)});
}

void add_place(Table& table, const Place& place) {
  const std::string name = place.name;
  const Needs needs = place.harmless ? Needs{} : needs_alone;
  table.add(
      "stream_value.write_32." + name,
      [place](Environment& cuda) {
        const CUdeviceptr address = place.make(cuda);
        const CUstream stream = cuda.stream();
        return enqueued(cuda, stream, cuda->cuStreamWriteValue32(stream, address, 7, 0));
      },
      needs);
  table.add(
      "stream_value.write_64." + name,
      [place](Environment& cuda) {
        const CUdeviceptr address = place.make(cuda);
        const CUstream stream = cuda.stream();
        return enqueued(cuda, stream, cuda->cuStreamWriteValue64(stream, address, 7, 0));
      },
      needs);
  // New memory holds zeros, so the wait ends at once where the word can be read.
  table.add(
      "stream_value.wait_32." + name,
      [place](Environment& cuda) {
        const CUdeviceptr address = place.make(cuda);
        const CUstream stream = cuda.stream();
        return enqueued(cuda, stream, cuda->cuStreamWaitValue32(stream, address, 0, CU_STREAM_WAIT_VALUE_GEQ));
      },
      needs);
}

void add_values(Table& table) {
  table.add("stream_value.written", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream stream = cuda.stream();
    cuda.expect("write", cuda->cuStreamWriteValue32(stream, address, 0x12345678, 0));
    cuda.expect("write", cuda->cuStreamWriteValue64(stream, address + 8, 0x1111111122222222, 0));
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return spaces({cuda.read_word(address), cuda.read_word(address + 8), cuda.read_word(address + 12)});
  });
  for (const unsigned flags : {1U, 2U, 4U})
    table.add("stream_value.write_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      const CUdeviceptr address = cuda.mapped();
      const CUstream stream = cuda.stream();
      return enqueued(cuda, stream, cuda->cuStreamWriteValue32(stream, address, 7, flags));
    });
  table.add("stream_value.write_on_default_streams", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    return spaces({cuda->cuStreamWriteValue32(nullptr, address, 7, 0),
                   cuda->cuStreamWriteValue32(legacy_stream(), address, 7, 0),
                   cuda->cuStreamWriteValue32(per_thread_stream(), address, 7, 0), cuda->cuCtxSynchronize()});
  });
}

// A wait that is satisfied from the beginning, in each form.
void add_satisfied(Table& table) {
  struct Wait {
    const char* name;
    unsigned held;
    unsigned wanted;
    unsigned flags;
  };
  constexpr unsigned flush = 1U << 30;
  const Wait waits[] = {{"geq_equal", 5, 5, 0},
                        {"geq_greater", 6, 5, 0},
                        {"geq_wrapped", 2, 0xfffffffe, 0},
                        {"eq", 5, 5, 1},
                        {"and", 6, 2, 2},
                        {"nor", 4, 3, 3},
                        {"flag_4", 4, 4, 4},
                        {"flag_7", 4, 4, 7},
                        {"flush", 5, 5, flush},
                        {"flag_2^29", 5, 5, 1U << 29}};
  for (const Wait& wait : waits)
    table.add(std::string{"stream_value.wait_"} + wait.name, [wait](Environment& cuda) {
      const CUdeviceptr address = cuda.mapped();
      cuda.write_word(address, wait.held);
      const CUstream stream = cuda.stream();
      return enqueued(cuda, stream, cuda->cuStreamWaitValue32(stream, address, wait.wanted, wait.flags));
    });
}

// A wait that is not satisfied until somebody writes.
void add_pending(Table& table) {
  table.add("stream_value.wait_released_by_other_stream", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 0);
    const CUstream waiting = cuda.stream();
    const CUstream writing = cuda.stream();
    const CUresult enqueued_wait = cuda->cuStreamWaitValue32(waiting, address, 1, CU_STREAM_WAIT_VALUE_EQ);
    const CUresult held = cuda->cuStreamQuery(waiting);
    cuda.expect("write", cuda->cuStreamWriteValue32(writing, address, 1, 0));
    return spaces({enqueued_wait, held, cuda->cuStreamSynchronize(waiting)});
  });
  table.add("stream_value.wait_released_by_host_store", [](Environment& cuda) {
    auto* host = static_cast<std::atomic<unsigned>*>(cuda.allocate_host());
    *host = 0;
    const CUstream waiting = cuda.stream();
    const CUresult enqueued_wait = cuda->cuStreamWaitValue32(waiting, as_address(host), 1, CU_STREAM_WAIT_VALUE_GEQ);
    const CUresult held = cuda->cuStreamQuery(waiting);
    *host = 1;
    return spaces({enqueued_wait, held, cuda->cuStreamSynchronize(waiting)});
  });
  table.add("stream_value.wait_64_released", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.expect("memset", cuda->cuMemsetD8(address, 0, 64));
    cuda.expect("synchronize", cuda->cuCtxSynchronize());  // a memset may still run, and these streams do not wait
    const CUstream waiting = cuda.stream();
    const CUstream writing = cuda.stream();
    constexpr unsigned long long wanted = 1ULL << 40;
    const CUresult enqueued_wait = cuda->cuStreamWaitValue64(waiting, address, wanted, CU_STREAM_WAIT_VALUE_GEQ);
    const CUresult held = cuda->cuStreamQuery(waiting);
    cuda.expect("write", cuda->cuStreamWriteValue64(writing, address, wanted, 0));
    return spaces({enqueued_wait, held, cuda->cuStreamSynchronize(waiting)});
  });
}

}  // namespace

void add_stream_value_cases(Table& table) {
  for (const Place& place : places) add_place(table, place);
  add_values(table);
  add_satisfied(table);
  add_pending(table);
}

}  // namespace cuvmm::conformance
