// Memory shared by two processes, by descriptor.
#include <fcntl.h>
#include <unistd.h>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/second_process.hpp"

namespace cuvmm::conformance {

namespace {

// Memory as it is exported, mapped and granted in the process that made it.
struct Offered {
  Exported exported;
  CUdeviceptr address = 0;
};

// New memory that holds `word`.
Offered offer(Environment& cuda, unsigned word) {
  Offered made{cuda.export_new(), cuda.reserve(granule)};
  cuda.map(made.address, granule, made.exported.handle);
  cuda.grant(made.address, granule);
  cuda.write_word(made.address, word);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  return made;
}

// What an exporter does that has nothing else to do.
SecondProcess::Function offers(unsigned word) {
  return [word](Environment& own, int socket) { send_descriptor(socket, offer(own, word).exported.descriptor); };
}

// What an exporter does that changes something before it sends the descriptor.
SecondProcess::Function offers_after(unsigned word, std::function<void(Environment&, Offered&)> change) {
  return [word, change](Environment& own, int socket) {
    Offered made = offer(own, word);
    const int sent = dup(made.exported.descriptor);
    change(own, made);
    send_descriptor(socket, sent);
  };
}

std::string read(Environment& cuda, CUdeviceptr address) {
  unsigned word = 0;
  const CUresult result = cuda->cuMemcpyDtoH(&word, address, sizeof word);
  return slashes({result, word});
}

CUmemGenericAllocationHandle import_from(Environment& cuda, int socket) {
  const int descriptor = receive_descriptor(socket);
  CUmemGenericAllocationHandle handle = 0;
  cuda.expect("import", cuda.import(descriptor, handle));
  close(descriptor);
  return handle;
}

// Imports, maps and grants.
CUdeviceptr attach(Environment& cuda, int socket, int flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, socket);
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule, flags);
  return address;
}

using Importer = Answer (*)(Environment& cuda, SecondProcess& exporter);

// A case that imports what a second process offers.
CaseFunction importing(SecondProcess::Function exporter, Importer importer) {
  return [exporter, importer](Environment& cuda) -> Answer {
    SecondProcess other(cuda, exporter);
    if (auto failed = cuda.begin(Start::context)) return *failed;
    return importer(cuda, other);
  };
}

Answer exporter_killed(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket(), CU_MEM_ACCESS_FLAGS_PROT_READ);
  const std::string before = slashes({"OK", cuda.read_word(address)});
  exporter.kill();
  return joined(" then ", {before, read(cuda, address)});
}

Answer exporter_killed_before_import(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  exporter.kill();
  CUmemGenericAllocationHandle handle = 0;
  const CUresult imported = cuda.import(descriptor, handle);
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  return commas({imported, read(cuda, address)});
}

Answer exporter_killed_by_import_alone(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  exporter.kill();
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  return read(cuda, address);
}

Answer import_and_read(Environment& cuda, SecondProcess& exporter) {
  return read(cuda, attach(cuda, exporter.socket()));
}

Answer import_twice(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  CUmemGenericAllocationHandle first = 0;
  CUmemGenericAllocationHandle second = 0;
  const CUresult once = cuda.import(descriptor, first);
  return commas({once, slashes({cuda.import(descriptor, second), first == second ? "same" : "new"})});
}

Answer descriptor_left_open(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  CUmemGenericAllocationHandle handle = 0;
  cuda.expect("import", cuda.import(descriptor, handle));
  return fcntl(descriptor, F_GETFD) >= 0 ? "open" : "closed";
}

Answer properties(Environment& cuda, SecondProcess& exporter) {
  CUmemAllocationProp seen{};
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  const CUresult result = cuda->cuMemGetAllocationPropertiesFromHandle(&seen, handle);
  return slashes({result, static_cast<int>(seen.type), static_cast<int>(seen.location.type), seen.location.id,
                  static_cast<int>(seen.requestedHandleTypes), static_cast<int>(seen.allocFlags.compressionType),
                  static_cast<int>(seen.allocFlags.gpuDirectRDMACapable)});
}

Answer export_again(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  int descriptor = -1;
  return cuda->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

Answer map_larger(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  return cuda->cuMemMap(cuda.reserve(2 * granule), 2 * granule, 0, handle, 0);
}

Answer map_at_an_offset(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  return cuda->cuMemMap(cuda.reserve(granule), granule, granule, handle, 0);
}

Answer fresh_mapping_without_rights(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  return commas({cuda.access(address), read(cuda, address)});
}

Answer read_only_store(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket(), CU_MEM_ACCESS_FLAGS_PROT_READ);
  return commas({cuda.access(address), cuda->cuMemsetD32(address, 1, 1), read(cuda, address)});
}

