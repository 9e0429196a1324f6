// Two devices: grants, copies and contexts across them.
#include <vector>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

void add(Table& table, const char* id, CaseFunction function) {
  table.add(id, std::move(function), needs_two_devices);
}

std::string ordinal(Environment& cuda, CUdeviceptr address) {
  unsigned value = 0;
  const CUresult result = cuda->cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  return slashes({result, value});
}

// Memory of `device` in a new mapping, granted to the devices of `grants`.
CUdeviceptr mapped_on(Environment& cuda, int device, std::initializer_list<CUmemAccessDesc> grants) {
  const CUdeviceptr address = cuda.mapped(granule, 0, device_memory(device));
  if (grants.size() != 0) cuda.expect("access", cuda->cuMemSetAccess(address, granule, grants.begin(), grants.size()));
  return address;
}

void add_grants(Table& table) {
  add(table, "peer.access", [](Environment& cuda) {
    const CUdeviceptr address = cuda.mapped(granule, 0);
    const CUmemAccessDesc both[] = {access_of(0), access_of(1)};
    return spaces({cuda->cuMemSetAccess(address, granule, both, 2), cuda.access(address, 0), cuda.access(address, 1)});
  });
  add(table, "peer.revoke", [](Environment& cuda) {
    const CUdeviceptr address = mapped_on(cuda, 0, {access_of(0), access_of(1)});
    const CUmemAccessDesc none = access_of(1, 0);
    return spaces({cuda->cuMemSetAccess(address, granule, &none, 1), cuda.access(address, 0), cuda.access(address, 1)});
  });
  add(table, "peer.stitched", [](Environment& cuda) {
    const CUdeviceptr address = cuda.reserve(2 * granule);
    cuda.map_new(address, granule, device_memory(0));
    cuda.map_new(address + granule, granule, device_memory(1));
    const CUmemAccessDesc both[] = {access_of(0), access_of(1)};
    const CUresult granted = cuda->cuMemSetAccess(address, 2 * granule, both, 2);
    const std::vector<char> bytes(2 * granule, 7);
    const CUresult copied = cuda->cuMemcpyHtoD(address, bytes.data(), bytes.size());
    unsigned char last = 0;
    cuda.expect("read", cuda->cuMemcpyDtoH(&last, address + 2 * granule - 1, 1));
    return spaces({commas({granted, slashes({copied, static_cast<int>(last)})}), ordinal(cuda, address),
                   ordinal(cuda, address + granule)});
  });
  add(table, "peer.create_from_other_ctx",
      [](Environment& cuda) { return cuda.access(mapped_on(cuda, 1, {access_of(1)}), 1); });
  add(table, "peer.import_on_other", [](Environment& cuda) {
    const Exported exported = cuda.export_new();
    cuda.make_current(cuda.primary(1));
    CUmemGenericAllocationHandle handle = 0;
    const CUresult imported = cuda.import(exported.descriptor, handle);
    const CUdeviceptr address = cuda.reserve(granule);
    cuda.map(address, granule, handle);
    const CUmemAccessDesc access = access_of(1);
    const CUresult granted = cuda->cuMemSetAccess(address, granule, &access, 1);
    CUmemAllocationProp seen{};
    cuda.expect("properties", cuda->cuMemGetAllocationPropertiesFromHandle(&seen, handle));
    return spaces({commas({imported, granted}), "loc=" + std::to_string(seen.location.id)});
  });
  add(table, "peer.owner_read_only_peer_read_write", [](Environment& cuda) {
    const CUdeviceptr address = mapped_on(cuda, 0, {access_of(0, 1), access_of(1, 3)});
    return spaces({cuda.access(address, 0), cuda.access(address, 1), cuda->cuMemsetD8(address, 1, 4)});
  });
}

