// Memory shared by two processes, by legacy IPC handles.
#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/second_process.hpp"

namespace cuvmm::conformance {

namespace {

constexpr unsigned lazy_peer_access = 1;

void send_handle_of(Environment& own, int socket, CUdeviceptr address) {
  CUipcMemHandle handle{};
  own.expect("ipc", own->cuIpcGetMemHandle(&handle, address));
  send_bytes(socket, &handle, sizeof handle);
}

CUdeviceptr allocated_word(Environment& own, unsigned word) {
  const CUdeviceptr address = own.allocate(granule);
  own.write_word(address, word);
  own.write_word(address + 4096, word + 1);
  own.expect("synchronize", own->cuCtxSynchronize());
  return address;
}

void offer(Environment& own, int socket) {
  send_handle_of(own, socket, allocated_word(own, 66));
}

void offer_the_inside(Environment& own, int socket) {
  send_handle_of(own, socket, allocated_word(own, 66) + 4096);
}

void offer_and_free(Environment& own, int socket) {
  const CUdeviceptr address = allocated_word(own, 66);
  CUipcMemHandle handle{};
  own.expect("ipc", own->cuIpcGetMemHandle(&handle, address));
  own.expect("free", own->cuMemFree(address));
  send_bytes(socket, &handle, sizeof handle);
}

void offer_and_look(Environment& own, int socket) {
  const CUdeviceptr address = allocated_word(own, 66);
  send_handle_of(own, socket, address);
  wait_for_turn(socket);
  const unsigned seen = own.read_word(address);
  send_bytes(socket, &seen, sizeof seen);
}

void offer_twice(Environment& own, int socket) {
  const CUdeviceptr address = allocated_word(own, 66);
  CUipcMemHandle handles[2] = {};
  for (CUipcMemHandle& each : handles) own.expect("ipc", own->cuIpcGetMemHandle(&each, address));
  send_bytes(socket, handles, sizeof handles);
}

std::string read(Environment& cuda, CUdeviceptr address) {
  unsigned word = 0;
  const CUresult result = cuda->cuMemcpyDtoH(&word, address, sizeof word);
  return slashes({result, word});
}

CUipcMemHandle received(Environment& cuda, int socket) {
  CUipcMemHandle handle{};
  cuda.expect("receive", receive_bytes(socket, &handle, sizeof handle) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
  return handle;
}

CUresult open(Environment& cuda, const CUipcMemHandle& handle, CUdeviceptr& address,
              unsigned flags = lazy_peer_access) {
  return cuda->cuIpcOpenMemHandle(&address, handle, flags);
}

CUdeviceptr opened(Environment& cuda, SecondProcess& exporter) {
  CUdeviceptr address = 0;
  cuda.expect("open", open(cuda, received(cuda, exporter.socket()), address));
  return address;
}

Answer open_read_close(Environment& cuda, SecondProcess& exporter) {
  CUdeviceptr address = 0;
  const CUresult result = open(cuda, received(cuda, exporter.socket()), address);
  const std::string seen = read(cuda, address);
  return commas({result, seen, cuda->cuIpcCloseMemHandle(address), cuda->cuIpcCloseMemHandle(address)});
}

Answer open_alone(Environment& cuda, SecondProcess& exporter) {
  CUdeviceptr address = 0;
  return open(cuda, received(cuda, exporter.socket()), address);
}

Answer open_without_flags(Environment& cuda, SecondProcess& exporter) {
  CUdeviceptr address = 0;
  return open(cuda, received(cuda, exporter.socket()), address, 0);
}

Answer open_after_death(Environment& cuda, SecondProcess& exporter) {
  const CUipcMemHandle handle = received(cuda, exporter.socket());
  exporter.kill();
  CUdeviceptr address = 0;
  return open(cuda, handle, address);
}

Answer read_after_death(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = opened(cuda, exporter);
  const std::string before = read(cuda, address);
  exporter.kill();
  return joined(" then ", {before, read(cuda, address)});
}

Answer open_twice(Environment& cuda, SecondProcess& exporter) {
  const CUipcMemHandle handle = received(cuda, exporter.socket());
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  const CUresult once = open(cuda, handle, first);
  const CUresult again = open(cuda, handle, second);
  const std::string results = commas({once, slashes({again, first == second ? "same" : "new"})});
  return commas({results, cuda->cuIpcCloseMemHandle(first), read(cuda, second), cuda->cuIpcCloseMemHandle(second),
                 cuda->cuIpcCloseMemHandle(second)});
}

Answer two_handles(Environment& cuda, SecondProcess& exporter) {
  CUipcMemHandle handles[2] = {};
  if (!receive_bytes(exporter.socket(), handles, sizeof handles)) return "(nothing received)";
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  const CUresult once = open(cuda, handles[0], first);
  return commas({once, slashes({open(cuda, handles[1], second), first == second ? "same" : "new"})});
}

Answer range(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = opened(cuda, exporter);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult result = cuda->cuMemGetAddressRange(&base, &size, address);
  return slashes({result, address - base, size, read(cuda, address)});
}

Answer free_it(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = opened(cuda, exporter);
  return commas({cuda->cuMemFree(address), read(cuda, address)});
}

Answer handle_of_what_was_opened(Environment& cuda, SecondProcess& exporter) {
  CUipcMemHandle handle{};
  return cuda->cuIpcGetMemHandle(&handle, opened(cuda, exporter));
}

Answer close_the_inside(Environment& cuda, SecondProcess& exporter) {
  return cuda->cuIpcCloseMemHandle(opened(cuda, exporter) + 4096);
}

Answer store(Environment& cuda, SecondProcess& exporter) {
  cuda.write_word(opened(cuda, exporter), 67);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  pass_turn(exporter.socket());
  unsigned seen = 0;
  if (!receive_bytes(exporter.socket(), &seen, sizeof seen)) return "(nothing received)";
  return seen;
}

Answer attributes(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = opened(cuda, exporter);
  unsigned type = 0;
  unsigned legacy = 99;
  return commas(
      {slashes({cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), type}),
       slashes(
           {cuda->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address), legacy})});
}

}  // namespace

void add_process_ipc_cases(Table& table) {
  using Importer = Answer (*)(Environment&, SecondProcess&);
  const auto add = [&](const char* what, void (*exporter)(Environment&, int), Importer importer) {
    const auto both = [exporter, importer](Environment& cuda) -> Answer {
      SecondProcess other(cuda, exporter);
      if (auto failed = cuda.begin(Start::context)) return *failed;
      return importer(cuda, other);
    };
    table.add(std::string{"xproc."} + what, both, needs_processes);
  };
  add("legacy_ipc", offer, open_read_close);
  add("legacy_ipc_without_flags", offer, open_without_flags);
  add("legacy_ipc_inside", offer_the_inside, range);
  add("legacy_ipc_freed_before", offer_and_free, open_alone);
  add("legacy_ipc_killed_before", offer, open_after_death);
  add("legacy_ipc_killed_while_open", offer, read_after_death);
  add("legacy_ipc_open_twice", offer, open_twice);
  add("legacy_ipc_two_handles", offer_twice, two_handles);
  add("legacy_ipc_range", offer, range);
  add("legacy_ipc_free", offer, free_it);
  add("legacy_ipc_handle_again", offer, handle_of_what_was_opened);
  add("legacy_ipc_close_inside", offer, close_the_inside);
  add("legacy_ipc_store", offer_and_look, store);
  add("legacy_ipc_attributes", offer, attributes);
}

}  // namespace cuvmm::conformance
