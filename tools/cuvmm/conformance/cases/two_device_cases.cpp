// Two devices: contexts, streams, events, captures and memory of one while the other is current.
#include <array>
#include <string>
#include <vector>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

constexpr Needs needs_two_devices_and_concurrency{Start::context, 2, false, false, false, true};

// The first device's context is current, and the second one's is there.
struct Pair {
  explicit Pair(Environment& environment) : cuda(environment), second(environment.primary(1)) {}
  // Runs it with the second device's context current.
  template <class Work>
  auto there(Work&& work) {
    cuda.make_current(second);
    auto made = work();
    cuda.make_current(cuda.context());
    return made;
  }
  CUstream stream_there() {
    return there([&] { return cuda.stream(); });
  }
  CUevent event_there(unsigned flags = CU_EVENT_DISABLE_TIMING) {
    return there([&] { return cuda.event(flags); });
  }
  CUdeviceptr allocated_there() {
    return there([&] { return cuda.allocate(); });
  }
  // Mapped memory of a device, open to the devices of `grants`.
  CUdeviceptr mapped(int device, const std::vector<int>& grants) {
    const CUdeviceptr address = cuda.mapped(granule, 0, device_memory(device));
    for (const int each : grants) cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, each);
    return address;
  }

  Environment& cuda;
  CUcontext second;
};

using PairFunction = Answer (*)(Pair&);

void add(Table& table, const std::string& what, PairFunction function, Needs needs = needs_two_devices) {
  table.add(
      "two_devices." + what,
      [function](Environment& cuda) {
        Pair pair{cuda};
        return function(pair);
      },
      needs);
}

const char* relation(const void* one, const void* first, const void* second) {
  return one == first ? "first" : one == second ? "second" : "other";
}

std::string ordinal(Environment& cuda, CUdeviceptr address) {
  int value = -5;
  const CUresult got = cuda->cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  return slashes({got, value});
}

void add_devices(Table& table) {
  add(table, "uuids_differ", [](Pair& pair) -> Answer {
    CUuuid first{};
    CUuuid second{};
    const CUresult one = pair.cuda->cuDeviceGetUuid(&first, 0);
    const CUresult other = pair.cuda->cuDeviceGetUuid(&second, 1);
    const bool same = std::equal(std::begin(first.bytes), std::end(first.bytes), std::begin(second.bytes));
    return spaces({one, other, same ? "same" : "other"});
  });
  add(table, "pci_bus_id_leads_back", [](Pair& pair) -> Answer {
    std::array<char, 64> id{};
    CUdevice device = -5;
    const CUresult told = pair.cuda->cuDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), 1);
    return spaces({told, slashes({pair.cuda->cuDeviceGetByPCIBusId(&device, id.data()), device})});
  });
  add(table, "state_of_second_primary_context", [](Pair& pair) -> Answer {
    unsigned flags = 9;
    int active = -1;
    const CUresult with = pair.cuda->cuDevicePrimaryCtxGetState(1, &flags, &active);
    const std::string retained = slashes({with, flags, active});
    const CUresult released = pair.cuda->cuDevicePrimaryCtxRelease(1);
    const CUresult without = pair.cuda->cuDevicePrimaryCtxGetState(1, &flags, &active);
    return spaces({retained, released, slashes({without, flags, active})});
  });
  add(table, "reset_of_second_leaves_the_first", [](Pair& pair) -> Answer {
    const CUdeviceptr here = pair.cuda.mapped();
    const CUdeviceptr there = pair.mapped(1, {0});
    const CUresult reset = pair.cuda->cuDevicePrimaryCtxReset(1);
    return spaces({reset, pair.cuda->cuMemsetD8(here, 1, 4), pair.cuda->cuMemsetD8(there, 1, 4)});
  });
  add(table, "created_context_of_second", [](Pair& pair) -> Answer {
    CUcontext made = nullptr;
    CUcontext current = nullptr;
    CUdevice device = -5;
    const CUresult created = pair.cuda->cuCtxCreate(&made, 0, 1);
    const CUresult told = pair.cuda->cuCtxGetDevice(&device);
    const std::string where = slashes({told, device});
    const CUresult popped = pair.cuda->cuCtxPopCurrent(&current);
    const char* was = relation(current, made, pair.cuda.context());
    pair.cuda.expect("current", pair.cuda->cuCtxGetCurrent(&current));
    return spaces({created, where, popped, was, relation(current, pair.cuda.context(), pair.second),
                   pair.cuda->cuCtxDestroy(made)});
  });
  add(
      table, "synchronizing_one_context_leaves_the_other",
      [](Pair& pair) -> Answer {
        Gate gate;
        const CUstream there = pair.stream_there();
        gate.block(pair.cuda, there);
        const CUresult here = pair.cuda->cuCtxSynchronize();
        const CUresult waits = pair.cuda->cuStreamQuery(there);
        gate.open();
        return spaces({here, waits, pair.cuda->cuStreamSynchronize(there)});
      },
      needs_two_devices_and_concurrency);
}

