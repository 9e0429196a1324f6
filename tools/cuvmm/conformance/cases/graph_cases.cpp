// Graphs made by capture: instantiated, launched, destroyed.
#include <array>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

// Captures what `work` enqueues.
template <class Work>
CUgraph captured(Environment& cuda, Work work) {
  const CUstream stream = cuda.stream();
  CUgraph graph = nullptr;
  cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  work(stream);
  cuda.expect("end", cuda->cuStreamEndCapture(stream, &graph));
  return graph;
}

CUgraph captured_memset(Environment& cuda, CUdeviceptr address, unsigned value) {
  return captured(cuda,
                  [&](CUstream stream) { cuda.expect("memset", cuda->cuMemsetD32Async(address, value, 1, stream)); });
}

CUgraphExec instantiated(Environment& cuda, CUgraph graph) {
  CUgraphExec exec = nullptr;
  cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

void add_instantiation(Table& table) {
  table.add("graph.instantiate_null", [](Environment& cuda) {
    CUgraphExec exec = nullptr;
    return cuda->cuGraphInstantiateWithFlags(&exec, nullptr, 0);
  });
  table.add("graph.instantiate_null_out", [](Environment& cuda) {
    return cuda->cuGraphInstantiateWithFlags(nullptr, captured_memset(cuda, cuda.mapped(), 1), 0);
  });
  for (const unsigned long long flags : {1ULL, 2ULL, 8ULL, 16ULL, 0x100ULL})
    table.add("graph.instantiate_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      CUgraphExec exec = nullptr;
      return cuda->cuGraphInstantiateWithFlags(&exec, captured_memset(cuda, cuda.mapped(), 1), flags);
    });
  table.add("graph.instantiate_twice", [](Environment& cuda) {
    const CUgraph graph = captured_memset(cuda, cuda.mapped(), 1);
    CUgraphExec first = nullptr;
    CUgraphExec second = nullptr;
    const CUresult once = cuda->cuGraphInstantiateWithFlags(&first, graph, 0);
    const CUresult again = cuda->cuGraphInstantiateWithFlags(&second, graph, 0);
    return spaces({once, again, first == second ? "same" : "distinct"});
  });
  table.add("graph.empty", [](Environment& cuda) {
    const CUgraphExec exec = instantiated(cuda, captured(cuda, [](CUstream) {}));
    const CUstream stream = cuda.stream();
    return spaces({cuda->cuGraphLaunch(exec, stream), cuda->cuStreamSynchronize(stream)});
  });
}

void add_nodes(Table& table) {
  table.add("graph.nodes", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUgraph graph = captured(cuda, [&](CUstream stream) {
      cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 64, stream));
      cuda.expect("copy", cuda->cuMemcpyDtoDAsync(address + 64, address, 64, stream));
      cuda.expect("memset", cuda->cuMemsetD8Async(address, 2, 64, stream));
    });
    std::size_t all = 0;
    const CUresult counted = cuda->cuGraphGetNodes(graph, nullptr, &all);
    std::array<CUgraphNode, 8> nodes{};
    std::size_t two = 2;
    const CUresult some = cuda->cuGraphGetNodes(graph, nodes.data(), &two);
    std::size_t eight = 8;
    const CUresult more = cuda->cuGraphGetNodes(graph, nodes.data(), &eight);
    return spaces(
        {slashes({counted, all}), slashes({some, two}),
         slashes({more, eight, nodes[2] == nullptr ? "null" : "node", nodes[3] == nullptr ? "null" : "node"})});
  });
  table.add("graph.nodes_null", [](Environment& cuda) {
    std::size_t count = 0;
    return spaces({cuda->cuGraphGetNodes(nullptr, nullptr, &count),
                   cuda->cuGraphGetNodes(captured_memset(cuda, cuda.mapped(), 1), nullptr, nullptr)});
  });
  table.add("graph.zero_byte_operations_make_nodes", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUgraph graph = captured(cuda, [&](CUstream stream) {
      cuda.expect("memset", cuda->cuMemsetD8Async(address, 1, 0, stream));
      cuda.expect("copy", cuda->cuMemcpyDtoDAsync(address + 64, address, 0, stream));
    });
    std::size_t count = 99;
    const CUresult result = cuda->cuGraphGetNodes(graph, nullptr, &count);
    return slashes({result, count});
  });
}

