// Memory pools that are made to be shared, exported and imported within one process.
#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/gate.hpp"
#include "conformance/cases/shared_pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

CUresult try_export(Environment& cuda, CUmemoryPool pool, int type, unsigned long long flags = 0) {
  std::array<char, 64> handle{};
  return cuda->cuMemPoolExportToShareableHandle(handle.data(), pool, static_cast<CUmemAllocationHandleType>(type),
                                                flags);
}

std::string code_and_pool(CUresult code, CUmemoryPool pool) {
  return slashes({code, pool == nullptr ? "null" : "pool"});
}

std::string try_import(Environment& cuda, int descriptor, int type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                       unsigned long long flags = 0) {
  CUmemoryPool pool = nullptr;
  const CUresult imported = cuda->cuMemPoolImportFromShareableHandle(
      &pool, as_os_handle(descriptor), static_cast<CUmemAllocationHandleType>(type), flags);
  return code_and_pool(imported, pool);
}

void add_exports(Table& table) {
  struct Made {
    const char* name;
    int types, location;
  };
  for (const Made& made :
       {Made{"none", 0, CU_MEM_LOCATION_TYPE_DEVICE}, Made{"descriptor", 1, CU_MEM_LOCATION_TYPE_DEVICE},
        Made{"fabric", 8, CU_MEM_LOCATION_TYPE_DEVICE}, Made{"both", 9, CU_MEM_LOCATION_TYPE_DEVICE},
        Made{"numa_descriptor", 1, CU_MEM_LOCATION_TYPE_HOST_NUMA}})
    for (const int type : {0, 1, 2, 4, 8, 9, 16})
      table.add(std::string{"pool_share.export_of_"} + made.name + "_as_" + std::to_string(type),
                [made, type](Environment& cuda) {
                  CUmemPoolProps properties = pool_properties(0, made.location);
                  properties.handleTypes = static_cast<CUmemAllocationHandleType>(made.types);
                  return try_export(cuda, new_pool(cuda, properties), type);
                });
  table.add("pool_share.export_of_default_pool", [](Environment& cuda) {
    CUmemoryPool pool = nullptr;
    cuda.expect("default", cuda->cuDeviceGetDefaultMemPool(&pool, 0));
    return try_export(cuda, pool, 1);
  });
  table.add("pool_share.export_flags_1",
            [](Environment& cuda) { return try_export(cuda, shareable_pool(cuda), 1, 1); });
  table.add("pool_share.export_twice", [](Environment& cuda) {
    const CUmemoryPool pool = shareable_pool(cuda);
    const int first = exported_pool(cuda, pool);
    const int second = exported_pool(cuda, pool);
    return spaces({first == second ? "same" : "other", try_import(cuda, first), try_import(cuda, second)});
  });
  table.add("pool_share.export_of_destroyed", [](Environment& cuda) {
    const CUmemoryPool pool = shareable_pool(cuda);
    cuda.expect("destroy", cuda->cuMemPoolDestroy(pool));
    return try_export(cuda, pool, 1);
  });
  for (const int type : {1, 8})
    table.add("pool_share.create_managed_with_handle_type_" + std::to_string(type), [type](Environment& cuda) {
      CUmemPoolProps properties = pool_properties();
      properties.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED;
      properties.handleTypes = static_cast<CUmemAllocationHandleType>(type);
      CUmemoryPool pool = nullptr;
      const CUresult created = cuda->cuMemPoolCreate(&pool, &properties);
      return code_and_pool(created, pool);
    });
  table.add("pool_share.descriptor_is_closed_on_exec",
            [](Environment& cuda) { return fcntl(exported_pool(cuda, shareable_pool(cuda)), F_GETFD) & FD_CLOEXEC; });
}

