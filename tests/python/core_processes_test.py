"""cuda.core's VirtualMemoryResource between processes: a child reaches the parent's memory by its descriptor."""

import multiprocessing
import multiprocessing.reduction
import os

import numpy
import pytest
from conftest import GRANULE, Child, code, free_bytes, ok, read, write
from cuda.bindings import driver
from cuda.core import Device, VirtualMemoryResource, VirtualMemoryResourceOptions

DESCRIPTOR = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def map_import(handle, flags):
    """The address of imported memory, open to device 0."""
    pointer = ok(driver.cuMemAddressReserve(GRANULE, 0, 0, 0))
    ok(driver.cuMemMap(pointer, GRANULE, 0, handle, 0))
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = flags
    ok(driver.cuMemSetAccess(pointer, GRANULE, [access], 1))
    return pointer


def child(connection, descriptor, read_only):
    """Imports the memory, sends what it found there, and leaves 200 numbers behind unless it may only read."""
    Device(0).set_current()
    number = descriptor.detach()
    handle = ok(driver.cuMemImportFromShareableHandle(number, DESCRIPTOR))
    os.close(number)
    name = "CU_MEM_ACCESS_FLAGS_PROT_" + ("READ" if read_only else "READWRITE")
    pointer = map_import(handle, getattr(driver.CUmemAccess_flags, name))
    connection.send(list(read(pointer, 10)))
    answer = code(driver.cuMemsetD8(int(pointer), 7, 200))
    ok(driver.cuCtxSynchronize())
    connection.send(answer)
    connection.send(free_bytes())
    connection.recv()  # until the parent has looked
    ok(driver.cuMemUnmap(pointer, GRANULE))
    ok(driver.cuMemAddressFree(pointer, GRANULE))
    ok(driver.cuMemRelease(handle))


@pytest.fixture
def exported():
    """A buffer, and a descriptor of its memory."""
    device = Device(0)
    device.set_current()
    memory = VirtualMemoryResource(device, VirtualMemoryResourceOptions(handle_type="posix_fd"))
    buffer = memory.allocate(GRANULE)
    handle = ok(driver.cuMemRetainAllocationHandle(int(buffer.handle)))
    descriptor = ok(driver.cuMemExportToShareableHandle(handle, DESCRIPTOR, 0))
    write(buffer.handle, numpy.arange(10))
    yield buffer, descriptor
    os.close(descriptor)
    for _ in range(2):  # the resource's own reference to the handle, and ours
        ok(driver.cuMemRelease(handle))
    buffer.close()


class Descriptor:
    """A descriptor that a process that is started gets as one of its own."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return (rebuild, (multiprocessing.reduction.DupFd(self.number),))

    def detach(self):
        return self.number


def rebuild(duplicate):
    return Descriptor(duplicate.detach())


def test_a_child_reads_and_writes_the_same_bytes(exported):
    buffer, descriptor = exported
    peer = Child(child, Descriptor(descriptor), False)
    assert peer.receive() == list(range(10))
    assert peer.receive() == "SUCCESS"
    assert list(read(buffer.handle, 200)) == [7] * 200
    assert peer.receive() == free_bytes(), "the device is one, and has the memory once"
    assert peer.end() == 0


def test_a_child_that_may_read_only_writes_nothing(exported):
    buffer, descriptor = exported
    peer = Child(child, Descriptor(descriptor), True)
    assert peer.receive() == list(range(10))
    assert peer.receive() == "INVALID_VALUE"
    assert list(read(buffer.handle, 10)) == list(range(10))
    peer.receive()
    assert peer.end() == 0


def test_what_a_child_wrote_outlives_it(exported):
    buffer, descriptor = exported
    peer = Child(child, Descriptor(descriptor), False)
    for _ in range(3):
        peer.receive()
    peer.process.kill()
    peer.process.join(Child.SECONDS)
    assert list(read(buffer.handle, 200)) == [7] * 200
