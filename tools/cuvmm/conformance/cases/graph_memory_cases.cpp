// Memory that graphs allocate, and objects that they keep.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

constexpr unsigned long long auto_free_on_launch = 1;

// A capture in the case's own stream.
class Capture {
 public:
  explicit Capture(Environment& cuda) : cuda_(cuda), stream_(cuda.stream()) {
    cuda.expect("begin", cuda->cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  }

  [[nodiscard]] CUstream stream() const { return stream_; }
  [[nodiscard]] CUdeviceptr allocate(std::size_t bytes = 4096) {
    CUdeviceptr memory = 0;
    cuda_.expect("allocate", cuda_->cuMemAllocAsync(&memory, bytes, stream_));
    return memory;
  }
  [[nodiscard]] CUresult free(CUdeviceptr memory) { return cuda_->cuMemFreeAsync(memory, stream_); }
  CUgraph end() {
    CUgraph graph = nullptr;
    cuda_.expect("end", cuda_->cuStreamEndCapture(stream_, &graph));
    return graph;
  }
  CUgraphExec instantiated(unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    cuda_.expect("instantiate", cuda_->cuGraphInstantiateWithFlags(&exec, end(), flags));
    return exec;
  }
  // "OK,OK": the launch, and the wait for it.
  std::string launch(CUgraphExec exec) {
    return commas({cuda_->cuGraphLaunch(exec, stream_), cuda_->cuStreamSynchronize(stream_)});
  }

 private:
  Environment& cuda_;
  CUstream stream_;
};

// "4096/4096/32/32": bytes used now and at most, MiB reserved now and at most.
std::string graph_numbers(Environment& cuda) {
  const auto number = [&](CUgraphMem_attribute attribute) {
    std::uint64_t value = 0;
    cuda.expect("attribute", cuda->cuDeviceGetGraphMemAttribute(0, attribute, &value));
    return value;
  };
  return slashes({number(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), number(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH),
                  number(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) / mebibyte,
                  number(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) / mebibyte});
}

void add_launches(Table& table) {
  for (const std::size_t size : {std::size_t{64}, granule + 1, 40 * mebibyte})
    table.add("graph_memory.allocated_and_freed_" + std::to_string(size), [size](Environment& cuda) {
      Capture capture(cuda);
      const CUdeviceptr memory = capture.allocate(size);
      cuda.expect("memset", cuda->cuMemsetD8Async(memory, 1, size, capture.stream()));
      cuda.expect("free", capture.free(memory));
      const CUgraphExec exec = capture.instantiated();
      const std::string before = graph_numbers(cuda);
      const std::string once = capture.launch(exec);
      const std::string again = capture.launch(exec);
      const std::string after = graph_numbers(cuda);
      const CUresult trimmed = cuda->cuDeviceGraphMemTrim(0);
      return spaces({before, once, again, after, trimmed, graph_numbers(cuda)});
    });
  table.add("graph_memory.left", [](Environment& cuda) {
    Capture capture(cuda);
    const CUdeviceptr memory = capture.allocate();
    const CUgraphExec exec = capture.instantiated();
    const std::string first = capture.launch(exec);
    const std::string numbers = graph_numbers(cuda);
    const CUresult again = cuda->cuGraphLaunch(exec, capture.stream());
    const CUresult used = cuda->cuMemsetD8(memory, 1, 4096);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());  // it is in another stream than the free
    const CUresult freed = cuda->cuMemFreeAsync(memory, capture.stream());
    return spaces({first, numbers, again, used, freed, capture.launch(exec)});
  });
  table.add("graph_memory.left_and_freed_by_cuMemFree", [](Environment& cuda) {
    Capture capture(cuda);
    const CUdeviceptr memory = capture.allocate();
    const CUgraphExec exec = capture.instantiated();
    const std::string first = capture.launch(exec);
    return spaces({first, cuda->cuMemFree(memory), cuda->cuMemFree(memory), capture.launch(exec)});
  });
  table.add("graph_memory.auto_free_on_launch", [](Environment& cuda) {
    Capture capture(cuda);
    static_cast<void>(capture.allocate());
    const CUgraphExec exec = capture.instantiated(auto_free_on_launch);
    const std::string first = capture.launch(exec);
    return spaces({first, capture.launch(exec), graph_numbers(cuda)});
  });
  table.add("graph_memory.instantiated_twice", [](Environment& cuda) {
    Capture capture(cuda);
    cuda.expect("free", capture.free(capture.allocate()));
    const CUgraph graph = capture.end();
    CUgraphExec first = nullptr;
    CUgraphExec second = nullptr;
    return commas(
        {cuda->cuGraphInstantiateWithFlags(&first, graph, 0), cuda->cuGraphInstantiateWithFlags(&second, graph, 0)});
  });
  table.add(
      "graph_memory.most_of_the_device_is_taken",
      [](Environment& cuda) {
        std::size_t free = 0;
        std::size_t total = 0;
        cuda.expect("info", cuda->cuMemGetInfo(&free, &total));
        Capture capture(cuda);
        cuda.expect("free", capture.free(capture.allocate(free / 5 * 3)));
        const CUgraphExec exec = capture.instantiated();
        static_cast<void>(cuda.allocate(free / 5 * 3));
        return cuda->cuGraphLaunch(exec, capture.stream());
      },
      needs_alone);
}