void add_imports(Table& table) {
  for (const int type : {0, 1, 2, 4, 8, 9, 16})
    table.add("pool_share.import_as_" + std::to_string(type),
              [type](Environment& cuda) { return try_import(cuda, exported_pool(cuda, shareable_pool(cuda)), type); });
  table.add("pool_share.import_flags_1",
            [](Environment& cuda) { return try_import(cuda, exported_pool(cuda, shareable_pool(cuda)), 1, 1); });
  table.add("pool_share.import_-1", [](Environment& cuda) { return try_import(cuda, -1); });
  table.add("pool_share.import_closed", [](Environment& cuda) {
    const int descriptor = exported_pool(cuda, shareable_pool(cuda));
    close(descriptor);
    return try_import(cuda, descriptor);
  });
  table.add("pool_share.import_dev_null",
            [](Environment& cuda) { return try_import(cuda, open("/dev/null", O_RDWR | O_CLOEXEC)); });
  table.add("pool_share.import_pipe", [](Environment& cuda) {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) return std::string{"(no pipe)"};
    return try_import(cuda, ends[1]);
  });
  table.add("pool_share.import_memory",
            [](Environment& cuda) { return try_import(cuda, cuda.export_new().descriptor); });
  table.add("pool_share.import_as_memory", [](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    return cuda.import(exported_pool(cuda, shareable_pool(cuda)), handle);
  });
  table.add("pool_share.import_twice", [](Environment& cuda) {
    const int descriptor = exported_pool(cuda, shareable_pool(cuda));
    const CUmemoryPool first = imported_pool(cuda, descriptor);
    const CUmemoryPool second = imported_pool(cuda, descriptor);
    return spaces({first == second ? "same" : "other", cuda->cuMemPoolDestroy(first), cuda->cuMemPoolDestroy(second)});
  });
  table.add("pool_share.import_of_destroyed", [](Environment& cuda) {
    const CUmemoryPool pool = shareable_pool(cuda);
    const int descriptor = exported_pool(cuda, pool);
    cuda.expect("destroy", cuda->cuMemPoolDestroy(pool));
    return try_import(cuda, descriptor);
  });
  table.add("pool_share.imported_is_another_pool", [](Environment& cuda) {
    const CUmemoryPool pool = shareable_pool(cuda);
    const CUmemoryPool imported = imported_pool(cuda, exported_pool(cuda, pool));
    return spaces({imported == pool ? "same" : "other", cuda->cuMemPoolDestroy(imported),
                   try_allocate_from(cuda, pool, 4096, cuda.stream())});
  });
}

std::string try_export_pointer(Environment& cuda, CUdeviceptr pointer) {
  CUmemPoolPtrExportData data{};
  const CUresult exported = cuda->cuMemPoolExportPointer(&data, pointer);
  bool written = false;
  for (const unsigned char byte : data.reserved) written = written || byte != 0;
  return slashes({exported, written ? "data" : "nothing"});
}

