// What pools have by themselves: who may touch the default ones, how large they may be made, in which pieces they take
// memory and give it back.
#include <array>
#include <vector>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"
#include "conformance/cases/shared_pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

struct Kind {
  const char* name;
  int location_type;
  CUmemAllocationType type = CU_MEM_ALLOCATION_TYPE_PINNED;
};

constexpr std::array kinds = {Kind{"device", CU_MEM_LOCATION_TYPE_DEVICE},
                              Kind{"host", CU_MEM_LOCATION_TYPE_HOST},
                              Kind{"numa", CU_MEM_LOCATION_TYPE_HOST_NUMA},
                              Kind{"managed_device", CU_MEM_LOCATION_TYPE_DEVICE, CU_MEM_ALLOCATION_TYPE_MANAGED},
                              Kind{"managed_nowhere", CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_ALLOCATION_TYPE_MANAGED},
                              Kind{"managed_host", CU_MEM_LOCATION_TYPE_HOST, CU_MEM_ALLOCATION_TYPE_MANAGED}};

CUmemoryPool default_pool(Environment& cuda, const Kind& kind) {
  CUmemLocation place = location(0, kind.location_type);
  CUmemoryPool pool = nullptr;
  cuda.expect("default", cuda->cuMemGetDefaultMemPool(&pool, &place, kind.type));
  return pool;
}

CUmemoryPool created_pool(Environment& cuda, const Kind& kind) {
  CUmemPoolProps properties = pool_properties(0, kind.location_type);
  properties.allocType = kind.type;
  return new_pool(cuda, properties);
}

std::string rights(Environment& cuda, CUmemoryPool pool, const std::vector<CUmemLocation>& places) {
  std::string answer;
  for (CUmemLocation place : places) {
    auto flags = static_cast<CUmemAccess_flags>(9);
    const CUresult got = cuda->cuMemPoolGetAccess(&flags, pool, &place);
    answer += (answer.empty() ? "" : " ") + slashes({got, static_cast<int>(flags)});
  }
  return answer;
}

CUresult set_rights(Environment& cuda, CUmemoryPool pool, int id, int flags, int type = CU_MEM_LOCATION_TYPE_DEVICE) {
  const CUmemAccessDesc access = access_of(id, flags, type);
  return cuda->cuMemPoolSetAccess(pool, &access, 1);
}

