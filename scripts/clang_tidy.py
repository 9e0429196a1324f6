#!/usr/bin/env python3
"""clang_tidy.py BUILD_FOLDER CACHE_FOLDER: runs clang-tidy over every file of the build's compile_commands.json.

A file that was found clean is not looked at again until it, a file of the project that it includes, its compile
command, .clang-tidy or clang-tidy itself changes; clones of the project in different folders may share the cache. A
header is looked at through the files that include it, or by itself if none does; sources that are compiled in a batch
are looked at in it. The build must be up to date: what a file includes is taken from ninja's record. Exits with 1 if
anything was found.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

PROJECT = pathlib.Path(__file__).resolve().parent.parent


def included_files(build):
    """Object file -> the files of the project that went into it, from ninja's record of the last build."""
    record = subprocess.run(["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=True).stdout
    included, current = {}, None
    for line in record.splitlines():
        if line.startswith(" "):
            path = (build / line.strip()).resolve()
            if path.is_relative_to(PROJECT):
                current.add(path)
        elif ": #deps" in line:
            current = included.setdefault(line.split(": #deps")[0], set())
    return included


class Hashes:
    """Hashes of files' contents, each read once."""

    def __init__(self):
        self._known = {}

    def of(self, path):
        if path not in self._known:
            self._known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
        return self._known[path]


def cache_key(entry, included, hashes, common):
    digest = hashlib.sha256(common)
    digest.update(entry["command"].replace(str(PROJECT), "").encode())
    for path in sorted(included):
        digest.update(f"{path.relative_to(PROJECT)}\0{hashes.of(path)}\0".encode())
    return digest.hexdigest()


def object_file(entry):
    """As ninja names it: relative to the build folder."""
    return entry.get("output") or entry["command"].split(" -o ")[1].split()[0]


def is_batch(entry):
    """Whether it is a file that CMake has made, and that includes sources."""
    return pathlib.Path(entry["file"]).parent.name == "Unity"


def worth_a_look(entries, included, build):
    """The entries without those that stand for one header which another entry's file includes anyway."""
    header_checks = {entry["file"] for entry in entries if pathlib.Path(entry["file"]).parent == build / "headers"}
    elsewhere = set()
    for entry in entries:
        if entry["file"] not in header_checks:
            elsewhere |= included.get(object_file(entry), set())
    for entry in entries:
        if entry["file"] in header_checks:
            header = pathlib.Path(pathlib.Path(entry["file"]).read_text().split('"')[1])
            if header in elsewhere:
                continue
        yield entry


def forget_old_results(cache):
    for result in cache.iterdir():
        if time.time() - result.stat().st_mtime > 30 * 24 * 3600:
            result.unlink(missing_ok=True)


# The analyzer looks at so many states of a function, of 225,000 that it would go to: with those it takes most of the
# time that there is.
STATES_OF_A_FUNCTION = ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=16000"]
# Sources that a batch includes are headers to it.
BATCH = ["-Xclang", "-analyzer-opt-analyze-headers"]


def check(entry, build):
    """What clang-tidy has to say about one file; empty if nothing."""
    command = ["clang-tidy", "--quiet", "-p", str(build), "--warnings-as-errors=*"]
    for argument in ["-Wno-unknown-warning-option", *STATES_OF_A_FUNCTION, *(BATCH if is_batch(entry) else [])]:
        command.append(f"--extra-arg={argument}")
    if is_batch(entry):
        command.append("--checks=-bugprone-suspicious-include")
    result = subprocess.run([*command, entry["file"]], capture_output=True, text=True)
    return "" if result.returncode == 0 else result.stdout + result.stderr


def main(build, cache):
    cache.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    common = version + (PROJECT / ".clang-tidy").read_bytes() + pathlib.Path(__file__).read_bytes()
    included, hashes = included_files(build), Hashes()
    entries = json.loads((build / "compile_commands.json").read_text())
    entries = list(worth_a_look(entries, included, build))
    pending = []
    for entry in entries:
        # A file that nothing has compiled has no record of what it includes, and is looked at every time.
        known = included.get(object_file(entry))
        key = cache_key(entry, known, hashes, common) if known else None
        if key and (cache / key).exists():
            (cache / key).touch()
        else:
            pending.append((key, entry))
    print(f"clang-tidy: {len(pending)} of {len(entries)} files to look at, the others are unchanged", flush=True)
    failed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {pool.submit(check, entry, build): (key, entry) for key, entry in pending}
        for done in concurrent.futures.as_completed(running):
            key, entry = running[done]
            if done.result():
                failed.append(entry["file"])
                print(done.result(), flush=True)
            elif key:
                (cache / key).touch()
    for file in sorted(failed):
        print(f"clang-tidy: {os.path.relpath(file, PROJECT)} is not clean")
    forget_old_results(cache)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])))