void add_refusals(Table& table) {
  table.add("graph_memory.free_of_what_is_outside", [](Environment& cuda) {
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 4096, cuda.stream());
    Capture capture(cuda);
    const CUresult freed = capture.free(memory);
    CUgraph graph = nullptr;
    return commas({freed, cuda->cuStreamEndCapture(capture.stream(), &graph)});
  });
  table.add("graph_memory.free_of_heap", [](Environment& cuda) {
    const CUdeviceptr memory = cuda.allocate();
    Capture capture(cuda);
    const CUresult freed = capture.free(memory);
    CUgraph graph = nullptr;
    return commas({freed, cuda->cuStreamEndCapture(capture.stream(), &graph)});
  });
  table.add("graph_memory.free_zero", [](Environment& cuda) {
    Capture capture(cuda);
    const CUresult freed = capture.free(0);
    std::size_t nodes = 0;
    cuda.expect("nodes", cuda->cuGraphGetNodes(capture.end(), nullptr, &nodes));
    return slashes({freed, nodes});
  });
  table.add("graph_memory.allocate_zero", [](Environment& cuda) {
    Capture capture(cuda);
    CUdeviceptr memory = 1;
    const CUresult allocated = cuda->cuMemAllocAsync(&memory, 0, capture.stream());
    CUgraph graph = nullptr;
    return spaces({slashes({allocated, memory}), cuda->cuStreamEndCapture(capture.stream(), &graph)});
  });
  table.add("graph_memory.free_twice", [](Environment& cuda) {
    Capture capture(cuda);
    const CUdeviceptr memory = capture.allocate();
    const CUresult once = capture.free(memory);
    const CUresult again = capture.free(memory);
    CUgraph graph = nullptr;
    return commas({once, again, cuda->cuStreamEndCapture(capture.stream(), &graph)});
  });
  table.add("graph_memory.free_before_launch", [](Environment& cuda) {
    Capture capture(cuda);
    const CUdeviceptr memory = capture.allocate();
    static_cast<void>(capture.instantiated());
    return commas({cuda->cuMemFreeAsync(memory, capture.stream()), cuda->cuMemFree(memory)});
  });
  table.add("graph_memory.from_pool", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    Capture capture(cuda);
    const CUresult allocated = try_allocate_from(cuda, pool, 4096, capture.stream());
    return spaces({allocated, numbers(cuda, pool)});
  });
  table.add("graph_memory.from_host_pool", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda, pool_properties(0, CU_MEM_LOCATION_TYPE_HOST));
    Capture capture(cuda);
    return try_allocate_from(cuda, pool, 4096, capture.stream());
  });
  table.add(
      "graph_memory.touched_after_its_free",
      [](Environment& cuda) {
        Capture capture(cuda);
        const CUdeviceptr memory = capture.allocate();
        cuda.expect("free", capture.free(memory));
        const std::string launched = capture.launch(capture.instantiated());
        cuda.expect("trim", cuda->cuDeviceGraphMemTrim(0));
        return spaces({launched, cuda->cuMemsetD8Async(memory, 1, 64, capture.stream()),
                       cuda->cuStreamSynchronize(capture.stream())});
      },
      needs_alone);
}

void add_attributes(Table& table) {
  for (int attribute = 0; attribute <= 4; ++attribute) {
    for (const std::uint64_t value : {0, 1})
      table.add("graph_memory.set_attribute_" + std::to_string(attribute) + "_to_" + std::to_string(value),
                [attribute, value](Environment& cuda) {
                  std::uint64_t given = value;
                  return cuda->cuDeviceSetGraphMemAttribute(0, static_cast<CUgraphMem_attribute>(attribute), &given);
                });
    table.add("graph_memory.get_attribute_" + std::to_string(attribute), [attribute](Environment& cuda) {
      std::uint64_t told = 77;
      const CUresult got = cuda->cuDeviceGetGraphMemAttribute(0, static_cast<CUgraphMem_attribute>(attribute), &told);
      return slashes({got, told});
    });
  }
  table.add("graph_memory.attribute_of_device_99", [](Environment& cuda) {
    std::uint64_t told = 0;
    return commas({cuda->cuDeviceGetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &told),
                   cuda->cuDeviceSetGraphMemAttribute(99, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &told),
                   cuda->cuDeviceGraphMemTrim(99)});
  });
}

