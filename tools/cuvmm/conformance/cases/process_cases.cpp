// Memory shared by two processes.
#include <fcntl.h>
#include <unistd.h>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/second_process.hpp"

namespace cuvmm::conformance {

namespace {

// Exports new memory that holds `word`, and sends the descriptor.
void send_memory_holding(Environment& cuda, int socket, unsigned word) {
  const Exported exported = cuda.export_new();
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, exported.handle);
  cuda.grant(address, granule);
  cuda.write_word(address, word);
  send_descriptor(socket, exported.descriptor);
}

std::string read(Environment& cuda, CUdeviceptr address) {
  unsigned word = 0;
  const CUresult result = cuda->cuMemcpyDtoH(&word, address, sizeof word);
  return slashes({result, word});
}

Answer exporter_killed(Environment& cuda) {
  SecondProcess exporter(cuda, [](Environment& own, int socket) { send_memory_holding(own, socket, 77); });
  if (auto failed = cuda.begin(Start::context)) return *failed;
  const int descriptor = receive_descriptor(exporter.socket());
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = cuda.import(descriptor, handle);
  close(descriptor);
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
  const std::string before = slashes({imported, cuda.read_word(address)});
  exporter.kill();
  return joined(" then ", {before, read(cuda, address)});
}

Answer exporter_killed_before_import(Environment& cuda) {
  SecondProcess exporter(cuda, [](Environment& own, int socket) { send_memory_holding(own, socket, 78); });
  if (auto failed = cuda.begin(Start::context)) return *failed;
  const int descriptor = receive_descriptor(exporter.socket());
  exporter.kill();
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = cuda.import(descriptor, handle);
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  return commas({imported, read(cuda, address)});
}

Answer integer_only(Environment& cuda) {
  SecondProcess exporter(cuda, [](Environment& own, int socket) {
    // A number that is surely not open in the other process.
    const int number = fcntl(own.export_new().descriptor, F_DUPFD, 900);
    send_bytes(socket, &number, sizeof number);
  });
  if (auto failed = cuda.begin(Start::context)) return *failed;
  int number = -1;
  if (!receive_bytes(exporter.socket(), &number, sizeof number)) return "(nothing received)";
  CUmemGenericAllocationHandle handle = 0;
  return cuda.import(number, handle);
}

Answer store_seen_by_exporter(Environment& cuda) {
  SecondProcess exporter(cuda, [](Environment& own, int socket) {
    const Exported exported = own.export_new();
    const CUdeviceptr address = own.reserve(granule);
    own.map(address, granule, exported.handle);
    own.grant(address, granule);
    own.write_word(address, 1);
    send_descriptor(socket, exported.descriptor);
    char go = 0;
    if (!receive_bytes(socket, &go, 1)) return;
    const unsigned seen = own.read_word(address);
    send_bytes(socket, &seen, sizeof seen);
  });
  if (auto failed = cuda.begin(Start::context)) return *failed;
  CUmemGenericAllocationHandle handle = 0;
  cuda.expect("import", cuda.import(receive_descriptor(exporter.socket()), handle));
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  cuda.write_word(address, 55);
  send_bytes(exporter.socket(), "g", 1);
  unsigned seen = 0;
  if (!receive_bytes(exporter.socket(), &seen, sizeof seen)) return "(nothing received)";
  return seen;
}

Answer legacy_ipc(Environment& cuda) {
  SecondProcess exporter(cuda, [](Environment& own, int socket) {
    const CUdeviceptr address = own.allocate(granule);
    own.write_word(address, 66);
    CUipcMemHandle handle{};
    own.expect("ipc", own->cuIpcGetMemHandle(&handle, address));
    send_bytes(socket, &handle, sizeof handle);
  });
  if (auto failed = cuda.begin(Start::context)) return *failed;
  CUipcMemHandle handle{};
  if (!receive_bytes(exporter.socket(), &handle, sizeof handle)) return "(nothing received)";
  CUdeviceptr address = 0;
  const CUresult opened = cuda->cuIpcOpenMemHandle(&address, handle, 1);
  const std::string seen = read(cuda, address);
  return commas({opened, seen, cuda->cuIpcCloseMemHandle(address), cuda->cuIpcCloseMemHandle(address)});
}

}  // namespace

void add_process_cases(Table& table) {
  table.add("xproc.exporter_killed", exporter_killed, needs_processes);
  table.add("xproc.integer_only", integer_only, needs_processes);
  table.add("xproc.exporter_killed_before_import", exporter_killed_before_import, needs_processes);
  table.add("xproc.store_seen_by_exporter", store_seen_by_exporter, needs_processes);
  table.add("xproc.legacy_ipc", legacy_ipc, needs_processes);
}

}  // namespace cuvmm::conformance
