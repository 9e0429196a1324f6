// Every pointer attribute of every kind of memory.
#include <array>
#include <cstring>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// An address to ask about, and what its neighbourhood is called in answers.
struct Asked {
  CUdeviceptr address = 0;
  CUdeviceptr base = 0;          // where its allocation or mapping begins
  CUdeviceptr device_alias = 0;  // its address on the device, where that differs
};

struct Kind {
  const char* name;
  Asked (*make)(Environment&);
};

Asked at(CUdeviceptr address) {
  return {address, address, 0};
}

Asked inside_mapping(Environment& cuda) {
  const CUdeviceptr reservation = cuda.reserve(4 * granule);
  const CUdeviceptr mapping = reservation + granule;
  cuda.map_new(mapping, 2 * granule);
  cuda.grant(mapping, 2 * granule);
  return {mapping + granule + 123, mapping, 0};
}

Asked registered(Environment& cuda, unsigned flags) {
  alignas(4096) static std::array<char, 8192> pages{};
  cuda.expect("register", cuda->cuMemHostRegister(pages.data(), pages.size(), flags));
  Asked asked = at(as_address(pages.data()));
  cuda.expect("device pointer", cuda->cuMemHostGetDevicePointer(&asked.device_alias, pages.data(), 0));
  return asked;
}

