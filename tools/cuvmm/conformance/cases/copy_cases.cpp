// Copies: rights, ends of ranges, host and device memory in either place.
#include <sys/mman.h>

#include <array>
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// Two mappings side by side, the first granted read-write, the second with `second_flags`.
CUdeviceptr two_mappings(Environment& cuda, int second_flags) {
  const CUdeviceptr address = cuda.reserve(2 * granule);
  cuda.map_new(address, granule);
  cuda.map_new(address + granule, granule);
  cuda.grant(address, granule);
  if (second_flags != 0) cuda.grant(address + granule, granule, second_flags);
  return address;
}

// A write, a read and a memset of one word.
std::string write_read_set(Environment& cuda, CUdeviceptr address) {
  unsigned word = 1;
  return commas({cuda->cuMemcpyHtoD(address, &word, sizeof word), cuda->cuMemcpyDtoH(&word, address, sizeof word),
                 cuda->cuMemsetD8(address, 1, sizeof word)});
}

void add_rights(Table& table) {
  table.add("copy.no_access", [](Environment& cuda) { return write_read_set(cuda, cuda.mapped(granule, 0)); });
  table.add("copy.read_only", [](Environment& cuda) {
    return write_read_set(cuda, cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ));
  });
  table.add("copy.read_write", [](Environment& cuda) { return write_read_set(cuda, cuda.mapped()); });
  table.add("copy.reserved_only", [](Environment& cuda) { return write_read_set(cuda, cuda.reserve(granule)); });
  table.add("copy.nowhere", [](Environment& cuda) { return write_read_set(cuda, nowhere); });
  table.add("copy.null", [](Environment& cuda) { return write_read_set(cuda, 0); });
  table.add("copy.freed_allocation", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(64 * mebibyte);
    cuda.expect("free", cuda->cuMemFree(address));
    return write_read_set(cuda, address);
  });
  table.add("copy.after_unmap", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    cuda.unmap(address, granule);
    unsigned word = 0;
    return cuda->cuMemcpyDtoH(&word, address, sizeof word);
  });
  table.add("copy.dtod_read_only_source", [](Environment& cuda) {
    const CUdeviceptr source = cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    return commas({cuda->cuMemcpyDtoD(cuda.mapped(), source, 64), cuda->cuMemcpyDtoD(source, cuda.mapped(), 64)});
  });
}

void add_ranges(Table& table) {
  table.add("copy.dtod_across", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(4 * granule);
    for (int i = 0; i < 4; ++i) cuda.map_new(address + i * granule, granule);
    cuda.grant(address, 4 * granule);
    cuda.expect("memset", cuda->cuMemsetD8(address, 5, 2 * granule));
    const CUresult result = cuda->cuMemcpyDtoD(address + 2 * granule, address, 2 * granule);
    unsigned char last = 0;
    cuda.expect("read", cuda->cuMemcpyDtoH(&last, address + 4 * granule - 1, 1));
    return slashes({result, static_cast<int>(last)});
  });
  for (const int flags : {0, 1})
    table.add("copy.into_neighbour_with_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      const CUdeviceptr address = two_mappings(cuda, flags);
      std::array<char, 128> bytes{};
      const CUdeviceptr border = address + granule - 64;
      return commas({cuda->cuMemcpyHtoD(border, bytes.data(), 128), cuda->cuMemcpyDtoH(bytes.data(), border, 128)});
    });
  table.add("copy.over_end_of_mapping", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map_new(address, granule);
    cuda.grant(address, granule);
    std::array<char, 128> bytes{};
    const CUdeviceptr border = address + granule - 64;
    return commas({cuda->cuMemcpyHtoD(border, bytes.data(), 128), cuda->cuMemcpyDtoH(bytes.data(), border, 128),
                   cuda->cuMemcpyDtoD(border, address, 128), cuda->cuMemcpyDtoD(address, border, 128)});
  });
  table.add("copy.over_end_of_allocation", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(4 * granule);
    std::vector<char> bytes(5 * granule);
    return commas({cuda->cuMemcpyHtoD(address, bytes.data(), bytes.size()),
                   cuda->cuMemcpyDtoH(bytes.data(), address, bytes.size()),
                   cuda->cuMemcpyDtoD(address, address, bytes.size())});
  });
  table.add("copy.one_byte_over_small_allocation", [](Environment& cuda) {
    const CUdeviceptr address = cuda.allocate(1000);
    std::vector<char> bytes(1001);
    return commas({cuda->cuMemcpyHtoD(address, bytes.data(), 1001), cuda->cuMemcpyHtoD(address, bytes.data(), 1000)});
  });
  table.add("copy.size_overflow", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    return cuda->cuMemcpyDtoD(address, address, ~std::size_t{0});
  });
  table.add("copy.overlapping", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    return cuda->cuMemcpyDtoD(address + 64, address, 4096);
  });
  table.add("copy.onto_itself", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    return cuda->cuMemcpyDtoD(address, address, 4096);
  });
}

