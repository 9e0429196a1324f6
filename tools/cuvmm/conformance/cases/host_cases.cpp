// VMM memory on the host, and what the CPU may do with VMM addresses.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

CUdeviceptr mapped_host_numa(Environment& cuda, int flags = CU_MEM_ACCESS_FLAGS_PROT_NONE) {
  return cuda.mapped(granule, flags, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
}

CUresult grant_to_host(Environment& cuda, CUdeviceptr address, int flags = 3, int type = CU_MEM_LOCATION_TYPE_HOST_NUMA,
                       int id = 0) {
  const CUmemAccessDesc host = access_of(id, flags, type);
  return cuda->cuMemSetAccess(address, granule, &host, 1);
}

volatile unsigned& word_at(CUdeviceptr address) {
  return *static_cast<volatile unsigned*>(as_pointer(address));
}

// "1" if the CPU can read there; otherwise the process dies of it.
std::string read_by_cpu(CUdeviceptr address) {
  return std::to_string(word_at(address) * 0 + 1);
}

void add_creation(Table& table) {
  for (const int type : {2, 3, 4})
    for (const int handle_types : {0, 1, 8})
      table.add("host.create_lt" + std::to_string(type) + "_ht" + std::to_string(handle_types),
                [type, handle_types](Environment& cuda) {
                  return cuda.try_create(granule, host_memory(static_cast<CUmemLocationType>(type), handle_types));
                });
  for (const int node : {-1, 1, 99})
    table.add("host.create_numa_" + std::to_string(node), [node](Environment& cuda) {
      CUmemAllocationProp properties = host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA);
      properties.location.id = node;
      return cuda.try_create(granule, properties);
    });
  table.add("host.create_host_id_7", [](Environment& cuda) {
    CUmemAllocationProp properties = host_memory(CU_MEM_LOCATION_TYPE_HOST);
    properties.location.id = 7;
    return cuda.try_create(granule, properties);
  });
  table.add("host.create_compressed", [](Environment& cuda) {
    CUmemAllocationProp properties = host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA);
    properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
    return cuda.try_create(granule, properties);
  });
  table.add("host.create_64K",
            [](Environment& cuda) { return cuda.try_create(65536, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA)); });
}

void add_dereferences(Table& table) {
  table.add("host.cpu_access_deref", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    const CUmemAccessDesc both[] = {access_of(0), access_of(0, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA)};
    const CUresult granted = cuda->cuMemSetAccess(address, granule, both, 2);
    word_at(address) = 9;
    unsigned seen = 0;
    cuda.expect("read", cuda->cuMemcpyDtoH(&seen, address, sizeof seen));
    return slashes({granted, seen});
  });
  table.add("host.cpu_deref_without_access",
            [](Environment& cuda) { return read_by_cpu(mapped_host_numa(cuda, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)); });
  table.add("host.cpu_deref_device_memory", [](Environment& cuda) { return read_by_cpu(cuda.mapped()); });
  table.add("host.cpu_read_of_read_only", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    cuda.expect("host access", grant_to_host(cuda, address, CU_MEM_ACCESS_FLAGS_PROT_READ));
    return read_by_cpu(address);
  });
  table.add("host.cpu_store_to_read_only", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    cuda.expect("host access", grant_to_host(cuda, address, CU_MEM_ACCESS_FLAGS_PROT_READ));
    word_at(address) = 1;
    return "stored";
  });
  table.add("host.cpu_deref_after_revoke", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    cuda.expect("host access", grant_to_host(cuda, address));
    word_at(address) = 1;
    cuda.expect("revoke", grant_to_host(cuda, address, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    return read_by_cpu(address);
  });
  table.add("host.cpu_deref_after_unmap", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    cuda.expect("host access", grant_to_host(cuda, address));
    word_at(address) = 1;
    cuda.unmap(address, granule);
    return read_by_cpu(address);
  });
}

