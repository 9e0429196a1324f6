"""cuda.bindings.driver: memory pools, and memory allocated and freed in the order of a stream."""

import numpy
import pytest
from conftest import MEBIBYTE, code, free_bytes, ok, read, write
from cuda.bindings import driver

Attribute = driver.CUmemPool_attribute
Access = driver.CUmemAccess_flags
Location = driver.CUmemLocationType
Pointer = driver.CUpointer_attribute


def properties(device=0, most=0, handle_types=0):
    made = driver.CUmemPoolProps()
    made.allocType = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = Location.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = device
    made.maxSize = most
    made.handleTypes = driver.CUmemAllocationHandleType(handle_types)
    return made


def number(pool, attribute):
    return int(ok(driver.cuMemPoolGetAttribute(pool, attribute)))


def set_number(pool, attribute, value):
    kind = driver.cuuint64_t if int(attribute) >= 4 else int
    return driver.cuMemPoolSetAttribute(pool, attribute, kind(value))


def used(pool):
    return number(pool, Attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)


def reserved(pool):
    return number(pool, Attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)


@pytest.fixture
def pool():
    made = ok(driver.cuMemPoolCreate(properties()))
    yield made
    ok(driver.cuMemPoolDestroy(made))


@pytest.fixture
def held(stream):
    """A stream whose work waits, and the function that lets it go on."""
    flag = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemsetD8(flag, 0, 64))
    ok(driver.cuCtxSynchronize())
    ok(driver.cuStreamWaitValue32(stream, flag, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    other = ok(driver.cuStreamCreate(1))

    def let_go():
        ok(driver.cuStreamWriteValue32(other, flag, 1, 0))
        ok(driver.cuStreamSynchronize(stream))

    yield stream, let_go
    let_go()
    ok(driver.cuStreamDestroy(other))
    ok(driver.cuMemFree(flag))


def test_each_device_has_a_default_pool():
    first, second = (ok(driver.cuDeviceGetDefaultMemPool(device)) for device in (0, 1))
    assert int(first) != int(second)
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(first)
    assert code(driver.cuDeviceGetDefaultMemPool(2)) == "INVALID_DEVICE"
    assert code(driver.cuMemPoolDestroy(first)) == "INVALID_VALUE"


def test_a_devices_pool_can_be_another_until_that_is_destroyed():
    standard = ok(driver.cuDeviceGetDefaultMemPool(0))
    pool = ok(driver.cuMemPoolCreate(properties()))
    ok(driver.cuDeviceSetMemPool(0, pool))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(pool)
    assert code(driver.cuDeviceSetMemPool(1, pool)) == "INVALID_VALUE"
    ok(driver.cuMemPoolDestroy(pool))
    assert int(ok(driver.cuDeviceGetMemPool(0))) == int(standard)
    assert code(driver.cuMemPoolDestroy(pool)) == "INVALID_VALUE"


@pytest.mark.parametrize(
    "made, answer",
    [
        (properties(handle_types=2), "INVALID_VALUE"),
        (properties(device=5), "INVALID_VALUE"),
        (properties(most=1 << 50), "OUT_OF_MEMORY"),
    ],
)
def test_create_refuses(made, answer):
    assert code(driver.cuMemPoolCreate(made)) == answer


@pytest.mark.parametrize("handle_types", [1, 8])
def test_pools_are_made_for_any_way_to_share_them(handle_types):
    ok(driver.cuMemPoolDestroy(ok(driver.cuMemPoolCreate(properties(handle_types=handle_types)))))


def test_memory_is_in_use_until_its_free_is_asked_for(pool, held):
    stream, let_go = held
    pointer = ok(driver.cuMemAllocFromPoolAsync(1000, pool, stream))
    assert int(ok(driver.cuPointerGetAttribute(Pointer.CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer))) == int(pool)
    assert int(ok(driver.cuPointerGetAttribute(Pointer.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer))) == 0
    assert (used(pool), reserved(pool)) == (1000, 32 * MEBIBYTE)
    ok(driver.cuMemsetD8Async(pointer, 5, 1000, stream))
    ok(driver.cuMemFreeAsync(pointer, stream))
    assert (used(pool), reserved(pool)) == (0, 32 * MEBIBYTE)
    assert code(driver.cuMemFreeAsync(pointer, stream)) == "INVALID_VALUE"
    assert int(ok(driver.cuMemAllocFromPoolAsync(1000, pool, stream))) == int(pointer)
    ok(driver.cuMemFreeAsync(pointer, stream))
    let_go()
    assert (used(pool), reserved(pool)) == (0, 0)
    assert number(pool, Attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 1000


def test_freed_memory_cannot_be_touched(stream):
    pointer = ok(driver.cuMemAllocAsync(64, stream))
    ok(driver.cuMemsetD8Async(pointer, 5, 64, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert list(read(pointer, 64)) == [5] * 64
    ok(driver.cuMemFreeAsync(pointer, stream))
    ok(driver.cuStreamSynchronize(stream))
    content = numpy.zeros(64, numpy.uint8)
    assert code(driver.cuMemcpyDtoH(content.ctypes.data, pointer, 64)) == "INVALID_VALUE"
    assert code(driver.cuMemsetD8Async(pointer, 5, 64, stream)) == "INVALID_VALUE"


def test_what_is_freed_serves_what_comes_later_in_the_stream(pool, held):
    """Twice more than the device has, at once in flight."""
    stream, let_go = held
    size = free_bytes() * 3 // 5
    first = ok(driver.cuMemAllocFromPoolAsync(size, pool, stream))
    ok(driver.cuMemsetD8Async(first, 1, 16, stream))
    ok(driver.cuMemFreeAsync(first, stream))
    second = ok(driver.cuMemAllocFromPoolAsync(size, pool, stream))
    ok(driver.cuMemsetD8Async(second, 2, 16, stream))
    assert code(driver.cuMemAllocFromPoolAsync(size, pool, stream)) == "OUT_OF_MEMORY"
    let_go()
    assert list(read(second, 16)) == [2] * 16
    ok(driver.cuMemFreeAsync(second, stream))
    ok(driver.cuStreamSynchronize(stream))


def test_another_stream_waits_for_the_free_or_does_without(pool, held):
    stream, let_go = held
    other = ok(driver.cuStreamCreate(1))
    size = free_bytes() * 3 // 5
    internal = Attribute.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
    first = ok(driver.cuMemAllocFromPoolAsync(size, pool, stream))
    ok(driver.cuMemFreeAsync(first, stream))
    ok(set_number(pool, internal, 0))
    assert code(driver.cuMemAllocFromPoolAsync(size, pool, other)) == "OUT_OF_MEMORY"
    ok(set_number(pool, internal, 1))
    second = ok(driver.cuMemAllocFromPoolAsync(size, pool, other))
    assert code(driver.cuStreamQuery(other)) == "NOT_READY"
    let_go()
    ok(driver.cuStreamSynchronize(other))
    ok(driver.cuMemFreeAsync(second, other))
    ok(driver.cuStreamSynchronize(other))
    ok(driver.cuStreamDestroy(other))


def test_unused_memory_goes_back_above_the_threshold(pool, stream):
    before = free_bytes()
    pointer = ok(driver.cuMemAllocFromPoolAsync(1000, pool, stream))
    assert free_bytes() == before - reserved(pool) and reserved(pool) >= 1000
    ok(driver.cuMemFreeAsync(pointer, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (reserved(pool), free_bytes()) == (0, before)
    ok(set_number(pool, Attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 1 << 40))
    pointer = ok(driver.cuMemAllocFromPoolAsync(1000, pool, stream))
    ok(driver.cuMemFreeAsync(pointer, stream))
    ok(driver.cuStreamSynchronize(stream))
    kept = reserved(pool)
    assert kept > 0
    ok(driver.cuMemPoolTrimTo(pool, kept))
    assert reserved(pool) == kept
    ok(driver.cuMemPoolTrimTo(pool, 0))
    assert (reserved(pool), free_bytes()) == (0, before)


def test_a_pool_has_a_limit(stream):
    pool = ok(driver.cuMemPoolCreate(properties(most=33 * MEBIBYTE)))
    pointer = ok(driver.cuMemAllocFromPoolAsync(33 * MEBIBYTE, pool, stream))
    assert code(driver.cuMemAllocFromPoolAsync(33 * MEBIBYTE, pool, stream)) == "OUT_OF_MEMORY"
    ok(driver.cuMemFreeAsync(pointer, stream))
    pointer = ok(driver.cuMemAllocFromPoolAsync(33 * MEBIBYTE, pool, stream))
    ok(driver.cuMemPoolDestroy(pool))
    write(pointer, [1] * 100)  # the pool lives on until its last allocation is freed
    ok(driver.cuMemFreeAsync(pointer, stream))
    ok(driver.cuStreamSynchronize(stream))


def test_attributes_are_kept(pool):
    for attribute in list(Attribute)[:3]:
        assert number(pool, attribute) == 1
        ok(set_number(pool, attribute, 0))
        assert number(pool, attribute) == 0
    assert number(pool, Attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 0
    ok(set_number(pool, Attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 123))
    assert number(pool, Attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 123
    for attribute in (Attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH, Attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH):
        ok(set_number(pool, attribute, 0))
        assert code(set_number(pool, attribute, 1)) == "INVALID_VALUE"
    assert code(set_number(pool, Attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 0)) == "INVALID_VALUE"


def test_peers_are_let_in(pool, stream):
    def access(device, flags):
        made = driver.CUmemAccessDesc()
        made.location.type = Location.CU_MEM_LOCATION_TYPE_DEVICE
        made.location.id = device
        made.flags = flags
        return made

    peer = access(1, Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    assert ok(driver.cuMemPoolGetAccess(pool, peer.location)) == Access.CU_MEM_ACCESS_FLAGS_PROT_NONE
    pointer = ok(driver.cuMemAllocFromPoolAsync(64, pool, stream))
    ok(driver.cuStreamSynchronize(stream))
    there = ok(driver.cuDevicePrimaryCtxRetain(1))
    ok(driver.cuCtxPushCurrent(there))
    assert code(driver.cuMemsetD8(pointer, 1, 64)) == "INVALID_VALUE"
    ok(driver.cuMemPoolSetAccess(pool, [peer], 1))
    assert ok(driver.cuMemPoolGetAccess(pool, peer.location)) == Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(driver.cuMemsetD8(pointer, 1, 64))
    ok(driver.cuCtxSynchronize())
    ok(driver.cuCtxPopCurrent())
    ok(driver.cuDevicePrimaryCtxRelease(1))
    own = access(0, Access.CU_MEM_ACCESS_FLAGS_PROT_NONE)
    assert code(driver.cuMemPoolSetAccess(pool, [own], 1)) == "INVALID_DEVICE"
    read_only = access(1, Access.CU_MEM_ACCESS_FLAGS_PROT_READ)
    assert code(driver.cuMemPoolSetAccess(pool, [read_only], 1)) == "NOT_SUPPORTED"
    ok(driver.cuMemFreeAsync(pointer, stream))


def test_cuMemFree_frees_memory_of_a_pool_at_once(pool, stream):
    pointer = ok(driver.cuMemAllocFromPoolAsync(64, pool, stream))
    ok(driver.cuStreamSynchronize(stream))
    ok(driver.cuMemFree(pointer))
    assert (used(pool), reserved(pool)) == (64, 0)
    assert code(driver.cuMemFree(pointer)) == "INVALID_VALUE"


def test_nothing_is_at_address_zero(pool, stream):
    assert int(ok(driver.cuMemAllocFromPoolAsync(0, pool, stream))) == 0
    ok(driver.cuMemFreeAsync(0, stream))


def test_memory_of_cuMemAlloc_is_freed_in_a_stream(stream):
    heap = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemsetD8Async(heap, 1, 64, stream))
    ok(driver.cuMemFreeAsync(heap, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert code(driver.cuMemFree(heap)) == "INVALID_VALUE"


def test_wrong_arguments(pool, stream):
    assert code(driver.cuMemAllocFromPoolAsync(64, 12345, stream)) == "INVALID_VALUE"
    assert code(driver.cuMemAllocFromPoolAsync(64, pool, 12345)) == "INVALID_HANDLE"
