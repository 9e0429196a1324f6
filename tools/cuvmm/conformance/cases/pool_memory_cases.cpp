// Memory that is allocated and freed in the order of a stream.
#include <array>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

void add_sizes(Table& table) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{100}, std::size_t{512}, std::size_t{513}, std::size_t{1000}, mebibyte, granule,
        granule + 1, 32 * mebibyte, 33 * mebibyte, 64 * mebibyte + 1})
    table.add("pool_memory.size_" + std::to_string(size), [size](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda);
      const CUstream stream = cuda.stream();
      const CUdeviceptr memory = allocate_from(cuda, pool, size, stream);
      const std::string allocated = numbers(cuda, pool);
      const CUresult freed = cuda->cuMemFreeAsync(memory, stream);
      const std::string after_call = numbers(cuda, pool);
      const CUresult finished = cuda->cuStreamSynchronize(stream);
      const CUdeviceptr again = allocate_from(cuda, pool, size, stream);
      return spaces({allocated, freed, after_call, finished, numbers(cuda, pool), again == memory ? "same" : "other"});
    });
  table.add("pool_memory.many_of_one_pool", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    const CUstream stream = cuda.stream();
    std::string answer;
    for (const std::size_t size : {std::size_t{1000}, std::size_t{1000}, 3 * mebibyte, 30 * mebibyte, 40 * mebibyte}) {
      static_cast<void>(allocate_from(cuda, pool, size, stream));
      answer += (answer.empty() ? "" : " ") + numbers(cuda, pool);
    }
    return answer;
  });
  table.add("pool_memory.zero", [](Environment& cuda) {
    CUdeviceptr address = 1;
    return slashes({cuda->cuMemAllocAsync(&address, 0, cuda.stream()), address});
  });
  table.add("pool_memory.zero_from_pool", [](Environment& cuda) {
    CUdeviceptr address = 1;
    return slashes({cuda->cuMemAllocFromPoolAsync(&address, 0, new_pool(cuda), cuda.stream()), address});
  });
  table.add("pool_memory.2^45", [](Environment& cuda) {
    CUdeviceptr address = 0;
    return cuda->cuMemAllocAsync(&address, std::size_t{1} << 45, cuda.stream());
  });
  table.add("pool_memory.largest", [](Environment& cuda) {
    CUdeviceptr address = 0;
    return cuda->cuMemAllocAsync(&address, ~std::size_t{0}, cuda.stream());
  });
  table.add("pool_memory.null_pool",
            [](Environment& cuda) { return try_allocate_from(cuda, nullptr, 64, cuda.stream()); });
}

void add_frees(Table& table) {
  table.add("pool_memory.free_zero", [](Environment& cuda) { return cuda->cuMemFreeAsync(0, cuda.stream()); });
  table.add("pool_memory.free_inside", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 1024, stream);
    return commas({cuda->cuMemFreeAsync(memory + 8, stream), cuda->cuMemFreeAsync(memory, stream)});
  });
  table.add("pool_memory.free_twice", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 1024, stream);
    const CUresult once = cuda->cuMemFreeAsync(memory, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return commas({once, cuda->cuMemFreeAsync(memory, stream), cuda->cuMemFree(memory)});
  });
  table.add("pool_memory.free_by_cuMemFree", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUmemoryPool pool = new_pool(cuda);
    const CUdeviceptr memory = allocate_from(cuda, pool, 1024, stream);
    const CUresult once = cuda->cuMemFree(memory);
    return spaces({once, numbers(cuda, pool), cuda->cuMemFree(memory)});
  });
  table.add("pool_memory.free_in_other_stream", [](Environment& cuda) {
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 1024, cuda.stream());
    const CUstream other = cuda.stream();
    return commas({cuda->cuMemFreeAsync(memory, other), cuda->cuStreamSynchronize(other)});
  });
  table.add("pool_memory.free_heap", [](Environment& cuda) {
    const CUdeviceptr memory = cuda.allocate();
    const CUstream stream = cuda.stream();
    const CUresult once = cuda->cuMemFreeAsync(memory, stream);
    const CUresult finished = cuda->cuStreamSynchronize(stream);
    return commas({once, finished, cuda->cuMemFreeAsync(memory, stream), cuda->cuMemFree(memory)});
  });
  table.add("pool_memory.free_mapping",
            [](Environment& cuda) { return cuda->cuMemFreeAsync(cuda.mapped(), cuda.stream()); });
  table.add("pool_memory.free_host_memory",
            [](Environment& cuda) { return cuda->cuMemFreeAsync(as_address(cuda.allocate_host()), cuda.stream()); });
  table.add("pool_memory.copy_of_freed", [](Environment& cuda) {
    std::array<char, 64> bytes{};
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 1024, stream);
    cuda.expect("free", cuda->cuMemFreeAsync(memory, stream));
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return cuda->cuMemcpyDtoH(bytes.data(), memory, bytes.size());
  });
}