void add_launches(Table& table) {
  table.add("graph.launch_memset_and_copies", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    auto* host = static_cast<unsigned*>(cuda.allocate_host());
    const CUgraph graph = captured(cuda, [&](CUstream stream) {
      cuda.expect("memset", cuda->cuMemsetD32Async(address, 9, 1, stream));
      cuda.expect("copy", cuda->cuMemcpyDtoDAsync(address + 64, address, 4, stream));
      cuda.expect("copy", cuda->cuMemcpyDtoHAsync(host, address + 64, 4, stream));
    });
    cuda.write_word(address, 0);
    const CUstream stream = cuda.stream();
    const CUresult launched = cuda->cuGraphLaunch(instantiated(cuda, graph), stream);
    return spaces({launched, cuda->cuStreamSynchronize(stream), *host});
  });
  table.add("graph.capture_runs_nothing", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.write_word(address, 1);
    captured_memset(cuda, address, 9);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return cuda.read_word(address);
  });
  table.add("graph.launch_twice", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, address, 9));
    const CUstream stream = cuda.stream();
    const CUresult first = cuda->cuGraphLaunch(exec, stream);
    cuda.expect("memset", cuda->cuMemsetD32Async(address, 1, 1, stream));
    const CUresult second = cuda->cuGraphLaunch(exec, stream);
    return spaces({first, second, cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
  });
  table.add("graph.launch_on_default_streams", [](Environment& cuda) {
    const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, cuda.mapped(), 9));
    return spaces({cuda->cuGraphLaunch(exec, nullptr), cuda->cuGraphLaunch(exec, legacy_stream()),
                   cuda->cuGraphLaunch(exec, per_thread_stream()), cuda->cuCtxSynchronize()});
  });
  table.add("graph.launch_null", [](Environment& cuda) { return cuda->cuGraphLaunch(nullptr, cuda.stream()); });
  table.add(
      "graph.launch_on_two_streams",
      [](Environment& cuda) {
        const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, cuda.mapped(), 9));
        const CUstream first = cuda.stream();
        const CUstream second = cuda.stream();
        Gate& gate = lasting_gate();
        gate.block(cuda, first);
        const CUresult blocked = cuda->cuGraphLaunch(exec, first);
        const CUresult behind = cuda->cuGraphLaunch(exec, second);
        const CUresult waits = cuda->cuStreamQuery(second);
        gate.open();
        return spaces({blocked, behind, waits, cuda->cuCtxSynchronize()});
      },
      needs_concurrency);
  table.add("graph.launch_of_host_function", [](Environment& cuda) {
    static unsigned calls = 0;
    const CUgraph graph = captured(cuda, [&](CUstream stream) {
      cuda.expect("host function", cuda->cuLaunchHostFunc(
                                       stream, [](void*) { ++calls; }, nullptr));
    });
    const CUgraphExec exec = instantiated(cuda, graph);
    const CUstream stream = cuda.stream();
    cuda.expect("launch", cuda->cuGraphLaunch(exec, stream));
    cuda.expect("launch", cuda->cuGraphLaunch(exec, stream));
    return slashes({cuda->cuStreamSynchronize(stream), calls});
  });
  table.add("graph.launch_of_kernel", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const Kernels kernels{cuda};
    const CUgraph graph =
        captured(cuda, [&](CUstream stream) { cuda.expect("kernel", kernels.store(address, 12, stream)); });
    const CUstream stream = cuda.stream();
    cuda.expect("launch", cuda->cuGraphLaunch(instantiated(cuda, graph), stream));
    return slashes({cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
  });
  table.add("graph.launch_captured", [](Environment& cuda) {
    const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, cuda.mapped(), 9));
    const CUstream stream = cuda.stream();
    cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUresult launched = cuda->cuGraphLaunch(exec, stream);
    CUgraph graph = nullptr;
    return spaces({launched, cuda->cuStreamEndCapture(stream, &graph)});
  });
  table.add("graph.launch_in_other_contexts_stream", [](Environment& cuda) {
    const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, cuda.mapped(), 9));
    cuda.new_context();
    const CUstream stream = cuda.stream();
    return spaces({cuda->cuGraphLaunch(exec, stream), cuda->cuStreamSynchronize(stream)});
  });
  table.add("graph.pageable_source_read_at_launch", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    static unsigned source = 1;
    const CUgraph graph = captured(
        cuda, [&](CUstream stream) { cuda.expect("copy", cuda->cuMemcpyHtoDAsync(address, &source, 4, stream)); });
    const CUgraphExec exec = instantiated(cuda, graph);
    source = 2;
    const CUstream stream = cuda.stream();
    cuda.expect("launch", cuda->cuGraphLaunch(exec, stream));
    return slashes({cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
  });
}

