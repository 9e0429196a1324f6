#!/usr/bin/env python3
"""Compiles every form of multimem for compute_90, reads its instruction in the PTX, and assembles all for sm_90.

    multimem_ptx_test.py NVCC INCLUDE_FOLDER

Without nvcc it says so and ends with 77."""
import os
import re
import subprocess
import sys
import tempfile

from multimem_table import legal_forms


def source_of(forms):
    lines = ['#include "cuvmm/gpu/multimem.cuh"', "using namespace cuvmm::gpu;"]
    for number, (call, cpp, width, _) in enumerate(forms):
        lines.append(f'extern "C" __global__ void form_{number}(Vector<{cpp}, {width}>* a) {{ {call}; }}')
    return "\n".join(lines) + "\n"


def instructions(ptx):
    """The multimem instructions of each kernel."""
    found = {}
    for kernel in re.split(r"(?=\.visible \.entry )", ptx)[1:]:
        name = re.match(r"\.visible \.entry (\w+)\(", kernel).group(1)
        found[name] = re.findall(r"^\s*(multimem\.\S+)\s", kernel, re.MULTILINE)
    return found


def main():
    nvcc, include = sys.argv[1:3]
    if not os.path.exists(nvcc):
        print("skipped: there is no nvcc, which compiles device code")
        return 77
    forms = list(legal_forms())
    with tempfile.TemporaryDirectory() as folder:
        source, ptx = os.path.join(folder, "forms.cu"), os.path.join(folder, "forms.ptx")
        with open(source, "w", encoding="ascii") as file:
            file.write(source_of(forms))
        subprocess.run([nvcc, "-std=c++17", "-arch=compute_90", "-allow-unsupported-compiler", "-ptx", "-I", include,
                        source, "-o", ptx], check=True)
        with open(ptx, encoding="ascii") as file:
            found = instructions(file.read())
        wrong = [(number, form) for number, form in enumerate(forms) if found[f"form_{number}"] != [form[3]]]
        for number, (call, cpp, width, expected) in wrong:
            print(f"{call} of {width} {cpp}: {found[f'form_{number}']}, not {expected}")
        ptxas = os.path.join(os.path.dirname(os.path.realpath(nvcc)), "ptxas")
        subprocess.run([ptxas, "-arch=sm_90", ptx, "-o", os.path.join(folder, "forms.cubin")], check=True)
    print(f"{len(forms)} forms, {len(wrong)} of them wrong; all assembled for sm_90")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
