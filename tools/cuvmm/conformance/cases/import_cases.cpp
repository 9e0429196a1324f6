// cuMemImportFromShareableHandle, within one process.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/descriptor_limit.hpp"

namespace cuvmm::conformance {

namespace {

CUresult import_result(Environment& cuda, int descriptor, int type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
  CUmemGenericAllocationHandle handle = 0;
  return cuda.import(descriptor, handle, type);
}

// A second handle to new memory of `size`.
CUmemGenericAllocationHandle imported(Environment& cuda, std::size_t size = granule) {
  CUmemGenericAllocationHandle handle = 0;
  cuda.expect("import", cuda.import(cuda.export_new(size).descriptor, handle));
  return handle;
}

void add_descriptors(Table& table) {
  table.add("import.same_process", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cuda.import(exported.descriptor, handle);
    return slashes({result, handle == exported.handle ? "same" : "new"});
  });
  table.add("import.twice", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    CUmemGenericAllocationHandle first = 0;
    CUmemGenericAllocationHandle second = 0;
    cuda.expect("import", cuda.import(exported.descriptor, first));
    const CUresult result = cuda.import(exported.descriptor, second);
    return slashes({result, first == second ? "same" : "new"});
  });
  table.add("import.fd_-1", [](Environment& cuda) { return import_result(cuda, -1); });
  table.add("import.fd_closed", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    close(exported.descriptor);
    return import_result(cuda, exported.descriptor);
  });
  table.add("import.fd_devnull", [](Environment& cuda) { return import_result(cuda, open("/dev/null", O_RDWR)); });
  table.add("import.fd_duplicate", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    const int duplicate = dup(exported.descriptor);
    close(exported.descriptor);
    return import_result(cuda, duplicate);
  });
  table.add("import.fd_left_open_after_import", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    cuda.expect("import", import_result(cuda, exported.descriptor));
    return fcntl(exported.descriptor, F_GETFD) >= 0 ? "open" : "closed";
  });
  table.add("import.no_descriptor_left", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    allow_no_more_descriptors();
    return import_result(cuda, exported.descriptor);
  });
}

void add_types(Table& table) {
  for (const int type : {0, 2, 4, 9})
    table.add("import.type_" + std::to_string(type),
              [type](Environment& cuda) { return import_result(cuda, cuda.export_new().descriptor, type); });
  table.add("import.type_8", [](Environment& cuda) {
    CUmemFabricHandle blank{};
    CUmemGenericAllocationHandle handle = 0;
    return cuda->cuMemImportFromShareableHandle(&handle, &blank, CU_MEM_HANDLE_TYPE_FABRIC);
  });
  table.add("import.null_out", [](Environment& cuda) {
    return cuda->cuMemImportFromShareableHandle(nullptr, as_os_handle(cuda.export_new().descriptor),
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
}

void add_handles(Table& table) {
  table.add("import.props", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = imported(cuda);
    CUmemAllocationProp seen{};
    std::memset(&seen, 0xff, sizeof seen);
    const CUresult result = cuda->cuMemGetAllocationPropertiesFromHandle(&seen, handle);
    return result_name(result) + " type=" + std::to_string(seen.type) + " loc=" + std::to_string(seen.location.type) +
           "/" + std::to_string(seen.location.id) + " ht=" + std::to_string(seen.requestedHandleTypes);
  });
  table.add("import.map_wrong_size", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = imported(cuda, 2 * granule);
    const CUdeviceptr address = cuda.reserve(4 * granule);
    return commas({cuda->cuMemMap(address, 4 * granule, 0, handle, 0), cuda->cuMemMap(address, granule, 0, handle, 0),
                   cuda->cuMemMap(address, 2 * granule, 0, handle, 0)});
  });
  table.add("import.reexport", [](Environment& cuda) {
    int descriptor = -1;
    return cuda->cuMemExportToShareableHandle(&descriptor, imported(cuda), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  });
  table.add("import.release_twice", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = imported(cuda);
    return commas({cuda->cuMemRelease(handle), cuda->cuMemRelease(handle)});
  });
  table.add("import.retained_handle", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = imported(cuda);
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.map(address, granule, handle);
    CUmemGenericAllocationHandle retained = 0;
    const CUresult result = cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address));
    return slashes({result, retained == handle ? "same" : "other"});
  });
  table.add("import.host_numa", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle =
        cuda.create(granule, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    int descriptor = -1;
    cuda.expect("export",
                cuda->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUmemGenericAllocationHandle second = 0;
    const CUresult result = cuda.import(descriptor, second);
    CUmemAllocationProp seen{};
    cuda.expect("properties", cuda->cuMemGetAllocationPropertiesFromHandle(&seen, second));
    return spaces({result, slashes({static_cast<int>(seen.location.type), seen.location.id})});
  });
}

void add_data(Table& table) {
  table.add("import.data_shared", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    CUmemGenericAllocationHandle handle = 0;
    cuda.expect("import", cuda.import(exported.descriptor, handle));
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map(address, granule, exported.handle);
    cuda.map(address + granule, granule, handle);
    cuda.grant(address, 2 * granule);
    cuda.write_word(address, 7);
    return cuda.read_word(address + granule);
  });
  table.add("import.fd_keeps_memory_alone", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map(address, granule, exported.handle);
    cuda.grant(address, granule);
    cuda.write_word(address, 7);
    cuda.unmap(address, granule);
    cuda.expect("release", cuda->cuMemRelease(exported.handle));
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = cuda.import(exported.descriptor, handle);
    cuda.map(address + granule, granule, handle);
    cuda.grant(address + granule, granule);
    return slashes({result, cuda.read_word(address + granule)});
  });
}

}  // namespace

void add_import_cases(Table& table) {
  add_descriptors(table);
  add_types(table);
  add_handles(table);
  add_data(table);
}

}  // namespace cuvmm::conformance
