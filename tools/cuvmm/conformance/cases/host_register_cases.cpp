// cuMemHostRegister and cuMemHostUnregister.
#include <sys/mman.h>

#include <array>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

constexpr std::size_t page = 4096;
alignas(page) std::array<char, 16 * page> pages{};

CUresult add_pages(Environment& cuda, std::size_t first, std::size_t count, unsigned flags = 0) {
  return cuda->cuMemHostRegister(pages.data() + first * page, count * page, flags);
}

CUresult drop_page(Environment& cuda, std::size_t first) {
  return cuda->cuMemHostUnregister(pages.data() + first * page);
}

std::string flags_and_device_pointer(Environment& cuda, void* pointer) {
  unsigned flags = 99;
  const CUresult asked = cuda->cuMemHostGetFlags(&flags, pointer);
  CUdeviceptr address = 0;
  const CUresult found = cuda->cuMemHostGetDevicePointer(&address, pointer, 0);
  const char* where = found != CUDA_SUCCESS ? "-" : address == as_address(pointer) ? "same" : "other";
  return spaces({slashes({asked, flags}), slashes({found, where})});
}

void add_arguments(Table& table) {
  table.add("host_register.zero", [](Environment& cuda) { return add_pages(cuda, 0, 0); });
  table.add("host_register.null", [](Environment& cuda) { return cuda->cuMemHostRegister(nullptr, page, 0); });
  table.add("host_register.unaligned", [](Environment& cuda) {
    return spaces({cuda->cuMemHostRegister(pages.data() + 100, 50, 0),
                   flags_and_device_pointer(cuda, pages.data() + 100), flags_and_device_pointer(cuda, pages.data())});
  });
  // The flag for I/O memory (4) is left out: it is meant for addresses that only a device driver hands out.
  for (const unsigned flags : {0U, 1U, 2U, 3U, 8U, 16U, 128U})
    table.add("host_register.flags_" + std::to_string(flags), [flags](Environment& cuda) {
      return spaces({add_pages(cuda, 0, 2, flags), flags_and_device_pointer(cuda, pages.data())});
    });
  table.add("host_register.size_overflow",
            [](Environment& cuda) { return cuda->cuMemHostRegister(pages.data(), ~std::size_t{0} & ~(page - 1), 0); });
}

void add_overlaps(Table& table) {
  table.add("host_register.twice", [](Environment& cuda) {
    return commas({add_pages(cuda, 0, 2), add_pages(cuda, 0, 2)});
  });
  table.add("host_register.overlapping_end", [](Environment& cuda) {
    return commas({add_pages(cuda, 0, 4), add_pages(cuda, 2, 4)});
  });
  table.add("host_register.inside", [](Environment& cuda) {
    return commas({add_pages(cuda, 0, 4), add_pages(cuda, 1, 2)});
  });
  table.add("host_register.around", [](Environment& cuda) {
    return commas({add_pages(cuda, 1, 2), add_pages(cuda, 0, 4)});
  });
  table.add("host_register.adjacent", [](Environment& cuda) {
    return commas({add_pages(cuda, 0, 2), add_pages(cuda, 2, 2)});
  });
  table.add("host_register.two_within_one_page", [](Environment& cuda) {
    return commas({cuda->cuMemHostRegister(pages.data(), 64, 0), cuda->cuMemHostRegister(pages.data() + 128, 64, 0)});
  });
}

void add_memory_kinds(Table& table) {
  table.add("host_register.device_memory",
            [](Environment& cuda) { return cuda->cuMemHostRegister(as_pointer(cuda.allocate(granule)), page, 0); });
  table.add("host_register.mapping",
            [](Environment& cuda) { return cuda->cuMemHostRegister(as_pointer(cuda.mapped()), page, 0); });
  table.add("host_register.host_alloc",
            [](Environment& cuda) { return cuda->cuMemHostRegister(cuda.allocate_host(), page, 0); });
  table.add("host_register.not_mapped_by_process", [](Environment& cuda) {
    void* address = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(address, 2 * page);
    return cuda->cuMemHostRegister(address, 2 * page, 0);
  });
  table.add("host_register.half_mapped_by_process", [](Environment& cuda) {
    auto* address =
        static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(address + page, page);
    return cuda->cuMemHostRegister(address, 2 * page, 0);
  });
  for (const unsigned flags : {0U, 8U})
    table.add("host_register.read_only_pages_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      void* address = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      return cuda->cuMemHostRegister(address, page, flags);
    });
}

void add_unregistering(Table& table) {
  table.add("host_register.unregister", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 2));
    return spaces({drop_page(cuda, 0), flags_and_device_pointer(cuda, pages.data())});
  });
  table.add("host_register.unregister_null", [](Environment& cuda) { return cuda->cuMemHostUnregister(nullptr); });
  table.add("host_register.unregister_unknown", [](Environment& cuda) { return drop_page(cuda, 0); });
  table.add("host_register.unregister_middle", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    return commas({drop_page(cuda, 1), drop_page(cuda, 0)});
  });
  table.add("host_register.unregister_twice", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    return commas({drop_page(cuda, 0), drop_page(cuda, 0)});
  });
  table.add("host_register.unregister_host_alloc",
            [](Environment& cuda) { return cuda->cuMemHostUnregister(cuda.allocate_host()); });
  table.add("host_register.freed_as_host_alloc", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    return cuda->cuMemFreeHost(pages.data());
  });
  table.add("host_register.unregister_from_other_context", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    cuda.new_context();
    return drop_page(cuda, 0);
  });
  table.add("host_register.again", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    cuda.expect("unregister", drop_page(cuda, 0));
    return add_pages(cuda, 0, 4);
  });
}

void add_use(Table& table) {
  table.add("host_register.copied_as_device_memory", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 1));
    CUdeviceptr address = 0;
    cuda.expect("device pointer", cuda->cuMemHostGetDevicePointer(&address, pages.data(), 0));
    const CUresult result = cuda->cuMemsetD8(address, 5, page);
    cuda.expect("synchronize", cuda->cuCtxSynchronize());
    return slashes({result, static_cast<int>(pages[page - 1])});
  });
  table.add("host_register.inside_registered", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    return flags_and_device_pointer(cuda, pages.data() + page + 8);
  });
  table.add("host_register.past_registered", [](Environment& cuda) {
    cuda.expect("register", add_pages(cuda, 0, 4));
    return flags_and_device_pointer(cuda, pages.data() + 4 * page);
  });
}

}  // namespace

void add_host_register_cases(Table& table) {
  add_arguments(table);
  add_overlaps(table);
  add_memory_kinds(table);
  add_unregistering(table);
  add_use(table);
}

}  // namespace cuvmm::conformance
