"""cuda.bindings.driver: every call of virtual memory management, with right and with wrong arguments."""

import os

import numpy
import pytest
from conftest import GRANULE, code, free_bytes, ok, read, write
from cuda.bindings import driver

Location = driver.CUmemLocationType
Access = driver.CUmemAccess_flags
Handles = driver.CUmemAllocationHandleType
Granularity = driver.CUmemAllocationGranularity_flags
Attribute = driver.CUpointer_attribute

DESCRIPTOR = Handles.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def on_device(device=0, handle_types=Handles.CU_MEM_HANDLE_TYPE_NONE):
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = Location.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    properties.requestedHandleTypes = handle_types
    return properties


def location(device=0):
    place = driver.CUmemLocation()
    place.type = Location.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = device
    return place


def grant(pointer, size, device=0, flags=Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE):
    access = driver.CUmemAccessDesc()
    access.location = location(device)
    access.flags = flags
    return driver.cuMemSetAccess(pointer, size, [access], 1)


class Mapped:
    """Memory that is reserved, created, mapped and open to its device; all of it goes with the block."""

    def __init__(self, size=GRANULE, properties=None, device=0):
        self.size = size
        self.handle = ok(driver.cuMemCreate(size, properties or on_device(device), 0))
        self.pointer = ok(driver.cuMemAddressReserve(size, 0, 0, 0))
        ok(driver.cuMemMap(self.pointer, size, 0, self.handle, 0))
        ok(grant(self.pointer, size, device))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ok(driver.cuMemUnmap(self.pointer, self.size))
        ok(driver.cuMemAddressFree(self.pointer, self.size))
        ok(driver.cuMemRelease(self.handle))


@pytest.mark.parametrize("option", list(Granularity))
def test_granularity_is_two_mebibytes(option):
    assert ok(driver.cuMemGetAllocationGranularity(on_device(), option)) == GRANULE


def test_granularity_wants_properties():
    assert code(driver.cuMemGetAllocationGranularity(None, list(Granularity)[0])) == "INVALID_VALUE"


def test_created_memory_counts_until_it_is_released():
    before = free_bytes()
    handle = ok(driver.cuMemCreate(4 * GRANULE, on_device(), 0))
    assert free_bytes() == before - 4 * GRANULE
    ok(driver.cuMemRelease(handle))
    assert free_bytes() == before


@pytest.mark.parametrize(
    "size, device, flags, answer",
    [
        (GRANULE + 1, 0, 0, "INVALID_VALUE"),
        (0, 0, 0, "INVALID_VALUE"),
        (GRANULE, 7, 0, "INVALID_DEVICE"),
        (GRANULE, 0, 1, "INVALID_VALUE"),
        (GRANULE << 20, 0, 0, "OUT_OF_MEMORY"),
    ],
)
def test_create_refuses(size, device, flags, answer):
    before = free_bytes()
    assert code(driver.cuMemCreate(size, on_device(device), flags)) == answer
    assert free_bytes() == before


def test_fabric_memory_is_not_permitted_without_a_channel():
    properties = on_device(handle_types=Handles.CU_MEM_HANDLE_TYPE_FABRIC)
    assert code(driver.cuMemCreate(GRANULE, properties, 0)) == "NOT_PERMITTED"


@pytest.mark.parametrize(
    "size, alignment, hint, flags",
    [(GRANULE + 1, 0, 0, 0), (0, 0, 0, 0), (GRANULE, 3, 0, 0), (GRANULE, 0, 12345, 0), (GRANULE, 0, 0, 1)],
)
def test_reserve_refuses(size, alignment, hint, flags):
    assert code(driver.cuMemAddressReserve(size, alignment, hint, flags)) == "INVALID_VALUE"


def test_reserve_takes_a_hint_if_it_is_free_and_another_place_if_not():
    first = ok(driver.cuMemAddressReserve(GRANULE, 0, 0, 0))
    next_to_it = ok(driver.cuMemAddressReserve(GRANULE, 0, int(first) + GRANULE, 0))
    assert int(next_to_it) == int(first) + GRANULE
    elsewhere = ok(driver.cuMemAddressReserve(GRANULE, 0, int(first), 0))
    assert int(elsewhere) != int(first)
    for pointer in (first, next_to_it, elsewhere):
        ok(driver.cuMemAddressFree(pointer, GRANULE))


def test_alignment_is_kept():
    pointer = ok(driver.cuMemAddressReserve(GRANULE, 1 << 30, 0, 0))
    assert int(pointer) % (1 << 30) == 0
    ok(driver.cuMemAddressFree(pointer, GRANULE))