// The ordinal behind the last one.
void add_ordinals(Table& table) {
  struct Call {
    const char* name;
    CUresult (*call)(Environment&);
  };
  for (const Call& each : {
           Call{"cuDevicePrimaryCtxRetain",
                [](Environment& cuda) {
                  CUcontext made = nullptr;
                  return cuda->cuDevicePrimaryCtxRetain(&made, 2);
                }},
           Call{"cuCtxCreate",
                [](Environment& cuda) {
                  CUcontext made = nullptr;
                  return cuda->cuCtxCreate(&made, 0, 2);
                }},
           Call{"cuDeviceTotalMem",
                [](Environment& cuda) {
                  std::size_t bytes = 0;
                  return cuda->cuDeviceTotalMem(&bytes, 2);
                }},
           Call{"cuDeviceGetDefaultMemPool",
                [](Environment& cuda) {
                  CUmemoryPool pool = nullptr;
                  return cuda->cuDeviceGetDefaultMemPool(&pool, 2);
                }},
           Call{"cuDeviceGetMemPool",
                [](Environment& cuda) {
                  CUmemoryPool pool = nullptr;
                  return cuda->cuDeviceGetMemPool(&pool, 2);
                }},
           Call{"cuDeviceSetMemPool", [](Environment& cuda) { return cuda->cuDeviceSetMemPool(2, new_pool(cuda)); }},
           Call{"cuMemPoolCreate",
                [](Environment& cuda) {
                  const CUmemPoolProps properties = pool_properties(2);
                  CUmemoryPool pool = nullptr;
                  return cuda->cuMemPoolCreate(&pool, &properties);
                }},
           Call{"cuMemPoolSetAccess",
                [](Environment& cuda) {
                  const CUmemAccessDesc access = access_of(2);
                  return cuda->cuMemPoolSetAccess(new_pool(cuda), &access, 1);
                }},
           Call{"cuDeviceGetGraphMemAttribute",
                [](Environment& cuda) {
                  unsigned long long value = 0;
                  return cuda->cuDeviceGetGraphMemAttribute(2, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &value);
                }},
           Call{"cuDeviceGraphMemTrim", [](Environment& cuda) { return cuda->cuDeviceGraphMemTrim(2); }},
           Call{"cuMemCreate", [](Environment& cuda) { return cuda.try_create(granule, device_memory(2)); }},
           Call{"cuMemSetAccess",
                [](Environment& cuda) {
                  const CUmemAccessDesc access = access_of(2);
                  return cuda->cuMemSetAccess(cuda.mapped(), granule, &access, 1);
                }},
           Call{"cuMemGetAccess",
                [](Environment& cuda) {
                  unsigned long long flags = 0;
                  const CUmemLocation place = location(2);
                  return cuda->cuMemGetAccess(&flags, &place, cuda.mapped());
                }},
       })
    table.add(std::string{"two_devices.ordinal_2."} + each.name, each.call, needs_two_devices);
  for (const auto& [device, peer] : std::vector<std::pair<int, int>>{{0, 2}, {2, 0}, {1, 1}, {1, 0}, {1, -1}}) {
    const std::string name = std::to_string(device) + "_" + std::to_string(peer);
    table.add(
        "two_devices.can_access_" + name,
        [device = device, peer = peer](Environment& cuda) {
          int can = -5;
          return slashes({cuda->cuDeviceCanAccessPeer(&can, device, peer), can});
        },
        needs_two_devices);
    for (const int attribute : {0, 1, 4, 5})
      table.add(
          "two_devices.p2p_attribute_" + std::to_string(attribute) + "_of_" + name,
          [device = device, peer = peer, attribute](Environment& cuda) {
            int value = -5;
            return slashes(
                {cuda->cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(attribute), device, peer),
                 value});
          },
          needs_two_devices);
  }
}