Asked host_numa(Environment& cuda, bool granted_to_host) {
  const CUdeviceptr address = cuda.mapped(granule, 3, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  const CUmemAccessDesc host = access_of(0, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  if (granted_to_host) cuda.expect("host access", cuda->cuMemSetAccess(address, granule, &host, 1));
  return at(address);
}

Asked freed(Environment& cuda) {
  const CUdeviceptr address = cuda.allocate(64 * mebibyte);
  cuda.expect("free", cuda->cuMemFree(address));
  return at(address);
}

Asked imported(Environment& cuda) {
  const Exported exported = cuda.export_new();
  CUmemGenericAllocationHandle handle = 0;
  cuda.expect("import", cuda.import(exported.descriptor, handle));
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  return at(address);
}

// The second of two mappings of the same memory.
Asked alias(Environment& cuda) {
  const CUmemGenericAllocationHandle handle = cuda.create(granule);
  CUdeviceptr address = 0;
  for (int i = 0; i < 2; ++i) {
    address = cuda.reserve(granule);
    cuda.map(address, granule, handle);
    cuda.grant(address, granule);
  }
  return at(address);
}

Asked unmapped(Environment& cuda) {
  const CUdeviceptr address = cuda.mapped();
  cuda.unmap(address, granule);
  return at(address);
}

// The memory lives by its mapping alone.
Asked released(Environment& cuda) {
  const CUdeviceptr address = cuda.reserve(granule);
  const CUmemGenericAllocationHandle handle = cuda.create(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  cuda.expect("release", cuda->cuMemRelease(handle));
  return at(address);
}

// Memory of device 1, granted to one of the two.
Asked of_second_device(Environment& cuda, int granted) {
  const CUdeviceptr address = cuda.mapped(granule, 0, device_memory(1));
  cuda.grant(address, granule, 3, granted);
  return at(address);
}

Asked allocated_by_second_device(Environment& cuda) {
  cuda.make_current(cuda.primary(1));
  const CUdeviceptr address = cuda.allocate(granule);
  cuda.make_current(cuda.context());
  return at(address);
}

constexpr Kind more_kinds[] = {
    {"mapped_read_only", [](Environment& cuda) { return at(cuda.mapped(granule, 1)); }},
    {"mapped_compressed",
     [](Environment& cuda) {
       CUmemAllocationProp properties = device_memory();
       properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_GENERIC;
       return at(cuda.mapped(granule, 3, properties));
     }},
    {"mapped_rdma",
     [](Environment& cuda) {
       CUmemAllocationProp properties = device_memory();
       properties.allocFlags.gpuDirectRDMACapable = 1;
       return at(cuda.mapped(granule, 3, properties));
     }},
    {"mapped_host",
     [](Environment& cuda) { return at(cuda.mapped(granule, 3, host_memory(CU_MEM_LOCATION_TYPE_HOST))); }},
    {"mapped_host_no_access",
     [](Environment& cuda) { return at(cuda.mapped(granule, 0, host_memory(CU_MEM_LOCATION_TYPE_HOST))); }},
    {"imported", imported},
    {"alias", alias},
    {"unmapped", unmapped},
    {"released", released},
    {"host_alloc_inside",
     [](Environment& cuda) {
       const CUdeviceptr base = as_address(cuda.allocate_host());
       return Asked{base + 123, base, 0};
     }},
    {"host_alloc_portable",
     [](Environment& cuda) { return at(as_address(cuda.allocate_host(mebibyte, CU_MEMHOSTALLOC_PORTABLE))); }},
    {"host_alloc_write_combined",
     [](Environment& cuda) { return at(as_address(cuda.allocate_host(mebibyte, CU_MEMHOSTALLOC_WRITECOMBINED))); }},
    {"registered_read_only", [](Environment& cuda) { return registered(cuda, CU_MEMHOSTREGISTER_READ_ONLY); }},
    {"nowhere", [](Environment&) { return at(nowhere); }},
};

constexpr Kind kinds_of_two_devices[] = {
    {"of_second_device_granted_to_first", [](Environment& cuda) { return of_second_device(cuda, 0); }},
    {"of_second_device_granted_to_second", [](Environment& cuda) { return of_second_device(cuda, 1); }},
    {"allocated_by_second_device", allocated_by_second_device},
};

constexpr Kind kinds[] = {
    {"mapped", [](Environment& cuda) { return at(cuda.mapped()); }},
    {"mapped_exportable", [](Environment& cuda) { return at(cuda.mapped(granule, 3, exportable())); }},
    {"mapped_inside", inside_mapping},
    {"mapped_no_access", [](Environment& cuda) { return at(cuda.mapped(granule, 0)); }},
    {"mapped_host_numa", [](Environment& cuda) { return host_numa(cuda, false); }},
    {"mapped_host_numa_granted_to_host", [](Environment& cuda) { return host_numa(cuda, true); }},
    {"reserved", [](Environment& cuda) { return at(cuda.reserve(granule)); }},
    {"allocated", [](Environment& cuda) { return at(cuda.allocate(granule)); }},
    {"allocated_inside",
     [](Environment& cuda) {
       const CUdeviceptr address = cuda.allocate(granule);
       return Asked{address + 123, address, 0};
     }},
    {"freed", freed},
    {"host_alloc", [](Environment& cuda) { return at(as_address(cuda.allocate_host())); }},
    {"registered", [](Environment& cuda) { return registered(cuda, 0); }},
    {"stack",
     [](Environment&) {
       static int local = 0;
       return at(as_address(&local));
     }},
    {"null", [](Environment&) { return at(0); }},
};

enum class Shape { number, address, context, opaque };

Shape shape_of(int attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Shape::context;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Shape::address;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Shape::opaque;
    default:
      return Shape::number;
  }
}

std::string address_name(unsigned long long value, const Asked& asked) {
  if (value == 0) return "null";
  if (value == asked.address) return "self";
  if (value == asked.base) return "base";
  if (value == asked.device_alias) return "alias";
  if (value < asked.base && (asked.base - value) % granule == 0 && asked.base - value < gibibyte)
    return "base-" + std::to_string((asked.base - value) / mebibyte) + "MiB";
  return "other";
}

// A value in a form that does not depend on where things happen to lie. The widest attribute has 16 bytes.
std::string symbolised(const std::array<unsigned long long, 2>& words, int attribute, const Asked& asked,
                       const Environment& cuda) {
  const unsigned long long value = words[0];
  switch (shape_of(attribute)) {
    case Shape::address:
      return address_name(value, asked);
    case Shape::context:
      return value == 0 ? "null" : as_pointer(value) == cuda.context() ? "current" : "other";
    case Shape::opaque:
      return words[0] == 0 && words[1] == 0 ? "zero" : "set";
    case Shape::number:
      break;
  }
  return std::to_string(value);
}

Answer ask(Environment& cuda, const Asked& asked, int attribute) {
  std::array<unsigned long long, 2> words{};
  const CUresult result =
      cuda->cuPointerGetAttribute(words.data(), static_cast<CUpointer_attribute>(attribute), asked.address);
  if (result != CUDA_SUCCESS) return result;
  return slashes({result, symbolised(words, attribute, asked, cuda)});
}

// "1=OK/null 2=OK/2 ..." for all twenty.
std::string ask_all(Environment& cuda, const Asked& asked) {
  std::string answer;
  for (int attribute = 1; attribute <= 20; ++attribute)
    answer += (attribute == 1 ? "" : " ") + std::to_string(attribute) + "=" + ask(cuda, asked, attribute).text();
  return answer;
}

// Memory type, device ordinal and whether it is mapped, in one call; 99 marks what was not written.
std::string ask_three(Environment& cuda, CUdeviceptr address) {
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                      CU_POINTER_ATTRIBUTE_MAPPED};
  int type = 99;
  int ordinal = 99;
  int mapped = 99;
  void* data[] = {&type, &ordinal, &mapped};
  const CUresult result = cuda->cuPointerGetAttributes(3, attributes, data, address);
  return slashes({result, type, ordinal, mapped & 0xff});
}

void add_lists(Table& table) {
  for (const Kind& kind : kinds)
    table.add(std::string{"pointer.list."} + kind.name,
              [kind](Environment& cuda) { return ask_three(cuda, kind.make(cuda).address); });
  table.add("pointer.list.empty",
            [](Environment& cuda) { return cuda->cuPointerGetAttributes(0, nullptr, nullptr, cuda.mapped()); });
  table.add("pointer.list.null_arrays",
            [](Environment& cuda) { return cuda->cuPointerGetAttributes(1, nullptr, nullptr, cuda.mapped()); });
  table.add("pointer.list.bad_attribute", [](Environment& cuda) {
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, static_cast<CUpointer_attribute>(1000)};
    unsigned long long values[] = {99, 99};
    void* data[] = {&values[0], &values[1]};
    return cuda->cuPointerGetAttributes(2, attributes, data, cuda.mapped());
  });
}

