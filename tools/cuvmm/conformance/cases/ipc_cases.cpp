// Legacy IPC handles, within one process.
#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

CUresult get_handle(Environment& cuda, CUdeviceptr address) {
  CUipcMemHandle handle{};
  return cuda->cuIpcGetMemHandle(&handle, address);
}

}  // namespace

void add_ipc_cases(Table& table) {
  table.add("ipc.get_handle", [](Environment& cuda) { return get_handle(cuda, cuda.mapped()); });
  table.add("ipc.get_handle_no_access", [](Environment& cuda) { return get_handle(cuda, cuda.mapped(granule, 0)); });
  table.add("ipc.get_handle_allocation", [](Environment& cuda) { return get_handle(cuda, cuda.allocate(granule)); });
  table.add("ipc.get_handle_inside_allocation",
            [](Environment& cuda) { return get_handle(cuda, cuda.allocate(granule) + 4096); });
  table.add("ipc.get_handle_host",
            [](Environment& cuda) { return get_handle(cuda, as_address(cuda.allocate_host())); });
  table.add("ipc.get_handle_null", [](Environment& cuda) { return get_handle(cuda, 0); });
  table.add("ipc.get_handle_null_out",
            [](Environment& cuda) { return cuda->cuIpcGetMemHandle(nullptr, cuda.allocate(granule)); });
  for (const unsigned flags : {0U, 1U, 2U})
    table.add("ipc.open_own_flags_" + std::to_string(flags), [flags](Environment& cuda) {
      CUipcMemHandle handle{};
      cuda.expect("handle", cuda->cuIpcGetMemHandle(&handle, cuda.allocate(granule)));
      CUdeviceptr address = 0;
      return cuda->cuIpcOpenMemHandle(&address, handle, flags);
    });
  table.add("ipc.open_blank", [](Environment& cuda) {
    CUdeviceptr address = 0;
    return cuda->cuIpcOpenMemHandle(&address, CUipcMemHandle{}, 1);
  });
  table.add("ipc.close_allocation",
            [](Environment& cuda) { return cuda->cuIpcCloseMemHandle(cuda.allocate(granule)); });
  table.add("ipc.close_mapping", [](Environment& cuda) { return cuda->cuIpcCloseMemHandle(cuda.mapped()); });
  table.add("ipc.close_null", [](Environment& cuda) { return cuda->cuIpcCloseMemHandle(0); });
}

}  // namespace cuvmm::conformance