void add_streams(Table& table) {
  add(table, "stream_tells_its_context", [](Pair& pair) -> Answer {
    CUcontext context = nullptr;
    const CUresult got = pair.cuda->cuStreamGetCtx(pair.stream_there(), &context);
    return slashes({got, relation(context, pair.cuda.context(), pair.second)});
  });
  add(table, "null_stream_is_the_current_devices", [](Pair& pair) -> Answer {
    const CUdeviceptr here = pair.mapped(0, {0});
    return pair.there([&]() -> Answer {
      CUcontext context = nullptr;
      const CUresult got = pair.cuda->cuStreamGetCtx(nullptr, &context);
      return spaces({slashes({got, relation(context, pair.cuda.context(), pair.second)}),
                     pair.cuda->cuMemsetD8Async(here, 1, 4, nullptr)});
    });
  });
  add(table, "stream_of_the_other_is_queried_and_destroyed", [](Pair& pair) -> Answer {
    const CUstream there = pair.stream_there();
    return commas(
        {pair.cuda->cuStreamQuery(there), pair.cuda->cuStreamSynchronize(there), pair.cuda->cuStreamDestroy(there)});
  });
  add(table, "event_of_the_other_is_recorded_here", [](Pair& pair) -> Answer {
    const CUevent event = pair.event_there();
    return commas({pair.cuda->cuEventRecord(event, pair.cuda.stream()), pair.cuda->cuEventQuery(event),
                   pair.cuda->cuEventSynchronize(event)});
  });
  add(table, "event_of_the_other_is_recorded_there", [](Pair& pair) -> Answer {
    const CUevent event = pair.event_there();
    const CUstream there = pair.stream_there();
    return commas({pair.cuda->cuEventRecord(event, there), pair.cuda->cuEventSynchronize(event),
                   pair.cuda->cuStreamWaitEvent(pair.cuda.stream(), event, 0), pair.cuda->cuEventDestroy(event)});
  });
  add(table, "elapsed_time_between_devices", [](Pair& pair) -> Answer {
    const CUevent here = pair.cuda.event(CU_EVENT_DEFAULT);
    const CUevent there = pair.event_there(CU_EVENT_DEFAULT);
    const CUstream other = pair.stream_there();
    pair.cuda.expect("record", pair.cuda->cuEventRecord(here, pair.cuda.stream()));
    pair.cuda.expect("record", pair.cuda->cuEventRecord(there, other));
    pair.cuda.expect("synchronize", pair.cuda->cuEventSynchronize(here));
    pair.cuda.expect("synchronize", pair.cuda->cuEventSynchronize(there));
    float milliseconds = 0;
    return pair.cuda->cuEventElapsedTime(&milliseconds, here, there);
  });
  add(
      table, "work_there_waits_for_work_here",
      [](Pair& pair) -> Answer {
        Environment& cuda = pair.cuda;
        Gate gate;
        const CUdeviceptr shared = pair.mapped(0, {0, 1});
        const CUstream here = cuda.stream();
        const CUstream there = pair.stream_there();
        const CUevent done = cuda.event();
        cuda.expect("clear", cuda->cuMemsetD8(shared, 0, 4));
        cuda.expect("synchronize", cuda->cuCtxSynchronize());  // it may return before it is done
        gate.block(cuda, here);
        const CUresult first = cuda->cuMemsetD8Async(shared, 1, 4, here);
        cuda.expect("record", cuda->cuEventRecord(done, here));
        cuda.expect("wait", cuda->cuStreamWaitEvent(there, done, 0));
        const CUresult second = cuda->cuMemsetD8Async(shared, 2, 2, there);
        const CUresult waits = cuda->cuStreamQuery(there);
        gate.open();
        cuda.expect("synchronize", cuda->cuStreamSynchronize(there));
        return spaces({first, second, waits, cuda.read_word(shared)});
      },
      needs_two_devices_and_concurrency);
  add(table, "streams_write_values_to_each_others_memory", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUdeviceptr open = pair.mapped(0, {0, 1});
    const CUdeviceptr closed = pair.mapped(0, {0});
    const CUdeviceptr allocated = cuda.allocate();
    const CUstream there = pair.stream_there();
    return commas({cuda->cuStreamWriteValue32(there, open, 5, 0), cuda->cuStreamWriteValue32(there, closed, 5, 0),
                   cuda->cuStreamWriteValue32(there, allocated, 5, 0), cuda->cuStreamSynchronize(there),
                   cuda.read_word(open)});
  });
  add(table, "stream_there_waits_for_a_value_here", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUdeviceptr flag = pair.mapped(0, {0, 1});
    cuda.write_word(flag, 0);
    const CUstream there = pair.stream_there();
    const CUresult waits = cuda->cuStreamWaitValue32(there, flag, 1, CU_STREAM_WAIT_VALUE_GEQ);
    const CUresult before = cuda->cuStreamQuery(there);
    const CUresult written = cuda->cuStreamWriteValue32(cuda.stream(), flag, 1, 0);
    return commas({waits, before, written, cuda->cuStreamSynchronize(there)});
  });
}

