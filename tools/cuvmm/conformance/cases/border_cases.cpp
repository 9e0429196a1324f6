// Sizes, alignments and addresses just below, at, and just above their limits.
#include <array>
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

using Bytes = std::int64_t;

constexpr auto whole = static_cast<Bytes>(granule);

// A name for a number near a limit: "-1", "+0", "+1".
std::string offset_name(Bytes offset) {
  return (offset < 0 ? "" : "+") + std::to_string(offset);
}

// Adds a case for each offset from a limit.
template <class Function>
void around(Table& table, const std::string& id, std::initializer_list<Bytes> offsets, Function function) {
  for (const Bytes offset : offsets)
    table.add("border." + id + offset_name(offset), [=](Environment& cuda) { return Answer{function(cuda, offset)}; });
}

std::size_t size_near(std::size_t limit, Bytes offset) {
  return limit + static_cast<std::size_t>(offset);
}

void add_creation(Table& table) {
  for (const std::size_t granules : {1, 2, 3})
    around(table, "create_" + std::to_string(granules) + "_granules", {-4096, -1, 0, 1, 4096, 65536},
           [=](Environment& cuda, Bytes offset) {
             return cuda.try_create(size_near(granules * granule, offset), device_memory());
           });
  around(table, "create_host_numa", {-4096, -1, 0, 1, 4096, 65536}, [](Environment& cuda, Bytes offset) {
    return cuda.try_create(size_near(granule, offset), host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA));
  });
  around(table, "create_total_memory", {-whole, 0, whole}, [](Environment& cuda, Bytes offset) {
    std::size_t total = 0;
    cuda.expect("total", cuda->cuDeviceTotalMem(&total, 0));
    return cuda.try_create(size_near(total / granule * granule, offset), device_memory());
  });
  around(table, "create_2^63", {-whole, 0, whole}, [](Environment& cuda, Bytes offset) {
    return cuda.try_create(size_near(std::size_t{1} << 63, offset), device_memory());
  });
}

Answer reserve(Environment& cuda, std::size_t size, std::size_t alignment = 0) {
  CUdeviceptr address = 0;
  return cuda->cuMemAddressReserve(&address, size, alignment, 0, 0);
}

void add_reservations(Table& table) {
  for (const std::size_t granules : {1, 2})
    around(table, "reserve_" + std::to_string(granules) + "_granules", {-4096, -1, 0, 1, 4096},
           [=](Environment& cuda, Bytes offset) { return reserve(cuda, size_near(granules * granule, offset)); });
  for (const int power : {45, 46, 47})
    around(table, "reserve_2^" + std::to_string(power), {-whole, -1, 0, 1, whole},
           [=](Environment& cuda, Bytes offset) { return reserve(cuda, size_near(std::size_t{1} << power, offset)); });
  for (const int power : {0, 12, 20, 21, 22, 30, 40, 44, 45, 46, 47, 48, 62})
    around(table, "reserve_alignment_2^" + std::to_string(power), {-1, 0, 1}, [=](Environment& cuda, Bytes offset) {
      return reserve(cuda, granule, size_near(std::size_t{1} << power, offset));
    });
  around(table, "free_size", {-whole, -1, 0, 1, whole}, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    return cuda->cuMemAddressFree(address, size_near(2 * granule, offset));
  });
  around(table, "free_address", {-whole, -1, 0, 1, whole}, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = cuda.reserve(4 * granule) + granule;
    return cuda->cuMemAddressFree(address - granule + static_cast<CUdeviceptr>(offset), 4 * granule);
  });
}

// A mapping of two granules in the middle of six reserved ones, granted to device 0.
CUdeviceptr mapped_in_the_middle(Environment& cuda, int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  const CUdeviceptr address = cuda.reserve(6 * granule) + 2 * granule;
  cuda.map_new(address, 2 * granule);
  if (flags != 0) cuda.grant(address, 2 * granule, flags);
  return address;
}

void add_mapping(Table& table) {
  const auto offsets = {-whole, Bytes{-4096}, Bytes{-1}, Bytes{0}, Bytes{1}, Bytes{4096}, whole};
  around(table, "map_size", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = cuda.reserve(6 * granule) + 2 * granule;
    return cuda->cuMemMap(address, size_near(2 * granule, offset), 0, cuda.create(2 * granule), 0);
  });
  around(table, "map_address", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = cuda.reserve(6 * granule) + 2 * granule;
    return cuda->cuMemMap(address + static_cast<CUdeviceptr>(offset), 2 * granule, 0, cuda.create(2 * granule), 0);
  });
  around(table, "map_offset", {0, 1, 4096, whole, 2 * whole}, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = cuda.reserve(6 * granule) + 2 * granule;
    return cuda->cuMemMap(address, 2 * granule, static_cast<std::size_t>(offset), cuda.create(2 * granule), 0);
  });
  around(table, "unmap_size", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda);
    const CUresult result = cuda->cuMemUnmap(address, size_near(2 * granule, offset));
    return spaces({result, cuda.access(address)});
  });
  around(table, "unmap_address", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda);
    const CUresult result = cuda->cuMemUnmap(address + static_cast<CUdeviceptr>(offset), 2 * granule);
    return spaces({result, cuda.access(address)});
  });
  around(table, "set_access_size", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda, 0);
    const CUmemAccessDesc access = access_of(0);
    const CUresult result = cuda->cuMemSetAccess(address, size_near(2 * granule, offset), &access, 1);
    return spaces({result, cuda.access(address)});
  });
  around(table, "set_access_address", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda, 0);
    const CUmemAccessDesc access = access_of(0);
    const CUresult result = cuda->cuMemSetAccess(address + static_cast<CUdeviceptr>(offset), 2 * granule, &access, 1);
    return spaces({result, cuda.access(address)});
  });
}