void add_refusals(Table& table) {
  for (const int attribute : {-1, 0, 21, 22, 1000})
    table.add("pointer.attribute_" + std::to_string(attribute), [attribute](Environment& cuda) {
      std::array<unsigned long long, 2> words{};
      return cuda->cuPointerGetAttribute(words.data(), static_cast<CUpointer_attribute>(attribute), cuda.mapped());
    });
  table.add("pointer.null_data", [](Environment& cuda) {
    return cuda->cuPointerGetAttribute(nullptr, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, cuda.mapped());
  });
}

// Two contexts on one device: whose memory is it?
void add_contexts(Table& table) {
  table.add("pointer.context_of_created_context", [](Environment& cuda) {
    const CUcontext created = cuda.new_context();
    const CUdeviceptr allocation = cuda.allocate();
    const CUdeviceptr mapping = cuda.mapped();
    CUcontext of_allocation = nullptr;
    CUcontext of_mapping = nullptr;
    cuda.make_current(cuda.context());
    const CUresult first = cuda->cuPointerGetAttribute(&of_allocation, CU_POINTER_ATTRIBUTE_CONTEXT, allocation);
    const CUresult second = cuda->cuPointerGetAttribute(&of_mapping, CU_POINTER_ATTRIBUTE_CONTEXT, mapping);
    const auto name = [&](CUcontext context) {
      return context == nullptr          ? "null"
             : context == created        ? "created"
             : context == cuda.context() ? "primary"
                                         : "other";
    };
    return spaces({slashes({first, name(of_allocation)}), slashes({second, name(of_mapping)})});
  });
  table.add("pointer.no_context", [](Environment& cuda) {
    const CUdeviceptr allocation = cuda.allocate();
    const CUdeviceptr mapping = cuda.mapped();
    cuda.make_current(nullptr);
    unsigned type = 0;
    return commas({cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, allocation),
                   cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, mapping)});
  });
  table.add("pointer.set_sync_memops_is_query_only", [](Environment& cuda) {
    unsigned value = 99;
    const CUresult result = cuda->cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, cuda.allocate());
    return slashes({result, value & 0xff});
  });
}

void add_kind(Table& table, const Kind& kind, const Needs& needs) {
  table.add(
      std::string{"pointer.all."} + kind.name, [kind](Environment& cuda) { return ask_all(cuda, kind.make(cuda)); },
      needs);
  table.add(
      std::string{"pointer.list."} + kind.name,
      [kind](Environment& cuda) { return ask_three(cuda, kind.make(cuda).address); }, needs);
}

}  // namespace

void add_pointer_attribute_cases(Table& table) {
  for (const Kind& kind : kinds)
    table.add(std::string{"pointer.all."} + kind.name,
              [kind](Environment& cuda) { return ask_all(cuda, kind.make(cuda)); });
  for (const Kind& kind : more_kinds) add_kind(table, kind, {});
  for (const Kind& kind : kinds_of_two_devices) add_kind(table, kind, needs_two_devices);
  add_lists(table);
  add_refusals(table);
  add_contexts(table);
}

}  // namespace cuvmm::conformance
