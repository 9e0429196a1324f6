// Memory that graphs allocate: captured allocations and frees, and what a launch does with them.
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "emulator/api/answering.hpp"

namespace cuvmm::emulator::api {
namespace {

using execution::GraphMemoryNode;
using execution::Operation;
using execution::OperationKind;
using execution::Outcome;
using model::StreamOrderedMemory;

// Keeps the addresses of a graph's allocation for as long as a graph has the allocation node.
class Promise {
 public:
  Promise(Machine& machine, CUdeviceptr address) : machine_(machine), address_(address) {}
  Promise(const Promise&) = delete;
  Promise& operator=(const Promise&) = delete;
  ~Promise() {
    machine_.with_pools([&](StreamOrderedMemory& memory) { memory.forget_promise(address_); });
  }
  void allocate() const {
    machine_.with_pools([&](StreamOrderedMemory& memory) { memory.run_allocation_node(address_); });
  }

 private:
  Machine& machine_;
  const CUdeviceptr address_;
};

Answer unknown_attribute(CUgraphMem_attribute attribute) {
  return {CUDA_ERROR_INVALID_VALUE, Rule::pool_attribute,
          fmt::format("graph memory attribute {}", static_cast<int>(attribute))};
}

}  // namespace

// The pool that graphs of a device allocate from; it keeps what it has until cuDeviceGraphMemTrim.
EmulatedDriver::MemoryPoolPointer EmulatedDriver::graph_pool(int device) {
  const std::lock_guard lock(pools_of_locations_mutex_);
  MemoryPoolPointer& pool = graph_pools_[device];
  if (pool == nullptr)
    pool = machine_.with_pools(
        [&](StreamOrderedMemory& memory) { return memory.create_graph_pool(model::Place::on_device(device)); });
  return pool;
}

Answer EmulatedDriver::capture_allocation(CUdeviceptr* pointer, std::size_t bytes, const model::MemoryPool& like,
                                          const StreamEntry& entry) {
  if (like.place().is_host())
    return {CUDA_ERROR_NOT_SUPPORTED, Rule::graph_memory, "graphs allocate device memory alone"};
  const MemoryPoolPointer pool = graph_pool(like.place().device);
  CUdeviceptr address = 0;
  Answer promised =
      machine_.with_pools([&](StreamOrderedMemory& memory) { return memory.promise(&address, bytes, pool); });
  if (!promised.ok()) return promised;
  std::shared_ptr<Promise> promise;
  try {
    promise = std::make_shared<Promise>(machine_, address);
  } catch (...) {
    machine_.with_pools([&](StreamOrderedMemory& memory) { memory.forget_promise(address); });
    throw;
  }
  Operation operation;
  operation.kind = OperationKind::memory_allocation;
  operation.description = fmt::format("allocation of {} bytes at {:#x}", bytes, address);
  operation.graph_memory = {address, false, 0};
  operation.run = [promise] {
    promise->allocate();
    return Outcome::done();
  };
  Answer captured = engine_.submit(entry.stream, std::move(operation));
  if (captured.ok()) *pointer = address;
  return captured;
}

// Several graphs may free it, of which one is launched; one graph does so once.
Answer EmulatedDriver::capture_free(CUdeviceptr pointer, const StreamEntry& entry) {
  std::uint64_t id = 0;
  Answer known = machine_.with_pools([&](StreamOrderedMemory& memory) { return memory.check_free_node(pointer, &id); });
  if (!known.ok()) return known;
  if (engine_.captures_free_of(entry.stream, id))
    return {CUDA_ERROR_INVALID_VALUE, Rule::graph_memory, fmt::format("{:#x} is freed by this graph already", pointer)};
  Operation operation;
  operation.kind = OperationKind::memory_free;
  operation.description = fmt::format("free at {:#x}", pointer);
  operation.graph_memory = {pointer, true, id};
  operation.run = [this, pointer, id] {
    machine_.with_pools([&](StreamOrderedMemory& memory) { memory.run_free_node(pointer, id); });
    return Outcome::done();
  };
  return engine_.submit(entry.stream, std::move(operation));
}

// Takes the memory that a launch allocates; a launch that cannot have it all takes nothing.
Answer EmulatedDriver::begin_graph_memory(const GraphExecEntry& exec, std::vector<GraphMemoryNode>& begun) {
  constexpr unsigned long long auto_free_on_launch = 1;  // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
  const bool reuse = (exec.flags & auto_free_on_launch) != 0;
  begun.reserve(exec.exec->nodes.size());
  const auto begin = [&](StreamOrderedMemory& memory) -> Answer {
    for (const bool frees : {false, true}) {
      for (const auto& node : exec.exec->nodes) {
        if (node.graph_memory.address == 0 || node.graph_memory.frees != frees) continue;
        bool taken = true;
        Answer one = frees ? memory.begin_graph_free(node.graph_memory.address, node.graph_memory.id)
                           : memory.begin_launch(node.graph_memory.address, reuse, &taken);
        if (!one.ok()) return one;
        if (taken) begun.push_back(node.graph_memory);
      }
    }
    for (const GraphMemoryNode& node : begun)
      if (!node.frees) memory.count_launch(node.address);
    return {};
  };
  try {
    Answer answer = machine_.with_pools(begin);
    if (!answer.ok()) cancel_graph_memory(begun);
    return answer;
  } catch (...) {
    cancel_graph_memory(begun);
    throw;
  }
}

void EmulatedDriver::cancel_graph_memory(const std::vector<GraphMemoryNode>& begun) noexcept {
  machine_.with_pools([&](StreamOrderedMemory& memory) {
    for (const GraphMemoryNode& node : begun) {
      if (node.frees)
        memory.cancel_graph_free(node.address, node.id);
      else
        memory.cancel_launch(node.address);
    }
  });
}

CUresult EmulatedDriver::cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return initialised([&]() -> Answer {
    StreamEntry entry;
    if (Answer refused = find_stream(stream, &entry); !refused.ok()) return refused;
    const auto exec = graph_execs_.find(graph);
    if (exec == nullptr) return engine_.launch(nullptr, entry.stream);
    std::vector<GraphMemoryNode> begun;
    if (Answer refused = begin_graph_memory(*exec, begun); !refused.ok()) return refused;
    try {
      Answer launched = engine_.launch(exec->exec, entry.stream);
      if (!launched.ok()) cancel_graph_memory(begun);
      return launched;
    } catch (...) {
      cancel_graph_memory(begun);
      throw;
    }
  });
}