void add_copies(Table& table) {
  struct Copy {
    const char* name;
    CUresult (*call)(Pair&, CUdeviceptr here, CUdeviceptr there);
  };
  const std::vector<Copy> copies = {
      {"peer_async",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeerAsync(there, pair.second, here, pair.cuda.context(), 64, pair.cuda.stream());
       }},
      {"peer_async_back",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeerAsync(here, pair.cuda.context(), there, pair.second, 64, pair.cuda.stream());
       }},
      {"peer_async_swapped",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeerAsync(there, pair.cuda.context(), here, pair.second, 64, pair.cuda.stream());
       }},
      {"peer_async_in_the_others_stream",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeerAsync(there, pair.second, here, pair.cuda.context(), 64, pair.stream_there());
       }},
      {"peer_async_null_contexts",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeerAsync(there, nullptr, here, nullptr, 64, pair.cuda.stream());
       }},
      {"peer_async_of_nothing",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeerAsync(there, pair.second, here, pair.cuda.context(), 0, pair.cuda.stream());
       }},
      {"peer_null_contexts",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyPeer(there, nullptr, here, nullptr, 64);
       }},
      {"dtod_async",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyDtoDAsync(there, here, 64, pair.cuda.stream());
       }},
      {"dtod_async_in_the_others_stream",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr there) {
         return pair.cuda->cuMemcpyDtoDAsync(there, here, 64, pair.stream_there());
       }},
      {"any_async", [](Pair& pair, CUdeviceptr here,
                       CUdeviceptr there) { return pair.cuda->cuMemcpyAsync(here, there, 64, pair.cuda.stream()); }},
      {"memset_async_of_the_others",
       [](Pair& pair, CUdeviceptr, CUdeviceptr there) {
         return pair.cuda->cuMemsetD32Async(there, 7, 4, pair.cuda.stream());
       }},
      {"memset_async_of_ours_in_the_others_stream",
       [](Pair& pair, CUdeviceptr here, CUdeviceptr) {
         return pair.cuda->cuMemsetD32Async(here, 7, 4, pair.stream_there());
       }},
      {"htod_async_of_the_others",
       [](Pair& pair, CUdeviceptr, CUdeviceptr there) {
         static unsigned word = 7;
         return pair.cuda->cuMemcpyHtoDAsync(there, &word, sizeof word, pair.cuda.stream());
       }},
      {"dtoh_async_of_the_others",
       [](Pair& pair, CUdeviceptr, CUdeviceptr there) {
         static unsigned word = 7;
         return pair.cuda->cuMemcpyDtoHAsync(&word, there, sizeof word, pair.cuda.stream());
       }},
  };
  struct Memory {
    const char* name;
    CUdeviceptr (*here)(Pair&);
    CUdeviceptr (*there)(Pair&);
  };
  const std::vector<Memory> memories = {
      {"allocated", [](Pair& pair) { return pair.cuda.allocate(); }, [](Pair& pair) { return pair.allocated_there(); }},
      {"mapped", [](Pair& pair) { return pair.mapped(0, {0}); }, [](Pair& pair) { return pair.mapped(1, {1}); }},
      {"mapped_for_both",
       [](Pair& pair) {
         return pair.mapped(0, {0, 1});
       },
       [](Pair& pair) {
         return pair.mapped(1, {0, 1});
       }},
  };
  for (const Memory& memory : memories)
    for (const Copy& copy : copies)
      table.add(
          std::string{"two_devices.copy."} + memory.name + "." + copy.name,
          [memory, copy](Environment& cuda) {
            Pair pair{cuda};
            const CUdeviceptr here = memory.here(pair);
            const CUdeviceptr there = memory.there(pair);
            const CUresult copied = copy.call(pair, here, there);
            const CUresult finished = cuda->cuCtxSynchronize();
            return spaces({copied, finished, pair.there([&] { return cuda->cuCtxSynchronize(); })});
          },
          needs_two_devices);
}