// Copies by the context of device 0 of memory that one or the other device may touch.
void add_copies(Table& table) {
  add(table, "peer.copy_granted_to_peer_only", [](Environment& cuda) {
    const CUdeviceptr address = mapped_on(cuda, 0, {access_of(1)});
    unsigned word = 1;
    const std::string by_owner = commas({cuda->cuMemcpyHtoD(address, &word, 4), cuda->cuMemcpyDtoH(&word, address, 4)});
    cuda.make_current(cuda.primary(1));
    return spaces({by_owner, commas({cuda->cuMemcpyHtoD(address, &word, 4), cuda->cuMemcpyDtoH(&word, address, 4)})});
  });
  add(table, "peer.copy_of_peer_memory_granted_to_peer", [](Environment& cuda) {
    const CUdeviceptr address = mapped_on(cuda, 1, {access_of(1)});
    unsigned word = 1;
    return commas({cuda->cuMemcpyHtoD(address, &word, 4), cuda->cuMemcpyDtoH(&word, address, 4),
                   cuda->cuMemsetD8(address, 1, 4)});
  });
  add(table, "peer.copy_of_peer_memory_granted_to_us", [](Environment& cuda) {
    const CUdeviceptr address = mapped_on(cuda, 1, {access_of(0)});
    unsigned word = 1;
    return commas({cuda->cuMemcpyHtoD(address, &word, 4), cuda->cuMemcpyDtoH(&word, address, 4),
                   cuda->cuMemsetD8(address, 1, 4)});
  });
  add(table, "peer.dtod_each_granted_to_owner", [](Environment& cuda) {
    const CUdeviceptr here = mapped_on(cuda, 0, {access_of(0)});
    const CUdeviceptr there = mapped_on(cuda, 1, {access_of(1)});
    return commas(
        {cuda->cuMemcpyDtoD(there, here, 64), cuda->cuMemcpyDtoD(here, there, 64), cuda->cuMemcpy(there, here, 64)});
  });
  add(table, "peer.dtod_both_granted_to_us", [](Environment& cuda) {
    const CUdeviceptr here = mapped_on(cuda, 0, {access_of(0)});
    const CUdeviceptr there = mapped_on(cuda, 1, {access_of(0)});
    return commas({cuda->cuMemcpyDtoD(there, here, 64), cuda->cuMemcpyDtoD(here, there, 64)});
  });
  add(table, "peer.dtod_both_granted_to_both", [](Environment& cuda) {
    const CUdeviceptr here = mapped_on(cuda, 0, {access_of(0), access_of(1)});
    const CUdeviceptr there = mapped_on(cuda, 1, {access_of(0), access_of(1)});
    cuda.write_word(here, 31);
    const CUresult result = cuda->cuMemcpyDtoD(there, here, 64);
    return slashes({result, cuda.read_word(there)});
  });
  add(table, "peer.memcpy_peer_each_granted_to_owner", [](Environment& cuda) {
    const CUcontext other = cuda.primary(1);
    const CUdeviceptr here = mapped_on(cuda, 0, {access_of(0)});
    const CUdeviceptr there = mapped_on(cuda, 1, {access_of(1)});
    return commas({cuda->cuMemcpyPeer(there, other, here, cuda.context(), 64),
                   cuda->cuMemcpyPeer(here, cuda.context(), there, other, 64)});
  });
  add(table, "peer.memcpy_peer_contexts_swapped", [](Environment& cuda) {
    const CUcontext other = cuda.primary(1);
    const CUdeviceptr here = mapped_on(cuda, 0, {access_of(0)});
    const CUdeviceptr there = mapped_on(cuda, 1, {access_of(1)});
    return cuda->cuMemcpyPeer(there, cuda.context(), here, other, 64);
  });
}

// Ordinary allocations: do they need cuCtxEnablePeerAccess?
void add_allocations(Table& table) {
  add(table, "peer.allocation_without_peer_access", [](Environment& cuda) {
    const CUdeviceptr here = cuda.allocate();
    const CUcontext other = cuda.primary(1);
    cuda.make_current(other);
    const CUdeviceptr there = cuda.allocate();
    cuda.make_current(cuda.context());
    unsigned word = 1;
    return commas({cuda->cuMemcpyHtoD(there, &word, 4), cuda->cuMemsetD8(there, 1, 4),
                   cuda->cuMemcpyDtoD(here, there, 4), cuda->cuMemcpyDtoD(there, here, 4),
                   cuda->cuMemcpyPeer(here, cuda.context(), there, other, 4)});
  });
  add(table, "peer.free_from_other_device", [](Environment& cuda) {
    const CUdeviceptr here = cuda.allocate();
    cuda.make_current(cuda.primary(1));
    return cuda->cuMemFree(here);
  });
  add(table, "peer.allocation_ordinals", [](Environment& cuda) {
    const CUdeviceptr here = cuda.allocate();
    cuda.make_current(cuda.primary(1));
    return spaces({ordinal(cuda, here), ordinal(cuda, cuda.allocate())});
  });
  add(table, "peer.host_alloc_seen_by_both", [](Environment& cuda) {
    const CUdeviceptr host = as_address(cuda.allocate_host());
    cuda.make_current(cuda.primary(1));
    return cuda->cuMemsetD8(host, 1, 4);
  });
}

