"""Modules that were moved can be imported by their old names, and say where they are now."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import importlib, onnxq, warnings
from onnxq.moved import MOVED
for old, new in MOVED.items():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = importlib.import_module(old)
    assert found is importlib.import_module(new)
    assert found.__spec__.name == new, found.__spec__
    assert [str(one.message) for one in said] == [f"{old} is now {new}"], said
assert callable(onnxq.quantize) and callable(onnxq.prepare) and callable(onnxq.lint)
"""


def test_an_old_name_gives_the_module_and_a_warning() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