def test_a_reservation_is_freed_whole_and_unmapped():
    pointer = ok(driver.cuMemAddressReserve(2 * GRANULE, 0, 0, 0))
    assert code(driver.cuMemAddressFree(pointer, GRANULE)) == "INVALID_VALUE"
    ok(driver.cuMemAddressFree(pointer, 2 * GRANULE))
    with Mapped() as memory:
        assert code(driver.cuMemAddressFree(memory.pointer, GRANULE)) == "INVALID_VALUE"


def test_bytes_live_as_long_as_a_mapping():
    with Mapped() as memory:
        write(memory.pointer, numpy.arange(100))
        assert (read(memory.pointer, 100) == numpy.arange(100)).all()
        alias = ok(driver.cuMemAddressReserve(GRANULE, 0, 0, 0))
        ok(driver.cuMemMap(alias, GRANULE, 0, memory.handle, 0))
        ok(grant(alias, GRANULE))
        write(int(alias) + 50, [1, 2, 3])
        assert list(read(int(memory.pointer) + 50, 3)) == [1, 2, 3]
        ok(driver.cuMemUnmap(alias, GRANULE))
        assert code(driver.cuMemcpyDtoD(memory.pointer, alias, 3)) == "INVALID_VALUE"
        ok(driver.cuMemAddressFree(alias, GRANULE))


def test_map_takes_whole_allocations_at_free_addresses_of_a_reservation():
    with Mapped() as memory:
        pointer = ok(driver.cuMemAddressReserve(2 * GRANULE, 0, 0, 0))
        handle = ok(driver.cuMemCreate(2 * GRANULE, on_device(), 0))
        assert code(driver.cuMemMap(pointer, GRANULE, 0, handle, 0)) == "NOT_SUPPORTED"
        assert code(driver.cuMemMap(pointer, GRANULE, GRANULE, handle, 0)) == "NOT_SUPPORTED"
        assert code(driver.cuMemMap(memory.pointer, 2 * GRANULE, 0, handle, 0)) == "INVALID_VALUE"
        assert code(driver.cuMemMap(GRANULE, 2 * GRANULE, 0, handle, 0)) == "INVALID_VALUE"
        assert code(driver.cuMemMap(pointer, 2 * GRANULE, 0, handle, 1)) == "INVALID_VALUE"
        ok(driver.cuMemMap(pointer, 2 * GRANULE, 0, handle, 0))
        assert code(driver.cuMemUnmap(pointer, GRANULE)) == "INVALID_VALUE"
        ok(driver.cuMemUnmap(pointer, 2 * GRANULE))
        ok(driver.cuMemRelease(handle))
        ok(driver.cuMemAddressFree(pointer, 2 * GRANULE))


def test_rights_begin_at_none_and_are_kept():
    handle = ok(driver.cuMemCreate(GRANULE, on_device(), 0))
    pointer = ok(driver.cuMemAddressReserve(GRANULE, 0, 0, 0))
    ok(driver.cuMemMap(pointer, GRANULE, 0, handle, 0))
    assert ok(driver.cuMemGetAccess(location(), pointer)) == Access.CU_MEM_ACCESS_FLAGS_PROT_NONE
    assert code(driver.cuMemsetD8(pointer, 1, 10)) == "INVALID_VALUE"
    for flags in (Access.CU_MEM_ACCESS_FLAGS_PROT_READ, Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE):
        ok(grant(pointer, GRANULE, flags=flags))
        assert ok(driver.cuMemGetAccess(location(), pointer)) == flags
        writable = flags == Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        assert code(driver.cuMemsetD8(pointer, 1, 10)) == ("SUCCESS" if writable else "INVALID_VALUE")
    ok(driver.cuCtxSynchronize())
    assert ok(driver.cuMemGetAccess(location(1), pointer)) == Access.CU_MEM_ACCESS_FLAGS_PROT_NONE
    assert code(grant(pointer, 2 * GRANULE)) == "INVALID_VALUE"
    assert code(grant(pointer, GRANULE, device=9)) == "INVALID_VALUE"
    ok(driver.cuMemUnmap(pointer, GRANULE))
    assert code(driver.cuMemGetAccess(location(), pointer)) == "INVALID_VALUE"
    ok(driver.cuMemAddressFree(pointer, GRANULE))
    ok(driver.cuMemRelease(handle))