void count_up(void* number) {
  ++*static_cast<int*>(number);
}

// More references than there are, or than a number holds.
void add_wrong_counts(Table& table) {
  static int ended = 0;
  struct Steps {
    Environment& cuda;
    CUuserObject object = nullptr;
    CUgraph graph = nullptr;
  };
  const auto add = [&](const char* what, std::string (*answer)(Steps&)) {
    table.add(std::string{"user_object."} + what, [answer](Environment& cuda) {
      Steps steps{cuda};
      cuda.expect("create", cuda->cuUserObjectCreate(&steps.object, &ended, count_up, 1, 1));
      Capture capture(cuda);
      steps.graph = capture.end();
      const std::string text = answer(steps);
      cuda.expect("synchronize", cuda->cuCtxSynchronize());
      return spaces({text, ended});
    });
  };
  add("released_too_often", [](Steps& on) { return spaces({on.cuda->cuUserObjectRelease(on.object, 2)}); });
  add("released_while_the_graph_has_it", [](Steps& on) {
    const CUresult moved = on.cuda->cuGraphRetainUserObject(on.graph, on.object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    return spaces({moved, on.cuda->cuUserObjectRelease(on.object, 1)});
  });
  add("moved_too_often", [](Steps& on) {
    return spaces({on.cuda->cuGraphRetainUserObject(on.graph, on.object, 2, CU_GRAPH_USER_OBJECT_MOVE)});
  });
  add("retained_by_a_graph_2^31_times",
      [](Steps& on) { return spaces({on.cuda->cuGraphRetainUserObject(on.graph, on.object, 1U << 31, 0)}); });
  add("released_by_a_graph_too_often", [](Steps& on) {
    const CUresult retained = on.cuda->cuGraphRetainUserObject(on.graph, on.object, 1, 0);
    return spaces({retained, on.cuda->cuGraphReleaseUserObject(on.graph, on.object, 2)});
  });
  add("released_by_a_graph_2^31_times",
      [](Steps& on) { return spaces({on.cuda->cuGraphReleaseUserObject(on.graph, on.object, 1U << 31)}); });
}

void add_objects(Table& table) {
  struct Wanted {
    const char* name;
    CUhostFn destroy;
    unsigned references, flags;
  };
  for (const Wanted& wanted :
       {Wanted{"well_formed", count_up, 1, 1}, Wanted{"no_references", count_up, 0, 1},
        Wanted{"flags_0", count_up, 1, 0}, Wanted{"flags_3", count_up, 1, 3}, Wanted{"no_destructor", nullptr, 1, 1},
        Wanted{"2^31_references", count_up, 1U << 31, 1}})
    table.add(std::string{"user_object.create_"} + wanted.name, [wanted](Environment& cuda) {
      static int ended = 0;
      CUuserObject object = nullptr;
      return cuda->cuUserObjectCreate(&object, &ended, wanted.destroy, wanted.references, wanted.flags);
    });
  table.add("user_object.life", [](Environment& cuda) {
    static int ended = 0;
    CUuserObject object = nullptr;
    cuda.expect("create", cuda->cuUserObjectCreate(&object, &ended, count_up, 2, 1));
    Capture capture(cuda);
    const CUgraph graph = capture.end();
    const CUresult moved = cuda->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    const CUresult released = cuda->cuUserObjectRelease(object, 1);
    const int kept = ended;
    const CUresult by_graph = cuda->cuGraphReleaseUserObject(graph, object, 1);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return spaces({moved, released, kept, by_graph, ended});
  });
  for (const unsigned count : {0U, 2U})
    table.add("user_object.retain_release_" + std::to_string(count), [count](Environment& cuda) {
      static int ended = 0;
      CUuserObject object = nullptr;
      cuda.expect("create", cuda->cuUserObjectCreate(&object, &ended, count_up, 3, 1));
      return commas({cuda->cuUserObjectRetain(object, count), cuda->cuUserObjectRelease(object, count)});
    });
  for (const unsigned flags : {0U, 1U, 2U})
    table.add("user_object.graph_retains_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      static int ended = 0;
      CUuserObject object = nullptr;
      cuda.expect("create", cuda->cuUserObjectCreate(&object, &ended, count_up, 3, 1));
      Capture capture(cuda);
      const CUgraph graph = capture.end();
      return commas({cuda->cuGraphRetainUserObject(graph, object, 0, flags),
                     cuda->cuGraphRetainUserObject(graph, object, 1, flags)});
    });
  add_wrong_counts(table);
}

}  // namespace

void add_graph_memory_cases(Table& table) {
  add_launches(table);
  add_refusals(table);
  add_attributes(table);
  add_objects(table);
}

}  // namespace cuvmm::conformance
