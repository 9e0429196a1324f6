// Memory pools that two processes share: one exports a pool and what it allocated there, the other imports both.
#include <unistd.h>

#include <array>

#include "conformance/cases/case_groups.hpp"
#include "conformance/cases/second_process.hpp"
#include "conformance/cases/shared_pool_steps.hpp"

namespace cuvmm::conformance {

namespace {

constexpr Needs needs_processes_and_two_devices{Start::nothing, 2, false, true};

// What exporters do. They send the pool's descriptor, and then what tells of one pointer, or of two.

void send_pointer(Environment& own, int socket, CUdeviceptr address) {
  const CUmemPoolPtrExportData data = exported_pointer(own, address);
  send_bytes(socket, &data, sizeof data);
}

const SharedAllocation& send_all(Environment& own, int socket, const SharedAllocation& shared) {
  send_descriptor(socket, shared.descriptor);
  send_pointer(own, socket, shared.address);
  return shared;
}

SharedAllocation send_all(Environment& own, int socket, CUmemoryPool pool, std::size_t bytes) {
  return send_all(own, socket, shared_allocation(own, pool, bytes));
}

void send_number(int socket, unsigned number) {
  send_bytes(socket, &number, sizeof number);
}

void offer(Environment& own, int socket) {
  send_all(own, socket, shareable_pool(own), 4096);
}

template <std::size_t bytes>
void offer_bytes(Environment& own, int socket) {
  send_all(own, socket, shareable_pool(own), bytes);
}

void offer_of_host(Environment& own, int socket) {
  send_all(own, socket, shared_host_allocation(own));
}

void offer_of_second_device(Environment& own, int socket) {
  own.make_current(own.primary(1));
  send_all(own, socket, shareable_pool(own, 1), 4096);
}

void offer_open_to_second_device(Environment& own, int socket) {
  const CUmemoryPool pool = shareable_pool(own);
  const CUmemAccessDesc access = access_of(1);
  own.expect("access", own->cuMemPoolSetAccess(pool, &access, 1));
  send_all(own, socket, pool, 4096);
}

void offer_two(Environment& own, int socket) {
  const SharedAllocation first = send_all(own, socket, shareable_pool(own), 4096);
  const CUdeviceptr second = allocate_from(own, first.pool, 8192, first.stream);
  own.expect("synchronize", own->cuStreamSynchronize(first.stream));
  own.write_word(second, 68);
  own.expect("synchronize", own->cuCtxSynchronize());
  send_pointer(own, socket, second);
  send_number(socket, static_cast<unsigned>(second - first.address));
}

void free_and_wait(Environment& own, const SharedAllocation& shared) {
  own.expect("free", own->cuMemFreeAsync(shared.address, shared.stream));
  own.expect("synchronize", own->cuStreamSynchronize(shared.stream));
}

void offer_and_free(Environment& own, int socket) {
  const SharedAllocation shared = shared_allocation(own);
  const CUmemPoolPtrExportData data = exported_pointer(own, shared.address);
  free_and_wait(own, shared);
  send_descriptor(socket, shared.descriptor);
  send_bytes(socket, &data, sizeof data);
}

// The bytes are another allocation's when the importer asks for the first.
void offer_and_allocate_anew(Environment& own, int socket) {
  const SharedAllocation shared = shared_allocation(own);
  const CUmemPoolPtrExportData data = exported_pointer(own, shared.address);
  free_and_wait(own, shared);
  static_cast<void>(allocate_from(own, shared.pool, 4096, shared.stream));
  own.expect("synchronize", own->cuStreamSynchronize(shared.stream));
  send_descriptor(socket, shared.descriptor);
  send_bytes(socket, &data, sizeof data);
}

void offer_and_destroy(Environment& own, int socket) {
  const SharedAllocation shared = shared_allocation(own);
  const CUmemPoolPtrExportData data = exported_pointer(own, shared.address);
  own.expect("destroy", own->cuMemPoolDestroy(shared.pool));
  send_descriptor(socket, shared.descriptor);
  send_bytes(socket, &data, sizeof data);
}

void offer_and_free_in_turn(Environment& own, int socket) {
  const SharedAllocation shared = send_all(own, socket, shareable_pool(own), 4096);
  wait_for_turn(socket);
  free_and_wait(own, shared);
  pass_turn(socket);
}

void offer_and_destroy_in_turn(Environment& own, int socket) {
  const SharedAllocation shared = send_all(own, socket, shareable_pool(own), 4096);
  wait_for_turn(socket);
  own.expect("destroy", own->cuMemPoolDestroy(shared.pool));
  pass_turn(socket);
}

void offer_and_end_all_in_turn(Environment& own, int socket) {
  const SharedAllocation shared = send_all(own, socket, shareable_pool(own), 4096);
  wait_for_turn(socket);
  free_and_wait(own, shared);
  own.expect("destroy", own->cuMemPoolDestroy(shared.pool));
  pass_turn(socket);
}

void offer_and_look(Environment& own, int socket) {
  const SharedAllocation shared = send_all(own, socket, shareable_pool(own), 4096);
  wait_for_turn(socket);
  send_number(socket, own.read_word(shared.address));
}

// The importer's free does not free what is the exporter's.
void offer_and_use_on(Environment& own, int socket) {
  const SharedAllocation shared = send_all(own, socket, shareable_pool(own), 4096);
  wait_for_turn(socket);
  const CUdeviceptr other = allocate_from(own, shared.pool, 4096, shared.stream);
  send_number(socket, other == shared.address ? 1 : 0);
  send_number(socket, static_cast<unsigned>(own->cuMemFreeAsync(shared.address, shared.stream)));
}

// What importers do.

CUmemPoolPtrExportData received_pointer(Environment& cuda, int socket) {
  CUmemPoolPtrExportData data{};
  cuda.expect("receive", receive_bytes(socket, &data, sizeof data) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
  return data;
}

unsigned received_number(Environment& cuda, int socket) {
  unsigned number = 0;
  cuda.expect("receive", receive_bytes(socket, &number, sizeof number) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
  return number;
}

void take_turn(SecondProcess& exporter) {
  pass_turn(exporter.socket());
  wait_for_turn(exporter.socket());
}

struct Imported {
  CUmemoryPool pool = nullptr;
  CUmemPoolPtrExportData data{};
  CUdeviceptr address = 0;
};

CUresult import_pointer(Environment& cuda, CUmemoryPool pool, CUmemPoolPtrExportData data, CUdeviceptr& address) {
  return cuda->cuMemPoolImportPointer(&address, pool, &data);
}

Imported imported_pool_of(Environment& cuda, SecondProcess& exporter) {
  Imported got;
  const int descriptor = receive_descriptor(exporter.socket());
  got.data = received_pointer(cuda, exporter.socket());
  got.pool = imported_pool(cuda, descriptor);
  close(descriptor);
  return got;
}

Imported imported(Environment& cuda, SecondProcess& exporter) {
  Imported got = imported_pool_of(cuda, exporter);
  cuda.expect("import pointer", import_pointer(cuda, got.pool, got.data, got.address));
  return got;
}

std::string read(Environment& cuda, CUdeviceptr address) {
  unsigned word = 0;
  const CUresult result = cuda->cuMemcpyDtoH(&word, address, sizeof word);
  return slashes({result, word});
}

CUresult free_in_order(Environment& cuda, CUdeviceptr address) {
  const CUstream stream = cuda.stream();
  const CUresult freed = cuda->cuMemFreeAsync(address, stream);
  cuda.expect("synchronize", cuda->cuStreamSynchronize(stream));
  return freed;
}

Answer read_and_free(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const std::string seen = read(cuda, got.address);
  return commas({seen, cuda->cuMemFree(got.address), read(cuda, got.address), cuda->cuMemFree(got.address)});
}

Answer read_and_free_async(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const std::string seen = read(cuda, got.address);
  return commas({seen, free_in_order(cuda, got.address), read(cuda, got.address), free_in_order(cuda, got.address)});
}

template <std::size_t bytes>
Answer read_both_ends(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const std::string first = read(cuda, got.address);
  return commas({first, read(cuda, got.address + bytes - 4), numbers(cuda, got.pool)});
}

Answer free_inside(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  return commas({cuda->cuMemFree(got.address + 8), cuda->cuMemFree(got.address)});
}

Answer store(Environment& cuda, SecondProcess& exporter) {
  cuda.write_word(imported(cuda, exporter).address, 77);
  cuda.expect("synchronize", cuda->cuCtxSynchronize());
  pass_turn(exporter.socket());
  return received_number(cuda, exporter.socket());
}

Answer import_pool_twice(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  const CUmemPoolPtrExportData data = received_pointer(cuda, exporter.socket());
  const CUmemoryPool first = imported_pool(cuda, descriptor);
  const CUmemoryPool second = imported_pool(cuda, descriptor);
  CUdeviceptr one = 0;
  CUdeviceptr other = 0;
  const CUresult once = import_pointer(cuda, first, data, one);
  const CUresult again = import_pointer(cuda, second, data, other);
  return commas({first == second ? "same" : "other", once, again, one == other ? "same" : "other", read(cuda, one),
                 read(cuda, other), cuda->cuMemPoolDestroy(first), read(cuda, other), cuda->cuMemPoolDestroy(second)});
}

Answer import_pointer_twice(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  CUdeviceptr second = 0;
  const CUresult again = import_pointer(cuda, got.pool, got.data, second);
  const char* relation = second == got.address ? "same" : second == 0 ? "null" : "other";
  const std::string result = slashes({again, relation});
  return commas({result, numbers(cuda, got.pool), cuda->cuMemFree(got.address), read(cuda, got.address),
                 read(cuda, second), cuda->cuMemFree(second), numbers(cuda, got.pool)});
}

Answer import_pointer_after_its_free(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const CUresult freed = free_in_order(cuda, got.address);
  CUdeviceptr again = 0;
  const CUresult result = import_pointer(cuda, got.pool, got.data, again);
  return commas({freed, result, again == got.address ? "same" : "other", read(cuda, again), numbers(cuda, got.pool)});
}

Answer both_pointers(Environment& cuda, SecondProcess& exporter) {
  const Imported first = imported(cuda, exporter);
  const CUmemPoolPtrExportData data = received_pointer(cuda, exporter.socket());
  const unsigned distance = received_number(cuda, exporter.socket());
  CUdeviceptr second = 0;
  const CUresult result = import_pointer(cuda, first.pool, data, second);
  return commas({result, second - first.address == distance ? "as there" : "elsewhere", read(cuda, first.address),
                 read(cuda, second), numbers(cuda, first.pool), cuda->cuMemFree(first.address), read(cuda, second)});
}

Answer allocate(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const CUstream stream = cuda.stream();
  return commas({try_allocate_from(cuda, got.pool, 4096, stream), try_allocate_from(cuda, got.pool, 0, stream),
                 cuda->cuDeviceSetMemPool(0, got.pool)});
}

Answer attributes(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported_pool_of(cuda, exporter);
  std::string answer;
  for (int attribute = 1; attribute <= 8; ++attribute) {
    std::uint64_t told = 0;
    const CUresult result = cuda->cuMemPoolGetAttribute(got.pool, static_cast<CUmemPool_attribute>(attribute), &told);
    answer += (attribute == 1 ? "" : " ") + slashes({result, told});
  }
  return answer;
}

Answer set_attributes(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported_pool_of(cuda, exporter);
  std::string answer;
  for (int attribute = 1; attribute <= 8; ++attribute) {
    std::uint64_t value = 0;
    const CUresult result = cuda->cuMemPoolSetAttribute(got.pool, static_cast<CUmemPool_attribute>(attribute), &value);
    answer += (attribute == 1 ? "" : ",") + result_name(result);
  }
  return answer;
}

Answer counted(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported_pool_of(cuda, exporter);
  const std::string before = numbers(cuda, got.pool);
  CUdeviceptr address = 0;
  cuda.expect("import pointer", import_pointer(cuda, got.pool, got.data, address));
  const std::string with = numbers(cuda, got.pool);
  cuda.expect("free", free_in_order(cuda, address));
  const std::string without = numbers(cuda, got.pool);
  return spaces({before, with, without, cuda->cuMemPoolTrimTo(got.pool, 0), numbers(cuda, got.pool)});
}

std::string access(Environment& cuda, CUmemoryPool pool, int device, int flags) {
  const CUmemAccessDesc wanted = access_of(device, flags);
  CUmemLocation place = location(device);
  auto told = static_cast<CUmemAccess_flags>(9);
  const CUresult set = cuda->cuMemPoolSetAccess(pool, &wanted, 1);
  const CUresult got = cuda->cuMemPoolGetAccess(&told, pool, &place);
  return slashes({set, got, static_cast<int>(told)});
}

Answer own_access(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  std::string answer;
  for (const int flags : {0, 1, 3}) answer += (flags == 0 ? "" : " ") + access(cuda, got.pool, 0, flags);
  return spaces({answer, read(cuda, got.address)});
}

Answer host_access(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  std::string answer;
  for (CUmemLocation place :
       {location(0), location(0, CU_MEM_LOCATION_TYPE_HOST), location(0, CU_MEM_LOCATION_TYPE_HOST_NUMA)}) {
    auto flags = static_cast<CUmemAccess_flags>(9);
    const CUresult result = cuda->cuMemPoolGetAccess(&flags, got.pool, &place);
    answer += (answer.empty() ? "" : " ") + slashes({result, static_cast<int>(flags)});
  }
  return answer;
}

Answer host_reads(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  return *static_cast<const unsigned*>(as_pointer(got.address));
}

Answer peer_access(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  CUmemLocation second = location(1);
  auto inherited = static_cast<CUmemAccess_flags>(9);
  const CUresult asked = cuda->cuMemPoolGetAccess(&inherited, got.pool, &second);
  cuda.make_current(cuda.primary(1));
  const CUresult before = cuda->cuMemsetD8(got.address, 1, 64);
  const std::string set = access(cuda, got.pool, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return spaces({slashes({asked, static_cast<int>(inherited)}), before, set, cuda->cuMemsetD8(got.address, 1, 64),
                 cuda->cuCtxSynchronize(), access(cuda, got.pool, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE)});
}

// The pool is of the second device, and the importer has the first one's context current.
Answer from_the_first_device(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const CUresult before = cuda->cuMemsetD8(got.address, 1, 64);
  const std::string ordinal = told_of_pointer(cuda, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, got.address, got.pool);
  const std::string set = access(cuda, got.pool, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return spaces({before, ordinal, set, cuda->cuMemsetD8(got.address, 1, 64), cuda->cuCtxSynchronize()});
}

Answer destroy_while_used(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  return commas({cuda->cuMemPoolDestroy(got.pool), read(cuda, got.address), cuda->cuMemFree(got.address),
                 cuda->cuMemPoolDestroy(got.pool)});
}

Answer import_after_destroying(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  const CUmemPoolPtrExportData data = received_pointer(cuda, exporter.socket());
  const CUmemoryPool first = imported_pool(cuda, descriptor);
  CUdeviceptr address = 0;
  const CUresult once = import_pointer(cuda, first, data, address);
  const CUresult freed = cuda->cuMemFree(address);
  const CUresult destroyed = cuda->cuMemPoolDestroy(first);
  const CUresult again = import_pointer(cuda, imported_pool(cuda, descriptor), data, address);
  return commas({once, freed, destroyed, again, read(cuda, address)});
}

Answer export_again(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  int descriptor = -1;
  const CUresult pool =
      cuda->cuMemPoolExportToShareableHandle(&descriptor, got.pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  CUmemPoolPtrExportData data{};
  return commas({pool, cuda->cuMemPoolExportPointer(&data, got.address)});
}

Answer try_pointer(Environment& cuda, SecondProcess& exporter) {
  Imported got = imported_pool_of(cuda, exporter);
  return import_pointer(cuda, got.pool, got.data, got.address);
}

Answer read_after_turn(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const std::string before = read(cuda, got.address);
  take_turn(exporter);
  return commas({before, read(cuda, got.address), cuda->cuMemFree(got.address)});
}

Answer pointer_after_turn(Environment& cuda, SecondProcess& exporter) {
  Imported got = imported_pool_of(cuda, exporter);
  take_turn(exporter);
  const CUresult result = import_pointer(cuda, got.pool, got.data, got.address);
  return commas({result, cuda->cuMemPoolDestroy(got.pool)});
}

Answer pool_after_turn(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  static_cast<void>(received_pointer(cuda, exporter.socket()));
  take_turn(exporter);
  CUmemoryPool pool = nullptr;
  return cuda->cuMemPoolImportFromShareableHandle(&pool, as_os_handle(descriptor),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

Answer pool_after_death(Environment& cuda, SecondProcess& exporter) {
  const int descriptor = receive_descriptor(exporter.socket());
  const CUmemPoolPtrExportData data = received_pointer(cuda, exporter.socket());
  exporter.kill();
  CUmemoryPool pool = nullptr;
  const CUresult imported = cuda->cuMemPoolImportFromShareableHandle(&pool, as_os_handle(descriptor),
                                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (imported != CUDA_SUCCESS) return imported;
  CUdeviceptr address = 0;
  return commas({imported, import_pointer(cuda, pool, data, address)});
}

Answer pointer_after_death(Environment& cuda, SecondProcess& exporter) {
  Imported got = imported_pool_of(cuda, exporter);
  exporter.kill();
  const CUresult result = import_pointer(cuda, got.pool, got.data, got.address);
  if (result != CUDA_SUCCESS) return result;
  return commas({result, read(cuda, got.address)});
}

Answer read_after_death(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const std::string before = read(cuda, got.address);
  exporter.kill();
  return commas({before, read(cuda, got.address), cuda->cuMemFree(got.address), cuda->cuMemPoolDestroy(got.pool)});
}

Answer free_and_let_use_on(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  const CUresult freed = free_in_order(cuda, got.address);
  pass_turn(exporter.socket());
  const unsigned same = received_number(cuda, exporter.socket());
  return commas({freed, same == 0 ? "kept" : "lost", static_cast<CUresult>(received_number(cuda, exporter.socket()))});
}

Answer pointer_facts(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  std::string answer;
  for (const int attribute : {2, 3, 5, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19})
    answer += (answer.empty() ? "" : " ") + std::to_string(attribute) + "=" +
              told_of_pointer(cuda, attribute, got.address, got.pool);
  return answer;
}

Answer range(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult result = cuda->cuMemGetAddressRange(&base, &size, got.address + 8);
  return slashes({result, base == got.address ? "begin" : "other", size});
}

Answer other_handles(Environment& cuda, SecondProcess& exporter) {
  const Imported got = imported(cuda, exporter);
  CUipcMemHandle legacy{};
  CUmemGenericAllocationHandle handle = 0;
  return commas({cuda->cuIpcGetMemHandle(&legacy, got.address),
                 cuda->cuMemRetainAllocationHandle(&handle, as_pointer(got.address)),
                 cuda->cuMemUnmap(got.address, 4096)});
}

Answer memory_info(Environment& cuda, SecondProcess& exporter) {
  const auto free_bytes = [&] {
    std::size_t free = 0;
    cuda.expect("info", cuda->cuMemGetInfo(&free, nullptr));
    return free;
  };
  Imported got = imported_pool_of(cuda, exporter);
  const std::size_t before = free_bytes();
  cuda.expect("import pointer", import_pointer(cuda, got.pool, got.data, got.address));
  return (before - free_bytes()) / mebibyte;
}

}  // namespace

void add_process_pool_cases(Table& table) {
  using Exporter = void (*)(Environment&, int);
  using Importer = Answer (*)(Environment&, SecondProcess&);
  const auto add = [&](const std::string& what, Exporter exporter, Importer importer, Needs needs = needs_processes) {
    const auto both = [exporter, importer](Environment& cuda) -> Answer {
      SecondProcess other(cuda, exporter);
      if (auto failed = cuda.begin(Start::context)) return *failed;
      return importer(cuda, other);
    };
    table.add("pool_process." + what, both, needs);
  };
  add("read_and_free", offer, read_and_free);
  add("read_and_free_async", offer, read_and_free_async);
  add("free_inside", offer, free_inside);
  add("store", offer_and_look, store);
  add("33M", offer_bytes<33 * mebibyte>, read_both_ends<33 * mebibyte>);
  add("100M", offer_bytes<100 * mebibyte>, read_both_ends<100 * mebibyte>);
  add("1000_bytes", offer_bytes<1000>, read_both_ends<1000>);
  add("import_pool_twice", offer, import_pool_twice);
  add("import_pointer_twice", offer, import_pointer_twice);
  add("import_pointer_after_its_free", offer, import_pointer_after_its_free);
  add("two_pointers", offer_two, both_pointers);
  add("allocate", offer, allocate);
  add("attributes", offer, attributes);
  add("set_attributes", offer, set_attributes);
  add("counted", offer, counted);
  add("own_access", offer, own_access);
  add("host_access", offer, host_access);
  add("peer_access", offer, peer_access, needs_processes_and_two_devices);
  add("access_is_not_inherited", offer_open_to_second_device, peer_access, needs_processes_and_two_devices);
  add("of_second_device", offer_of_second_device, from_the_first_device, needs_processes_and_two_devices);
  add("destroy_while_used", offer, destroy_while_used);
  add("import_after_destroying", offer, import_after_destroying);
  add("export_again", offer, export_again);
  add("freed_before", offer_and_free, try_pointer);
  add("allocated_anew_before", offer_and_allocate_anew, try_pointer);
  add("destroyed_before", offer_and_destroy, try_pointer);
  add("freed_while_used", offer_and_free_in_turn, read_after_turn);
  add("destroyed_while_used", offer_and_destroy_in_turn, read_after_turn);
  add("all_ended_while_used", offer_and_end_all_in_turn, read_after_turn);
  add("freed_after_pool_was_imported", offer_and_free_in_turn, pointer_after_turn);
  add("destroyed_after_pool_was_imported", offer_and_destroy_in_turn, pointer_after_turn);
  add("all_ended_after_pool_was_imported", offer_and_end_all_in_turn, pointer_after_turn);
  add("all_ended_before_pool_is_imported", offer_and_end_all_in_turn, pool_after_turn);
  add("killed_before_pool_is_imported", offer, pool_after_death);
  add("killed_before_pointer_is_imported", offer, pointer_after_death);
  add("killed_while_used", offer, read_after_death);
  add("importers_free_is_its_own", offer_and_use_on, free_and_let_use_on);
  add("pointer_attributes", offer, pointer_facts);
  add("address_range", offer, range);
  add("other_handles", offer, other_handles);
  add("memory_info", offer, memory_info, Needs{Start::nothing, 1, true, true});
  add("of_host", offer_of_host, read_and_free);
  add("of_host_import_pointer_twice", offer_of_host, import_pointer_twice);
  add("of_host_access", offer_of_host, host_access);
  add("of_host_is_read_by_host", offer_of_host, host_reads);
  add("of_host_pointer_attributes", offer_of_host, pointer_facts);
}

}  // namespace cuvmm::conformance
