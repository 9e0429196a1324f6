"""What the tests share: the driver, initialised, with device 0's primary context current."""

import multiprocessing

import numpy
import pytest
from cuda.bindings import driver
from cuda.core import Device

MEBIBYTE = 1 << 20
GRANULE = 2 * MEBIBYTE
SUCCESS = driver.CUresult.CUDA_SUCCESS


def ok(answer):
    """What a call of cuda.bindings.driver gave: a value, a tuple of several, or nothing. It must have succeeded."""
    assert answer[0] == SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:] or None


def code(answer):
    """The name of a call's answer, as in INVALID_VALUE."""
    return answer[0].name.removeprefix("CUDA_").removeprefix("ERROR_")


def read(pointer, count):
    """Bytes of device memory."""
    content = numpy.zeros(count, numpy.uint8)
    ok(driver.cuMemcpyDtoH(content.ctypes.data, int(pointer), count))
    return content


def write(pointer, content):
    content = numpy.ascontiguousarray(content, numpy.uint8)
    ok(driver.cuMemcpyHtoD(int(pointer), content.ctypes.data, content.size))


def free_bytes():
    return ok(driver.cuMemGetInfo())[0]


class Child:
    """A process, started anew, that runs function(connection, *arguments)."""

    SECONDS = 60

    def __init__(self, function, *arguments):
        spawn = multiprocessing.get_context("spawn")
        self.connection, other = spawn.Pipe()
        self.process = spawn.Process(target=function, args=(other, *arguments))
        self.process.start()
        other.close()

    def receive(self):
        assert self.connection.poll(self.SECONDS), "the child said nothing"
        return self.connection.recv()

    def end(self):
        self.connection.send("go on")
        self.process.join(self.SECONDS)
        return self.process.exitcode


@pytest.fixture(autouse=True)
def context():
    ok(driver.cuInit(0))
    primary = ok(driver.cuDevicePrimaryCtxRetain(0))
    ok(driver.cuCtxSetCurrent(primary))
    yield primary
    ok(driver.cuCtxSetCurrent(primary))
    ok(driver.cuCtxSynchronize())
    ok(driver.cuDevicePrimaryCtxRelease(0))


@pytest.fixture
def stream():
    made = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    yield made
    ok(driver.cuStreamSynchronize(made))
    ok(driver.cuStreamDestroy(made))


@pytest.fixture
def device():
    """Device 0 as cuda.core has it."""
    made = Device(0)
    made.set_current()
    return made


@pytest.fixture
def core_stream(device):
    """A stream of cuda.core's."""
    made = device.create_stream()
    yield made
    made.sync()
    made.close()