void add_exported_pointers(Table& table) {
  table.add("pool_share.pointer", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    return try_export_pointer(cuda, shared.address);
  });
  table.add("pool_share.pointer_of_pool_not_exported", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, shareable_pool(cuda), 4096, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return try_export_pointer(cuda, memory);
  });
  table.add("pool_share.pointer_of_pool_without_handle_types", [](Environment& cuda) {
    const CUstream stream = cuda.stream();
    const CUdeviceptr memory = allocate_from(cuda, new_pool(cuda), 4096, stream);
    cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
    return try_export_pointer(cuda, memory);
  });
  for (const std::size_t offset : {std::size_t{1}, std::size_t{512}, std::size_t{4095}, std::size_t{4096}})
    table.add("pool_share.pointer_plus_" + std::to_string(offset), [offset](Environment& cuda) {
      return try_export_pointer(cuda, shared_allocation(cuda).address + offset);
    });
  table.add("pool_share.pointer_freed", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    cuda.expect("free", cuda->cuMemFreeAsync(shared.address, shared.stream));
    cuda.expect("synchronize", cuda->cuStreamSynchronize(shared.stream));
    return try_export_pointer(cuda, shared.address);
  });
  table.add(
      "pool_share.pointer_whose_free_waits",
      [](Environment& cuda) {
        const SharedAllocation shared = shared_allocation(cuda);
        Gate gate;
        gate.block(cuda, shared.stream);
        cuda.expect("free", cuda->cuMemFreeAsync(shared.address, shared.stream));
        const std::string answer = try_export_pointer(cuda, shared.address);
        gate.open();
        cuda.expect("synchronize", cuda->cuStreamSynchronize(shared.stream));
        return answer;
      },
      needs_concurrency);
  table.add(
      "pool_share.pointer_whose_allocation_waits",
      [](Environment& cuda) {
        const SharedAllocation shared = shared_allocation(cuda);
        Gate gate;
        gate.block(cuda, shared.stream);
        const CUdeviceptr memory = allocate_from(cuda, shared.pool, 4096, shared.stream);
        const std::string answer = try_export_pointer(cuda, memory);
        gate.open();
        cuda.expect("synchronize", cuda->cuStreamSynchronize(shared.stream));
        return answer;
      },
      needs_concurrency);
  table.add("pool_share.pointer_of_heap", [](Environment& cuda) { return try_export_pointer(cuda, cuda.allocate()); });
  table.add("pool_share.pointer_of_mapping",
            [](Environment& cuda) { return try_export_pointer(cuda, cuda.mapped(granule, 3, exportable())); });
  table.add("pool_share.pointer_of_host_memory",
            [](Environment& cuda) { return try_export_pointer(cuda, as_address(cuda.allocate_host())); });
  table.add("pool_share.pointer_nowhere", [](Environment& cuda) { return try_export_pointer(cuda, nowhere); });
  table.add("pool_share.pointer_twice", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    const CUmemPoolPtrExportData first = exported_pointer(cuda, shared.address);
    const CUmemPoolPtrExportData second = exported_pointer(cuda, shared.address);
    return std::equal(std::begin(first.reserved), std::end(first.reserved), std::begin(second.reserved)) ? "same"
                                                                                                         : "other";
  });
  table.add("pool_share.pointer_of_destroyed_pool", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    cuda.expect("destroy", cuda->cuMemPoolDestroy(shared.pool));
    return try_export_pointer(cuda, shared.address);
  });
}

std::string try_import_pointer(Environment& cuda, CUmemoryPool pool, CUmemPoolPtrExportData data) {
  CUdeviceptr address = 0;
  return slashes({cuda->cuMemPoolImportPointer(&address, pool, &data), address == 0 ? "null" : "address"});
}

CUmemPoolPtrExportData filled_with(unsigned char byte) {
  CUmemPoolPtrExportData data{};
  std::fill(std::begin(data.reserved), std::end(data.reserved), byte);
  return data;
}

void add_imported_pointers(Table& table) {
  for (const int byte : {0, 255})
    table.add("pool_share.import_pointer_of_bytes_" + std::to_string(byte), [byte](Environment& cuda) {
      const CUmemoryPool pool = imported_pool(cuda, exported_pool(cuda, shareable_pool(cuda)));
      return try_import_pointer(cuda, pool, filled_with(static_cast<unsigned char>(byte)));
    });
  table.add("pool_share.import_pointer_into_its_own_pool", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    return try_import_pointer(cuda, shared.pool, exported_pointer(cuda, shared.address));
  });
  table.add("pool_share.import_pointer_of_another_pool", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    const CUmemoryPool other = imported_pool(cuda, exported_pool(cuda, shareable_pool(cuda)));
    return try_import_pointer(cuda, other, exported_pointer(cuda, shared.address));
  });
  table.add("pool_share.import_pointer_in_its_own_process", [](Environment& cuda) {
    const SharedAllocation shared = shared_allocation(cuda);
    CUmemPoolPtrExportData data = exported_pointer(cuda, shared.address);
    CUdeviceptr address = 0;
    const CUresult imported = cuda->cuMemPoolImportPointer(&address, imported_pool(cuda, shared.descriptor), &data);
    unsigned word = 0;
    const CUresult read = cuda->cuMemcpyDtoH(&word, address, sizeof word);
    return spaces({slashes({imported, address == shared.address ? "same" : "other"}), slashes({read, word})});
  });
}

