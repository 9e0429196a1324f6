// Memory pools: what they are made with, what they keep and tell, and who may touch their memory.
#include <vector>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

struct NamedProperties {
  std::string name;
  CUmemPoolProps properties;
};

NamedProperties of_type(const char* name, int location_type, int id = 0) {
  return {name, pool_properties(id, location_type)};
}

NamedProperties managed(const char* name, int location_type) {
  NamedProperties made = of_type(name, location_type);
  made.properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
  return made;
}

NamedProperties shared(const char* name, int handle_types, int location_type = CU_MEM_LOCATION_TYPE_DEVICE) {
  NamedProperties made = of_type(name, location_type);
  made.properties.handleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  return made;
}

NamedProperties spoilt(const char* name, void (*spoil)(CUmemPoolProps&)) {
  NamedProperties made = of_type(name, CU_MEM_LOCATION_TYPE_DEVICE);
  spoil(made.properties);
  return made;
}

std::vector<NamedProperties> kinds_of_pools() {
  return {
      of_type("device", CU_MEM_LOCATION_TYPE_DEVICE),
      of_type("device_99", CU_MEM_LOCATION_TYPE_DEVICE, 99),
      of_type("device_-1", CU_MEM_LOCATION_TYPE_DEVICE, -1),
      of_type("no_location", CU_MEM_LOCATION_TYPE_INVALID),
      of_type("host", CU_MEM_LOCATION_TYPE_HOST),
      of_type("host_id_5", CU_MEM_LOCATION_TYPE_HOST, 5),
      of_type("numa_0", CU_MEM_LOCATION_TYPE_HOST_NUMA),
      of_type("numa_99", CU_MEM_LOCATION_TYPE_HOST_NUMA, 99),
      of_type("numa_-1", CU_MEM_LOCATION_TYPE_HOST_NUMA, -1),
      of_type("numa_current", CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT),
      of_type("location_type_9", 9),
      managed("managed_device", CU_MEM_LOCATION_TYPE_DEVICE),
      managed("managed_nowhere", CU_MEM_LOCATION_TYPE_INVALID),
      managed("managed_host", CU_MEM_LOCATION_TYPE_HOST),
      managed("managed_numa", CU_MEM_LOCATION_TYPE_HOST_NUMA),
      shared("descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      shared("win32", CU_MEM_HANDLE_TYPE_WIN32),
      shared("win32_kmt", 4),
      shared("fabric", CU_MEM_HANDLE_TYPE_FABRIC),
      shared("descriptor_and_fabric", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC),
      shared("handle_type_16", 16),
      shared("host_descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST),
      shared("numa_descriptor", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST_NUMA),
      spoilt("type_0", [](CUmemPoolProps& it) { it.allocType = CU_MEM_ALLOCATION_TYPE_INVALID; }),
      spoilt("type_3", [](CUmemPoolProps& it) { it.allocType = static_cast<CUmemAllocationType>(3); }),
      spoilt("usage_1", [](CUmemPoolProps& it) { it.usage = 1; }),
      spoilt("usage_2", [](CUmemPoolProps& it) { it.usage = 2; }),
      spoilt("usage_4", [](CUmemPoolProps& it) { it.usage = 4; }),
      spoilt("reserved", [](CUmemPoolProps& it) { it.reserved[53] = 1; }),
      spoilt("security_attributes", [](CUmemPoolProps& it) { it.win32SecurityAttributes = &it; }),
      spoilt("max_size_1", [](CUmemPoolProps& it) { it.maxSize = 1; }),
      spoilt("max_size_2^50", [](CUmemPoolProps& it) { it.maxSize = std::size_t{1} << 50; }),
  };
}

void add_creation(Table& table) {
  for (const NamedProperties& kind : kinds_of_pools())
    table.add("pool.create_" + kind.name, [properties = kind.properties](Environment& cuda) {
      CUmemoryPool pool = nullptr;
      const CUresult created = cuda->cuMemPoolCreate(&pool, &properties);
      return spaces({created, pool == nullptr ? "null" : "pool"});
    });
  table.add("pool.destroy_twice", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    return commas({cuda->cuMemPoolDestroy(pool), cuda->cuMemPoolDestroy(pool)});
  });
  table.add("pool.destroy_default", [](Environment& cuda) {
    CUmemoryPool pool = nullptr;
    cuda.expect("default", cuda->cuDeviceGetDefaultMemPool(&pool, 0));
    return cuda->cuMemPoolDestroy(pool);
  });
  table.add("pool.destroyed_while_in_use", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
    return commas({cuda->cuMemPoolDestroy(pool), cuda->cuMemsetD8Async(memory, 1, 4096, stream),
                   cuda->cuMemFreeAsync(memory, stream), cuda->cuStreamSynchronize(stream)});
  });
  table.add("pool.allocate_from_destroyed", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    cuda.expect("destroy", cuda->cuMemPoolDestroy(pool));
    return try_allocate_from(cuda, pool, 64, cuda.stream());
  });
}

