"""cuda.core's VirtualMemoryResource: policies, growth, peers, closing, errors."""

import ctypes
import os

import numpy
import pytest
from conftest import GRANULE, free_bytes, ok, read, write
from cuda.bindings import driver
from cuda.core import Device, VirtualMemoryResource, VirtualMemoryResourceOptions
from cuda.core._utils.cuda_utils import CUDAError

Access = driver.CUmemAccess_flags


def resource(device, **options):
    return VirtualMemoryResource(device, VirtualMemoryResourceOptions(**options))


def rights(buffer, device=0):
    place = driver.CUmemLocation()
    place.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = device
    return ok(driver.cuMemGetAccess(place, int(buffer.handle)))


def give_back(buffer):
    """Closes it. The resource keeps the handle that it created, which only its addresses lead to."""
    handle = ok(driver.cuMemRetainAllocationHandle(int(buffer.handle)))
    buffer.close()
    ok(driver.cuMemRelease(handle))
    ok(driver.cuMemRelease(handle))


def test_an_allocation_is_rounded_up_and_open_to_its_device(device):
    before = free_bytes()
    memory = resource(device)
    assert memory.is_device_accessible and not memory.is_host_accessible and memory.device_id == 0
    buffer = memory.allocate(GRANULE + 1)
    assert buffer.size == 2 * GRANULE and buffer.memory_resource is memory
    assert free_bytes() == before - 2 * GRANULE
    assert rights(buffer) == Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    stream = device.create_stream()
    buffer.fill(7, stream=stream)
    stream.sync()
    assert list(read(buffer.handle, 100)) == [7] * 100
    pointer = int(buffer.handle)
    give_back(buffer)
    assert buffer.is_closed and free_bytes() == before
    assert driver.cuMemsetD8(pointer, 0, 1)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE


def test_buffers_of_virtual_memory_are_copied(device):
    memory = resource(device)
    first, second = memory.allocate(GRANULE), memory.allocate(GRANULE)
    stream = device.create_stream()
    write(first.handle, numpy.arange(200))
    first.copy_to(second, stream=stream)
    stream.sync()
    assert (read(second.handle, 200) == numpy.arange(200)).all()
    first.fill(b"\x01\x02", stream=stream)
    second.copy_from(first, stream=stream)
    stream.sync()
    assert list(read(second.handle, 4)) == [1, 2, 1, 2]
    for buffer in (first, second):
        give_back(buffer)


@pytest.mark.parametrize("granularity", ["minimum", "recommended"])
@pytest.mark.parametrize("handle_type", [None, "posix_fd"])
@pytest.mark.parametrize("rdma", [False, True])
def test_policies_of_allocation(device, granularity, handle_type, rdma):
    buffer = resource(device, granularity=granularity, handle_type=handle_type, gpu_direct_rdma=rdma).allocate(100)
    assert buffer.size == GRANULE
    handle = ok(driver.cuMemRetainAllocationHandle(int(buffer.handle)))
    properties = ok(driver.cuMemGetAllocationPropertiesFromHandle(handle))
    assert bool(properties.allocFlags.gpuDirectRDMACapable) == rdma
    assert int(properties.requestedHandleTypes) == (1 if handle_type else 0)
    ok(driver.cuMemRelease(handle))
    give_back(buffer)