def test_a_peer_reaches_what_it_was_granted(context):
    with Mapped(device=1) as memory:
        ok(grant(memory.pointer, GRANULE, device=0, flags=Access.CU_MEM_ACCESS_FLAGS_PROT_READ))
        assert code(driver.cuMemsetD8(memory.pointer, 1, 10)) == "INVALID_VALUE"
        ok(driver.cuMemcpyDtoH(numpy.zeros(4, numpy.uint8).ctypes.data, memory.pointer, 4))
        ok(grant(memory.pointer, GRANULE, device=0))
        ok(driver.cuMemsetD8(memory.pointer, 1, 10))
        ok(driver.cuCtxSynchronize())


def test_properties_are_those_of_creation():
    handle = ok(driver.cuMemCreate(GRANULE, on_device(1, DESCRIPTOR), 0))
    properties = ok(driver.cuMemGetAllocationPropertiesFromHandle(handle))
    assert properties.location.type == Location.CU_MEM_LOCATION_TYPE_DEVICE
    assert properties.location.id == 1
    assert properties.requestedHandleTypes == DESCRIPTOR
    ok(driver.cuMemRelease(handle))


def test_a_retained_handle_keeps_the_memory():
    before = free_bytes()
    with Mapped() as memory:
        retained = ok(driver.cuMemRetainAllocationHandle(int(memory.pointer) + 100))
        assert int(retained) == int(memory.handle)
    assert free_bytes() == before - GRANULE
    ok(driver.cuMemRelease(retained))
    assert free_bytes() == before
    assert code(driver.cuMemRetainAllocationHandle(GRANULE)) == "INVALID_VALUE"


def test_an_exported_descriptor_brings_the_same_bytes():
    with Mapped(properties=on_device(handle_types=DESCRIPTOR)) as memory:
        write(memory.pointer, [9, 8, 7])
        descriptor = ok(driver.cuMemExportToShareableHandle(memory.handle, DESCRIPTOR, 0))
        imported = ok(driver.cuMemImportFromShareableHandle(descriptor, DESCRIPTOR))
        os.close(descriptor)
        pointer = ok(driver.cuMemAddressReserve(GRANULE, 0, 0, 0))
        ok(driver.cuMemMap(pointer, GRANULE, 0, imported, 0))
        ok(grant(pointer, GRANULE))
        assert list(read(pointer, 3)) == [9, 8, 7]
        assert code(driver.cuMemExportToShareableHandle(imported, DESCRIPTOR, 0)) != "SUCCESS"
        ok(driver.cuMemUnmap(pointer, GRANULE))
        ok(driver.cuMemAddressFree(pointer, GRANULE))
        ok(driver.cuMemRelease(imported))


def test_only_what_was_asked_for_is_exported_and_only_exports_are_imported():
    with Mapped() as memory:
        assert code(driver.cuMemExportToShareableHandle(memory.handle, DESCRIPTOR, 0)) == "INVALID_VALUE"
    null = os.open(os.devnull, os.O_RDONLY)
    assert code(driver.cuMemImportFromShareableHandle(null, DESCRIPTOR)) == "UNKNOWN"
    os.close(null)


def test_pointers_tell_what_they_point_to():
    with Mapped(2 * GRANULE, device=1) as memory:
        inside = int(memory.pointer) + 100
        expected = {
            Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE: int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE),
            Attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: 1,
            Attribute.CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: int(memory.pointer),
            Attribute.CU_POINTER_ATTRIBUTE_RANGE_SIZE: 2 * GRANULE,
            Attribute.CU_POINTER_ATTRIBUTE_MAPPED: True,
            Attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED: False,
            Attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: False,
        }
        for attribute, value in expected.items():
            assert int(ok(driver.cuPointerGetAttribute(attribute, inside))) == value, attribute
        answers = ok(driver.cuPointerGetAttributes(len(expected), list(expected), inside))
        assert [int(answer) for answer in answers] == list(expected.values())
    assert code(driver.cuPointerGetAttribute(Attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside)) == "INVALID_VALUE"


def test_memory_of_the_host_is_one_memory_to_both():
    properties = on_device()
    properties.location.type = Location.CU_MEM_LOCATION_TYPE_HOST
    properties.location.id = 0
    with Mapped(properties=properties) as memory:
        host = driver.CUmemAccessDesc()
        host.location.type = Location.CU_MEM_LOCATION_TYPE_HOST
        host.flags = Access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ok(driver.cuMemSetAccess(memory.pointer, GRANULE, [host], 1))
        ok(driver.cuMemsetD8(memory.pointer, 6, 10))
        ok(driver.cuCtxSynchronize())
        seen = numpy.ctypeslib.as_array((numpy.ctypeslib.ctypes.c_uint8 * 10).from_address(int(memory.pointer)))
        assert list(seen) == [6] * 10