void add_limits(Table& table) {
  struct Limit {
    std::size_t most, asked;
  };
  for (const Limit& limit : {Limit{4 * mebibyte, 3 * mebibyte}, Limit{1, 100}, Limit{1, granule}, Limit{1, granule + 1},
                             Limit{1, 16 * mebibyte}, Limit{1, 32 * mebibyte}, Limit{1, 33 * mebibyte},
                             Limit{33 * mebibyte, 33 * mebibyte}, Limit{64 * mebibyte, 40 * mebibyte}})
    table.add("pool.max_size_" + std::to_string(limit.most) + "_allocate_" + std::to_string(limit.asked),
              [limit](Environment& cuda) {
                const CUmemoryPool pool = new_pool(cuda, pool_properties(0, CU_MEM_LOCATION_TYPE_DEVICE, limit.most));
                const CUstream stream = cuda.stream();
                const CUresult once = try_allocate_from(cuda, pool, limit.asked, stream);
                const std::string after = numbers(cuda, pool);
                const CUresult again = try_allocate_from(cuda, pool, limit.asked, stream);
                return spaces({once, after, again, numbers(cuda, pool), try_allocate_from(cuda, pool, 1, stream)});
              });
}

template <class Value>
std::string set_and_get(Environment& cuda, CUmemPool_attribute attribute, Value value) {
  const CUmemoryPool pool = new_pool(cuda);
  const CUresult set = set_attribute(cuda, pool, attribute, value);
  Value told = 77;
  const CUresult got = cuda->cuMemPoolGetAttribute(pool, attribute, &told);
  return spaces({set, slashes({got, told})});
}

void add_attributes(Table& table) {
  for (int attribute = 0; attribute <= 12; ++attribute)
    for (const int value : {0, 1, 2})
      table.add("pool.set_attribute_" + std::to_string(attribute) + "_to_" + std::to_string(value),
                [attribute, value](Environment& cuda) {
                  const auto asked = static_cast<CUmemPool_attribute>(attribute);
                  return attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
                             ? set_and_get(cuda, asked, value)
                             : set_and_get(cuda, asked, static_cast<std::uint64_t>(value));
                });
  table.add("pool.attribute_defaults", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    std::string answer;
    for (int attribute = 1; attribute <= 8; ++attribute) {
      std::uint64_t told = 0;
      const CUresult got = cuda->cuMemPoolGetAttribute(pool, static_cast<CUmemPool_attribute>(attribute), &told);
      answer += (attribute == 1 ? "" : " ") + slashes({got, told});
    }
    return answer;
  });
  table.add("pool.high_marks_are_forgotten", [](Environment& cuda) {
    const CUmemoryPool pool = new_pool(cuda);
    const CUstream stream = cuda.stream();
    const CUdeviceptr first = allocate_from(cuda, pool, 1000, stream);
    static_cast<void>(allocate_from(cuda, pool, 500, stream));
    cuda.expect("free", cuda->cuMemFreeAsync(first, stream));
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    const std::string before = numbers(cuda, pool);
    const CUresult used = set_attribute(cuda, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, std::uint64_t{0});
    const CUresult reserved = set_attribute(cuda, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, std::uint64_t{0});
    return spaces({before, used, reserved, numbers(cuda, pool)});
  });
}