void add_zero_bytes(Table& table) {
  table.add("copy.zero_bytes_null", [](Environment& cuda) {
    return commas({cuda->cuMemcpyHtoD(0, nullptr, 0), cuda->cuMemcpyDtoH(nullptr, 0, 0), cuda->cuMemcpyDtoD(0, 0, 0),
                   cuda->cuMemcpy(0, 0, 0)});
  });
  table.add("copy.zero_bytes_nowhere", [](Environment& cuda) {
    return commas({cuda->cuMemcpyHtoD(nowhere, nullptr, 0), cuda->cuMemcpyDtoH(nullptr, nowhere, 0),
                   cuda->cuMemcpyDtoD(nowhere, nowhere, 0), cuda->cuMemcpy(nowhere, nowhere, 0)});
  });
  table.add("copy.zero_bytes_no_access", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0);
    return commas({cuda->cuMemcpyHtoD(address, nullptr, 0), cuda->cuMemcpyDtoD(address, address, 0)});
  });
  table.add("copy.zero_bytes_async", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemcpyHtoDAsync(0, nullptr, 0, stream), cuda->cuMemcpyDtoHAsync(nullptr, 0, 0, stream),
                   cuda->cuMemcpyDtoDAsync(0, 0, 0, stream), cuda->cuMemcpyAsync(0, 0, 0, stream)});
  });
}

void add_unified(Table& table) {
  table.add("copy.unified_host_to_host", [](Environment& cuda) {
    const unsigned source = 5;
    unsigned destination = 0;
    const CUresult result = cuda->cuMemcpy(as_address(&destination), as_address(&source), sizeof source);
    return slashes({result, destination});
  });
  table.add("copy.unified_pinned_to_stack", [](Environment& cuda) {
    auto* source = static_cast<unsigned*>(cuda.allocate_host());
    *source = 6;
    unsigned destination = 0;
    const CUresult result = cuda->cuMemcpy(as_address(&destination), as_address(source), sizeof *source);
    return slashes({result, destination});
  });
  table.add("copy.unified_there_and_back", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const unsigned source = 8;
    unsigned destination = 0;
    const CUresult there = cuda->cuMemcpy(address, as_address(&source), sizeof source);
    const CUresult back = cuda->cuMemcpy(as_address(&destination), address, sizeof source);
    return commas({there, slashes({back, destination})});
  });
  table.add("copy.unified_allocation_to_mapping", [](Environment& cuda) {
    const CUdeviceptr allocation = cuda.allocate();
    const CUdeviceptr mapping = cuda.mapped();
    cuda.write_word(allocation, 9);
    const CUresult result = cuda->cuMemcpy(mapping, allocation, 4);
    return slashes({result, cuda.read_word(mapping)});
  });
}

void add_misplaced_pointers(Table& table) {
  table.add("copy.stack_as_device", [](Environment& cuda) {
    unsigned place = 0;
    unsigned other = 3;
    const CUresult to = cuda->cuMemcpyHtoD(as_address(&place), &other, 4);
    const CUresult from = cuda->cuMemcpyDtoH(&other, as_address(&place), 4);
    return commas({to, from});
  });
  table.add("copy.stack_as_device_dtod", [](Environment& cuda) {
    unsigned place = 0;
    return cuda->cuMemcpyDtoD(cuda.mapped(), as_address(&place), 4);
  });
  table.add("copy.pinned_as_device", [](Environment& cuda) {
    auto* pinned = static_cast<unsigned*>(cuda.allocate_host());
    const unsigned word = 11;
    const CUresult result = cuda->cuMemcpyHtoD(as_address(pinned), &word, 4);
    return slashes({result, *pinned});
  });
  table.add("copy.device_as_host_source", [](Environment& cuda) {
    const CUdeviceptr source = cuda.mapped();
    const CUdeviceptr destination = cuda.mapped();
    cuda.write_word(source, 13);
    const CUresult result = cuda->cuMemcpyHtoD(destination, as_pointer(source), 4);
    return slashes({result, cuda.read_word(destination)});
  });
  table.add("copy.device_as_host_destination", [](Environment& cuda) {
    const CUdeviceptr source = cuda.mapped();
    return cuda->cuMemcpyDtoH(as_pointer(cuda.mapped()), source, 4);
  });
  table.add("copy.host_null", [](Environment& cuda) {
    return commas({cuda->cuMemcpyHtoD(cuda.mapped(), nullptr, 4), cuda->cuMemcpyDtoH(nullptr, cuda.mapped(), 4)});
  });
  table.add("copy.host_inaccessible_source", [](Environment& cuda) {
    void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return cuda->cuMemcpyHtoD(cuda.mapped(), page, 4);
  });
  table.add("copy.host_registered_in_part", [](Environment& cuda) {
    alignas(4096) static std::array<char, 8192> pages{};
    cuda.expect("register", cuda->cuMemHostRegister(pages.data(), 4096, 0));
    return commas({cuda->cuMemcpyHtoD(cuda.mapped(), pages.data(), 8192),
                   cuda->cuMemcpyDtoH(pages.data() + 2048, cuda.mapped(), 4096)});
  });
}

