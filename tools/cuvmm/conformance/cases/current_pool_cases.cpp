// Which pool allocations at a location come from, and graphs that are uploaded: calls of which other groups ask little.
#include <string>
#include <vector>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

struct Place {
  const char* name;
  int location_type;
  CUmemAllocationType type;
};

constexpr Place places[] = {
    {"device", CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_PINNED},
    {"host", CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_PINNED},
    {"numa", CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_ALLOCATION_TYPE_PINNED},
    {"managed_device", CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED},
    {"managed_nowhere", CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_ALLOCATION_TYPE_MANAGED},
};

CUmemoryPool pool_of(Environment& cuda, const Place& place) {
  CUmemPoolProps properties = pool_properties(0, place.location_type);
  properties.allocType = place.type;
  return new_pool(cuda, properties);
}

CUmemoryPool default_of(Environment& cuda, const Place& place) {
  CUmemLocation where = location(0, place.location_type);
  CUmemoryPool pool = nullptr;
  cuda.expect("default", cuda->cuMemGetDefaultMemPool(&pool, &where, place.type));
  return pool;
}

// "OK OK/set": the answer to setting the pool, and which one is current then.
std::string set_and_get(Environment& cuda, const Place& place, CUmemoryPool pool) {
  CUmemLocation where = location(0, place.location_type);
  CUmemoryPool told = nullptr;
  const CUresult set = cuda->cuMemSetMemPool(&where, place.type, pool);
  const CUresult got = cuda->cuMemGetMemPool(&told, &where, place.type);
  return spaces({set, slashes({got, told == pool ? "set" : told == nullptr ? "null" : "other"})});
}

void add_pools(Table& table) {
  for (const Place& place : places) {
    for (const Place& of : places)
      table.add(std::string{"current_pool."} + of.name + "_pool_for_" + place.name,
                [place, of](Environment& cuda) { return set_and_get(cuda, place, pool_of(cuda, of)); });
    table.add(std::string{"current_pool.default_for_"} + place.name,
              [place](Environment& cuda) { return set_and_get(cuda, place, default_of(cuda, place)); });
    table.add(std::string{"current_pool.null_for_"} + place.name,
              [place](Environment& cuda) { return set_and_get(cuda, place, nullptr); });
  }
  for (const int type : {CU_MEM_LOCATION_TYPE_INVALID + 0, 4, 5, 9})
    table.add("current_pool.location_type_" + std::to_string(type), [type](Environment& cuda) {
      CUmemLocation where = location(0, type);
      return cuda->cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, new_pool(cuda));
    });
  for (const int id : {-1, 99})
    table.add("current_pool.device_" + std::to_string(id), [id](Environment& cuda) {
      CUmemLocation where = location(id);
      return cuda->cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, new_pool(cuda));
    });
  for (const int type : {0, 3})
    table.add("current_pool.allocation_type_" + std::to_string(type), [type](Environment& cuda) {
      CUmemLocation where = location(0);
      return cuda->cuMemSetMemPool(&where, static_cast<CUmemAllocationType>(type), new_pool(cuda));
    });
  table.add("current_pool.serves_cuMemAllocAsync", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    CUmemLocation where = location(0);
    const CUresult set = cuda->cuMemSetMemPool(&where, CU_MEM_ALLOCATION_TYPE_PINNED, pool);
    CUdeviceptr memory = 0;
    const CUresult allocated = cuda->cuMemAllocAsync(&memory, 1000, cuda.stream());
    return spaces({set, allocated, numbers(cuda, pool)});
  });
  table.add("current_pool.is_the_devices", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    cuda.expect("set", cuda->cuDeviceSetMemPool(0, pool));
    CUmemLocation where = location(0);
    CUmemoryPool told = nullptr;
    const CUresult got = cuda->cuMemGetMemPool(&told, &where, CU_MEM_ALLOCATION_TYPE_PINNED);
    return slashes({got, told == pool ? "set" : "other"});
  });
}

CUgraphExec memset_graph(Environment& cuda, CUdeviceptr memory) {
  const CUstream stream = cuda.stream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  cuda.expect("begin capture", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuda.expect("memset", cuda->cuMemsetD8Async(memory, 3, 4, stream));
  cuda.expect("end capture", cuda->cuStreamEndCapture(stream, &graph));
  cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&exec, graph, 0));
  return exec;
}