void add_rights(Table& table) {
  const std::vector<CUmemLocation> of_one = {location(0), location(0, CU_MEM_LOCATION_TYPE_HOST),
                                             location(0, CU_MEM_LOCATION_TYPE_HOST_NUMA)};
  for (const Kind& kind : kinds) {
    const std::string name = kind.name;
    const bool managed = kind.type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    table.add("pool_border.default_" + name + "_rights",
              [=](Environment& cuda) { return rights(cuda, default_pool(cuda, kind), of_one); });
    table.add(
        "pool_border.default_" + name + "_rights_of_second_device",
        [=](Environment& cuda) { return rights(cuda, default_pool(cuda, kind), {location(1)}); }, needs_two_devices);
    if (managed) {
      table.add("pool_border.created_" + name + "_rights",
                [=](Environment& cuda) { return rights(cuda, created_pool(cuda, kind), of_one); });
      continue;
    }
    table.add(
        "pool_border.created_" + name + "_rights_of_second_device",
        [=](Environment& cuda) { return rights(cuda, created_pool(cuda, kind), {location(1)}); }, needs_two_devices);
    for (const int flags : {0, 1, 3})
      table.add("pool_border.default_" + name + "_access_of_device_" + std::to_string(flags), [=](Environment& cuda) {
        const CUmemoryPool pool = default_pool(cuda, kind);
        return spaces({set_rights(cuda, pool, 0, flags), rights(cuda, pool, of_one)});
      });
    table.add(
        "pool_border.default_" + name + "_is_touched_by_second_device",
        [=](Environment& cuda) {
          const CUmemoryPool pool = default_pool(cuda, kind);
          const CUstream stream = cuda.stream();
          const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
          cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
          cuda.make_current(cuda.primary(1));
          const CUresult before = cuda->cuMemsetD8(memory, 1, 64);
          const CUresult set = set_rights(cuda, pool, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
          const CUresult after = cuda->cuMemsetD8(memory, 1, 64);
          return spaces({before, set, after, cuda->cuCtxSynchronize(), rights(cuda, pool, {location(1)})});
        },
        needs_two_devices);
  }
  for (const char* name : {"default", "created"})
    for (const Kind& kind : {kinds[1], kinds[2]})
      table.add(std::string{"pool_border."} + name + "_" + kind.name + "_is_seen_by_both",
                [kind, standard = std::string_view{name} == "default"](Environment& cuda) {
                  const CUmemoryPool pool = standard ? default_pool(cuda, kind) : created_pool(cuda, kind);
                  const CUstream stream = cuda.stream();
                  const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
                  const CUresult opened =
                      standard ? CUDA_SUCCESS : set_rights(cuda, pool, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
                  const CUresult set = cuda->cuMemsetD8Async(memory, 7, 4096, stream);
                  const CUresult finished = cuda->cuStreamSynchronize(stream);
                  return spaces({opened, set, finished, *static_cast<const unsigned char*>(as_pointer(memory))});
                });
  for (const char* name : {"default", "created"})
    for (const Kind& kind : {kinds[1], kinds[2]})
      table.add(
          std::string{"pool_border.copies_of_closed_"} + name + "_" + kind.name,
          [kind, standard = std::string_view{name} == "default"](Environment& cuda) {
            const CUmemoryPool pool = standard ? default_pool(cuda, kind) : created_pool(cuda, kind);
            const CUstream stream = cuda.stream();
            const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
            const CUdeviceptr there = cuda.allocate();
            cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
            unsigned word = 3;
            const CUresult copied[] = {cuda->cuMemcpyHtoD(memory, &word, 4), cuda->cuMemcpyDtoH(&word, memory, 4),
                                       cuda->cuMemcpy(there, memory, 4), cuda->cuMemcpyDtoD(there, memory, 4)};
            // A copy from device to device goes on when its call has returned, and the stream does not wait for it.
            cuda.expect("synchronize", cuda->cuCtxSynchronize());
            return commas({copied[0], copied[1], copied[2], copied[3], cuda->cuMemcpyAsync(there, memory, 4, stream),
                           cuda->cuMemcpyAsync(memory, there, 4, stream),
                           cuda->cuMemcpyHtoDAsync(there, as_pointer(memory), 4, stream),
                           cuda->cuStreamSynchronize(stream)});
          });
  table.add("pool_border.rights_go_with_memory_there_is", [](Environment& cuda) {
    const CUmemoryPool pool = created_pool(cuda, kinds[1]);
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    const CUresult closed = cuda->cuMemsetD8(memory, 1, 64);
    const CUresult set = set_rights(cuda, pool, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    const CUresult open = cuda->cuMemsetD8(memory, 1, 64);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());  // before the rights go that it needs
    const CUresult taken = set_rights(cuda, pool, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    return spaces({closed, set, open, taken, cuda->cuMemsetD8(memory, 1, 64)});
  });
}

CUresult create_of_size(Environment& cuda, const Kind& kind, std::size_t most) {
  CUmemPoolProps properties = pool_properties(0, kind.location_type, most);
  properties.allocType = kind.type;
  CUmemoryPool pool = nullptr;
  return cuda->cuMemPoolCreate(&pool, &properties);
}

std::size_t device_bytes(Environment& cuda) {
  std::size_t bytes = 0;
  cuda.expect("total", cuda->cuDeviceTotalMem(&bytes, 0));
  return bytes;
}

std::size_t free_bytes(Environment& cuda) {
  std::size_t bytes = 0;
  cuda.expect("info", cuda->cuMemGetInfo(&bytes, nullptr));
  return bytes;
}

void add_sizes(Table& table) {
  struct Size {
    const char* name;
    std::size_t (*of)(Environment&);
  };
  for (const Size& size : {Size{"free", [](Environment& cuda) { return free_bytes(cuda); }},
                           Size{"free_plus_32M", [](Environment& cuda) { return free_bytes(cuda) + 32 * mebibyte; }},
                           Size{"total", [](Environment& cuda) { return device_bytes(cuda); }},
                           Size{"total_plus_1", [](Environment& cuda) { return device_bytes(cuda) + 1; }},
                           Size{"total_plus_32M", [](Environment& cuda) { return device_bytes(cuda) + 32 * mebibyte; }},
                           Size{"total_plus_1G", [](Environment& cuda) { return device_bytes(cuda) + gibibyte; }},
                           Size{"twice_the_total", [](Environment& cuda) { return 2 * device_bytes(cuda); }}})
    table.add(
        std::string{"pool_border.max_size_"} + size.name,
        [size](Environment& cuda) { return create_of_size(cuda, kinds[0], size.of(cuda)); }, needs_alone);
  for (const std::size_t unit : {2, 3})
    table.add(
        "pool_border.max_size_of_device_" + std::to_string(unit) + "_times_2^44",
        [unit](Environment& cuda) { return create_of_size(cuda, kinds[0], unit << 44); }, needs_alone);
  for (const Kind& kind : kinds)
    for (const int power : {37, 38, 40, 42, 44, 46, 47, 48, 52})  // with 2^63 the driver hangs
      table.add(std::string{"pool_border.max_size_of_"} + kind.name + "_2^" + std::to_string(power),
                [kind, power](Environment& cuda) { return create_of_size(cuda, kind, std::size_t{1} << power); });
}

// "OK/33554432 OK/begin-512": the mapping in which a pointer lies.
std::string mapping_of(Environment& cuda, CUdeviceptr pointer) {
  return spaces({told_of_pointer(cuda, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, pointer, nullptr),
                 told_of_pointer(cuda, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, pointer, nullptr)});
}

void add_mappings(Table& table) {
  for (const Kind& kind : kinds)
    for (const std::size_t size : {std::size_t{1000}, granule + 1, 33 * mebibyte, 70 * mebibyte})
      table.add(std::string{"pool_border.mapping_of_"} + kind.name + "_" + std::to_string(size),
                [kind, size](Environment& cuda) {
                  const CUmemoryPool pool = created_pool(cuda, kind);
                  const CUstream stream = cuda.stream();
                  const CUdeviceptr first = allocate_from(cuda, pool, size, stream);
                  const CUdeviceptr second = allocate_from(cuda, pool, size, stream);
                  cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
                  return joined(", ", {mapping_of(cuda, first), mapping_of(cuda, second), numbers(cuda, pool)});
                });
  for (const std::size_t size : {std::size_t{1000}, granule, 40 * mebibyte})
    table.add("pool_border.mapping_of_graph_" + std::to_string(size), [size](Environment& cuda) {
      const CUstream stream = cuda.stream();
      CUgraph graph = nullptr;
      CUgraphExec exec = nullptr;
      CUdeviceptr memory = 0;
      cuda.expect("begin capture", cuda->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      cuda.expect("allocate", cuda->cuMemAllocAsync(&memory, size, stream));
      cuda.expect("end capture", cuda->cuStreamEndCapture(stream, &graph));
      cuda.expect("instantiate", cuda->cuGraphInstantiateWithFlags(&exec, graph, 0));
      const std::string before = mapping_of(cuda, memory);
      cuda.expect("launch", cuda->cuGraphLaunch(exec, stream));
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
      return joined(", ", {before, mapping_of(cuda, memory)});
    });
  table.add("pool_border.alignment", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    const CUstream stream = cuda.stream();
    std::string answer;
    for (const std::size_t size : {std::size_t{1}, std::size_t{513}, std::size_t{70000}, mebibyte, mebibyte + 1,
                                   granule, 3 * mebibyte, 33 * mebibyte}) {
      const CUdeviceptr memory = allocate_from(cuda, pool, size, stream);
      answer += (answer.empty() ? "" : " ") + std::to_string(memory & (~memory + 1) & (granule - 1));
    }
    return answer;
  });
}

// A pool that keeps what it has, with these allocations, of which some are freed then.
struct Filled {
  Filled(Environment& environment, const std::vector<std::size_t>& mebibytes, const std::vector<std::size_t>& freed)
      : cuda(environment), pool(new_pool(environment)), stream(environment.stream()) {
    cuda.expect("threshold", set_attribute(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~std::uint64_t{0}));
    for (const std::size_t each : mebibytes) memory.push_back(allocate_from(cuda, pool, each * mebibyte, stream));
    for (const std::size_t each : freed) cuda.expect("free", cuda->cuMemFreeAsync(memory.at(each), stream));
  }
  std::string trimmed_to(std::size_t bytes) {
    const std::string before = numbers(cuda, pool);
    const CUresult trimmed = cuda->cuMemPoolTrimTo(pool, bytes);
    return spaces({before, trimmed, numbers(cuda, pool)});
  }

  Environment& cuda;
  CUmemoryPool pool;
  CUstream stream;
  std::vector<CUdeviceptr> memory;
};

void add_trimming(Table& table) {
  struct Trim {
    const char* name;
    std::vector<std::size_t> sizes, freed;
    std::size_t kept;  // MiB
  };
  const std::vector<Trim> trims = {
      {"all_of_one_large", {40}, {0}, 0},
      {"all_of_three", {40, 40, 40}, {0, 1, 2}, 0},
      {"first_of_three", {40, 40, 40}, {0}, 0},
      {"middle_of_three", {40, 40, 40}, {1}, 0},
      {"last_of_three", {40, 40, 40}, {2}, 0},
      {"first_of_three_whole", {32, 32, 32}, {0}, 0},
      {"middle_of_three_whole", {32, 32, 32}, {1}, 0},
      {"last_of_three_whole", {32, 32, 32}, {2}, 0},
      {"two_of_three_whole_to_64", {32, 32, 32}, {0, 1}, 64},
      {"two_of_three_whole_to_63", {32, 32, 32}, {0, 1}, 63},
      {"all_of_96_to_95", {32, 32, 32}, {0, 1, 2}, 95},
      {"all_of_96_to_65", {32, 32, 32}, {0, 1, 2}, 65},
      {"all_of_96_to_1", {32, 32, 32}, {0, 1, 2}, 1},
      {"all_but_one_small", {1, 30, 40}, {1, 2}, 0},
      {"all_but_one_small_at_end", {30, 40, 1}, {0, 1}, 0},
      {"large_of_one_piece_to_32", {96}, {0}, 32},
      {"large_of_one_piece_to_64", {96}, {0}, 64},
  };
  for (const Trim& trim : trims)
    table.add(std::string{"pool_border.trim_"} + trim.name, [trim](Environment& cuda) {
      Filled filled(cuda, trim.sizes, trim.freed);
      cuda.expect("synchronize", cuda->cuStreamSynchronize(filled.stream));
      return filled.trimmed_to(trim.kept * mebibyte);
    });
  // By when the host knows that memory is free.
  table.add("pool_border.trim_without_synchronizing", [](Environment& cuda) {
    return Filled(cuda, {40, 40}, {0, 1}).trimmed_to(0);
  });
  table.add("pool_border.trim_after_query", [](Environment& cuda) {
    Filled filled(cuda, {40, 40}, {0, 1});
    while (cuda->cuStreamQuery(filled.stream) == CUDA_ERROR_NOT_READY) continue;
    return filled.trimmed_to(0);
  });
  table.add("pool_border.trim_after_event", [](Environment& cuda) {
    Filled filled(cuda, {40, 40}, {0, 1});
    const CUevent event = cuda.event();
    cuda.expect("record", cuda->cuEventRecord(event, filled.stream));
    cuda.expect("synchronize", cuda->cuEventSynchronize(event));
    return filled.trimmed_to(0);
  });
  table.add("pool_border.trim_after_synchronizing_the_context", [](Environment& cuda) {
    Filled filled(cuda, {40, 40}, {0, 1});
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return filled.trimmed_to(0);
  });
  table.add("pool_border.trim_after_synchronizing_another_stream", [](Environment& cuda) {
    Filled filled(cuda, {40, 40}, {0, 1});
    cuda.expect("synchronize", cuda->cuStreamSynchronize(cuda.stream()));
    return filled.trimmed_to(0);
  });
  for (const std::size_t threshold : {std::size_t{31}, std::size_t{33}, std::size_t{95}})
    table.add("pool_border.threshold_of_" + std::to_string(threshold) + "_for_96", [threshold](Environment& cuda) {
      Filled filled(cuda, {32, 32, 32}, {0, 1, 2});
      cuda.expect("threshold", set_attribute(cuda, filled.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                             std::uint64_t{threshold * mebibyte}));
      const std::string before = numbers(cuda, filled.pool);
      cuda.expect("synchronize", cuda->cuStreamSynchronize(filled.stream));
      return spaces({before, numbers(cuda, filled.pool)});
    });
  table.add("pool_border.threshold_with_one_in_use", [](Environment& cuda) {
    Filled filled(cuda, {32, 32, 32}, {0, 2});
    cuda.expect("threshold", set_attribute(cuda, filled.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, std::uint64_t{0}));
    cuda.expect("synchronize", cuda->cuStreamSynchronize(filled.stream));
    return numbers(cuda, filled.pool);
  });
}

}  // namespace

void add_pool_border_cases(Table& table) {
  add_rights(table);
  add_sizes(table);
  add_mappings(table);
  add_trimming(table);
}

}  // namespace cuvmm::conformance
