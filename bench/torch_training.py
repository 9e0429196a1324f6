#!/usr/bin/env python3
"""Trains a small transformer with PyTorch's own allocator, with its expandable segments, and with the pool as its
allocator, each in a process of its own, and sets losses, memory and time side by side; then checks a torch.cuda.MemPool
on the pool, with a captured graph in it. Needs PyTorch with CUDA and the library of `./dev path cuvmm_torch gpu`.

    python3 bench/torch_training.py LIBRARY [--steps N] [--dtype bfloat16|float32] [--seed N]

The lengths of sequences change from step to step, so that allocations never have the sizes of the last step. All steps
are done twice: cold, and warm with the same lengths, which is timed by itself. Algorithms are deterministic, so losses
are to be the same to the bit; where they are not, they may differ by 0.1 per cent, and the report says so. Peak memory is
of both rounds: what exists on the device for the allocator, and what tensors used of it. The last line is JSON. The exit
status is 1 where a contender failed or losses differ by more.
"""
import argparse
import json
import os
import subprocess
import sys
import time
import traceback

CONTENDERS = {
    "pytorch": "",
    "pytorch, expandable segments": "expandable_segments:True",
    "cuvmm": "",
}
TOLERANCE = 1e-3
SECONDS = 900  # after which a contender is taken to hang


class Library:
    """The pool's library: what PyTorch is given of it, and its statistics."""

    SIZES = (
        "live_bytes live_allocations reserved_bytes recyclable_bytes peak_live_bytes peak_reserved_bytes "
        "pending_bytes holes largest_hole mappings"
    ).split()
    COUNTS = "allocations warm remapped driver_calls".split()

    def __init__(self, path):
        import ctypes

        self.path = path
        self.ctypes = ctypes
        self.library = ctypes.CDLL(path)
        self.library.cuvmm_pool_torch_pool.restype = ctypes.c_void_p
        self.library.cuvmm_pool_last_error.restype = ctypes.c_char_p

        class Numbers(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in self.SIZES] + [
                (name, ctypes.c_ulonglong) for name in self.COUNTS
            ]

        self.Numbers = Numbers

    def function(self, name):
        return self.ctypes.cast(getattr(self.library, name), self.ctypes.c_void_p).value

    def statistics(self):
        pool = self.library.cuvmm_pool_torch_pool(0)
        now = self.Numbers()
        if not pool or self.library.cuvmm_pool_statistics(self.ctypes.c_void_p(pool), self.ctypes.byref(now)):
            raise RuntimeError(self.library.cuvmm_pool_last_error().decode())
        return {name: getattr(now, name) for name, _ in self.Numbers._fields_}

    def become_the_allocator(self, torch):
        allocator = torch.cuda.memory.CUDAPluggableAllocator(
            self.path, "cuvmm_pool_torch_malloc", "cuvmm_pool_torch_free"
        )
        inner = allocator.allocator()
        inner.set_record_stream_fn(self.function("cuvmm_pool_torch_record_stream"))
        inner.set_reset_fn(self.function("cuvmm_pool_torch_empty_cache"))
        torch.cuda.memory.change_current_allocator(allocator)
        return allocator


