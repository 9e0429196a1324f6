"""ctypes_test.py LIBRARY: the pool's library as PyTorch uses it, on the driver that libcuda.so.1 is."""

import ctypes
import os
import random
import subprocess
import sys
import unittest

MEBIBYTE = 1 << 20
LIBRARY = sys.argv.pop(1)

pool = ctypes.CDLL(LIBRARY)
cuda = ctypes.CDLL("libcuda.so.1")
for name in ("malloc", "segment_malloc"):
    function = getattr(pool, f"cuvmm_pool_torch_{name}")
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
for name in ("free", "segment_free"):
    function = getattr(pool, f"cuvmm_pool_torch_{name}")
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
pool.cuvmm_pool_torch_record_stream.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
pool.cuvmm_pool_torch_record_stream.restype = None
pool.cuvmm_pool_torch_pool.restype = ctypes.c_void_p
pool.cuvmm_pool_last_error.restype = ctypes.c_char_p


class Numbers(ctypes.Structure):
    """struct cuvmm_pool_numbers"""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "live_bytes live_allocations reserved_bytes recyclable_bytes peak_live_bytes peak_reserved_bytes "
            "pending_bytes holes largest_hole mappings"
        ).split()
    ] + [(name, ctypes.c_ulonglong) for name in "allocations warm remapped driver_calls".split()]


def numbers():
    now = Numbers()
    assert pool.cuvmm_pool_statistics(ctypes.c_void_p(pool.cuvmm_pool_torch_pool(0)), ctypes.byref(now)) == 0
    return now


def ok(code):
    assert code == 0, code


def new_stream():
    stream = ctypes.c_void_p()
    ok(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    return stream


def setUpModule():
    ok(cuda.cuInit(0))
    context = ctypes.c_void_p()
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))


class TorchLibrary(unittest.TestCase):
    def test_tensors_of_changing_sizes_keep_their_bytes(self):
        chance = random.Random(1)
        streams = [new_stream(), new_stream()]
        live = []

        def check(address, size, value, stream):
            ok(cuda.cuStreamSynchronize(stream))
            seen = ctypes.create_string_buffer(2)
            ok(cuda.cuMemcpyDtoH_v2(seen, ctypes.c_ulonglong(address), 1))
            ok(cuda.cuMemcpyDtoH_v2(ctypes.byref(seen, 1), ctypes.c_ulonglong(address + size - 1), 1))
            self.assertEqual(seen.raw, bytes([value, value]))
            pool.cuvmm_pool_torch_free(address, size, 0, stream)

        for step in range(400):
            stream = chance.choice(streams)
            size = int(2 ** chance.uniform(0, 26))
            address = pool.cuvmm_pool_torch_malloc(size, 0, stream)
            self.assertIsNotNone(address, pool.cuvmm_pool_last_error())
            ok(cuda.cuMemsetD8Async(ctypes.c_ulonglong(address), step % 251, ctypes.c_size_t(size), stream))
            live.append((address, size, step % 251, stream))
            if len(live) > 10:
                check(*live.pop(chance.randrange(len(live))))
        now = numbers()
        self.assertEqual(now.live_bytes, sum(size for _, size, _, _ in live))
        self.assertEqual(now.live_allocations, len(live))
        self.assertGreaterEqual(now.peak_reserved_bytes, now.peak_live_bytes)
        for each in live:
            check(*each)
        self.assertEqual(numbers().live_bytes, 0)
        ok(cuda.cuCtxSynchronize())
        pool.cuvmm_pool_torch_empty_cache()
        self.assertEqual(numbers().reserved_bytes, 0)

    def test_segments_are_of_no_stream(self):
        segment = pool.cuvmm_pool_torch_segment_malloc(20 * MEBIBYTE, 0, None)
        ok(cuda.cuMemsetD8Async(ctypes.c_ulonglong(segment), 1, ctypes.c_size_t(20 * MEBIBYTE), new_stream()))
        pool.cuvmm_pool_torch_segment_free(segment, 20 * MEBIBYTE, 0, new_stream())
        self.assertEqual(numbers().live_bytes, 0)

    def test_a_recorded_stream_is_waited_for(self):
        stream, other = new_stream(), new_stream()
        address = pool.cuvmm_pool_torch_malloc(MEBIBYTE, 0, stream)
        pool.cuvmm_pool_torch_record_stream(address, other)
        pool.cuvmm_pool_torch_free(address, MEBIBYTE, 0, stream)
        self.assertGreaterEqual(numbers().pending_bytes, MEBIBYTE)

    def test_the_default_stream_is_served(self):
        address = pool.cuvmm_pool_torch_malloc(MEBIBYTE, 0, None)
        self.assertIsNotNone(address)
        pool.cuvmm_pool_torch_free(address, MEBIBYTE, 0, None)

    def test_lack_of_memory_is_null_and_told(self):
        child = subprocess.run(
            [sys.executable, __file__, LIBRARY, "--ask-for-too-much"], capture_output=True, text=True
        )
        self.assertEqual(child.returncode, 0, child.stderr)
        self.assertIn("out of device memory", child.stderr)

    def test_a_forked_child_is_refused_in_words(self):
        pool.cuvmm_pool_torch_free(pool.cuvmm_pool_torch_malloc(1, 0, None), 1, 0, None)
        child = os.fork()
        if child == 0:
            refused = pool.cuvmm_pool_torch_malloc(1, 0, None) is None
            os._exit(0 if refused and b"in a forked child" in pool.cuvmm_pool_last_error() else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


def ask_for_too_much():
    setUpModule()
    assert pool.cuvmm_pool_torch_malloc(1 << 40, 0, None) is None


if __name__ == "__main__":
    if sys.argv[1:] == ["--ask-for-too-much"]:
        ask_for_too_much()
    else:
        unittest.main()
