"""Modules and names that were moved can be imported by their old names, and say where they are now."""

from __future__ import annotations

import subprocess
import sys

MODULES = """
import importlib, onnxq, warnings
from onnxq.moved import MOVED
names = dict(MOVED)
names["onnxq.bits.found"] = "onnxq.mixed_precision.found"
names["onnxq.equalize.smoothquant"] = "onnxq.ptq.equalization.smoothquant"
for old, new in names.items():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = importlib.import_module(old)
    assert found is importlib.import_module(new), (old, found)
    assert found.__spec__.name == new, found.__spec__
    own = [str(one.message) for one in said if issubclass(one.category, DeprecationWarning)]
    assert f"{old} is now {new}" in own, own
assert callable(onnxq.quantize) and callable(onnxq.prepare) and callable(onnxq.lint)
from onnxq.ptq.method import IMPROVEMENTS
assert "smoothquant" in IMPROVEMENTS
"""

NAMES = """
import warnings, onnxq
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    from onnxq.prepare import make_plan, prepare
    from onnxq.config import controls
    from onnxq.types.control import Controls, Wish
    from onnxq.bits import hold
    assert onnxq.backends.BACKENDS is onnxq.BACKENDS
assert prepare is onnxq.prepare and callable(onnxq.prepare)
assert Wish.__name__ == "QuantizerOverride"
told = "; ".join(str(one.message) for one in said)
for text in ("onnxq.prepare is now", "onnxq.config.controls is now called override_set", "Wish is now called"):
    assert text in told, told
from onnxq.verify import Finding
try:
    onnxq.no_such_thing
except AttributeError:
    pass
else:
    raise AssertionError
"""


def _runs(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_old_name_of_a_module_gives_it_and_a_warning() -> None:
    _runs(MODULES)


def test_old_names_in_modules_give_the_new_ones_and_a_warning() -> None:
    _runs(NAMES)
