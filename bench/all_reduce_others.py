#!/usr/bin/env python3
"""All-reduce between two GPUs by other libraries, for comparison with cuvmm_all_reduce_bench: NCCL through
torch.distributed, with --windows also NCCL with its buffer registered as a symmetric window, and the one-shot and
two-shot all-reduce of PyTorch's symmetric memory. Two processes, one a GPU; each contender as a captured graph of as many
calls as cuvmm_all_reduce_bench has in one; medians of the slower rank. Needs PyTorch with CUDA.

    python3 bench/all_reduce_others.py [--type bf16|f32] [--from BYTES] [--to BYTES] [--rounds N] [--windows]

Multicast is switched off in all of them before anything is loaded. A contender that a size or a version of PyTorch does
not have is left empty, and told why below the table.
"""
import argparse
import os
import statistics
import sys

WITHOUT_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
os.environ.update(WITHOUT_MULTICAST)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as processes  # noqa: E402

RANKS = 2


def calls_in_a_graph(size):
    return 100 if size <= 256 << 10 else 30 if size <= 16 << 20 else 6


def captured(call, count):
    """A graph of that many calls, which were made once before, as libraries need."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            call()
    return graph


def microseconds(call, count, rounds):
    """Of one call: the median over rounds of the slower rank."""
    graph = captured(call, count)
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(rounds + 2):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        before.record()
        graph.replay()
        after.record()
        torch.cuda.synchronize()
        time = torch.tensor([before.elapsed_time(after) * 1000 / count], device="cuda")
        dist.all_reduce(time, op=dist.ReduceOp.MAX)
        times.append(time.item())
    return statistics.median(times[2:])


def check(result, expected):
    torch.cuda.synchronize()
    if not torch.equal(result, torch.full_like(result, expected)):
        raise RuntimeError("the result is wrong")


class Contenders:
    """Each: name -> function(count of elements) that returns (call, result), where call() makes one all-reduce."""

    def __init__(self, dtype, rank, largest, windows):
        import torch.distributed._symmetric_memory as symmetric
        self.dtype, self.rank = dtype, rank
        elements = largest // dtype.itemsize
        self.plain = torch.empty(elements, dtype=dtype, device="cuda")
        self.group = dist.group.WORLD.group_name
        self.symmetric = symmetric.empty(elements, dtype=dtype, device="cuda")
        symmetric.rendezvous(self.symmetric, self.group)
        self.ways = {"nccl": self.nccl, "symm one-shot": self.one_shot, "symm two-shot": self.two_shot}
        if windows:
            backend = dist.group.WORLD._get_backend(torch.device("cuda"))
            self.pool = torch.cuda.MemPool(backend.mem_allocator)
            with torch.cuda.use_mem_pool(self.pool):
                self.window = torch.empty(elements, dtype=dtype, device="cuda")
            backend.register_mem_pool(self.pool, symm=True)
            self.ways["nccl windows"] = self.nccl_windows

    def nccl(self, count):
        part = self.plain[:count]
        return lambda: dist.all_reduce(part), part

    def nccl_windows(self, count):
        part = self.window[:count]
        return lambda: dist.all_reduce(part), part

    def one_shot(self, count):
        part, result = self.symmetric[:count], self.plain[:count]
        return lambda: torch.ops.symm_mem.one_shot_all_reduce_out(part, "sum", self.group, result), result

    def two_shot(self, count):
        part = self.symmetric[:count]
        return lambda: torch.ops.symm_mem.two_shot_all_reduce_(part, "sum", self.group), part

    def measure(self, way, size, rounds):
        count = size // self.dtype.itemsize
        call, result = self.ways[way](count)
        for buffer in {id(b): b for b in (self.plain, self.symmetric, getattr(self, "window", self.plain))}.values():
            buffer[:count] = self.rank + 1
        torch.cuda.synchronize()
        dist.barrier()
        call()
        check(result, RANKS * (RANKS + 1) // 2)
        dist.barrier()
        return microseconds(call, calls_in_a_graph(size), rounds)


def work(rank, arguments):
    os.environ.update(WITHOUT_MULTICAST, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=RANKS, device_id=torch.device("cuda", rank))
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[arguments.type]
    contenders = Contenders(dtype, rank, arguments.to, arguments.windows)
    if rank == 0:
        print(f"PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {arguments.type}, "
              f"{arguments.rounds} rounds, microseconds a call")
        print(f"{'bytes':>11}  " + "  ".join(f"{name:>13}" for name in contenders.ways), flush=True)
    failures = {}
    size = getattr(arguments, "from")
    while size <= arguments.to:
        cells = []
        for way in contenders.ways:
            if way in failures:  # both ranks fail alike
                cells.append("")
                continue
            try:
                cells.append(f"{contenders.measure(way, size, arguments.rounds):.2f}")
            except (RuntimeError, AttributeError, TypeError) as error:
                failures[way] = f"{way} from {size} bytes on: {str(error).splitlines()[0]}"
                cells.append("")
        if rank == 0:
            print(f"{size:>11}  " + "  ".join(f"{cell:>13}" for cell in cells), flush=True)
        size *= 2
    if rank == 0:
        for failure in failures.values():
            print(failure)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--from", type=int, default=1 << 10)
    parser.add_argument("--to", type=int, default=512 << 20)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--port", type=int, default=29541)
    parser.add_argument("--windows", action="store_true", help="also NCCL with a registered symmetric window")
    arguments = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.device_count() < RANKS:
        sys.exit("all_reduce_others.py: needs two GPUs")
    processes.spawn(work, args=(arguments,), nprocs=RANKS)


if __name__ == "__main__":
    main()
