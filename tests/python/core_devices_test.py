"""cuda.core: devices, their properties, contexts, streams and events."""

import numpy
import pytest
from conftest import ok
from cuda.bindings import driver
from cuda.core import Device, EventOptions, Stream, StreamOptions
from cuda.core._utils.cuda_utils import CUDAError


def test_all_devices_are_found():
    devices = Device.get_all_devices()
    assert [each.device_id for each in devices] == [0, 1]
    assert len({each.uuid for each in devices}) == 2
    assert all(each.name == "NVIDIA H200" for each in devices)
    with pytest.raises((ValueError, CUDAError)):
        Device(2)


def test_a_device_tells_what_it_can_do(device):
    assert (device.compute_capability.major, device.compute_capability.minor) == (9, 0)
    assert device.arch == "90"
    properties = device.properties
    assert properties.virtual_memory_management_supported
    assert properties.memory_pools_supported
    assert properties.handle_type_posix_file_descriptor_supported
    assert properties.gpu_direct_rdma_supported
    assert properties.warp_size == 32
    assert properties.multiprocessor_count == 132
    names = [name for name in dir(properties) if not name.startswith("_")]
    assert len(names) > 100
    for name in names:
        assert isinstance(getattr(properties, name), (int, bool)), name


def test_devices_are_each_others_peers(device):
    assert device.can_access_peer(1)
    assert Device(1).can_access_peer(device)


def test_setting_a_device_current_makes_its_context_current(device):
    Device(1).set_current()
    assert int(ok(driver.cuCtxGetDevice())) == 1
    device.set_current()
    assert int(ok(driver.cuCtxGetDevice())) == 0
    assert device.context.handle == ok(driver.cuCtxGetCurrent())


def test_a_device_can_be_asked_for_by_another_thread(device):
    import threading

    seen = []

    def work():
        Device(1).set_current()
        seen.append(int(ok(driver.cuCtxGetDevice())))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]
    assert int(ok(driver.cuCtxGetDevice())) == 0


def test_streams_have_options(device):
    default = device.create_stream()
    assert default.is_nonblocking and default.priority == 0
    assert default.device.device_id == 0 and default.context == device.context
    urgent = device.create_stream(options=StreamOptions(nonblocking=False, priority=-5))
    assert not urgent.is_nonblocking and urgent.priority == -5
    with pytest.raises(ValueError, match="priority"):
        device.create_stream(options=StreamOptions(priority=-6))
    for stream in (default, urgent):
        stream.sync()
        stream.close()


def test_default_streams_and_handles_of_others(device):
    assert int(device.default_stream.handle) in (0, 1, 2)
    device.default_stream.sync()
    own = device.create_stream()
    same = Stream.from_handle(int(own.handle))
    assert same == own
    same.sync()
    own.close()


def test_events_measure_and_order(device):
    stream, other = device.create_stream(), device.create_stream()
    timed = EventOptions(timing_enabled=True)
    start, end = stream.record(options=timed), stream.record(options=timed)
    end.sync()
    assert start.is_done and end.is_done
    assert end - start >= 0
    assert end.context == device.context and end.device.device_id == 0
    other.wait(end)
    other.wait(stream)
    other.sync()
    untimed = stream.record()
    untimed.sync()
    with pytest.raises(RuntimeError):
        untimed - start
    blocking = stream.record(options=EventOptions(blocking_sync=True))
    assert blocking.is_blocking_sync
    blocking.sync()
    for event in (start, end, untimed, blocking):
        event.close()


def test_a_stream_waits_for_what_another_has_to_do(device):
    flag = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemsetD8(flag, 0, 64))
    ok(driver.cuCtxSynchronize())
    first, second, third = (device.create_stream() for _ in range(3))
    ok(driver.cuStreamWaitValue32(first.handle, flag, 1, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ))
    ok(driver.cuMemsetD8Async(int(flag) + 8, 5, 8, first.handle))
    second.wait(first)
    ok(driver.cuMemcpyDtoDAsync(int(flag) + 16, int(flag) + 8, 8, second.handle))
    event = second.record()
    assert not event.is_done
    ok(driver.cuStreamWriteValue32(third.handle, flag, 1, 0))
    event.sync()
    assert event.is_done
    content = numpy.zeros(8, numpy.uint8)
    ok(driver.cuMemcpyDtoH(content.ctypes.data, int(flag) + 16, 8))
    assert list(content) == [5] * 8
    ok(driver.cuMemFree(flag))