// What is told of addresses just before and just behind a mapping, and just within it.
void add_queries(Table& table) {
  const auto offsets = {Bytes{-1}, Bytes{0}, 2 * whole - 1, 2 * whole};
  around(table, "get_access", offsets, [](Environment& cuda, Bytes offset) {
    return cuda.access(mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset));
  });
  around(table, "retain", offsets, [](Environment& cuda, Bytes offset) {
    CUmemGenericAllocationHandle handle = 0;
    const CUdeviceptr address = mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset);
    return cuda->cuMemRetainAllocationHandle(&handle, as_pointer(address));
  });
  around(table, "address_range", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr mapping = mapped_in_the_middle(cuda);
    CUdeviceptr base = 0;
    std::size_t size = 0;
    const CUresult result = cuda->cuMemGetAddressRange(&base, &size, mapping + static_cast<CUdeviceptr>(offset));
    return slashes({result, base == mapping ? "mapping" : base == 0 ? "null" : "other", size / mebibyte});
  });
  around(table, "memory_type", offsets, [](Environment& cuda, Bytes offset) {
    unsigned type = 0;
    const CUdeviceptr address = mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset);
    const CUresult result = cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return slashes({result, type});
  });
  around(table, "ipc_handle", offsets, [](Environment& cuda, Bytes offset) {
    CUipcMemHandle handle{};
    return cuda->cuIpcGetMemHandle(&handle, mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset));
  });
}

// Copies and memsets of 64 bytes that begin or end around the borders of a mapping.
void add_content(Table& table) {
  const auto offsets = {Bytes{-1}, Bytes{0}, 2 * whole - 65, 2 * whole - 64, 2 * whole - 63, 2 * whole - 1, 2 * whole};
  around(table, "copy", offsets, [](Environment& cuda, Bytes offset) {
    std::array<char, 64> bytes{};
    const CUdeviceptr address = mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset);
    const CUdeviceptr other = cuda.allocate();
    return commas({cuda->cuMemcpyHtoD(address, bytes.data(), 64), cuda->cuMemcpyDtoH(bytes.data(), address, 64),
                   cuda->cuMemcpyDtoD(address, other, 64), cuda->cuMemcpyDtoD(other, address, 64)});
  });
  around(table, "memset", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset);
    return commas(
        {cuda->cuMemsetD8(address, 1, 64), cuda->cuMemsetD16(address, 1, 32), cuda->cuMemsetD32(address, 1, 16)});
  });
  around(table, "memset_async", offsets, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda) + static_cast<CUdeviceptr>(offset);
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemsetD8Async(address, 1, 64, stream), cuda->cuMemsetD16Async(address, 1, 32, stream),
                   cuda->cuMemsetD32Async(address, 1, 16, stream), cuda->cuStreamSynchronize(stream)});
  });
  around(table, "whole_mapping", {-1, 0, 1}, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda);
    std::vector<char> bytes(size_near(2 * granule, offset));
    return commas({cuda->cuMemcpyHtoD(address, bytes.data(), bytes.size()),
                   cuda->cuMemcpyDtoH(bytes.data(), address, bytes.size()),
                   cuda->cuMemsetD8(address, 1, bytes.size())});
  });
}

// The same of ordinary allocations and pinned memory.
void add_ordinary_memory(Table& table) {
  around(table, "alloc_total_memory", {-whole, 0, whole}, [](Environment& cuda, Bytes offset) {
    std::size_t total = 0;
    CUdeviceptr address = 0;
    cuda.expect("total", cuda->cuDeviceTotalMem(&total, 0));
    return cuda->cuMemAlloc(&address, size_near(total, offset));
  });
  around(table, "host_register_size", {-1, 0, 1}, [](Environment& cuda, Bytes offset) {
    alignas(4096) static std::array<char, 8192> pages{};
    return cuda->cuMemHostRegister(pages.data(), size_near(4096, offset), 0);
  });
  around(table, "host_register_address", {-1, 0, 1}, [](Environment& cuda, Bytes offset) {
    alignas(4096) static std::array<char, 12288> pages{};
    return cuda->cuMemHostRegister(pages.data() + 4096 + offset, 4096, 0);
  });
  around(table, "free_address_of_allocation", {-1, 0, 1, 512}, [](Environment& cuda, Bytes offset) {
    return cuda->cuMemFree(cuda.allocate() + static_cast<CUdeviceptr>(offset));
  });
  around(table, "free_host_address", {-1, 0, 1, 4096}, [](Environment& cuda, Bytes offset) {
    return cuda->cuMemFreeHost(static_cast<char*>(cuda.allocate_host()) + offset);
  });
  around(table, "stream_value_address", {-4, -1, 0, 1, 2, 4}, [](Environment& cuda, Bytes offset) {
    const CUdeviceptr address = mapped_in_the_middle(cuda) + 64 + static_cast<CUdeviceptr>(offset);
    const CUstream stream = cuda.stream();
    return commas({cuda->cuStreamWriteValue32(stream, address, 1, 0), cuda->cuStreamWriteValue64(stream, address, 1, 0),
                   cuda->cuStreamSynchronize(stream)});
  });
}

}  // namespace

void add_border_cases(Table& table) {
  add_creation(table);
  add_reservations(table);
  add_mapping(table);
  add_queries(table);
  add_content(table);
  add_ordinary_memory(table);
}

}  // namespace cuvmm::conformance
