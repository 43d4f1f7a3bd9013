"""Modules and names that were moved can be imported by their old names, and say where they are now."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onnxq.config import read_config
from onnxq.pipeline import calibrate_model
from onnxq.types import PerBlock, QuantSpec
from tests.golden_graphs import GOLDEN

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


def test_old_properties_and_arguments_go_on_working() -> None:
    spec = QuantSpec("int8")
    for old, dtype, value in (("grid", "int8", "affine"), ("grid", "fp8_e4m3", "float"), ("grid", "nnie8", "nnie")):
        with pytest.warns(DeprecationWarning, match=r"QuantSpec\.grid is now QuantSpec\.evenly_spaced"):
            assert getattr(spec.replace(dtype=dtype), old) == value
    with pytest.warns(DeprecationWarning, match=r"QuantSpec\.shared_exponent is now"):
        assert spec.shared_exponent is None
    with pytest.warns(DeprecationWarning, match="shared_exponent"):
        assert QuantSpec("bfp16").shared_exponent == PerBlock(1, 8)
    with pytest.warns(DeprecationWarning, match="read_config"):
        assert read_config({}, options=True, verify_samples=3).sources[("verify_samples",)] == "--verify-samples"


def test_a_model_can_be_calibrated_as_before() -> None:
    golden = GOLDEN["residual"]()
    with pytest.warns(DeprecationWarning, match="calibrate_model is now onnxq.session.session.open_session"):
        found = calibrate_model(golden.model, backend="academic", data=golden.samples)
    assert set(found.state.plan.placements) == set(found.state.qparams)