// A stream that waits, in which something was freed.
struct Held {
  explicit Held(Environment& environment, std::size_t bytes)
      : cuda(environment), stream(environment.stream()), pool(new_pool(environment)) {
    gate.block(cuda, stream);
    freed = allocate_from(cuda, pool, bytes, stream);
    cuda.expect("free", cuda->cuMemFreeAsync(freed, stream));
  }
  void end() {
    gate.open();
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
  }
  const char* relation(CUdeviceptr memory) const { return memory == freed ? "same" : "other"; }

  Environment& cuda;
  Gate gate;
  CUstream stream;
  CUmemoryPool pool;
  CUdeviceptr freed = 0;
};

void add_reuse(Table& table) {
  for (const std::size_t size :
       {std::size_t{100}, std::size_t{512}, std::size_t{2048}, std::size_t{4096}, std::size_t{8192}})
    table.add("pool_memory.reuse_4096_for_" + std::to_string(size), [size](Environment& cuda) {
      Held held(cuda, 4096);
      const std::string before = numbers(cuda, held.pool);
      const CUdeviceptr again = allocate_from(cuda, held.pool, size, held.stream);
      const std::string after = numbers(cuda, held.pool);
      held.end();
      return spaces({before, held.relation(again), after, numbers(cuda, held.pool)});
    });
  table.add("pool_memory.reuse_in_other_stream", [](Environment& cuda) {
    Held held(cuda, 4096);
    const CUdeviceptr again = allocate_from(cuda, held.pool, 4096, cuda.stream());
    const std::string answer = spaces({held.relation(again), numbers(cuda, held.pool)});
    held.end();
    return answer;
  });
  table.add("pool_memory.second_free_in_held_stream", [](Environment& cuda) {
    Held held(cuda, 4096);
    const CUresult again = cuda->cuMemFreeAsync(held.freed, held.stream);
    const CUresult plain = cuda->cuMemFree(held.freed);
    held.end();
    return commas({again, plain});
  });
  table.add("pool_memory.pending_work_on_what_is_reused_in_part", [](Environment& cuda) {
    Gate gate;
    const CUstream stream = cuda.stream();
    const CUmemoryPool pool = new_pool(cuda);
    gate.block(cuda, stream);
    const CUdeviceptr first = allocate_from(cuda, pool, 4096, stream);
    cuda.expect("memset", cuda->cuMemsetD8Async(first, 1, 4096, stream));
    cuda.expect("free", cuda->cuMemFreeAsync(first, stream));
    const CUdeviceptr second = allocate_from(cuda, pool, 3000, stream);
    const CUresult set = cuda->cuMemsetD8Async(second, 2, 3000, stream);
    gate.open();
    return spaces({second == first ? "same" : "other", set, cuda->cuStreamSynchronize(stream)});
  });
}

void add_pointers(Table& table) {
  for (int attribute = 1; attribute <= 21; ++attribute)
    table.add("pool_memory.pointer_attribute_" + std::to_string(attribute), [attribute](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda);
      const CUstream stream = cuda.stream();
      const CUdeviceptr memory = allocate_from(cuda, pool, 1024, stream);
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
      std::array<unsigned long long, 2> data{};
      const CUresult got =
          cuda->cuPointerGetAttribute(data.data(), static_cast<CUpointer_attribute>(attribute), memory + 8);
      const unsigned long long value = data[0];
      if (value == memory) return slashes({got, "begin"});
      if (value == memory + 8) return slashes({got, "pointer"});
      if (value == reinterpret_cast<std::uintptr_t>(pool)) return slashes({got, "pool"});
      const bool counted =
          attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID || attribute == CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
      return value > (counted ? 0 : 4096 * 1024) ? slashes({got, "number"}) : slashes({got, value});
    });
  table.add("pool_memory.address_range", [](Environment& cuda) {
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 1000, cuda.stream());
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult got = cuda->cuMemGetAddressRange(&base, &size, memory + 8);
    return slashes({got, base == memory ? "begin" : "other", size});
  });
  table.add("pool_memory.dma_buf", [](Environment& cuda) {
    int descriptor = -1;
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), granule, cuda.stream());
    return cuda->cuMemGetHandleForAddressRange(&descriptor, memory, granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  });
  table.add("pool_memory.retain", [](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 1000, cuda.stream());
    return cuda->cuMemRetainAllocationHandle(&handle, as_pointer(memory));
  });
  table.add("pool_memory.get_access",
            [](Environment& cuda) { return cuda.access(allocate_from(cuda, new_pool(cuda), 1000, cuda.stream())); });
  table.add("pool_memory.ipc_handle", [](Environment& cuda) {
    CUipcMemHandle handle{};
    return cuda->cuIpcGetMemHandle(&handle, allocate_from(cuda, new_pool(cuda), 1000, cuda.stream()));
  });
  table.add("pool_memory.unmap", [](Environment& cuda) {
    return cuda->cuMemUnmap(allocate_from(cuda, new_pool(cuda), granule, cuda.stream()), granule);
  });
  table.add("pool_memory.managed_pointer", [](Environment& cuda) {
    CUmemPoolProps properties = pool_properties();
    properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda, properties), 4096, cuda.stream());
    std::string answer;
    for (const int attribute : {1, 2, 3, 4, 8, 9, 11, 12, 16}) {
      unsigned long long value = 0;
      const CUresult got = cuda->cuPointerGetAttribute(&value, static_cast<CUpointer_attribute>(attribute), memory);
      answer += (answer.empty() ? "" : " ") + (value == memory ? slashes({got, "begin"}) : slashes({got, value}));
    }
    return answer;
  });
}