CUgraphExec ended(Environment& cuda, CUstream stream) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  cuda.expect("end capture", cuda->cuStreamEndCapture(stream, &graph));
  cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

void begin(Environment& cuda, CUstream stream) {
  cuda.expect("begin capture", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

void add_graphs(Table& table) {
  add(table, "captured_in_the_others_stream", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUdeviceptr there = pair.mapped(1, {0, 1});
    const CUstream stream = pair.stream_there();
    begin(cuda, stream);
    const CUresult captured = cuda->cuMemsetD8Async(there, 3, 4, stream);
    const CUgraphExec exec = ended(cuda, stream);
    const CUresult launched = cuda->cuGraphLaunch(exec, stream);
    return spaces({captured, launched, cuda->cuStreamSynchronize(stream), cuda.read_word(there)});
  });
  add(table, "captured_there_and_launched_here", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUdeviceptr there = pair.mapped(1, {0, 1});
    const CUstream stream = pair.stream_there();
    begin(cuda, stream);
    const CUresult captured = cuda->cuMemsetD8Async(there, 3, 4, stream);
    const CUgraphExec exec = ended(cuda, stream);
    const CUstream here = cuda.stream();
    const CUresult launched = cuda->cuGraphLaunch(exec, here);
    return spaces({captured, launched, cuda->cuStreamSynchronize(here), cuda.read_word(there)});
  });
  add(table, "capture_forks_to_the_other_device", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUdeviceptr here = pair.mapped(0, {0});
    const CUdeviceptr there = pair.mapped(1, {0, 1});
    const CUstream stream = cuda.stream();
    const CUstream side = pair.stream_there();
    const CUevent fork = cuda.event();
    const CUevent join = pair.event_there();
    begin(cuda, stream);
    cuda.expect("memset", cuda->cuMemsetD8Async(here, 3, 4, stream));
    cuda.expect("record", cuda->cuEventRecord(fork, stream));
    const CUresult forked = cuda->cuStreamWaitEvent(side, fork, 0);
    const CUresult captured = cuda->cuMemsetD8Async(there, 4, 4, side);
    const CUresult recorded = cuda->cuEventRecord(join, side);
    const CUresult joined = cuda->cuStreamWaitEvent(stream, join, 0);
    const CUgraphExec exec = ended(cuda, stream);
    const CUresult launched = cuda->cuGraphLaunch(exec, stream);
    return spaces(
        {forked, captured, recorded, joined, launched, cuda->cuStreamSynchronize(stream), cuda.read_word(there)});
  });
  add(table, "captured_peer_copy", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUdeviceptr here = cuda.allocate();
    const CUdeviceptr there = pair.allocated_there();
    const CUstream stream = cuda.stream();
    begin(cuda, stream);
    const CUresult captured = cuda->cuMemcpyPeerAsync(there, pair.second, here, cuda.context(), 64, stream);
    const CUgraphExec exec = ended(cuda, stream);
    const CUresult launched = cuda->cuGraphLaunch(exec, stream);
    return spaces({captured, launched, cuda->cuStreamSynchronize(stream)});
  });
  add(table, "graph_allocates_there", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUstream stream = pair.stream_there();
    CUdeviceptr memory = 0;
    begin(cuda, stream);
    const CUresult allocated = cuda->cuMemAllocAsync(&memory, 4096, stream);
    const CUresult set = cuda->cuMemsetD8Async(memory, 1, 64, stream);
    const CUresult freed = cuda->cuMemFreeAsync(memory, stream);
    const CUgraphExec exec = ended(cuda, stream);
    const CUresult launched = cuda->cuGraphLaunch(exec, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    std::string answer = spaces({allocated, set, freed, launched});
    for (const int device : {0, 1}) {
      unsigned long long reserved = 0;
      const CUresult told =
          cuda->cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
      answer += " " + slashes({told, reserved / mebibyte});
    }
    return answer;
  });
  add(table, "upload_in_the_others_stream", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUstream stream = cuda.stream();
    begin(cuda, stream);
    cuda.expect("memset", cuda->cuMemsetD8Async(pair.mapped(0, {0}), 3, 4, stream));
    const CUgraphExec exec = ended(cuda, stream);
    const CUstream there = pair.stream_there();
    return commas({cuda->cuGraphUpload(exec, there), cuda->cuStreamSynchronize(there)});
  });
}