void add_lifetimes(Table& table) {
  table.add("graph.launch_after_graph_destroyed", [](Environment& cuda) {
    const CUgraph graph = captured_memset(cuda, cuda.mapped(), 9);
    const CUgraphExec exec = instantiated(cuda, graph);
    const CUstream stream = cuda.stream();
    return spaces({cuda->cuGraphDestroy(graph), cuda->cuGraphLaunch(exec, stream), cuda->cuStreamSynchronize(stream)});
  });
  table.add("graph.destroyed_while_running", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, address, 9));
    const CUstream stream = cuda.stream();
    Gate& gate = lasting_gate();
    gate.block(cuda, stream);
    const CUresult launched = cuda->cuGraphLaunch(exec, stream);
    const CUresult destroyed = cuda->cuGraphExecDestroy(exec);
    gate.open();
    return spaces({launched, destroyed, cuda->cuStreamSynchronize(stream), cuda.read_word(address)});
  });
  table.add("graph.destroy_null", [](Environment& cuda) {
    return spaces({cuda->cuGraphDestroy(nullptr), cuda->cuGraphExecDestroy(nullptr)});
  });
  table.add("graph.destroy", [](Environment& cuda) {
    const CUgraph graph = captured_memset(cuda, cuda.mapped(), 9);
    const CUgraphExec exec = instantiated(cuda, graph);
    return spaces({cuda->cuGraphExecDestroy(exec), cuda->cuGraphDestroy(graph)});
  });
}

// What the memory of a captured operation has become by the time of the launch.
template <class Change>
std::string launch_after(Environment& cuda, Change change) {
  const CUdeviceptr address = cuda.mapped();
  const CUgraphExec exec = instantiated(cuda, captured_memset(cuda, address, 9));
  change(address);
  const CUstream stream = cuda.stream();
  const CUresult launched = cuda->cuGraphLaunch(exec, stream);
  return spaces({launched, cuda->cuStreamSynchronize(stream)});
}

void add_changed_memory(Table& table) {
  table.add(
      "graph.launch_after_revoke",
      [](Environment& cuda) {
        return launch_after(cuda, [&](CUdeviceptr address) { cuda.grant(address, granule, 0); });
      },
      needs_alone);
  table.add(
      "graph.launch_after_unmap",
      [](Environment& cuda) { return launch_after(cuda, [&](CUdeviceptr address) { cuda.unmap(address, granule); }); },
      needs_alone);
  table.add("graph.launch_after_remap", [](Environment& cuda) {
    return launch_after(cuda, [&](CUdeviceptr address) {
      cuda.unmap(address, granule);
      cuda.map_new(address, granule);
      cuda.grant(address, granule);
    });
  });
}

}  // namespace

void add_graph_cases(Table& table) {
  add_instantiation(table);
  add_nodes(table);
  add_launches(table);
  add_lifetimes(table);
  add_changed_memory(table);
}

}  // namespace cuvmm::conformance
