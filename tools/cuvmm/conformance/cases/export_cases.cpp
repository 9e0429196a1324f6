// cuMemExportToShareableHandle.
#include <fcntl.h>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/descriptor_limit.hpp"

namespace cuvmm::conformance {

namespace {

CUresult export_descriptor(Environment& cuda, CUmemGenericAllocationHandle handle, int* descriptor,
                           unsigned long long flags = 0) {
  return cuda->cuMemExportToShareableHandle(descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, flags);
}

CUresult export_descriptor(Environment& cuda, CUmemGenericAllocationHandle handle) {
  int descriptor = -1;
  return export_descriptor(cuda, handle, &descriptor);
}

void add_descriptors(Table& table) {
  table.add("export.fd", [](Environment& cuda) {
    int descriptor = -1;
    const CUresult result = export_descriptor(cuda, cuda.create(granule, exportable()), &descriptor);
    return slashes({result, (fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0 ? "cloexec" : "inherit"});
  });
  table.add("export.fd_twice_distinct", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule, exportable());
    int first = -1;
    int second = -1;
    cuda.expect("export", export_descriptor(cuda, handle, &first));
    cuda.expect("export", export_descriptor(cuda, handle, &second));
    return first == second ? "same" : "distinct";
  });
  table.add("export.host_numa", [](Environment& cuda) {
    return export_descriptor(cuda, cuda.create(granule, host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA,
                                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)));
  });
  table.add("export.mapped", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule, exportable());
    cuda.map(cuda.reserve(granule), granule, handle);
    return export_descriptor(cuda, handle);
  });
  table.add("export.retained", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0, exportable());
    CUmemGenericAllocationHandle retained = 0;
    cuda.expect("retain", cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address)));
    return export_descriptor(cuda, retained);
  });
  table.add("export.no_descriptor_left", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule, exportable());
    allow_no_more_descriptors();
    return export_descriptor(cuda, handle);
  });
}

void add_refusals(Table& table) {
  table.add("export.not_requested", [](Environment& cuda) { return export_descriptor(cuda, cuda.create(granule)); });
  table.add("export.flags", [](Environment& cuda) {
    int descriptor = -1;
    return export_descriptor(cuda, cuda.create(granule, exportable()), &descriptor, 1);
  });
  table.add("export.null_out",
            [](Environment& cuda) { return export_descriptor(cuda, cuda.create(granule, exportable()), nullptr); });
  for (const int type : {0, 2, 4, 8, 9})
    table.add("export.type_" + std::to_string(type) + "_of_fd_alloc", [type](Environment& cuda) {
      CUmemFabricHandle room{};
      return cuda->cuMemExportToShareableHandle(&room, cuda.create(granule, exportable()),
                                                static_cast<CUmemAllocationHandleType>(type), 0);
    });
  table.add("export.zero", [](Environment& cuda) { return export_descriptor(cuda, 0); });
  table.add("export.released", [](Environment& cuda) {
    const CUmemGenericAllocationHandle handle = cuda.create(granule, exportable());
    cuda.expect("release", cuda->cuMemRelease(handle));
    return export_descriptor(cuda, handle);
  });
  table.add("export.garbage", [](Environment& cuda) { return export_descriptor(cuda, 0x1234); });
}

}  // namespace

void add_export_cases(Table& table) {
  add_descriptors(table);
  add_refusals(table);
}

}  // namespace cuvmm::conformance
