"""Python as on a processor with AVX2 alone: which instructions are replaced, and what programs see."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.avx2.environment import SOURCE, build_preloaded, made
from tools.avx2.patch import CPUID, UD0, without_cpuid

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or not all(map(shutil.which, ("gcc", "objdump"))),
    reason="it replaces instructions of x86-64 with the tools of gcc",
)

LIBRARY = """
#include <cpuid.h>
unsigned looks_like_it(void) { return 0x90a20f90u; }  /* the bytes of cpuid inside of another instruction */
unsigned leaf_7_ebx(void) { unsigned a, b, c, d; __cpuid_count(7, 0, a, b, c, d); return b; }
"""
SHOW = """
import ctypes, faulthandler, sys
faulthandler.enable()
library = ctypes.CDLL(sys.argv[1])
library.leaf_7_ebx.restype = library.looks_like_it.restype = ctypes.c_uint
print(library.leaf_7_ebx(), hex(library.looks_like_it()))
"""
AVX2, AVX512F = 1 << 5, 1 << 16


def test_only_instructions_are_replaced_and_programs_see_no_avx512(tmp_path: Path) -> None:
    source, library, patched = tmp_path / "asks.c", tmp_path / "asks.so", tmp_path / "patched.so"
    source.write_text(LIBRARY)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    content, count = without_cpuid(library)
    patched.write_bytes(content)
    assert count == 1
    assert library.read_bytes().count(CPUID) == 2
    assert content.count(CPUID) == content.count(UD0) - library.read_bytes().count(UD0) == 1

    preloaded = build_preloaded(tmp_path)
    answers = {}
    for path in (library, patched):
        done = subprocess.run(
            [sys.executable, "-c", SHOW, path],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "LD_PRELOAD": str(preloaded)},
        )
        ebx, other = done.stdout.split()
        assert other == "0x90a20f90"
        answers[path] = int(ebx)
    assert not answers[patched] & AVX512F
    assert answers[patched] & AVX2 == answers[library] & AVX2


def test_an_invalid_instruction_still_ends_a_program(tmp_path: Path) -> None:
    preloaded = build_preloaded(tmp_path)
    source, program = tmp_path / "invalid.c", tmp_path / "invalid"
    source.write_text("int main(void) { __builtin_trap(); }")
    subprocess.run(["gcc", source, "-o", program], check=True)
    done = subprocess.run([program], env={"LD_PRELOAD": str(preloaded)}, check=False)
    assert done.returncode == -4


@pytest.mark.slow
def test_onnxruntime_takes_the_kernels_that_saturate(tmp_path: Path) -> None:
    environment = made(tmp_path)
    code = (
        "import onnxruntime, onnxq; from onnxq.verify import sums_are_exact; from tools.avx2.environment import "
        "hidden_here; print(onnxruntime.__file__, sums_are_exact(), hidden_here(), sep='\\n')"
    )
    done = subprocess.run(
        [environment.python, "-c", code], env=environment.variables(), check=True, capture_output=True, text=True
    )
    file, exact, hidden = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert (exact, hidden) == ("False", "True")
    assert f"{SOURCE.stem}.so" in {path.name for path in tmp_path.rglob("*.so")}