@pytest.mark.parametrize(
    "self_access, flags",
    [
        ("rw", Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        ("r", Access.CU_MEM_ACCESS_FLAGS_PROT_READ),
    ],
)
def test_policies_of_access(device, self_access, flags):
    buffer = resource(device, self_access=self_access).allocate(GRANULE)
    assert rights(buffer) == flags
    stored = driver.cuMemsetD8(int(buffer.handle), 1, 1)[0] == driver.CUresult.CUDA_SUCCESS
    assert stored == (self_access == "rw")
    ok(driver.cuCtxSynchronize())
    give_back(buffer)


@pytest.mark.parametrize(
    "peer_access, flags",
    [
        ("rw", Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        ("r", Access.CU_MEM_ACCESS_FLAGS_PROT_READ),
    ],
)
def test_peers_reach_the_memory(device, peer_access, flags):
    buffer = resource(device, peers=[1], peer_access=peer_access).allocate(GRANULE)
    assert rights(buffer, 1) == flags
    write(buffer.handle, [3] * 10)
    there = Device(1)
    there.set_current()
    assert list(read(buffer.handle, 10)) == [3] * 10
    stored = driver.cuMemsetD8(int(buffer.handle), 1, 1)[0] == driver.CUresult.CUDA_SUCCESS
    assert stored == (peer_access == "rw")
    ok(driver.cuCtxSynchronize())
    device.set_current()
    give_back(buffer)


def test_peers_that_were_not_named_do_not(device):
    buffer = resource(device).allocate(GRANULE)
    assert rights(buffer, 1) == Access.CU_MEM_ACCESS_FLAGS_PROT_NONE
    give_back(buffer)


def test_addresses_are_hinted_at_and_aligned(device):
    hint = int(ok(driver.cuMemAddressReserve(GRANULE, 0, 0, 0))) + (1 << 35)
    buffer = resource(device, addr_hint=hint).allocate(GRANULE)
    assert int(buffer.handle) == hint
    taken = resource(device, addr_hint=hint).allocate(GRANULE)
    assert int(taken.handle) != hint
    aligned = resource(device, addr_align=1 << 30).allocate(GRANULE)
    assert int(aligned.handle) % (1 << 30) == 0
    for each in (buffer, taken, aligned):
        give_back(each)
    ok(driver.cuMemAddressFree(hint - (1 << 35), GRANULE))


def test_growing_keeps_the_content(device):
    memory = resource(device, peers=[1])
    buffer = memory.allocate(2 * GRANULE)
    write(buffer.handle, numpy.arange(200))
    grown = memory.modify_allocation(buffer, 5 * GRANULE)
    assert grown.size == 5 * GRANULE
    assert (read(grown.handle, 200) == numpy.arange(200)).all()
    write(int(grown.handle) + 5 * GRANULE - 4, [1, 2, 3, 4])
    for place in (0, 3 * GRANULE):
        location = int(grown.handle) + place
        for ordinal in (0, 1):
            peer = driver.CUmemLocation()
            peer.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
            peer.id = ordinal
            assert ok(driver.cuMemGetAccess(peer, location)) == Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    grown.close()


def test_growing_moves_where_the_addresses_behind_are_taken(device):
    memory = resource(device)
    buffer = memory.allocate(GRANULE)
    write(buffer.handle, [4] * 10)
    old = int(buffer.handle)
    behind = ok(driver.cuMemAddressReserve(GRANULE, 0, old + GRANULE, 0))
    grown = memory.modify_allocation(buffer, 2 * GRANULE)
    assert int(grown.handle) not in (old, int(behind))
    assert list(read(grown.handle, 10)) == [4] * 10
    grown.close()
    ok(driver.cuMemAddressFree(behind, GRANULE))


def test_growing_that_moves_frees_the_old_addresses_twice(device, capfd):
    """What cuda.core warns of is its own: nothing is mapped there any more, and a driver says so."""
    memory = resource(device)
    buffer = memory.allocate(GRANULE)
    old = int(buffer.handle)
    capfd.readouterr()
    grown = memory.modify_allocation(buffer, 2 * GRANULE)
    told = "Warning: mr.deallocate() failed during Buffer destruction: CUDA_ERROR_INVALID_VALUE"
    assert told in capfd.readouterr().err
    assert driver.cuMemRetainAllocationHandle(old)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    again = ok(driver.cuMemAddressReserve(GRANULE, 0, old, 0))
    assert int(again) == old, "the addresses were given back once"
    ok(driver.cuMemAddressFree(again, GRANULE))
    grown.close()
    assert capfd.readouterr().err == ""


def test_growing_in_place_needs_the_addresses_behind(device):
    """What modify_allocation does where they are free, call by call."""
    memory = resource(device)
    buffer = memory.allocate(GRANULE)
    write(buffer.handle, [4] * 10)
    base = int(buffer.handle)
    more = ok(driver.cuMemAddressReserve(GRANULE, 0, base + GRANULE, 0))
    assert int(more) == base + GRANULE
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    grown = memory._grow_allocation_fast_path(buffer, 2 * GRANULE, properties, GRANULE, more)
    assert grown is buffer and int(grown.handle) == base and grown.size == 2 * GRANULE
    write(base + GRANULE - 2, [1, 2, 3, 4])  # over the seam
    assert list(read(base, 10)) == [4] * 10
    assert list(read(base + GRANULE - 2, 4)) == [1, 2, 3, 4]
    ok(driver.cuMemUnmap(base, 2 * GRANULE))
    for place in (base, base + GRANULE):
        ok(driver.cuMemAddressFree(place, GRANULE))
    buffer._size = 0


def test_growing_to_less_changes_rights_alone(device):
    memory = resource(device)
    buffer = memory.allocate(2 * GRANULE)
    same = memory.modify_allocation(buffer, GRANULE, VirtualMemoryResourceOptions(self_access="r"))
    assert same is buffer and buffer.size == 2 * GRANULE
    assert rights(buffer) == Access.CU_MEM_ACCESS_FLAGS_PROT_READ
    give_back(buffer)


def test_a_growth_that_fails_leaves_the_memory(device):
    """The rights have to be given anew: a mapping that is made again has none."""
    memory = resource(device)
    buffer = memory.allocate(GRANULE)
    write(buffer.handle, [5] * 10)
    with pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        memory.modify_allocation(buffer, 1 << 40)
    assert buffer.size == GRANULE
    memory.modify_allocation(buffer, GRANULE)
    assert list(read(buffer.handle, 10)) == [5] * 10
    give_back(buffer)


def test_too_much_is_refused_and_leaves_nothing(device):
    before = free_bytes()
    with pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        resource(device).allocate(1 << 40)
    with pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        resource(device).allocate(before + GRANULE)
    assert free_bytes() == before


@pytest.mark.parametrize(
    "options, refusal",
    [
        ({"handle_type": "fabric"}, "NOT_PERMITTED"),
        ({"handle_type": "win32_kmt"}, "INVALID_VALUE"),
        ({"allocation_type": "managed"}, "INVALID_VALUE"),
        ({"addr_hint": 12345}, "INVALID_VALUE"),
        ({"addr_align": 3}, "INVALID_VALUE"),
        ({"peers": [9]}, "INVALID_VALUE"),
        ({"location_type": "host_numa_current", "handle_type": None}, "INVALID_VALUE"),
    ],
)
def test_refusals_leave_nothing(device, options, refusal):
    before = free_bytes()
    with pytest.raises(CUDAError, match=refusal):
        resource(device, **options).allocate(GRANULE)
    assert free_bytes() == before


def test_win32_is_refused_before_the_driver_is_asked(device):
    with pytest.raises(NotImplementedError):
        resource(device, handle_type="win32").allocate(GRANULE)


def test_host_memory_is_reached_by_the_process(device):
    memory = resource(device, location_type="host", handle_type=None)
    assert memory.is_host_accessible and not memory.is_device_accessible and memory.device_id == -1
    buffer = memory.allocate(100)
    ctypes.memset(int(buffer.handle), 3, 100)
    assert (ctypes.c_uint8 * 4).from_address(int(buffer.handle))[:] == [3] * 4
    give_back(buffer)


def test_buffers_are_closed_once_and_by_leaving_scope(device):
    memory = resource(device)
    buffer = memory.allocate(GRANULE)
    pointer = int(buffer.handle)
    buffer.close()
    buffer.close()
    assert int(buffer.handle) == 0
    again = memory.allocate(GRANULE)
    pointer = int(again.handle)
    del again
    assert driver.cuMemsetD8(pointer, 0, 1)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(RuntimeError, match="closed"):
        memory.modify_allocation(buffer, GRANULE)


def test_a_buffer_can_be_exported(device):
    buffer = resource(device).allocate(GRANULE)
    write(buffer.handle, [8] * 10)
    handle = ok(driver.cuMemRetainAllocationHandle(int(buffer.handle)))
    kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    descriptor = ok(driver.cuMemExportToShareableHandle(handle, kind, 0))
    imported = ok(driver.cuMemImportFromShareableHandle(descriptor, kind))
    assert os.fstat(descriptor)
    os.close(descriptor)
    for each in (handle, imported):
        ok(driver.cuMemRelease(each))
    give_back(buffer)