void add_release(Table& table) {
  for (const std::size_t threshold : {std::size_t{0}, 16 * mebibyte, 32 * mebibyte, 64 * mebibyte})
    table.add("pool_memory.threshold_" + std::to_string(threshold / mebibyte) + "M", [threshold](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda);
      const CUstream stream = cuda.stream();
      cuda.expect("threshold", set_attribute(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::uint64_t{threshold}));
      for (const CUdeviceptr memory :
           {allocate_from(cuda, pool, 20 * mebibyte, stream), allocate_from(cuda, pool, 20 * mebibyte, stream)})
        cuda.expect("free", cuda->cuMemFreeAsync(memory, stream));
      const std::string before = numbers(cuda, pool);
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
      return spaces({before, numbers(cuda, pool)});
    });
  for (const std::size_t kept : {std::size_t{0}, std::size_t{1}, 32 * mebibyte, 33 * mebibyte, 64 * mebibyte})
    table.add("pool_memory.trim_to_" + std::to_string(kept), [kept](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda);
      const CUstream stream = cuda.stream();
      cuda.expect("threshold", set_attribute(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~std::uint64_t{0}));
      for (const CUdeviceptr memory :
           {allocate_from(cuda, pool, 20 * mebibyte, stream), allocate_from(cuda, pool, 20 * mebibyte, stream)})
        cuda.expect("free", cuda->cuMemFreeAsync(memory, stream));
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
      const std::string before = numbers(cuda, pool);
      return spaces({before, cuda->cuMemPoolTrimTo(pool, kept), numbers(cuda, pool)});
    });
}

// Three fifths of the device's free memory.
std::size_t most_of_the_device(Environment& cuda) {
  std::size_t free = 0;
  std::size_t total = 0;
  cuda.expect("info", cuda->cuMemGetInfo(&free, &total));
  return free / 5 * 3;
}

void add_exhaustion(Table& table) {
  table.add(
      "pool_memory.most_again_in_same_stream",
      [](Environment& cuda) {
        const std::size_t most = most_of_the_device(cuda);
        Held held(cuda, most);
        const CUresult again = try_allocate_from(cuda, held.pool, most, held.stream);
        const CUresult third = try_allocate_from(cuda, held.pool, most, held.stream);
        held.end();
        return commas({again, third});
      },
      needs_concurrency_alone);
  for (const int allowed : {0, 1})
    table.add(
        "pool_memory.most_again_in_other_stream_internal_dependencies_" + std::to_string(allowed),
        [allowed](Environment& cuda) {
          const std::size_t most = most_of_the_device(cuda);
          Held held(cuda, most);
          cuda.expect("allow",
                      set_attribute(cuda, held.pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, allowed));
          const CUstream other = cuda.stream();
          const CUresult again = try_allocate_from(cuda, held.pool, most, other);
          const CUresult waits = cuda->cuStreamQuery(other);
          held.end();
          return commas({again, waits, cuda->cuStreamSynchronize(other)});
        },
        needs_concurrency_alone);
  table.add(
      "pool_memory.cuMemAlloc_of_what_a_pool_holds",
      [](Environment& cuda) {
        const std::size_t most = most_of_the_device(cuda);
        const CUmemoryPool pool = new_pool(cuda);
        const CUstream stream = cuda.stream();
        cuda.expect("threshold", set_attribute(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~std::uint64_t{0}));
        cuda.expect("free", cuda->cuMemFreeAsync(allocate_from(cuda, pool, most, stream), stream));
        cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
        CUdeviceptr memory = 0;
        const CUresult allocated = cuda->cuMemAlloc(&memory, most);
        const CUresult created = cuda.try_create(most / granule * granule, device_memory());
        return commas({allocated, created, try_allocate_from(cuda, new_pool(cuda), most, stream)});
      },
      needs_alone);
}

}  // namespace

void add_pool_memory_cases(Table& table) {
  add_sizes(table);
  add_frees(table);
  add_reuse(table);
  add_pointers(table);
  add_release(table);
  add_exhaustion(table);
}

}  // namespace cuvmm::conformance
