"""cuda.core's memory pools between processes: buffers and memory resources that are sent with multiprocessing."""

import ctypes
import multiprocessing

import numpy
import pytest
from conftest import MEBIBYTE, Child, free_bytes, read, write
from cuda.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)
from cuda.core._utils.cuda_utils import CUDAError

SIZE = 4096
multiprocessing.set_start_method("spawn", force=True)  # cuda.core warns of any other


@pytest.fixture
def stream(core_stream):
    return core_stream


@pytest.fixture
def memory(device):
    made = DeviceMemoryResource(device, DeviceMemoryResourceOptions(ipc_enabled=True))
    yield made
    made.close()


@pytest.fixture
def buffer(memory, stream):
    """Memory that holds 0, 1, 2, ..."""
    made = memory.allocate(SIZE, stream=stream)
    stream.sync()
    write(made.handle, numpy.arange(10))
    yield made
    made.close(stream)
    stream.sync()


def use(connection, buffer):
    """Sends what it finds in the buffer, and leaves 200 numbers behind."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    connection.send((buffer.size, buffer.is_mapped, buffer.memory_resource.is_mapped))
    connection.send(list(read(buffer.handle, 10)))
    buffer.fill(7, stream=stream)
    stream.sync()
    connection.send(free_bytes())
    connection.recv()  # until the parent has looked
    buffer.close(stream)
    stream.sync()


def use_what_is_sent(connection, memory):
    """The resource comes first, and buffers of it by themselves."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    for _ in range(3):
        buffer = connection.recv()
        connection.send(list(read(buffer.handle, 10)))
        buffer.fill(7, stream=stream)
        stream.sync()
        connection.send("done")
        buffer.close(stream)
    stream.sync()
    connection.recv()


def use_descriptors(connection, handle):
    """The same by hand: the pool's handle, and what describes a buffer."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    memory = DeviceMemoryResource.from_allocation_handle(device, handle)
    buffer = Buffer.from_ipc_descriptor(memory, connection.recv(), stream=stream)
    connection.send(list(read(buffer.handle, 10)))
    try:
        memory.allocate(SIZE, stream=stream)
    except TypeError:
        connection.send("cannot allocate")
    buffer.close(stream)
    stream.sync()
    memory.close()
    connection.recv()


def test_a_resource_says_whether_it_can_be_shared(device, memory):
    assert memory.is_ipc_enabled and not memory.is_mapped
    assert int(memory.allocation_handle) > 2
    plain = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    assert not plain.is_ipc_enabled
    with pytest.raises(RuntimeError):
        _ = plain.allocation_handle
    plain.close()


def test_a_child_reads_and_writes_the_same_bytes(buffer, stream):
    peer = Child(use, buffer)
    assert peer.receive() == (SIZE, True, True)
    assert peer.receive() == list(range(10))
    assert peer.receive() == free_bytes(), "the device is one, and has the memory once"
    assert list(read(buffer.handle, SIZE)) == [7] * SIZE
    assert peer.end() == 0
    assert list(read(buffer.handle, SIZE)) == [7] * SIZE


def test_buffers_are_sent_by_themselves_once_their_resource_is_known(memory, stream):
    peer = Child(use_what_is_sent, memory)
    for value in range(3):
        buffer = memory.allocate((value + 1) * 20 * MEBIBYTE, stream=stream)
        buffer.fill(value, stream=stream)
        stream.sync()
        peer.connection.send(buffer)
        assert peer.receive() == [value] * 10
        assert peer.receive() == "done"
        assert list(read(buffer.handle, 10)) == [7] * 10
        buffer.close(stream)
    assert peer.end() == 0


def test_descriptors_do_without_pickling(memory, buffer):
    peer = Child(use_descriptors, memory.allocation_handle)
    peer.connection.send(buffer.ipc_descriptor)
    assert peer.receive() == list(range(10))
    assert peer.receive() == "cannot allocate"
    assert peer.end() == 0


def test_what_a_child_wrote_outlives_it(buffer):
    peer = Child(use, buffer)
    for _ in range(3):
        peer.receive()
    peer.process.kill()
    peer.process.join(Child.SECONDS)
    assert list(read(buffer.handle, SIZE)) == [7] * SIZE


def test_pools_of_pinned_memory_are_shared_too(device, stream):
    memory = PinnedMemoryResource(PinnedMemoryResourceOptions(ipc_enabled=True))
    buffer = memory.allocate(SIZE, stream=stream)
    stream.sync()
    ctypes.memmove(int(buffer.handle), bytes(range(10)), 10)
    peer = Child(use_pinned, buffer)
    assert peer.receive() == bytes(range(10))
    assert peer.end() == 0
    assert ctypes.string_at(int(buffer.handle), 3) == b"abc"
    buffer.close(stream)
    stream.sync()
    memory.close()


def use_pinned(connection, buffer):
    """The processes' own processors read and write it."""
    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    connection.send(ctypes.string_at(int(buffer.handle), 10))
    ctypes.memmove(int(buffer.handle), b"abc", 3)
    connection.recv()
    buffer.close(stream)
    stream.sync()


def test_a_pool_that_is_not_shared_has_no_descriptor(device, stream):
    memory = DeviceMemoryResource(device, DeviceMemoryResourceOptions())
    buffer = memory.allocate(SIZE, stream=stream)
    with pytest.raises((RuntimeError, CUDAError)):
        _ = buffer.ipc_descriptor
    buffer.close(stream)
    stream.sync()
    memory.close()
