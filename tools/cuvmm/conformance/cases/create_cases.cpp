// cuMemCreate: sizes, properties, flags.
#include <limits>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/descriptor_limit.hpp"

namespace cuvmm::conformance {

namespace {

// Properties of device memory after one change.
template <class Change>
CUmemAllocationProp device_memory_with(Change change) {
  CUmemAllocationProp properties = device_memory();
  change(properties);
  return properties;
}

void add_size(Table& table, const char* id, std::size_t size) {
  table.add(id, [size](Environment& cuda) { return cuda.try_create(size, device_memory()); });
}

void add_sizes(Table& table) {
  add_size(table, "create.zero", 0);
  add_size(table, "create.one_byte", 1);
  add_size(table, "create.unaligned", granule + 4096);
  add_size(table, "create.over_card", 200 * gibibyte);
  add_size(table, "create.huge_unaligned", std::numeric_limits<std::size_t>::max());
  add_size(table, "create.huge_aligned", ~(granule - 1));
  add_size(table, "create.64K", 65536);
  add_size(table, "create.3_granules", 3 * granule);
}

void add_arguments(Table& table) {
  table.add("create.flags", [](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    const CUmemAllocationProp properties = device_memory();
    return cuda->cuMemCreate(&handle, granule, &properties, 1);
  });
  table.add("create.null_prop", [](Environment& cuda) {
    CUmemGenericAllocationHandle handle = 0;
    return cuda->cuMemCreate(&handle, granule, nullptr, 0);
  });
  table.add("create.null_handle", [](Environment& cuda) {
    const CUmemAllocationProp properties = device_memory();
    return cuda->cuMemCreate(nullptr, granule, &properties, 0);
  });
  table.add("create.before_init_of_ctx", [](Environment& cuda) { return cuda.try_create(granule, device_memory()); });
  table.add("create.handles_differ",
            [](Environment& cuda) { return cuda.create(granule) == cuda.create(granule) ? "same" : "distinct"; });
}

void add_places(Table& table) {
  for (const int device : {99, -1})
    table.add("create.device_" + std::to_string(device),
              [device](Environment& cuda) { return cuda.try_create(granule, device_memory(device)); });
  for (const int type : {0, 2, std::numeric_limits<int>::max()})
    table.add("create.type_" + std::to_string(type), [type](Environment& cuda) {
      return cuda.try_create(granule,
                             device_memory_with([type](auto& p) { p.type = static_cast<CUmemAllocationType>(type); }));
    });
  for (const int type : {0, 5, 6})
    table.add("create.location_type_" + std::to_string(type), [type](Environment& cuda) {
      return cuda.try_create(granule, host_memory(static_cast<CUmemLocationType>(type)));
    });
  for (const int types : {1, 2, 4, 8, 9, 16, 32})
    table.add("create.handle_type_" + std::to_string(types),
              [types](Environment& cuda) { return cuda.try_create(granule, device_memory(0, types)); });
  // Of the bits of several types, some of which are none: what is kept, and whether there is a descriptor.
  for (const int types : {3, 5, 17, 24, 64, -1})
    table.add("create.handle_types_" + std::to_string(types), [types](Environment& cuda) {
      CUmemGenericAllocationHandle handle = 0;
      const CUmemAllocationProp wanted = device_memory(0, types);
      const CUresult created = cuda->cuMemCreate(&handle, granule, &wanted, 0);
      if (created != CUDA_SUCCESS) return std::string{result_name(created)};
      CUmemAllocationProp kept{};
      int descriptor = -1;
      const CUresult told = cuda->cuMemGetAllocationPropertiesFromHandle(&kept, handle);
      return spaces(
          {created, slashes({told, static_cast<int>(kept.requestedHandleTypes)}),
           cuda->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)});
    });
}

void add_allocation_flags(Table& table) {
  table.add("create.reserved_nonzero", [](Environment& cuda) {
    return cuda.try_create(granule, device_memory_with([](auto& p) { p.allocFlags.reserved[0] = 1; }));
  });
  for (const unsigned char compression : {1, 2, 7})
    table.add("create.compression_" + std::to_string(compression), [compression](Environment& cuda) {
      return cuda.try_create(
          granule, device_memory_with([compression](auto& p) { p.allocFlags.compressionType = compression; }));
    });
  for (const unsigned char rdma : {1, 2})
    table.add("create.rdma_" + std::to_string(rdma), [rdma](Environment& cuda) {
      return cuda.try_create(granule,
                             device_memory_with([rdma](auto& p) { p.allocFlags.gpuDirectRDMACapable = rdma; }));
    });
  for (const unsigned short usage : {1, 2, 4, 0x8000})
    table.add("create.usage_" + std::to_string(usage), [usage](Environment& cuda) {
      return cuda.try_create(granule, device_memory_with([usage](auto& p) { p.allocFlags.usage = usage; }));
    });
  table.add("create.win32_metadata", [](Environment& cuda) {
    int ignored = 0;
    return cuda.try_create(granule, device_memory_with([&ignored](auto& p) { p.win32HandleMetaData = &ignored; }));
  });
}

void add_accounting(Table& table) {
  table.add(
      "create.memory_accounted",
      [](Environment& cuda) {
        std::size_t before = 0;
        std::size_t after = 0;
        std::size_t total = 0;
        cuda.expect("info", cuda->cuMemGetInfo(&before, &total));
        cuda.create(gibibyte);
        cuda.expect("info", cuda->cuMemGetInfo(&after, &total));
        return before - after >= gibibyte ? "counted" : "not counted";
      },
      needs_alone);
  table.add("create.no_descriptor_left", [](Environment& cuda) {
    allow_no_more_descriptors();
    return commas({cuda.try_create(granule, device_memory()), cuda.try_create(granule, exportable())});
  });
}

}  // namespace

void add_create_cases(Table& table) {
  add_sizes(table);
  add_arguments(table);
  add_places(table);
  add_allocation_flags(table);
  add_accounting(table);
}

}  // namespace cuvmm::conformance
