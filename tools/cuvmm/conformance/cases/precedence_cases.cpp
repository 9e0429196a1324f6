// Calls in which two things are wrong: which of the two the driver tells.
#include <fcntl.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

constexpr std::size_t over_card = 200 * gibibyte;

// One call of cuMemCreate, well-formed but for what a mistake changes.
struct Creation {
  CUmemAllocationProp properties = device_memory();
  std::size_t size = granule;
  unsigned long long flags = 0;
  bool handle = true;
};

struct Mistake {
  const char* name;
  std::function<void(Creation&)> make;
};

std::vector<Mistake> mistakes_in_creation() {
  return {{"zero", [](Creation& call) { call.size = 0; }},
          {"unaligned", [](Creation& call) { call.size = granule + 4096; }},
          {"flags", [](Creation& call) { call.flags = 1; }},
          {"type_0", [](Creation& call) { call.properties.type = CU_MEM_ALLOCATION_TYPE_INVALID; }},
          {"compression_2", [](Creation& call) { call.properties.allocFlags.compressionType = 2; }},
          {"reserved", [](Creation& call) { call.properties.allocFlags.reserved[0] = 1; }},
          {"null_handle", [](Creation& call) { call.handle = false; }},
          {"over_card", [](Creation& call) { call.size = over_card; }}};
}

Answer create(Environment& cuda, const Creation& call) {
  CUmemGenericAllocationHandle handle = 0;
  return cuda->cuMemCreate(call.handle ? &handle : nullptr, call.size, &call.properties, call.flags);
}

void add_creation(Table& table, const char* first, const std::function<void(Creation&)>& make_first,
                  const Mistake& second) {
  table.add(std::string{"precedence.create."} + first + "." + second.name,
            [make_first, make_second = second.make](Environment& cuda) {
              Creation call;
              make_first(call);
              make_second(call);
              return create(cuda, call);
            });
}

void add_creations(Table& table) {
  const auto handle_type = [](int type) {
    return
        [type](Creation& call) { call.properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(type); };
  };
  const auto device_99 = [](Creation& call) { call.properties.location.id = 99; };
  for (const Mistake& second : mistakes_in_creation()) {
    add_creation(table, "device_99", device_99, second);
    add_creation(table, "handle_type_8", handle_type(CU_MEM_HANDLE_TYPE_FABRIC), second);
  }
  for (const int type : {CU_MEM_HANDLE_TYPE_WIN32, CU_MEM_HANDLE_TYPE_FABRIC})
    add_creation(table, "device_99", device_99,
                 {type == CU_MEM_HANDLE_TYPE_FABRIC ? "handle_type_8" : "handle_type_2", handle_type(type)});
  add_creation(
      table, "handle_type_8", handle_type(CU_MEM_HANDLE_TYPE_FABRIC),
      {"numa_99", [](Creation& call) { call.properties.location = location(99, CU_MEM_LOCATION_TYPE_HOST_NUMA); }});
}

void add_reservations(Table& table) {
  struct Call {
    const char* name;
    std::size_t size, alignment;
    CUdeviceptr hint;
    unsigned long long flags;
  };
  constexpr std::size_t large = std::size_t{1} << 47;
  for (const Call& call : {Call{"2^47.align_3", large, 3, 0, 0}, Call{"2^47.flags", large, 0, 0, 1},
                           Call{"2^47.hint", large, 0, 4096, 0}, Call{"align_2^46.one", 1, std::size_t{1} << 46, 0, 0},
                           Call{"align_2^46.flags", granule, std::size_t{1} << 46, 0, 1},
                           Call{"not_canonical.flags", granule, 0, CUdeviceptr{1} << 62, 1},
                           Call{"not_canonical.align_3", granule, 3, CUdeviceptr{1} << 62, 0},
                           Call{"not_canonical.one", 1, 0, CUdeviceptr{1} << 62, 0}})
    table.add(std::string{"precedence.reserve."} + call.name, [call](Environment& cuda) {
      CUdeviceptr address = 0;
      return cuda->cuMemAddressReserve(&address, call.size, call.alignment, call.hint, call.flags);
    });
}

