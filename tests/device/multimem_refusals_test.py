#!/usr/bin/env python3
"""Compiles wrong uses of multimem, each of which has to be refused in the words that name its mistake, and the same use
with that one thing put right, which has to compile. Where CUVMM_TEST_LONG is set, also every wrong combination of type,
operation and width that there is.

    multimem_refusals_test.py COMPILER INCLUDE_FOLDER"""
import os
import subprocess
import sys

from multimem_table import OPERATIONS, TYPES, WIDTHS, has_load_reduce, has_reduce, has_store

RELAXED = "Order::relaxed, Scope::system"


def load(operation, cpp, width, order=RELAXED, accumulation="own"):
    return (f"require_multimem_load_reduce<Operation::{operation}, {order}, Accumulation::{accumulation}, {cpp}, "
            f"{width}>()")


def reduce(operation, cpp, width, order=RELAXED):
    return f"require_multimem_reduce<Operation::{operation}, {order}, {cpp}, {width}>()"


def store(cpp, width, order=RELAXED):
    return f"require_multimem_store<{order}, {cpp}, {width}>()"


# The wrong use, the words, the same put right.
CASES = [
    (load("add", "short", 1), "multimem has no such type on sm_90: use std::uint32_t", load("add", "int", 1)),
    (store("unsigned char", 4), "multimem has no such type on sm_90", store("float", 4)),
    (load("add", "float", 3), "a multimem vector has 1, 2, 4 or 8 values", load("add", "float", 4)),
    (load("add", "float", 8), "a multimem vector has at most 16 bytes", load("add", "float", 4)),
    (store("Float16Pair", 8), "a multimem vector has at most 16 bytes", store("float16", 8)),
    (load("add", "std::uint32_t", 2), "access integers, bits and double one by one", load("add", "std::uint32_t", 1)),
    (store("double", 2), "access integers, bits and double one by one", store("double", 1)),
    (load("add", "float16", 1), "multimem cannot access a single float16 or bfloat16: use Float16Pair",
     load("add", "Float16Pair", 1)),
    (load("bit_and", "std::uint32_t", 1), "multimem: and, or and xor take Bits32 or Bits64 only",
     load("bit_and", "Bits32", 1)),
    (reduce("add", "Bits64", 1), "Bits32 and Bits64 have and, or and xor only", reduce("add", "std::uint64_t", 1)),
    (load("add", "std::int64_t", 1), "multimem cannot add std::int64_t: add std::uint64_t",
     load("add", "std::uint64_t", 1)),
    (load("max", "float", 1), "multimem has no min and max of float and double", load("max", "bfloat16", 2)),
    (load("add", "float", 1, "Order::weak, Scope::system"), "a weak access has no scope: use Scope::none",
     load("add", "float", 1, "Order::weak, Scope::none")),
    (load("add", "float", 1, "Order::acquire, Scope::none"), "an access that is not weak needs a scope",
     load("add", "float", 1, "Order::acquire, Scope::block")),
    (load("add", "float", 1, "Order::release, Scope::system"), "a load cannot release: use weak, relaxed or acquire",
     load("add", "float", 1, "Order::acquire, Scope::system")),
    (store("float", 1, "Order::acquire, Scope::system"), "a store cannot acquire: use weak, relaxed or release",
     store("float", 1, "Order::release, Scope::system")),
    (reduce("add", "float", 1, "Order::acquire, Scope::system"), "a reduction cannot acquire",
     reduce("add", "float", 1, "Order::release, Scope::system")),
    (reduce("add", "float", 1, "Order::weak, Scope::none"), "a reduction cannot be weak", reduce("add", "float", 1)),
    (load("max", "Float16Pair", 1, accumulation="single"), "single precision is chosen for additions of float16",
     load("add", "Float16Pair", 1, accumulation="single")),
    (load("add", "float", 1, accumulation="single"), "single precision is chosen for additions of float16",
     load("add", "float", 1)),
    (reduce("min", "BFloat16Pair", 1), "in vectors of 2 or 4 only", reduce("min", "BFloat16Pair", 2)),
]


def wrong_combinations():
    for cpp, ptx in TYPES.items():
        for width in WIDTHS:
            if not has_store(ptx, width):
                yield store(cpp, width)
            for name, operation in OPERATIONS.items():
                for accumulation in ("own", "single"):
                    if not has_load_reduce(ptx, operation, width, accumulation == "single"):
                        yield load(name, cpp, width, accumulation=accumulation)
                if not has_reduce(ptx, operation, width):
                    yield reduce(name, cpp, width)


def errors_of(compiler, include, uses):
    """What the compiler says; empty where it is content."""
    lines = "\n".join(f"  {use};" for use in uses)
    source = f'#include "cuvmm/gpu/multimem_forms.cuh"\nvoid use() {{\n  using namespace cuvmm::gpu;\n{lines}\n}}\n'
    done = subprocess.run([compiler, "-std=c++17", "-fsyntax-only", "-I", include, "-x", "c++", "-"], input=source,
                          capture_output=True, text=True, check=False)
    return done.stderr if done.returncode != 0 else ""


def main():
    compiler, include = sys.argv[1:3]
    failures = []
    said = errors_of(compiler, include, [right for _, _, right in CASES])
    if said:
        failures.append(f"right uses were refused: {said}")
    for wrong, words, _ in CASES:
        said = errors_of(compiler, include, [wrong])
        if words not in said:
            failures.append(f"{wrong} was not refused with '{words}': {said or 'it compiles'}")
    tried = len(CASES)
    if os.environ.get("CUVMM_TEST_LONG"):
        for wrong in wrong_combinations():
            tried += 1
            if "static" not in errors_of(compiler, include, [wrong]):
                failures.append(f"{wrong} was not refused")
    print("\n".join(failures))
    print(f"{tried} wrong uses tried, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
