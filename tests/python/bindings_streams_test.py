"""cuda.bindings.driver: devices, contexts, streams, events, copies, capture."""

import ctypes

import numpy
import pytest
from conftest import code, ok, read, write
from cuda.bindings import driver

Attribute = driver.CUdevice_attribute
Capture = driver.CUstreamCaptureMode
Status = driver.CUstreamCaptureStatus


@pytest.fixture
def memory():
    pointer = ok(driver.cuMemAlloc(4096))
    ok(driver.cuMemsetD8(pointer, 0, 4096))
    ok(driver.cuCtxSynchronize())
    yield pointer
    ok(driver.cuMemFree(pointer))


def test_devices_say_who_they_are():
    assert ok(driver.cuDeviceGetCount()) == 2
    identities = set()
    for ordinal in range(2):
        device = ok(driver.cuDeviceGet(ordinal))
        assert ok(driver.cuDeviceGetName(64, device)).startswith(b"NVIDIA H200\0")
        identities.add(ok(driver.cuDeviceGetUuid(device)).bytes)
        place = ok(driver.cuDeviceGetPCIBusId(64, device)).rstrip(b"\0")
        assert int(ok(driver.cuDeviceGetByPCIBusId(place))) == ordinal
        assert ok(driver.cuDeviceTotalMem(device)) == 1 << 30
    assert len(identities) == 2
    assert code(driver.cuDeviceGet(2)) == "INVALID_DEVICE"
    assert code(driver.cuDeviceGetByPCIBusId(b"0000:7f:00.0")) == "INVALID_DEVICE"
    assert code(driver.cuDeviceGetLuid(0)) == "NOT_SUPPORTED"


def test_every_attribute_of_the_drivers_version_is_answered():
    newest = int(Attribute.CU_DEVICE_ATTRIBUTE_MAX)
    known = [each for each in Attribute if int(each) < newest]
    unknown = [each for each in known if code(driver.cuDeviceGetAttribute(each, 0)) != "SUCCESS"]
    assert unknown == []
    assert ok(driver.cuDeviceComputeCapability(0)) == (9, 0)


def test_contexts_are_made_current_and_left(context):
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    made = ok(driver.cuCtxCreate(None, 0, 1))
    assert int(ok(driver.cuCtxGetDevice())) == 1
    ok(driver.cuCtxSynchronize())
    assert ok(driver.cuCtxGetId(made)) != ok(driver.cuCtxGetId(context))
    assert ok(driver.cuCtxGetApiVersion(made)) > 0
    ok(driver.cuCtxDestroy(made))
    assert int(ok(driver.cuCtxGetCurrent())) == int(context)
    assert code(driver.cuCtxDestroy(made)) == "INVALID_CONTEXT"


def test_streams_keep_flags_and_priority(context):
    least, greatest = ok(driver.cuCtxGetStreamPriorityRange())
    assert (least, greatest) == (0, -5)
    stream = ok(driver.cuStreamCreateWithPriority(driver.CUstream_flags.CU_STREAM_NON_BLOCKING, greatest))
    other = ok(driver.cuStreamCreate(0))
    assert ok(driver.cuStreamGetPriority(stream)) == greatest
    assert ok(driver.cuStreamGetPriority(other)) == 0
    assert ok(driver.cuStreamGetFlags(stream)) == driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    assert int(ok(driver.cuStreamGetCtx(stream))) == int(context)
    assert int(ok(driver.cuStreamGetDevice(stream))) == 0
    assert ok(driver.cuStreamGetId(stream)) != ok(driver.cuStreamGetId(other))
    for each in (stream, other):
        ok(driver.cuStreamDestroy(each))
        assert code(driver.cuStreamDestroy(each)) == "INVALID_HANDLE"