Answer release_twice(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  return commas({cuda->cuMemRelease(handle), cuda->cuMemRelease(handle)});
}

Answer retained_from_mapping(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  CUmemGenericAllocationHandle retained = 0;
  const CUresult result = cuda->cuMemRetainAllocationHandle(&retained, as_pointer(address));
  return slashes({result, retained == handle ? "same" : "new"});
}

Answer pointer_attributes(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket());
  unsigned type = 0;
  int device = -1;
  unsigned long long handle_types = 99;
  unsigned legacy = 99;
  return commas(
      {slashes({cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), type}),
       slashes({cuda->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), device}),
       slashes({cuda->cuPointerGetAttribute(&handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address),
                static_cast<unsigned>(handle_types)}),
       slashes(
           {cuda->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address), legacy})});
}

Answer dma_buf(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket());
  int descriptor = -1;
  return cuda->cuMemGetHandleForAddressRange(&descriptor, address, granule, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
}

Answer legacy_ipc_handle(Environment& cuda, SecondProcess& exporter) {
  CUipcMemHandle handle{};
  return cuda->cuIpcGetMemHandle(&handle, attach(cuda, exporter.socket()));
}

Answer mapped_twice(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  const CUdeviceptr first = cuda.reserve(2 * granule);
  const CUdeviceptr second = first + granule;
  const std::string mapped =
      commas({cuda->cuMemMap(first, granule, 0, handle, 0), cuda->cuMemMap(second, granule, 0, handle, 0)});
  cuda.grant(first, 2 * granule);
  cuda.write_word(first, 5);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  return commas({mapped, read(cuda, second)});
}

// A number that is surely not open in the other process.
void send_a_number(Environment& own, int socket) {
  const int number = fcntl(own.export_new().descriptor, F_DUPFD, 900);
  send_bytes(socket, &number, sizeof number);
}

Answer import_a_number(Environment& cuda, SecondProcess& exporter) {
  int number = -1;
  if (!receive_bytes(exporter.socket(), &number, sizeof number)) return "(nothing received)";
  CUmemGenericAllocationHandle handle = 0;
  return cuda.import(number, handle);
}

// Shows in the end what a word is that the other one may have written.
void offer_and_look(Environment& own, int socket) {
  const Offered made = offer(own, 1);
  send_descriptor(socket, made.exported.descriptor);
  wait_for_turn(socket);
  const unsigned seen = own.read_word(made.address);
  send_bytes(socket, &seen, sizeof seen);
}

Answer store(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket());
  cuda.write_word(address, 55);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  pass_turn(exporter.socket());
  unsigned seen = 0;
  if (!receive_bytes(exporter.socket(), &seen, sizeof seen)) return "(nothing received)";
  return seen;
}

Answer detach_before_exporter_looks(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  cuda.grant(address, granule);
  cuda.write_word(address, 56);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  cuda.unmap(address, granule);
  cuda.expect("release", cuda->cuMemRelease(handle));
  pass_turn(exporter.socket());
  unsigned seen = 0;
  if (!receive_bytes(exporter.socket(), &seen, sizeof seen)) return "(nothing received)";
  return seen;
}

void offer_and_take_rights_away(Environment& own, int socket) {
  const Offered made = offer(own, 57);
  send_descriptor(socket, made.exported.descriptor);
  wait_for_turn(socket);
  own.grant(made.address, granule, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  own.unmap(made.address, granule);
  own.expect("release", own->cuMemRelease(made.exported.handle));
  pass_turn(socket);
}

Answer rights_of_its_own(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket());
  pass_turn(exporter.socket());
  wait_for_turn(exporter.socket());
  return commas({cuda.access(address), read(cuda, address)});
}