void add_pools(Table& table) {
  add(table, "pool_memory_is_the_streams_devices", [](Pair& pair) -> Answer {
    CUdeviceptr memory = 0;
    const CUstream there = pair.stream_there();
    const CUresult allocated = pair.cuda->cuMemAllocAsync(&memory, 64, there);
    pair.cuda.expect("synchronize", pair.cuda->cuStreamSynchronize(there));
    return spaces({allocated, ordinal(pair.cuda, memory), pair.cuda->cuMemsetD8(memory, 1, 64)});
  });
  add(table, "pool_of_the_other_device", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUmemoryPool pool = new_pool(cuda, pool_properties(1));
    const CUstream stream = cuda.stream();
    CUdeviceptr memory = 0;
    const CUresult allocated = cuda->cuMemAllocFromPoolAsync(&memory, 64, pool, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    const CUresult set = cuda->cuMemsetD8(memory, 1, 64);
    return spaces({allocated, ordinal(cuda, memory), set, cuda->cuMemFreeAsync(memory, stream),
                   cuda->cuStreamSynchronize(stream)});
  });
  add(table, "pool_memory_is_freed_in_the_others_stream", [](Pair& pair) -> Answer {
    const CUdeviceptr memory = allocate_from(pair.cuda, new_pool(pair.cuda), 64, pair.cuda.stream());
    const CUstream there = pair.stream_there();
    return commas({pair.cuda->cuMemFreeAsync(memory, there), pair.cuda->cuStreamSynchronize(there)});
  });
  add(table, "pool_memory_is_freed_by_the_other", [](Pair& pair) -> Answer {
    const CUdeviceptr memory = allocate_from(pair.cuda, new_pool(pair.cuda), 64, pair.cuda.stream());
    return pair.there([&] { return pair.cuda->cuMemFree(memory); });
  });
  add(table, "heap_memory_is_freed_in_the_others_stream",
      [](Pair& pair) -> Answer { return pair.cuda->cuMemFreeAsync(pair.cuda.allocate(), pair.stream_there()); });
  add(table, "pool_is_set_for_second", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUmemoryPool made = new_pool(cuda, pool_properties(1));
    CUmemLocation place = location(1);
    CUmemoryPool told = nullptr;
    const CUresult set = cuda->cuMemSetMemPool(&place, CU_MEM_ALLOCATION_TYPE_PINNED, made);
    const CUresult got = cuda->cuDeviceGetMemPool(&told, 1);
    CUmemoryPool first = nullptr;
    cuda.expect("first", cuda->cuDeviceGetMemPool(&first, 0));
    return spaces({set, slashes({got, told == made ? "set" : "other"}), first == made ? "set" : "other"});
  });
  add(table, "access_of_several_in_one_call", [](Pair& pair) -> Answer {
    const std::array<CUmemAccessDesc, 3> access = {access_of(0), access_of(1), access_of(1, 0)};
    const CUmemoryPool pool = new_pool(pair.cuda);
    CUmemLocation second = location(1);
    auto told = static_cast<CUmemAccess_flags>(9);
    const CUresult set = pair.cuda->cuMemPoolSetAccess(pool, access.data(), access.size());
    const CUresult got = pair.cuda->cuMemPoolGetAccess(&told, pool, &second);
    return spaces({set, slashes({got, static_cast<int>(told)})});
  });
  add(table, "access_is_taken_away_from_memory_there_is", [](Pair& pair) -> Answer {
    Environment& cuda = pair.cuda;
    const CUmemoryPool pool = new_pool(cuda);
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    const CUmemAccessDesc open = access_of(1);
    const CUmemAccessDesc closed = access_of(1, 0);
    cuda.expect("open", cuda->cuMemPoolSetAccess(pool, &open, 1));
    const CUresult with = pair.there([&] { return cuda->cuMemsetD8(memory, 1, 64); });
    cuda.expect("finish", pair.there([&] { return cuda->cuCtxSynchronize(); }));
    const CUresult taken = cuda->cuMemPoolSetAccess(pool, &closed, 1);
    return spaces({with, taken, pair.there([&] { return cuda->cuMemsetD8(memory, 1, 64); })});
  });
}

std::string range(Environment& cuda, CUdeviceptr address) {
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult got = cuda->cuMemGetAddressRange(&base, &size, address + 8);
  return slashes({got, base == address ? "begin" : "other", size});
}