def make_model(torch, width=512, layers=6, heads=8, words=8192, longest=1024):
    """A decoder with its attention written out, whose matrices grow with the square of the length."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before = nn.LayerNorm(width)
            self.mix = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.after = nn.LayerNorm(width)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, _ = x.shape
            q, k, v = self.mix(self.before(x)).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            weight = q @ k.transpose(-2, -1) * (width // heads) ** -0.5
            hidden = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            weight = weight.masked_fill(hidden, float("-inf")).softmax(-1)
            x = x + self.out((weight.to(v.dtype) @ v).transpose(1, 2).reshape(batch, length, width))
            return x + self.feed(self.after(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(words, width)
            self.place = nn.Embedding(longest, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, tokens):
            x = self.word(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Model(), words, longest


def train(torch, steps, dtype, seed):
    """Losses of all steps of both rounds, and the seconds of each round."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    if hasattr(torch.utils, "deterministic"):
        torch.utils.deterministic.fill_uninitialized_memory = False  # which would be most of the time
    model, words, longest = make_model(torch)
    model = model.cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4)
    chance = torch.Generator().manual_seed(seed)
    lengths = [int(each) for each in torch.randint(longest // 16, longest - 1, (steps,), generator=chance)]
    batches = [int(each) for each in torch.randint(1, 9, (steps,), generator=chance)]
    losses, seconds = [], []
    for _ in range(2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        kept = []
        for length, batch in zip(lengths, batches):
            tokens = torch.randint(words, (batch, length + 1), generator=chance).cuda()
            with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                scores = model(tokens[:, :-1])
                loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            kept.append(loss.detach())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
        losses += [each.item() for each in kept]
    return losses, seconds


def contend(name, options):
    """In the process of one contender: what it found."""
    import torch

    library = Library(options.library) if name == "cuvmm" else None
    allocator = library.become_the_allocator(torch) if library else None
    losses, seconds = train(torch, options.steps, getattr(torch, options.dtype), options.seed)
    found = {"losses": losses, "cold_seconds": seconds[0], "warm_seconds": seconds[1], "torch": torch.__version__}
    found["device"] = torch.cuda.get_device_name(0)
    if library:
        found["statistics"] = library.statistics()
        found["peak_reserved_bytes"] = found["statistics"]["peak_reserved_bytes"]
        found["peak_used_bytes"] = found["statistics"]["peak_live_bytes"]
    else:
        numbers = torch.cuda.memory_stats()
        found["peak_reserved_bytes"] = numbers["reserved_bytes.all.peak"]
        found["peak_used_bytes"] = numbers.get("requested_bytes.all.peak", numbers["allocated_bytes.all.peak"])
    del allocator  # PyTorch keeps it
    return found


def check_mem_pool(options):
    """In a process of its own: a MemPool's tensors and a captured graph's are the pool's, and are right."""
    import torch

    library = Library(options.library)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        options.library, "cuvmm_pool_torch_segment_malloc", "cuvmm_pool_torch_segment_free"
    )
    pool = torch.cuda.MemPool(allocator.allocator())
    torch.manual_seed(options.seed)
    given = torch.randn(2048, 2048, device="cuda")
    with torch.cuda.use_mem_pool(pool):
        inside = torch.randn(2048, 2048, device="cuda")
    expected = (given @ inside).relu()
    reserved = library.statistics()["reserved_bytes"]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool.id):
        result = (given @ inside).relu()
    given.copy_(torch.randn(2048, 2048, device="cuda"))
    expected_anew = (given @ inside).relu()
    graph.replay()
    torch.cuda.synchronize()
    right = torch.allclose(result, expected_anew, rtol=1e-3, atol=1e-2)
    same = right and not torch.allclose(result, expected, rtol=1e-3, atol=1e-2)
    found = {"graph_is_right": same, "reserved_bytes": reserved, "statistics": library.statistics()}
    del result, inside, graph, pool
    torch.cuda.empty_cache()
    found["live_bytes_at_the_end"] = library.statistics()["live_bytes"]
    if not same:
        raise RuntimeError(f"the captured graph's result is wrong: {found}")
    if reserved < 2048 * 2048 * 4:
        raise RuntimeError(f"the MemPool's tensors are not the pool's: {found}")
    return found


def start(name, options):
    """Runs this file anew for one contender; what it found, or {"error": why}."""
    environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        environment.pop(variable, None)
    if CONTENDERS.get(name):
        environment["PYTORCH_CUDA_ALLOC_CONF"] = CONTENDERS[name]
    command = [sys.executable, os.path.abspath(__file__), options.library, "--contender", name]
    command += ["--steps", str(options.steps), "--dtype", options.dtype, "--seed", str(options.seed)]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {SECONDS} s"}
    said = [line for line in ended.stderr.strip().splitlines() if line]
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if ended.returncode != 0 or not lines:
        return {"error": f"exit status {ended.returncode}: " + "\n".join(said[-12:])}
    found = json.loads(lines[-1])
    warnings = [line for line in said if "cuvmm" in line]
    if warnings:
        found["told"] = warnings[:20]
    return found


def compare(all_found):
    """How the losses of the others lie beside the first contender's that ran."""
    losses = {name: found["losses"] for name, found in all_found.items() if "losses" in found}
    if len(losses) < 2:
        return {}
    first, *others = losses
    compared = {}
    for name in others:
        pairs = list(zip(losses[first], losses[name]))
        largest = max(abs(a - b) / max(abs(a), 1e-30) if a == a and b == b else float("inf") for a, b in pairs)
        same = all(a == b for a, b in pairs)
        compared[name] = {"beside": first, "same_to_the_bit": same, "largest_relative_difference": largest}
        compared[name]["agrees"] = same or largest <= TOLERANCE
    return compared


def report(all_found, compared, mem_pool):
    print(f"{'allocator':30} {'peak reserved':>14} {'peak used':>11} {'ratio':>6} {'cold':>8} {'warm':>8}  losses")
    for name, found in all_found.items():
        if "error" in found:
            print(f"{name:30} failed: {found['error'].splitlines()[-1]}")
            continue
        reserved, used = found["peak_reserved_bytes"], found["peak_used_bytes"]
        words = "are compared with" if name not in compared else "differ"
        if name in compared and compared[name]["agrees"]:
            words = "same to the bit" if compared[name]["same_to_the_bit"] else "same within 0.1 %"
        print(
            f"{name:30} {reserved / 2**20:10.0f} MiB {used / 2**20:7.0f} MiB {reserved / used:6.3f} "
            f"{found['cold_seconds']:6.2f} s {found['warm_seconds']:6.2f} s  {words}"
        )
    own, other = all_found.get("cuvmm", {}), all_found.get("pytorch", {})
    if "error" not in own and "error" not in other and own and other:
        print(
            f"cuvmm / pytorch: peak reserved {own['peak_reserved_bytes'] / other['peak_reserved_bytes']:.3f}, "
            f"warm time {own['warm_seconds'] / other['warm_seconds']:.3f}, "
            f"cold time {own['cold_seconds'] / other['cold_seconds']:.3f}"
        )
    failed = "error" in mem_pool and mem_pool["error"].splitlines()[-1]
    print("torch.cuda.MemPool:", f"failed: {failed}" if failed else "tensors and a captured graph are right")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="the path of libcuvmm_torch.so")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.library = os.path.abspath(options.library)
    if options.contender:
        try:
            mem_pool = options.contender == "MemPool"
            print(json.dumps(check_mem_pool(options) if mem_pool else contend(options.contender, options)))
        except Exception:  # said in full to the process that started this one
            traceback.print_exc()
            sys.exit(1)
        return
    if not os.path.exists(options.library):
        sys.exit(f"{options.library} is missing: build it, ./dev path cuvmm_torch gpu")
    all_found = {name: start(name, options) for name in CONTENDERS}
    mem_pool = start("MemPool", options)
    compared = compare(all_found)
    report(all_found, compared, mem_pool)
    print(json.dumps({"contenders": all_found, "losses": compared, "mem_pool": mem_pool, "steps": options.steps,
                      "dtype": options.dtype, "seed": options.seed}))
    failed = [name for name, found in {**all_found, "MemPool": mem_pool}.items() if "error" in found]
    if failed or not all(each["agrees"] for each in compared.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
