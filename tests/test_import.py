"""`import onnxq` is quick: the heavy libraries load only when a function needs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = "import sys, {module}; print(*sorted({{'torch', 'onnxruntime'}} & set(sys.modules)))"


@pytest.mark.parametrize(
    "module",
    [
        *("onnxq", "onnxq.types", "onnxq.demo", "onnxq.config"),
        *("onnxq.compat.read", "onnxq.compat.mqbench", "onnxq.targets.sophgo.dialect", "onnxq.targets.amd.dialect"),
    ],
)
def test_import_loads_neither_torch_nor_onnxruntime(module: str) -> None:
    program = PROGRAM.format(module=module)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == ""