void add_grants(Table& table) {
  table.add("host.cpu_access_lt_host", [](Environment& cuda) {
    return grant_to_host(cuda, mapped_host_numa(cuda), 3, CU_MEM_LOCATION_TYPE_HOST);
  });
  table.add("host.cpu_read_only", [](Environment& cuda) {
    return grant_to_host(cuda, mapped_host_numa(cuda), CU_MEM_ACCESS_FLAGS_PROT_READ);
  });
  for (const auto memory : {CU_MEM_LOCATION_TYPE_HOST, CU_MEM_LOCATION_TYPE_HOST_NUMA})
    for (const int granted : {2, 3, 4})
      table.add("host.access_of_lt" + std::to_string(memory) + "_granted_to_lt" + std::to_string(granted),
                [memory, granted](Environment& cuda) {
                  const CUdeviceptr address = cuda.mapped(granule, 0, host_memory(memory));
                  return spaces({grant_to_host(cuda, address, 3, granted), cuda.access(address),
                                 cuda.access(address, 0, 2), cuda.access(address, 0, 3), cuda.access(address, 0, 4)});
                });
  for (const int node : {-1, 1, 99})
    table.add("host.access_numa_" + std::to_string(node), [node](Environment& cuda) {
      const CUdeviceptr address = mapped_host_numa(cuda);
      return spaces({grant_to_host(cuda, address, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA, node),
                     cuda.access(address, node, CU_MEM_LOCATION_TYPE_HOST_NUMA)});
    });
  table.add("host.access_host_id_7", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    return spaces({grant_to_host(cuda, address, 3, CU_MEM_LOCATION_TYPE_HOST, 7),
                   cuda.access(address, 7, CU_MEM_LOCATION_TYPE_HOST)});
  });
  table.add("host.access_fresh", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    return spaces({cuda.access(address), cuda.access(address, 0, 2), cuda.access(address, 0, 3)});
  });
  table.add("host.access_host_then_device", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    const CUresult host = grant_to_host(cuda, address);
    cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    return spaces({host, cuda.access(address), cuda.access(address, 0, 2), cuda.access(address, 0, 3)});
  });
  table.add("host.access_revoked", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return spaces({grant_to_host(cuda, address), grant_to_host(cuda, address, 0), cuda.access(address),
                   cuda.access(address, 0, 3)});
  });
  table.add("host.access_both_host_types", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    const CUmemAccessDesc both[] = {access_of(0, 3, CU_MEM_LOCATION_TYPE_HOST),
                                    access_of(0, 1, CU_MEM_LOCATION_TYPE_HOST_NUMA)};
    return spaces(
        {cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address, 0, 2), cuda.access(address, 0, 3)});
  });
}

void add_copies(Table& table) {
  table.add("host.copy_granted_to_host_only", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda);
    cuda.expect("host access", grant_to_host(cuda, address));
    unsigned word = 3;
    return commas({cuda->cuMemcpyHtoD(address, &word, 4), cuda->cuMemcpyDtoH(&word, address, 4),
                   cuda->cuMemsetD8(address, 1, 4)});
  });
  table.add("host.copy_granted_to_device_only", [](Environment& cuda) {
    const CUdeviceptr address = mapped_host_numa(cuda, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    unsigned word = 3;
    const CUresult to = cuda->cuMemcpyHtoD(address, &word, 4);
    word = 0;
    const CUresult from = cuda->cuMemcpyDtoH(&word, address, 4);
    return commas({to, slashes({from, word})});
  });
  table.add(
      "host.memory_not_counted_on_device",
      [](Environment& cuda) {
        std::size_t before = 0;
        std::size_t after = 0;
        std::size_t total = 0;
        cuda.expect("info", cuda->cuMemGetInfo(&before, &total));
        cuda.create(64 * mebibyte, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
        cuda.expect("info", cuda->cuMemGetInfo(&after, &total));
        return before - after >= 64 * mebibyte ? "counted" : "not counted";
      },
      needs_alone);
}

}  // namespace

void add_host_cases(Table& table) {
  add_creation(table);
  add_dereferences(table);
  add_grants(table);
  add_copies(table);
}

}  // namespace cuvmm::conformance