void add_access(Table& table) {
  struct Grant {
    const char* name;
    int id, flags, type;
  };
  constexpr int device = CU_MEM_LOCATION_TYPE_DEVICE;
  for (const Grant& grant :
       {Grant{"own_none", 0, 0, device}, Grant{"own_read", 0, 1, device}, Grant{"own_flags_2", 0, 2, device},
        Grant{"own_read_write", 0, 3, device}, Grant{"device_99", 99, 3, device},
        Grant{"device_99_none", 99, 0, device}, Grant{"host", 0, 3, CU_MEM_LOCATION_TYPE_HOST},
        Grant{"host_none", 0, 0, CU_MEM_LOCATION_TYPE_HOST}, Grant{"numa", 0, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA},
        Grant{"no_location", 0, 3, CU_MEM_LOCATION_TYPE_INVALID}})
    table.add(std::string{"pool.access_"} + grant.name, [grant](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda);
      CUmemAccessDesc access = access_of(grant.id, grant.flags, grant.type);
      auto flags = static_cast<CUmemAccess_flags>(9);
      const CUresult set = cuda->cuMemPoolSetAccess(pool, &access, 1);
      const CUresult got = cuda->cuMemPoolGetAccess(&flags, pool, &access.location);
      return spaces({set, slashes({got, static_cast<int>(flags)})});
    });
  for (const int flags : {0, 1, 2, 3})
    table.add(
        "pool.access_peer_flags_" + std::to_string(flags),
        [flags](Environment& cuda) {
          const CUmemoryPool pool = new_pool(cuda);
          CUmemAccessDesc access = access_of(1, flags);
          auto told = static_cast<CUmemAccess_flags>(9);
          const CUresult set = cuda->cuMemPoolSetAccess(pool, &access, 1);
          const CUresult got = cuda->cuMemPoolGetAccess(&told, pool, &access.location);
          return spaces({set, slashes({got, static_cast<int>(told)})});
        },
        needs_two_devices);
  table.add("pool.access_count_0", [](Environment& cuda) {
    const CUmemAccessDesc access = access_of(0);
    return cuda->cuMemPoolSetAccess(new_pool(cuda), &access, 0);
  });
  table.add(
      "pool.access_to_one_that_cannot_be_changes_none",
      [](Environment& cuda) {
        const CUmemoryPool pool = new_pool(cuda);
        const std::vector<CUmemAccessDesc> access{access_of(1), access_of(99)};
        CUmemLocation peer = location(1);
        auto told = static_cast<CUmemAccess_flags>(9);
        const CUresult set = cuda->cuMemPoolSetAccess(pool, access.data(), access.size());
        const CUresult got = cuda->cuMemPoolGetAccess(&told, pool, &peer);
        return spaces({set, slashes({got, static_cast<int>(told)})});
      },
      needs_two_devices);
  table.add(
      "pool.peer_touches_memory",
      [](Environment& cuda) {
        const CUmemoryPool pool = new_pool(cuda);
        const CUstream stream = cuda.stream();
        const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
        cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
        cuda.make_current(cuda.primary(1));
        const CUresult before = cuda->cuMemsetD8(memory, 1, 64);
        const CUmemAccessDesc access = access_of(1);
        const CUresult set = cuda->cuMemPoolSetAccess(pool, &access, 1);
        return spaces({before, set, cuda->cuMemsetD8(memory, 1, 64), cuda->cuCtxSynchronize()});
      },
      needs_two_devices);
}