void add_memory(Table& table) {
  add(table, "range_of_the_others_allocation",
      [](Pair& pair) -> Answer { return range(pair.cuda, pair.allocated_there()); });
  add(table, "range_of_the_others_mapping", [](Pair& pair) -> Answer { return range(pair.cuda, pair.mapped(1, {1})); });
  add(table, "range_of_the_others_mapping_open_to_us", [](Pair& pair) -> Answer {
    return range(pair.cuda, pair.mapped(1, {0, 1}));
  });
  add(table, "range_of_the_others_pool_memory", [](Pair& pair) -> Answer {
    const CUstream stream = pair.cuda.stream();
    const CUdeviceptr memory = allocate_from(pair.cuda, new_pool(pair.cuda, pool_properties(1)), 4096, stream);
    pair.cuda.expect("synchronize", pair.cuda->cuStreamSynchronize(stream));
    return range(pair.cuda, memory);
  });
  add(table, "host_memory_is_page_locked_for_both", [](Pair& pair) -> Answer {
    void* const host = pair.cuda.allocate_host(4096);
    return pair.there([&]() -> Answer {
      unsigned flags = 99;
      CUdeviceptr address = 0;
      const CUresult told = pair.cuda->cuMemHostGetFlags(&flags, host);
      const std::string known = slashes({told, flags});
      const CUresult got = pair.cuda->cuMemHostGetDevicePointer(&address, host, 0);
      return spaces({known, slashes({got, address == as_address(host) ? "same" : "other"})});
    });
  });
  add(table, "host_memory_is_registered_for_both", [](Pair& pair) -> Answer {
    alignas(4096) static std::array<char, 4096> page{};
    pair.cuda.expect("register", pair.cuda->cuMemHostRegister(page.data(), page.size(), 0));
    return pair.there([&]() -> Answer {
      const CUdeviceptr address = as_address(page.data());
      return commas({pair.cuda->cuMemsetD8(address, 1, 4), pair.cuda->cuMemHostRegister(page.data(), page.size(), 0),
                     pair.cuda->cuMemHostUnregister(page.data())});
    });
  });
  add(table, "host_memory_is_freed_by_the_other", [](Pair& pair) -> Answer {
    void* const host = pair.cuda.allocate_host(4096);
    return pair.there([&] { return pair.cuda->cuMemFreeHost(host); });
  });
  add(table, "dma_buf_of_the_others_mapping", [](Pair& pair) -> Answer {
    int descriptor = -1;
    return pair.cuda->cuMemGetHandleForAddressRange(&descriptor, pair.mapped(1, {1}), granule,
                                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  });
  add(table, "ipc_handle_of_the_others_allocation", [](Pair& pair) -> Answer {
    CUipcMemHandle handle{};
    return pair.cuda->cuIpcGetMemHandle(&handle, pair.allocated_there());
  });
  add(table, "handle_of_the_others_mapping_is_retained", [](Pair& pair) -> Answer {
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties{};
    const CUresult retained = pair.cuda->cuMemRetainAllocationHandle(&handle, as_pointer(pair.mapped(1, {1})));
    const CUresult told = pair.cuda->cuMemGetAllocationPropertiesFromHandle(&properties, handle);
    return spaces({retained, slashes({told, properties.location.id})});
  });
  add(table, "rights_of_one_named_twice", [](Pair& pair) -> Answer {
    const CUdeviceptr address = pair.mapped(0, {});
    const std::array<CUmemAccessDesc, 3> access = {access_of(1, 3), access_of(0, 3), access_of(1, 1)};
    const CUresult set = pair.cuda->cuMemSetAccess(address, granule, access.data(), access.size());
    return spaces({set, pair.cuda.access(address, 0), pair.cuda.access(address, 1)});
  });
  add(table, "rights_of_one_that_there_is_not_change_none", [](Pair& pair) -> Answer {
    const CUdeviceptr address = pair.mapped(0, {});
    const std::array<CUmemAccessDesc, 2> access = {access_of(1), access_of(2)};
    const CUresult set = pair.cuda->cuMemSetAccess(address, granule, access.data(), access.size());
    return spaces({set, pair.cuda.access(address, 0), pair.cuda.access(address, 1)});
  });
  add(
      table, "free_memory_is_each_devices_own",
      [](Pair& pair) -> Answer {
        const auto free_bytes = [&] {
          std::size_t free = 0;
          pair.cuda.expect("info", pair.cuda->cuMemGetInfo(&free, nullptr));
          return free;
        };
        const std::size_t here = free_bytes();
        const std::size_t there = pair.there(free_bytes);
        pair.cuda.create(64 * mebibyte, device_memory(1));
        return slashes({(here - free_bytes()) / mebibyte, (there - pair.there(free_bytes)) / mebibyte});
      },
      needs_two_devices_alone);
}

// Whose host memory is that was made while the second device was current: told while the first one is.
void add_ordinals_of_host_memory(Table& table) {
  const auto ordinal = [](Pair& pair, CUdeviceptr memory) {
    int device = -5;
    CUcontext context = nullptr;
    const CUresult told = pair.cuda->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory);
    const CUresult owner = pair.cuda->cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory);
    return spaces({slashes({told, device}), slashes({owner, context == pair.second ? "second" : "other"})});
  };
  struct Memory {
    const char* name;
    CUdeviceptr (*make)(Environment&);
  };
  for (const Memory& memory :
       {Memory{"page_locked", [](Environment& cuda) { return as_address(cuda.allocate_host(4096)); }},
        Memory{"portable", [](Environment& cuda) { return as_address(cuda.allocate_host(4096, 1)); }},
        Memory{"registered",
               [](Environment& cuda) {
                 alignas(4096) static std::array<char, 4096> page{};
                 cuda.expect("register", cuda->cuMemHostRegister(page.data(), page.size(), 0));
                 return as_address(page.data());
               }},
        Memory{"managed",
               [](Environment& cuda) {
                 CUdeviceptr made = 0;
                 cuda.expect("allocate", cuda->cuMemAllocManaged(&made, 4096, CU_MEM_ATTACH_GLOBAL));
                 return made;
               }},
        Memory{"numa_mapping",
               [](Environment& cuda) { return cuda.mapped(granule, 3, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)); }}})
    table.add(
        std::string{"two_devices.ordinal_of_"} + memory.name + "_memory",
        [ordinal, memory](Environment& cuda) {
          Pair pair{cuda};
          return ordinal(pair, pair.there([&] { return memory.make(cuda); }));
        },
        needs_two_devices);
}