def test_copies_go_every_way(memory, stream):
    write(memory, numpy.arange(256))
    ok(driver.cuMemcpyDtoD(int(memory) + 256, memory, 256))
    ok(driver.cuMemcpyDtoDAsync(int(memory) + 512, memory, 256, stream))
    ok(driver.cuMemcpyAsync(int(memory) + 768, memory, 256, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (read(memory, 1024) == numpy.tile(numpy.arange(256), 4)).all()
    ok(driver.cuMemsetD16Async(memory, 0x0102, 4, stream))
    ok(driver.cuMemsetD32Async(int(memory) + 8, 0x01020304, 2, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert list(read(memory, 16)) == [2, 1] * 4 + [4, 3, 2, 1] * 2
    beyond = ok(driver.cuMemGetAddressRange(memory))
    assert (int(beyond[0]), beyond[1]) == (int(memory), 4096)
    assert code(driver.cuMemcpyDtoD(memory, int(memory) + 4000, 200)) == "INVALID_VALUE"


def test_copies_between_devices(memory, context):
    other = ok(driver.cuDevicePrimaryCtxRetain(1))
    ok(driver.cuCtxSetCurrent(other))
    there = ok(driver.cuMemAlloc(100))
    write(there, [5] * 100)
    ok(driver.cuCtxSetCurrent(context))
    ok(driver.cuMemcpyPeer(memory, context, there, other, 100))
    ok(driver.cuCtxSynchronize())
    assert list(read(memory, 100)) == [5] * 100
    ok(driver.cuMemFree(there))
    ok(driver.cuDevicePrimaryCtxRelease(1))


def test_events_mark_places_in_a_stream(memory, stream):
    start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(start, stream))
    ok(driver.cuMemsetD8Async(memory, 3, 4096, stream))
    ok(driver.cuEventRecord(end, stream))
    ok(driver.cuEventSynchronize(end))
    ok(driver.cuEventQuery(end))
    assert ok(driver.cuEventElapsedTime(start, end)) >= 0
    untimed = ok(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING))
    ok(driver.cuEventRecord(untimed, stream))
    assert code(driver.cuEventElapsedTime(start, untimed)) == "INVALID_HANDLE"
    for event in (start, end, untimed):
        ok(driver.cuEventDestroy(event))
        assert code(driver.cuEventQuery(event)) == "INVALID_HANDLE"


def test_a_stream_waits_for_another_by_an_event(memory, stream):
    """The first stream is held by a value, so that nothing of the second may run."""
    other, event = ok(driver.cuStreamCreate(1)), ok(driver.cuEventCreate(0))
    ok(driver.cuStreamWaitValue32(stream, memory, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    ok(driver.cuEventRecord(event, stream))
    ok(driver.cuStreamWaitEvent(other, event, 0))
    ok(driver.cuMemsetD8Async(int(memory) + 64, 7, 4, other))
    assert code(driver.cuStreamQuery(other)) == "NOT_READY"
    release = ok(driver.cuStreamCreate(1))
    ok(driver.cuStreamWriteValue32(release, memory, 1, 0))
    ok(driver.cuStreamSynchronize(other))
    assert list(read(int(memory) + 64, 4)) == [7] * 4
    ok(driver.cuEventDestroy(event))
    for each in (other, release):
        ok(driver.cuStreamDestroy(each))


def test_a_captured_copy_runs_with_each_launch(memory, stream):
    ok(driver.cuStreamBeginCapture(stream, Capture.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    assert ok(driver.cuStreamIsCapturing(stream)) == Status.CU_STREAM_CAPTURE_STATUS_ACTIVE
    assert ok(driver.cuStreamGetCaptureInfo(stream))[0] == Status.CU_STREAM_CAPTURE_STATUS_ACTIVE
    ok(driver.cuMemcpyDtoDAsync(int(memory) + 16, memory, 16, stream))
    graph = ok(driver.cuStreamEndCapture(stream))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    for value in (1, 2):
        write(memory, [value] * 16)
        ok(driver.cuGraphLaunch(executable, stream))
        ok(driver.cuStreamSynchronize(stream))
        assert list(read(int(memory) + 16, 16)) == [value] * 16
    assert ok(driver.cuGraphGetNodes(graph))[1] == 1
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))


def test_host_memory_is_page_locked_and_reached_by_devices(memory, stream):
    host = ok(driver.cuMemHostAlloc(4096, 0))
    assert int(ok(driver.cuMemHostGetDevicePointer(host, 0))) == int(host)
    ctypes.memset(int(host), 4, 100)
    ok(driver.cuMemcpyHtoDAsync(memory, host, 100, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert list(read(memory, 100)) == [4] * 100
    ok(driver.cuMemFreeHost(host))
    assert code(driver.cuMemFreeHost(host)) == "INVALID_VALUE"


def test_managed_memory_is_one_memory_to_both(stream):
    pointer = ok(driver.cuMemAllocManaged(4096, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL))
    ok(driver.cuMemsetD8Async(pointer, 8, 4096, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert (ctypes.c_uint8 * 4).from_address(int(pointer))[:] == [8] * 4
    managed = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    assert ok(driver.cuPointerGetAttribute(managed, pointer))
    ok(driver.cuMemFree(pointer))
    assert code(driver.cuMemFree(pointer)) == "INVALID_VALUE"
    assert code(driver.cuMemAllocManaged(0, 1)) == "INVALID_VALUE"
    assert code(driver.cuMemAllocManaged(4096, 7)) == "INVALID_VALUE"