void add_asynchronous(Table& table) {
  table.add("copy.async_no_access", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0);
    auto* host = static_cast<char*>(cuda.allocate_host());
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemcpyHtoDAsync(address, host, 4, stream), cuda->cuMemcpyDtoHAsync(host, address, 4, stream),
                   cuda->cuMemcpyDtoDAsync(address, address, 4, stream), cuda->cuStreamSynchronize(stream)});
  });
  table.add("copy.async_read_only", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    auto* host = static_cast<char*>(cuda.allocate_host());
    const CUstream stream = cuda.stream();
    return commas({cuda->cuMemcpyHtoDAsync(address, host, 4, stream), cuda->cuMemcpyDtoHAsync(host, address, 4, stream),
                   cuda->cuStreamSynchronize(stream)});
  });
  table.add("copy.async_over_end", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    auto* host = static_cast<char*>(cuda.allocate_host());
    const CUstream stream = cuda.stream();
    return commas(
        {cuda->cuMemcpyHtoDAsync(address + granule - 64, host, 128, stream), cuda->cuStreamSynchronize(stream)});
  });
  table.add("copy.async_stack", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const CUstream stream = cuda.stream();
    unsigned word = 17;
    const CUresult to = cuda->cuMemcpyHtoDAsync(address, &word, 4, stream);
    unsigned back = 0;
    const CUresult from = cuda->cuMemcpyDtoHAsync(&back, address, 4, stream);
    return commas({to, from, slashes({cuda->cuStreamSynchronize(stream), back})});
  });
  for (const bool per_thread : {false, true})
    table.add(per_thread ? "copy.async_per_thread_stream" : "copy.async_legacy_stream",
              [per_thread](Environment& cuda) {
                const CUdeviceptr address = cuda.mapped();
                const CUstream stream = per_thread ? per_thread_stream() : legacy_stream();
                const unsigned word = 19;
                const CUresult result = cuda->cuMemcpyHtoDAsync(address, &word, 4, stream);
                return commas({result, slashes({cuda->cuStreamSynchronize(stream), cuda.read_word(address)})});
              });
  table.add("copy.async_null_stream", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped();
    const unsigned word = 23;
    const CUresult result = cuda->cuMemcpyHtoDAsync(address, &word, 4, nullptr);
    return commas({result, cuda.read_word(address)});
  });
}

void add_contexts(Table& table) {
  table.add("copy.other_context_same_device", [](Environment& cuda) {
    const CUdeviceptr allocation = cuda.allocate();
    const CUdeviceptr mapping = cuda.mapped();
    cuda.new_context();
    return commas({cuda->cuMemsetD8(allocation, 1, 64), cuda->cuMemsetD8(mapping, 1, 64),
                   cuda->cuMemcpyDtoD(allocation, mapping, 64)});
  });
  table.add("copy.peer_same_context", [](Environment& cuda) {
    const CUcontext own = cuda.context();
    return cuda->cuMemcpyPeer(cuda.mapped(), own, cuda.mapped(), own, 64);
  });
  table.add("copy.peer_two_contexts_same_device", [](Environment& cuda) {
    const CUdeviceptr source = cuda.allocate();
    const CUcontext other = cuda.new_context();
    const CUdeviceptr destination = cuda.allocate();
    return cuda->cuMemcpyPeer(destination, other, source, cuda.context(), 64);
  });
  table.add("copy.peer_null_contexts",
            [](Environment& cuda) { return cuda->cuMemcpyPeer(cuda.mapped(), nullptr, cuda.mapped(), nullptr, 64); });
  table.add("copy.peer_no_access", [](Environment& cuda) {
    const CUcontext own = cuda.context();
    return cuda->cuMemcpyPeer(cuda.mapped(granule, 0), own, cuda.mapped(), own, 64);
  });
}

}  // namespace

void add_copy_cases(Table& table) {
  add_rights(table);
  add_ranges(table);
  add_zero_bytes(table);
  add_unified(table);
  add_misplaced_pointers(table);
  add_asynchronous(table);
  add_contexts(table);
}

}  // namespace cuvmm::conformance