void add_host_pools(Table& table) {
  for (const int type : {int{CU_MEM_LOCATION_TYPE_HOST}, int{CU_MEM_LOCATION_TYPE_HOST_NUMA}}) {
    const std::string name = type == CU_MEM_LOCATION_TYPE_HOST ? "host" : "numa";
    table.add("pool." + name + "_rights", [type](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda, pool_properties(0, type));
      std::string answer;
      for (CUmemLocation place : {location(0), location(0, CU_MEM_LOCATION_TYPE_HOST),
                                  location(0, CU_MEM_LOCATION_TYPE_HOST_NUMA), location(99)}) {
        auto flags = static_cast<CUmemAccess_flags>(9);
        const CUresult got = cuda->cuMemPoolGetAccess(&flags, pool, &place);
        answer += (answer.empty() ? "" : " ") + slashes({got, static_cast<int>(flags)});
      }
      return answer;
    });
    table.add("pool." + name + "_is_seen_by_both", [type](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda, pool_properties(0, type));
      const CUstream stream = cuda.stream();
      const CUdeviceptr memory = allocate_from(cuda, pool, 4096, stream);
      const CUresult set = cuda->cuMemsetD8Async(memory, 7, 4096, stream);
      const CUresult finished = cuda->cuStreamSynchronize(stream);
      return spaces({set, finished, static_cast<int>(*static_cast<const unsigned char*>(as_pointer(memory)))});
    });
    table.add("pool." + name + "_numbers", [type](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda, pool_properties(0, type));
      const CUstream stream = cuda.stream();
      const CUdeviceptr memory = allocate_from(cuda, pool, 1000, stream);
      const std::string allocated = numbers(cuda, pool);
      cuda.expect("free", cuda->cuMemFreeAsync(memory, stream));
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
      return spaces({allocated, numbers(cuda, pool)});
    });
    table.add("pool." + name + "_access_device_none", [type](Environment& cuda) {
      const CUmemoryPool pool = new_pool(cuda, pool_properties(0, type));
      const CUmemAccessDesc none = access_of(0, 0);
      const CUmemAccessDesc own_none = access_of(0, 0, type);
      return commas({cuda->cuMemPoolSetAccess(pool, &none, 1), cuda->cuMemPoolSetAccess(pool, &own_none, 1)});
    });
  }
}

void add_defaults(Table& table) {
  struct Asked {
    int location_type, allocation_type;
  };
  for (const Asked& asked : {Asked{0, 1}, Asked{1, 1}, Asked{2, 1}, Asked{3, 1}, Asked{4, 1}, Asked{0, 2}, Asked{1, 2},
                             Asked{2, 2}, Asked{3, 2}, Asked{1, 0}}) {
    const auto type = static_cast<CUmemAllocationType>(asked.allocation_type);
    const std::string name =
        "_of_location_" + std::to_string(asked.location_type) + "_type_" + std::to_string(asked.allocation_type);
    table.add("pool.default" + name, [asked, type](Environment& cuda) {
      CUmemLocation place = location(0, asked.location_type);
      CUmemoryPool pool = nullptr;
      const CUresult got = cuda->cuMemGetDefaultMemPool(&pool, &place, type);
      return slashes({got, pool == nullptr ? "null" : "pool"});
    });
    table.add("pool.current" + name, [asked, type](Environment& cuda) {
      CUmemLocation place = location(0, asked.location_type);
      CUmemoryPool pool = nullptr;
      CUmemoryPool standard = nullptr;
      const CUresult got = cuda->cuMemGetMemPool(&pool, &place, type);
      static_cast<void>(cuda->cuMemGetDefaultMemPool(&standard, &place, type));
      return slashes({got, pool == nullptr ? "null" : pool == standard ? "default" : "other"});
    });
  }
  table.add("pool.set_and_destroy", [](Environment& cuda) {
    const CUmemoryPool made = new_pool(cuda);
    CUmemoryPool pool = nullptr;
    const CUresult set = cuda->cuDeviceSetMemPool(0, made);
    const CUresult got = cuda->cuDeviceGetMemPool(&pool, 0);
    const std::string before = slashes({got, pool == made ? "set" : "other"});
    const CUresult destroyed = cuda->cuMemPoolDestroy(made);
    const CUresult after = cuda->cuDeviceGetMemPool(&pool, 0);
    CUmemoryPool standard = nullptr;
    cuda.expect("default", cuda->cuDeviceGetDefaultMemPool(&standard, 0));
    return spaces({set, before, destroyed, slashes({after, pool == standard ? "default" : "other"})});
  });
  table.add("pool.set_host_pool_for_device", [](Environment& cuda) {
    return cuda->cuDeviceSetMemPool(0, new_pool(cuda, pool_properties(0, CU_MEM_LOCATION_TYPE_HOST)));
  });
  table.add(
      "pool.set_for_other_device", [](Environment& cuda) { return cuda->cuDeviceSetMemPool(1, new_pool(cuda)); },
      needs_two_devices);
}

}  // namespace

void add_pool_cases(Table& table) {
  add_creation(table);
  add_limits(table);
  add_attributes(table);
  add_access(table);
  add_host_pools(table);
  add_defaults(table);
}

}  // namespace cuvmm::conformance