// Memory of a host location, and both devices.
void add_host_locations(Table& table) {
  for (const int type : {int{CU_MEM_LOCATION_TYPE_HOST}, int{CU_MEM_LOCATION_TYPE_HOST_NUMA}}) {
    const std::string name = type == CU_MEM_LOCATION_TYPE_HOST ? "host" : "numa";
    const auto mapping = [type](Environment& cuda) {
      return cuda.mapped(granule, 0, host_memory(static_cast<CUmemLocationType>(type)));
    };
    table.add(
        "two_devices." + name + "_memory_for_one",
        [mapping](Environment& cuda) {
          Pair pair{cuda};
          const CUdeviceptr address = mapping(cuda);
          cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 1);
          const CUresult here = cuda->cuMemsetD8(address, 1, 64);
          const CUresult there = pair.there([&] { return cuda->cuMemsetD8(address, 1, 64); });
          return spaces({here, there, cuda.access(address, 0), cuda.access(address, 1), range(cuda, address)});
        },
        needs_two_devices);
    table.add(
        "two_devices." + name + "_memory_for_both",
        [mapping](Environment& cuda) {
          Pair pair{cuda};
          const CUdeviceptr address = mapping(cuda);
          for (const int device : {0, 1}) cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, device);
          const CUresult here = cuda->cuMemsetD8(address, 1, 64);
          const CUresult finished = cuda->cuCtxSynchronize();
          const CUresult there = pair.there([&] { return cuda->cuMemsetD8(address, 2, 2); });
          cuda.expect("synchronize", pair.there([&] { return cuda->cuCtxSynchronize(); }));
          return spaces({here, finished, there, cuda.read_word(address)});
        },
        needs_two_devices);
    table.add(
        "two_devices." + name + "_memory_read_only_for_one",
        [mapping](Environment& cuda) {
          Pair pair{cuda};
          const CUdeviceptr address = mapping(cuda);
          cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0);
          cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READ, 1);
          const CUresult here = cuda->cuMemsetD8(address, 1, 64);
          const CUresult there = pair.there([&] { return cuda->cuMemsetD8(address, 1, 64); });
          return spaces({here, there, cuda.access(address, 0), cuda.access(address, 1)});
        },
        needs_two_devices);
  }
}

}  // namespace

void add_two_device_cases(Table& table) {
  add_devices(table);
  add_ordinals(table);
  add_streams(table);
  add_copies(table);
  add_graphs(table);
  add_pools(table);
  add_memory(table);
  add_host_locations(table);
  add_ordinals_of_host_memory(table);
}

}  // namespace cuvmm::conformance