// A mapping whose size or offset is not the allocation's, and in which something else is wrong.
void add_mappings(Table& table) {
  struct Call {
    const char* name;
    CUdeviceptr (*address)(Environment&);
    std::size_t size, offset;
    unsigned long long flags;
  };
  const auto reserved = [](Environment& cuda) { return cuda.reserve(4 * granule); };
  const auto unaligned = [](Environment& cuda) { return cuda.reserve(4 * granule) + 4096; };
  const auto taken = [](Environment& cuda) { return cuda.mapped(2 * granule); };
  const auto unreserved = [](Environment&) { return nowhere; };
  const auto null = [](Environment&) { return CUdeviceptr{0}; };
  for (const Call& call :
       {Call{"prefix.flags", reserved, granule, 0, 1}, Call{"prefix.unaligned", unaligned, granule, 0, 0},
        Call{"prefix.taken", taken, granule, 0, 0}, Call{"prefix.nowhere", unreserved, granule, 0, 0},
        Call{"prefix.null", null, granule, 0, 0}, Call{"offset.zero", reserved, 0, granule, 0},
        Call{"offset.flags", reserved, granule, granule, 1}, Call{"offset.taken", taken, granule, granule, 0},
        Call{"whole.flags_2^63", reserved, 2 * granule, 0, 1ULL << 63}})
    table.add(std::string{"precedence.map."} + call.name, [call](Environment& cuda) {
      const CUdeviceptr address = call.address(cuda);
      return cuda->cuMemMap(address, call.size, call.offset, cuda.create(2 * granule), call.flags);
    });
  table.add("precedence.map.prefix.handle_0",
            [](Environment& cuda) { return cuda->cuMemMap(cuda.reserve(4 * granule), granule, granule, 0, 0); });
}

// Grants of device memory to the host, which it cannot have, and in which something else is wrong.
void add_grants(Table& table) {
  const auto host = [](int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return access_of(0, flags, CU_MEM_LOCATION_TYPE_HOST);
  };
  const auto grant = [](Environment& cuda, CUdeviceptr address, std::size_t size,
                        const std::vector<CUmemAccessDesc>& list) {
    const CUresult result = cuda->cuMemSetAccess(address, size, list.data(), list.size());
    return spaces({result, cuda.access(address)});
  };
  table.add("precedence.access.host.unmapped",
            [=](Environment& cuda) { return grant(cuda, cuda.reserve(granule), granule, {host()}); });
  table.add("precedence.access.host.nowhere",
            [=](Environment& cuda) { return grant(cuda, nowhere, granule, {host()}); });
  table.add("precedence.access.host.part",
            [=](Environment& cuda) { return grant(cuda, cuda.mapped(2 * granule, 0), granule, {host()}); });
  for (const int flags : {0, 2})
    table.add("precedence.access.host.flags_" + std::to_string(flags),
              [=](Environment& cuda) { return grant(cuda, cuda.mapped(granule, 0), granule, {host(flags)}); });
  struct List {
    const char* name;
    std::vector<CUmemAccessDesc> list;
  };
  for (const List& each :
       {List{"device_then_host", {access_of(0), host()}}, List{"host_then_device", {host(), access_of(0)}},
        List{"host_then_device_99", {host(), access_of(99)}}, List{"device_99_then_host", {access_of(99), host()}},
        List{"flags_2_then_host", {access_of(0, 2), host()}}})
    table.add(std::string{"precedence.access."} + each.name, [grant, list = each.list](Environment& cuda) {
      return grant(cuda, cuda.mapped(granule, 0), granule, list);
    });
  table.add("precedence.access.device_99.flags_0",
            [=](Environment& cuda) { return grant(cuda, cuda.mapped(granule, 0), granule, {access_of(99, 0)}); });
}

