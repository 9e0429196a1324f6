"""cuda.core: memory pools, pinned and managed memory, buffers."""

import ctypes

import numpy
import pytest
from conftest import MEBIBYTE, free_bytes, ok, read, write
from cuda.bindings import driver
from cuda.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)
from cuda.core._utils.cuda_utils import CUDAError


@pytest.fixture
def stream(core_stream):
    return core_stream


def own_pool(device, **options):
    return DeviceMemoryResource(device, DeviceMemoryResourceOptions(**options))


def test_a_device_has_a_memory_resource(device, stream):
    memory = device.memory_resource
    assert memory.device_id == 0 and memory.is_device_accessible and not memory.is_host_accessible
    buffer = device.allocate(1000, stream=stream)
    assert buffer.size == 1000 and buffer.device_id == 0
    buffer.fill(9, stream=stream)
    stream.sync()
    assert list(read(buffer.handle, 1000)) == [9] * 1000
    buffer.close()


def test_a_closed_buffers_memory_goes_with_its_stream(device, stream):
    memory = own_pool(device)
    buffer = memory.allocate(4096, stream=stream)
    pointer = int(buffer.handle)
    assert memory.attributes.used_mem_current >= 4096
    assert memory.attributes.reserved_mem_current >= memory.attributes.used_mem_current
    buffer.close(stream)
    stream.sync()
    assert memory.attributes.used_mem_current == 0
    assert memory.attributes.used_mem_high >= 4096
    assert driver.cuMemsetD8(pointer, 0, 1)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    memory.close()


def test_pools_have_attributes(device):
    memory = own_pool(device)
    attributes = memory.attributes
    assert attributes.reuse_follow_event_dependencies
    assert attributes.reuse_allow_opportunistic
    assert attributes.reuse_allow_internal_dependencies
    assert attributes.release_threshold in (0, 2**64 - 1)
    assert attributes.used_mem_current == attributes.reserved_mem_current == 0
    assert "used_mem_high" in repr(attributes)
    memory.close()


def test_attributes_are_told_one_by_one(device, stream):
    memory = own_pool(device)
    buffer = memory.allocate(10000, stream=stream)
    attributes = memory.attributes
    assert (attributes.used_mem_current, attributes.used_mem_high) == (10000, 10000)
    assert (attributes.reserved_mem_current, attributes.reserved_mem_high) == (32 * MEBIBYTE, 32 * MEBIBYTE)
    buffer.close(stream)
    assert (attributes.used_mem_current, attributes.used_mem_high) == (0, 10000)
    with pytest.raises(AttributeError):
        attributes.used_mem_high = 0
    stream.sync()
    memory.close()


@pytest.mark.parametrize(
    "make",
    [
        lambda device: device.memory_resource,
        own_pool,
        lambda device: PinnedMemoryResource(),
        lambda device: ManagedMemoryResource(),
    ],
)
def test_a_buffer_may_be_empty(device, stream, make):
    buffer = make(device).allocate(0, stream=stream)
    assert (int(buffer.handle), buffer.size) == (0, 0)
    buffer.close(stream)


def test_the_same_stream_has_the_same_memory_again(device, stream):
    memory = own_pool(device)
    first = memory.allocate(5000, stream=stream)
    pointer = int(first.handle)
    first.close(stream)
    second = memory.allocate(5000, stream=stream)
    assert int(second.handle) == pointer
    second.close(stream)
    memory.close()


def test_the_default_pool_is_every_resources(device, stream):
    one, other = DeviceMemoryResource(device), DeviceMemoryResource(device)
    assert int(one.handle) == int(other.handle) == int(ok(driver.cuDeviceGetDefaultMemPool(0)))
    used = one.attributes.used_mem_current
    buffer = one.allocate(1000, stream=stream)
    assert other.attributes.used_mem_current == used + 1000
    other_stream = device.create_stream()
    event = stream.record()
    other_stream.wait(event)
    buffer.close(other_stream)
    other_stream.sync()
    assert other.attributes.used_mem_current == used


def test_pools_have_a_limit(device, stream):
    memory = own_pool(device, max_size=2 * MEBIBYTE)  # which is rounded up to 32
    buffer = memory.allocate(MEBIBYTE, stream=stream)
    with pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        memory.allocate(34 * MEBIBYTE, stream=stream)
    buffer.close(stream)
    memory.close()


def test_peers_are_let_in(device, stream):
    memory = own_pool(device)
    buffer = memory.allocate(64, stream=stream)
    stream.sync()
    assert list(memory.peer_accessible_by) == []
    there = Device(1)
    there.set_current()
    assert driver.cuMemsetD8(int(buffer.handle), 4, 64)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    memory.peer_accessible_by = [1]
    assert [each.device_id for each in memory.peer_accessible_by] == [1]
    ok(driver.cuMemsetD8(int(buffer.handle), 4, 64))
    ok(driver.cuCtxSynchronize())
    memory.peer_accessible_by = []
    assert driver.cuMemsetD8(int(buffer.handle), 4, 64)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
    device.set_current()
    assert list(read(buffer.handle, 4)) == [4] * 4
    buffer.close(stream)
    memory.close()