void offer_memory_of_second_device(Environment& own, int socket) {
  const CUmemGenericAllocationHandle handle =
      own.create(granule, device_memory(1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  int descriptor = -1;
  own.expect("export",
             own->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  send_descriptor(socket, descriptor);
}

// Maps what was imported for each device in turn.
Answer granted_to_each(Environment& cuda, SecondProcess& exporter) {
  const CUmemGenericAllocationHandle handle = import_from(cuda, exporter.socket());
  const CUdeviceptr address = cuda.reserve(granule);
  cuda.map(address, granule, handle);
  std::string answer;
  for (const int device : {0, 1}) {
    const CUmemAccessDesc access = access_of(device);
    cuda.make_current(cuda.primary(device));
    const CUresult granted = cuda->cuMemSetAccess(address, granule, &access, 1);
    answer += (answer.empty() ? "" : " ") +
              commas({granted, cuda->cuMemsetD8(address, 1, 4), cuda.access(address, 0), cuda.access(address, 1)});
    cuda.expect("synchronize", cuda->cuCtxSynchronize());  // the other device writes to the same bytes
  }
  return answer;
}

void offer_host_memory(Environment& own, int socket) {
  const CUmemAllocationProp properties =
      host_memory(CU_MEM_LOCATION_TYPE_HOST_NUMA, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const CUmemGenericAllocationHandle handle = own.create(granule, properties);
  const CUdeviceptr address = own.reserve(granule);
  own.map(address, granule, handle);
  own.grant(address, granule);
  own.write_word(address, 58);
  own.expect("synchronize", own->cuCtxSynchronize());
  int descriptor = -1;
  own.expect("export",
             own->cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  send_descriptor(socket, descriptor);
}

Answer read_by_the_cpu(Environment& cuda, SecondProcess& exporter) {
  const CUdeviceptr address = attach(cuda, exporter.socket());
  const CUmemAccessDesc host = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  const CUresult granted = cuda->cuMemSetAccess(address, granule, &host, 1);
  if (granted != CUDA_SUCCESS) return granted;
  return slashes({granted, *static_cast<volatile unsigned*>(as_pointer(address))});
}

void close_the_descriptor(Environment&, Offered& made) {
  close(made.exported.descriptor);
}

void release_the_handle(Environment& own, Offered& made) {
  own.expect("release", own->cuMemRelease(made.exported.handle));
}

void give_all_back(Environment& own, Offered& made) {
  own.unmap(made.address, granule);
  release_the_handle(own, made);
  close_the_descriptor(own, made);
}

}  // namespace

void add_process_cases(Table& table) {
  const auto add = [&](const char* what, SecondProcess::Function exporter, Importer importer) {
    table.add(std::string{"xproc."} + what, importing(std::move(exporter), importer), needs_processes);
  };
  add("exporter_killed", offers(77), exporter_killed);
  add("integer_only", send_a_number, import_a_number);
  add("exporter_killed_before_import", offers(78), exporter_killed_before_import);
  add("exporter_killed_before_mapping", offers(79), exporter_killed_by_import_alone);
  add("store_seen_by_exporter", offer_and_look, store);
  add("store_left_by_importer", offer_and_look, detach_before_exporter_looks);
  add("exporter_closed_its_descriptor", offers_after(61, close_the_descriptor), import_and_read);
  add("exporter_released_its_handle", offers_after(62, release_the_handle), import_and_read);
  add("exporter_gave_all_back", offers_after(63, give_all_back), import_and_read);
  add("exporter_took_its_rights_away", offer_and_take_rights_away, rights_of_its_own);
  add("import_twice", offers(64), import_twice);
  add("descriptor_after_import", offers(64), descriptor_left_open);
  add("properties", offers(64), properties);
  add("export_again", offers(64), export_again);
  add("map_larger", offers(64), map_larger);
  add("map_at_an_offset", offers(64), map_at_an_offset);
  add("mapped_twice", offers(64), mapped_twice);
  add("fresh_mapping", offers(64), fresh_mapping_without_rights);
  add("read_only_store", offers(65), read_only_store);
  add("release_twice", offers(64), release_twice);
  add("retain", offers(64), retained_from_mapping);
  add("pointer_attributes", offers(64), pointer_attributes);
  add("dma_buf", offers(64), dma_buf);
  add("legacy_ipc_of_import", offers(64), legacy_ipc_handle);
  add("host_memory", offer_host_memory, import_and_read);
  add("host_memory_properties", offer_host_memory, properties);
  add("host_memory_read_by_cpu", offer_host_memory, read_by_the_cpu);
  constexpr Needs needs_processes_and_two_devices{Start::nothing, 2, false, true};
  table.add("xproc.of_first_device_for_both", importing(offers(64), granted_to_each), needs_processes_and_two_devices);
  table.add("xproc.of_second_device_for_both", importing(offer_memory_of_second_device, granted_to_each),
            needs_processes_and_two_devices);
}

}  // namespace cuvmm::conformance