void add_queries(Table& table) {
  table.add("precedence.get_access.device_99.unmapped",
            [](Environment& cuda) { return cuda.access(cuda.reserve(granule), 99); });
  table.add("precedence.get_access.device_99.null", [](Environment& cuda) { return cuda.access(0, 99); });
  table.add("precedence.get_access.location_4.unmapped", [](Environment& cuda) {
    return cuda.access(cuda.reserve(granule), 0, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
  });
  table.add("precedence.get_access.device_99.null_flags", [](Environment& cuda) {
    const CUmemLocation place = location(99);
    return cuda->cuMemGetAccess(nullptr, &place, cuda.mapped());
  });
}

void add_exchange(Table& table) {
  const auto import = [](Environment& cuda, CUmemGenericAllocationHandle* handle, void* os_handle, int type) {
    return cuda->cuMemImportFromShareableHandle(handle, os_handle, static_cast<CUmemAllocationHandleType>(type));
  };
  for (const int type : {1, 2, 8})
    table.add("precedence.import.null_out.bad_type_" + std::to_string(type),
              [=](Environment& cuda) { return import(cuda, nullptr, as_os_handle(-1), type); });
  for (const int type : {2, 8})
    table.add("precedence.import.null_handle.type_" + std::to_string(type), [=](Environment& cuda) {
      CUmemGenericAllocationHandle handle = 0;
      return import(cuda, &handle, nullptr, type);
    });
  // Descriptor 0, which is the null pointer: an exported one, and one that is none.
  table.add("precedence.import.descriptor_0_is_exported", [=](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    dup2(cuda.export_new().descriptor, 0);
    return import(cuda, &handle, as_os_handle(0), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
  table.add("precedence.import.descriptor_0_is_none", [=](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    dup2(open("/dev/null", O_RDWR | O_CLOEXEC), 0);
    return import(cuda, &handle, as_os_handle(0), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
  struct Range {
    const char* name;
    std::size_t offset, size;
    int type;
  };
  for (const Range& range : {Range{"unaligned_size", 0, 4097, 1}, Range{"unaligned_address", 64, 4096, 1},
                             Range{"beyond", 0, 2 * granule, 1}, Range{"type_2", 0, granule, 2}})
    table.add(std::string{"precedence.dma_buf.over_pcie."} + range.name, [range](Environment& cuda) {
      int descriptor = -1;
      return cuda->cuMemGetHandleForAddressRange(&descriptor, cuda.mapped() + range.offset, range.size,
                                                 static_cast<CUmemRangeHandleType>(range.type), 1);
    });
}

void add_host_memory(Table& table) {
  constexpr std::size_t page = 4096;
  alignas(page) static std::array<char, 4 * page> pages{};
  for (const unsigned flags : {4U, 16U})
    table.add("precedence.host_register.registered.flags_" + std::to_string(flags), [flags](Environment& cuda) {
      cuda.expect("register", cuda->cuMemHostRegister(pages.data(), page, 0));
      return cuda->cuMemHostRegister(pages.data(), page, flags);
    });
  for (const unsigned flags : {5U, 6U, 12U})
    table.add("precedence.host_register.io_memory.flags_" + std::to_string(flags),
              [flags](Environment& cuda) { return cuda->cuMemHostRegister(pages.data(), page, flags); });
  for (const unsigned flags : {5U, 7U, 8U, 0x8000'0001U})
    table.add("precedence.ipc_open.own.flags_" + std::to_string(flags), [flags](Environment& cuda) {
      CUipcMemHandle handle{};
      CUdeviceptr address = 0;
      cuda.expect("handle", cuda->cuIpcGetMemHandle(&handle, cuda.allocate()));
      return cuda->cuIpcOpenMemHandle(&address, handle, flags);
    });
}

}  // namespace

void add_precedence_cases(Table& table) {
  add_creations(table);
  add_reservations(table);
  add_mappings(table);
  add_grants(table);
  add_queries(table);
  add_exchange(table);
  add_host_memory(table);
}

}  // namespace cuvmm::conformance