void add_what_is_kept(Table& table) {
  for (const bool exported : {false, true}) {
    const std::string name = exported ? "exported" : "shareable";
    const auto made = [exported](Environment& cuda) {
      const CUmemoryPool pool = shareable_pool(cuda);
      if (exported) static_cast<void>(exported_pool(cuda, pool));
      return pool;
    };
    for (const std::size_t size : {std::size_t{1000}, granule, 33 * mebibyte, 70 * mebibyte})
      table.add("pool_share." + name + "_gives_back_" + std::to_string(size), [made, size](Environment& cuda) {
        const CUmemoryPool pool = made(cuda);
        const CUstream stream = cuda.stream();
        const CUdeviceptr memory = allocate_from(cuda, pool, size, stream);
        const std::string allocated = numbers(cuda, pool);
        cuda.expect("free", cuda->cuMemFreeAsync(memory, stream));
        cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
        const std::string freed = numbers(cuda, pool);
        return spaces({allocated, freed, cuda->cuMemPoolTrimTo(pool, 0), numbers(cuda, pool)});
      });
    table.add("pool_share." + name + "_trimmed_above_threshold", [made](Environment& cuda) {
      const CUmemoryPool pool = made(cuda);
      const CUstream stream = cuda.stream();
      cuda.expect("threshold", set_attribute(cuda, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~std::uint64_t{0}));
      for (const CUdeviceptr memory :
           {allocate_from(cuda, pool, 20 * mebibyte, stream), allocate_from(cuda, pool, 20 * mebibyte, stream)})
        cuda.expect("free", cuda->cuMemFreeAsync(memory, stream));
      cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
      const std::string before = numbers(cuda, pool);
      const CUresult trimmed = cuda->cuMemPoolTrimTo(pool, 32 * mebibyte);
      return spaces({before, trimmed, numbers(cuda, pool), cuda->cuMemPoolTrimTo(pool, 0), numbers(cuda, pool)});
    });
  }
  table.add("pool_share.max_size_4194304_allocate_33554433", [](Environment& cuda) {
    const CUmemoryPool pool = shareable_pool(cuda, 0, 4 * mebibyte);
    const CUstream stream = cuda.stream();
    const CUresult over = try_allocate_from(cuda, pool, 32 * mebibyte + 1, stream);
    return spaces({over, try_allocate_from(cuda, pool, 4 * mebibyte, stream), numbers(cuda, pool)});
  });
}

void add_pointers(Table& table) {
  for (const int attribute : {2, 3, 5, 8, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21})
    table.add("pool_share.pointer_attribute_" + std::to_string(attribute), [attribute](Environment& cuda) {
      const SharedAllocation shared = shared_allocation(cuda);
      return told_of_pointer(cuda, attribute, shared.address, shared.pool);
    });
  table.add("pool_share.ipc_handle", [](Environment& cuda) {
    CUipcMemHandle handle{};
    return cuda->cuIpcGetMemHandle(&handle, shared_allocation(cuda).address);
  });
  table.add("pool_share.retain", [](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    return cuda->cuMemRetainAllocationHandle(&handle, as_pointer(shared_allocation(cuda).address));
  });
  table.add("pool_share.dma_buf", [](Environment& cuda) {
    int descriptor = -1;
    return cuda->cuMemGetHandleForAddressRange(&descriptor, shared_allocation(cuda, granule).address, granule,
                                               CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  });
}

}  // namespace

void add_pool_sharing_cases(Table& table) {
  add_exports(table);
  add_imports(table);
  add_exported_pointers(table);
  add_imported_pointers(table);
  add_what_is_kept(table);
  add_pointers(table);
}

}  // namespace cuvmm::conformance
