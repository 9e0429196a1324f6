"""cuda.core: graphs built by capture, and memory that they allocate."""

import pytest
from conftest import code, ok, read
from cuda.bindings import driver
from cuda.core import GraphMemoryResource
from cuda.core.graph import GraphBuilder, GraphCompleteOptions


@pytest.fixture
def stream(core_stream):
    return core_stream


@pytest.fixture
def output(stream):
    pointer = ok(driver.cuMemAlloc(64))
    ok(driver.cuMemsetD8Async(pointer, 0, 64, stream.handle))
    stream.sync()
    yield int(pointer)
    stream.sync()
    ok(driver.cuMemFree(pointer))


def filled(builder, pointer, value, count=64):
    ok(driver.cuMemsetD8Async(pointer, value, count, builder.stream.handle))


def test_what_is_built_runs_with_each_launch(stream, output):
    builder = stream.create_graph_builder().begin_building()
    assert builder.is_building
    filled(builder, output, 4)
    graph = builder.end_building().complete(GraphCompleteOptions(upload_stream=stream))
    assert list(read(output, 4)) == [0] * 4
    for _ in range(2):
        ok(driver.cuMemsetD8Async(output, 0, 64, stream.handle))
        graph.launch(stream)
        stream.sync()
        assert list(read(output, 4)) == [4] * 4
    graph.close()
    builder.close()


def test_branches_split_and_join(stream, output):
    builder = stream.create_graph_builder().begin_building()
    left, right = builder.split(2)
    filled(left, output, 1, 32)
    filled(right, output + 32, 2, 32)
    builder = GraphBuilder.join(left, right)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert list(read(output, 64)) == [1] * 32 + [2] * 32


def test_a_graph_allocates_and_frees_its_own_memory(device, stream, output):
    memory = GraphMemoryResource(device)
    memory.trim()
    builder = stream.create_graph_builder().begin_building()
    buffer = memory.allocate(64, stream=builder)
    buffer.fill(9, stream=builder)
    ok(driver.cuMemcpyDtoDAsync(output, int(buffer.handle), 64, builder.stream.handle))
    pointer = int(buffer.handle)
    buffer.close(builder)
    graph = builder.end_building().complete()
    assert memory.attributes.used_mem_current == 0
    for _ in range(3):
        graph.launch(stream)
    stream.sync()
    assert list(read(output, 64)) == [9] * 64
    kept = memory.attributes.reserved_mem_current
    assert kept > 0
    assert memory.attributes.used_mem_current == memory.attributes.used_mem_high == kept
    memory.trim()
    assert memory.attributes.used_mem_current == memory.attributes.reserved_mem_current == 0
    memory.attributes.used_mem_high = 0
    assert memory.attributes.used_mem_high == 0
    assert code(driver.cuMemFreeAsync(pointer, stream.handle)) == "INVALID_VALUE"


def test_memory_that_a_graph_leaves_is_freed_before_the_next_launch(device, stream):
    memory = GraphMemoryResource(device)
    builder = stream.create_graph_builder().begin_building()
    buffer = memory.allocate(64, stream=builder)
    buffer.fill(3, stream=builder)
    pointer = int(buffer.handle)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert list(read(pointer, 4)) == [3] * 4
    assert memory.attributes.used_mem_current >= 64
    assert code(driver.cuGraphLaunch(graph.handle, stream.handle)) == "INVALID_VALUE"
    buffer.close(stream)
    graph.launch(stream)
    ok(driver.cuMemFreeAsync(pointer, stream.handle))


def test_graph_memory_is_for_captures_and_pools_are_not(device, stream):
    with pytest.raises(RuntimeError):
        GraphMemoryResource(device).allocate(64, stream=stream)
    builder = stream.create_graph_builder().begin_building()
    with pytest.raises(RuntimeError):
        device.memory_resource.allocate(64, stream=builder)
    builder.end_building()