void add_uploads(Table& table) {
  table.add("graph_upload.and_launch", [](Environment& cuda) {
    const CUdeviceptr memory = cuda.mapped();
    const CUgraphExec exec = memset_graph(cuda, memory);
    const CUstream stream = cuda.stream();
    return commas({cuda->cuGraphUpload(exec, stream), cuda->cuGraphUpload(exec, stream),
                   cuda->cuGraphLaunch(exec, stream), cuda->cuStreamSynchronize(stream), cuda.read_word(memory)});
  });
  for (const std::uintptr_t special : {std::uintptr_t{0}, std::uintptr_t{1}, std::uintptr_t{2}})
    table.add("graph_upload.stream_" + std::to_string(special), [special](Environment& cuda) {
      return cuda->cuGraphUpload(memset_graph(cuda, cuda.mapped()), reinterpret_cast<CUstream>(special));
    });
  for (const int mode : {0, 1, 2})
    table.add("graph_upload.captured_in_mode_" + std::to_string(mode), [mode](Environment& cuda) {
      const CUgraphExec exec = memset_graph(cuda, cuda.mapped());
      const CUstream stream = cuda.stream();
      CUgraph graph = nullptr;
      cuda.expect("begin", cuda->cuStreamBeginCapture(stream, static_cast<CUstreamCaptureMode>(mode)));
      const CUresult uploaded = cuda->cuGraphUpload(exec, stream);
      return commas({uploaded, cuda->cuStreamEndCapture(stream, &graph)});
    });
  table.add("graph_upload.while_another_stream_is_captured", [](Environment& cuda) {
    const CUgraphExec exec = memset_graph(cuda, cuda.mapped());
    const CUstream stream = cuda.stream();
    CUgraph graph = nullptr;
    cuda.expect("begin", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUresult uploaded = cuda->cuGraphUpload(exec, cuda.stream());
    return commas({uploaded, cuda->cuStreamEndCapture(stream, &graph)});
  });
  table.add("graph_upload.of_unmapped", [](Environment& cuda) {
    const CUdeviceptr memory = cuda.mapped();
    const CUgraphExec exec = memset_graph(cuda, memory);
    cuda.unmap(memory, granule);
    const CUstream stream = cuda.stream();
    return commas({cuda->cuGraphUpload(exec, stream), cuda->cuStreamSynchronize(stream)});
  });
}

// A free node keeps what it frees for itself, as long as a graph has it.
void add_free_nodes(Table& table) {
  struct Left {
    explicit Left(Environment& environment) : cuda(environment), stream(environment.stream()) {
      begin();
      cuda.expect("allocate", cuda->cuMemAllocAsync(&memory, 4096, stream));
      exec = end();
      cuda.expect("launch", cuda->cuGraphLaunch(exec, stream));
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    }
    void begin() { cuda.expect("begin capture", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED)); }
    CUgraph end_graph() {
      CUgraph graph = nullptr;
      cuda.expect("end capture", cuda->cuStreamEndCapture(stream, &graph));
      return graph;
    }
    CUgraphExec end() {
      CUgraphExec made = nullptr;
      cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&made, end_graph(), 0));
      return made;
    }
    // Whether another capture may free it.
    std::string freed_again() {
      stream = cuda.stream();
      begin();
      const CUresult freed = cuda->cuMemFreeAsync(memory, stream);
      CUgraph graph = nullptr;
      return slashes({freed, cuda->cuStreamEndCapture(stream, &graph)});
    }
    Environment& cuda;
    CUstream stream;
    CUdeviceptr memory = 0;
    CUgraphExec exec = nullptr;
  };
  table.add("free_node.twice_in_a_capture", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult once = cuda->cuMemFreeAsync(left.memory, left.stream);
    return commas({once, cuda->cuMemFreeAsync(left.memory, left.stream)});
  });
  table.add("free_node.of_a_capture_that_was_spoilt", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult freed = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUresult spoilt = cuda->cuStreamSynchronize(left.stream);
    CUgraph graph = nullptr;
    const CUresult ended = cuda->cuStreamEndCapture(left.stream, &graph);
    return spaces({freed, spoilt, ended, left.freed_again()});
  });
  table.add("free_node.of_a_stream_that_was_destroyed", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult freed = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUresult destroyed = cuda->cuStreamDestroy(left.stream);
    return spaces({freed, destroyed, left.freed_again()});
  });
  table.add("free_node.of_a_graph_that_was_destroyed", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult freed = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUresult destroyed = cuda->cuGraphDestroy(left.end_graph());
    return spaces({freed, destroyed, left.freed_again()});
  });
  table.add("free_node.of_a_graph_that_there_is", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult freed = cuda->cuMemFreeAsync(left.memory, left.stream);
    static_cast<void>(left.end_graph());
    return spaces({freed, left.freed_again()});
  });
  table.add("free_node.of_what_was_made_of_a_graph", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult freed = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUgraph graph = left.end_graph();
    CUgraphExec exec = nullptr;
    const CUresult made = cuda->cuGraphInstantiateWithFlags(&exec, graph, 0);
    cuda.expect("destroy", cuda->cuGraphDestroy(graph));
    const std::string with = left.freed_again();
    const CUresult destroyed = cuda->cuGraphExecDestroy(exec);
    return spaces({freed, made, with, destroyed, left.freed_again()});
  });
  table.add("free_node.and_a_free_outside", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult captured = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUgraphExec exec = left.end();
    const CUresult freed = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUresult launched = cuda->cuGraphLaunch(exec, left.stream);
    return commas({captured, freed, launched, cuda->cuStreamSynchronize(left.stream)});
  });
  table.add("free_node.is_launched_twice", [](Environment& cuda) {
    Left left(cuda);
    left.begin();
    const CUresult captured = cuda->cuMemFreeAsync(left.memory, left.stream);
    const CUgraphExec exec = left.end();
    return commas({captured, cuda->cuGraphLaunch(exec, left.stream), cuda->cuGraphLaunch(exec, left.stream),
                   cuda->cuStreamSynchronize(left.stream)});
  });
}

}  // namespace

void add_current_pool_cases(Table& table) {
  add_pools(table);
  add_uploads(table);
  add_free_nodes(table);
}

}  // namespace cuvmm::conformance