CUresult EmulatedDriver::cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    if (value == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "value must not be null"};
    const MemoryPoolPointer pool = graph_pool(device);
    return machine_.with_pools([&](StreamOrderedMemory&) -> Answer {
      auto& number = *static_cast<std::uint64_t*>(value);
      switch (attribute) {
        case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
          number = pool->used.current();
          return {};
        case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
          number = pool->used.high();
          return {};
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
          number = pool->reserved().current();
          return {};
        case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
          number = pool->reserved().high();
          return {};
      }
      return unknown_attribute(attribute);
    });
  });
}

CUresult EmulatedDriver::cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void* value) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    if (value == nullptr) return {CUDA_ERROR_INVALID_VALUE, Rule::output_pointer, "value must not be null"};
    const bool high = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!high || *static_cast<const std::uint64_t*>(value) != 0) return unknown_attribute(attribute);
    const MemoryPoolPointer pool = graph_pool(device);
    machine_.with_pools([&](StreamOrderedMemory&) {
      (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ? pool->used : pool->reserved()).forget();
    });
    return {};
  });
}

CUresult EmulatedDriver::cuDeviceGraphMemTrim(CUdevice device) {
  return initialised([&]() -> Answer {
    if (Answer refused = check_device(device); !refused.ok()) return refused;
    const MemoryPoolPointer pool = graph_pool(device);
    machine_.with_pools([&](StreamOrderedMemory&) {
      (void)pool->give_back_unused();
      StreamOrderedMemory::count_graph_use(*pool);
    });
    return {};
  });
}

}  // namespace cuvmm::emulator::api