void add_peer_access(Table& table) {
  add(table, "peer.can_access", [](Environment& cuda) {
    int forth = -1;
    int back = -1;
    const CUresult first = cuda->cuDeviceCanAccessPeer(&forth, 0, 1);
    const CUresult second = cuda->cuDeviceCanAccessPeer(&back, 1, 0);
    return spaces({slashes({first, forth}), slashes({second, back})});
  });
  for (const int attribute : {1, 2, 3, 4})
    table.add(
        "peer.p2p_attribute_" + std::to_string(attribute),
        [attribute](Environment& cuda) {
          int value = -1;
          const CUresult result =
              cuda->cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(attribute), 0, 1);
          return slashes({result, value});
        },
        needs_two_devices);
  add(table, "peer.enable_twice", [](Environment& cuda) {
    const CUcontext other = cuda.primary(1);
    return commas({cuda->cuCtxEnablePeerAccess(other, 0), cuda->cuCtxEnablePeerAccess(other, 0)});
  });
  add(table, "peer.enable_flags", [](Environment& cuda) { return cuda->cuCtxEnablePeerAccess(cuda.primary(1), 1); });
  add(table, "peer.enable_released_primary", [](Environment& cuda) {
    const CUcontext other = cuda.primary(1);
    cuda.expect("release", cuda->cuDevicePrimaryCtxRelease(1));
    return cuda->cuCtxEnablePeerAccess(other, 0);
  });
  add(table, "peer.disable_not_enabled",
      [](Environment& cuda) { return cuda->cuCtxDisablePeerAccess(cuda.primary(1)); });
  add(table, "peer.enable_disable", [](Environment& cuda) {
    const CUcontext other = cuda.primary(1);
    return commas({cuda->cuCtxEnablePeerAccess(other, 0), cuda->cuCtxDisablePeerAccess(other),
                   cuda->cuCtxDisablePeerAccess(other)});
  });
  add(table, "peer.grant_needs_no_enabling", [](Environment& cuda) {
    const CUcontext other = cuda.primary(1);
    const CUdeviceptr address = mapped_on(cuda, 0, {access_of(1)});
    const CUresult disabled = cuda->cuCtxDisablePeerAccess(other);
    cuda.make_current(other);
    return commas({disabled, cuda->cuMemsetD8(address, 1, 4)});
  });
}

void add_streams(Table& table) {
  add(table, "peer.stream_of_other_device", [](Environment& cuda) {
    const CUdeviceptr here = cuda.mapped();
    const CUdeviceptr there = mapped_on(cuda, 1, {access_of(1)});
    cuda.make_current(cuda.primary(1));
    const CUstream stream = cuda.stream();
    cuda.make_current(cuda.context());
    return commas({cuda->cuMemsetD8Async(there, 1, 4, stream), cuda->cuMemsetD8Async(here, 1, 4, stream),
                   cuda->cuStreamSynchronize(stream)});
  });
  add(table, "peer.wait_event_of_other_device", [](Environment& cuda) {
    const CUevent event = cuda.event();
    const CUstream stream = cuda.stream();
    cuda.expect("record", cuda->cuEventRecord(event, stream));
    cuda.make_current(cuda.primary(1));
    const CUstream other = cuda.stream();
    return commas({cuda->cuStreamWaitEvent(other, event, 0), cuda->cuEventRecord(event, other)});
  });
}

}  // namespace

void add_peer_cases(Table& table) {
  add_grants(table);
  add_copies(table);
  add_allocations(table);
  add_peer_access(table);
  add_streams(table);
}

}  // namespace cuvmm::conformance