def test_buffers_are_copied_and_filled(device, stream):
    memory = device.memory_resource
    first, second = (memory.allocate(1024, stream=stream) for _ in range(2))
    for value, expected in ((3, [3] * 4), (b"\x01\x02", [1, 2, 1, 2]), (b"\x01\x02\x03\x04", [1, 2, 3, 4])):
        first.fill(value, stream=stream)
        first.copy_to(second, stream=stream)
        stream.sync()
        assert list(read(second.handle, 4)) == expected
    third = second.copy_to(stream=stream)
    stream.sync()
    assert (read(third.handle, 1024) == read(first.handle, 1024)).all()
    with pytest.raises(ValueError):
        first.copy_from(memory.allocate(10, stream=stream), stream=stream)
    for buffer in (first, second, third):
        buffer.close(stream)


def default_host_pool():
    host = driver.CUmemLocation()
    host.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
    return ok(driver.cuMemGetDefaultMemPool(host, driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED))


def let_in(pool):
    """Lets device 0 use the pool's memory."""
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemPoolSetAccess(pool, [access], 1))


def test_pinned_memory_is_reached_by_both(device, stream):
    memory = PinnedMemoryResource()
    assert memory.is_host_accessible and memory.is_device_accessible
    host = memory.allocate(4096, stream=stream)
    stream.sync()
    with pytest.raises(CUDAError, match="INVALID_VALUE"):
        host.fill(5, stream=stream)
    let_in(default_host_pool())
    seen = numpy.from_dlpack(host)
    seen[:] = 7
    there = device.memory_resource.allocate(4096, stream=stream)
    there.copy_from(host, stream=stream)
    stream.sync()
    assert list(read(there.handle, 4)) == [7] * 4
    host.fill(5, stream=stream)
    stream.sync()
    assert (ctypes.c_uint8 * 4).from_address(int(host.handle))[:] == [5] * 4
    del seen
    for buffer in (host, there):
        buffer.close(stream)


def test_pinned_memory_of_a_node(device, stream):
    memory = PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id=0, max_size=2 * MEBIBYTE))
    assert memory.numa_id == 0
    buffer = memory.allocate(100, stream=stream)
    stream.sync()
    ctypes.memset(int(buffer.handle), 1, 100)
    buffer.close(stream)
    stream.sync()
    memory.close()


def test_pinned_memory_of_cuMemAllocHost(device, stream):
    buffer = LegacyPinnedMemoryResource().allocate(100, stream=stream)
    assert buffer.is_host_accessible and buffer.is_device_accessible
    ctypes.memset(int(buffer.handle), 1, 100)
    buffer.close(stream)


@pytest.mark.parametrize("options", [None, {"preferred_location": 0}, {"preferred_location": -1}])
def test_managed_memory_is_reached_by_both(device, stream, options):
    memory = ManagedMemoryResource(options)
    assert memory.is_host_accessible and memory.is_device_accessible
    buffer = memory.allocate(4096, stream=stream)
    assert buffer.is_managed
    buffer.fill(5, stream=stream)
    stream.sync()
    assert (ctypes.c_uint8 * 4).from_address(int(buffer.handle))[:] == [5] * 4
    ctypes.memset(int(buffer.handle), 6, 4)
    assert list(read(buffer.handle, 5)) == [6] * 4 + [5]
    buffer.close(stream)


def test_foreign_pointers_are_recognised(device, stream):
    host = (ctypes.c_uint8 * 100)()
    buffer = Buffer.from_handle(ctypes.addressof(host), 100, owner=host)
    assert buffer.is_host_accessible and not buffer.is_device_accessible and buffer.device_id == -1
    managed = ok(driver.cuMemAllocManaged(100, 1))
    buffer = Buffer.from_handle(managed, 100)
    assert buffer.is_host_accessible and buffer.is_device_accessible and buffer.is_managed
    ok(driver.cuMemFree(managed))
    pooled = Device(0).memory_resource.allocate(100, stream=stream)
    buffer = Buffer.from_handle(int(pooled.handle), 100)
    assert buffer.is_device_accessible and not buffer.is_host_accessible and buffer.device_id == 0
    pooled.close(stream)


def test_foreign_host_memory_is_of_the_device_that_was_current(device):
    own = (ctypes.c_uint8 * 100)()
    Device(1).set_current()
    pinned, managed = ok(driver.cuMemAllocHost(100)), ok(driver.cuMemAllocManaged(100, 1))
    ok(driver.cuMemHostRegister(ctypes.addressof(own), 100, 0))
    device.set_current()
    for pointer in (pinned, managed, ctypes.addressof(own)):
        buffer = Buffer.from_handle(int(pointer), 100)
        assert buffer.is_host_accessible and buffer.is_device_accessible and buffer.device_id == 1
    ok(driver.cuMemHostUnregister(ctypes.addressof(own)))
    ok(driver.cuMemFreeHost(pinned))
    ok(driver.cuMemFree(managed))


def test_too_much_is_refused(device, stream):
    before = free_bytes()
    with pytest.raises(CUDAError, match="OUT_OF_MEMORY"):
        device.memory_resource.allocate(1 << 40, stream=stream)
    assert free_bytes() >= before  # the pool has given back what it does not use
    buffer = device.memory_resource.allocate(MEBIBYTE, stream=stream)
    write(buffer.handle, [1])
    buffer.close(stream)
