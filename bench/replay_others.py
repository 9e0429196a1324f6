#!/usr/bin/env python3
"""Replays allocations through PyTorch's three allocators, for comparison with `cuvmm replay`: the caching one, the same with
expandable segments, and cudaMallocAsync. Each has a process of its own, since PyTorch reads the choice when it begins. The
trace is CSV of PyTorch's memory history; `cuvmm replay TRACE --history FILE` writes one of any other. Needs PyTorch with
CUDA.

    python3 bench/replay_others.py FILE [--json]

An allocation that PyTorch refuses is counted and not freed, as `cuvmm replay` has it. A contender that fails otherwise is
left empty, and told why below the table.
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import time

CONTENDERS = {
    "caching": "",
    "expandable segments": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
}


def events_of(path):
    """(frees, address, bytes, stream) of each event, in order, and the most live bytes."""
    events, live, most = [], {}, 0
    now = 0
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            address, size, stream = int(row["addr_offset"]), int(row["size"]), int(row["stream"])
            if row["action"] == "alloc" and size:
                live[address] = size
                now += size
                events.append((False, address, size, stream))
            elif row["action"] in ("free", "free_completed") and address in live:
                now -= live.pop(address)
                events.append((True, address, size, stream))
            most = max(most, now)
    if not events:
        sys.exit(f"{path} has no allocations")
    return events, most


def played(torch, events, streams):
    """Plays all events; seconds in the allocator, how many were refused, and what is still allocated."""
    live, refused, seconds = {}, 0, 0.0
    clock = time.perf_counter
    allocate, free = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
    for frees, address, size, stream in events:
        begin = clock()
        if not frees:
            try:
                live[address] = allocate(size, 0, streams[stream])
            except torch.OutOfMemoryError:
                refused += 1
        elif address in live:
            free(live.pop(address))
        seconds += clock() - begin
    return seconds, refused, live


def contend(path):
    """In the process of one contender: prints what it found."""
    import torch

    events, most = events_of(path)
    torch.cuda.init()
    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    streams = {each: torch.cuda.Stream() for each in {stream for _, _, _, stream in events}}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    cold, refused, live = played(torch, events, streams)
    peak = torch.cuda.memory_stats()["reserved_bytes.all.peak"]
    for each in live.values():
        torch.cuda.caching_allocator_delete(each)
    torch.cuda.synchronize()
    warm, _, live = played(torch, events, streams)
    for each in live.values():
        torch.cuda.caching_allocator_delete(each)
    begin = time.perf_counter()
    for _ in range(100_000):
        torch.cuda.current_device()
    call = (time.perf_counter() - begin) / 100_000
    found = {"peak_reserved_bytes": peak, "peak_live_bytes": most, "refused": refused, "events": len(events),
             "cold_us": 1e6 * cold / len(events), "warm_us": 1e6 * warm / len(events), "python_call_us": 1e6 * call,
             "torch": torch.__version__, "device": torch.cuda.get_device_name(0)}
    print(json.dumps(found))


def run(path, setting):
    """What the contender of that setting found, or why it did not."""
    # The older name of the variable is known to every version.
    environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=setting)
    result = subprocess.run([sys.executable, os.path.abspath(__file__), path, "--contend"], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode == 0:
        return json.loads(result.stdout.splitlines()[-1]), ""
    lines = result.stderr.strip().splitlines()
    return None, lines[-1] if lines else f"it ended with status {result.returncode}"


def table(found, reasons):
    """For people."""
    lines = [f"{'allocator':<20} {'peak reserved':>14} {'ratio':>7} {'first pass':>11} {'second pass':>12} {'refused':>8}"]
    for name, each in found.items():
        if each is None:
            lines.append(f"{name:<20} {'-':>14}")
            continue
        ratio = each["peak_reserved_bytes"] / each["peak_live_bytes"]
        lines.append(f"{name:<20} {each['peak_reserved_bytes'] / 2**30:>10.3f} GiB {ratio:>7.3f} {each['cold_us']:>8.2f} us "
                     f"{each['warm_us']:>9.2f} us {each['refused']:>8}")
    some = next((each for each in found.values() if each), None)
    if some:
        lines.append(f"PyTorch {some['torch']} on {some['device']}; {some['events']} events, "
                     f"{some['peak_live_bytes'] / 2**30:.3f} GiB live at most; times are of one event, from Python, where a "
                     f"call alone takes {some['python_call_us']:.2f} us")
    return "\n".join(lines + [f"{name}: {why}" for name, why in reasons.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="CSV of PyTorch's memory history")
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--contend", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contend:
        return contend(arguments.file)
    events_of(arguments.file)
    found, reasons = {}, {}
    for name, setting in CONTENDERS.items():
        found[name], why = run(arguments.file, setting)
        if why:
            reasons[name] = why
    if arguments.json:
        print(json.dumps({"schema": 1, "contenders": found, "left_out": reasons}, indent=2))
    else:
        print(table(found, reasons))
    return None if any(found.values()) else sys.exit(1)


if __name__ == "__main__":
    main()
