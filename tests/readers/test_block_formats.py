"""The numbers of MX and NVFP4 are those of Quark's and of ModelOpt's own functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.types import PerBlock, QParams, QuantSpec
from tests.readers.environment import reader_python, record, run_check

pytestmark = pytest.mark.readers

QUARKS = {
    "mxfp8_e4m3": "fp8_e4m3",
    "mxfp8_e5m2": "fp8_e5m2",
    "mxfp6_e3m2": "fp6_e3m2",
    "mxfp6_e2m3": "fp6_e2m3",
    "mxfp4": "fp4",
    "mxint8": "int8",
}


def inputs() -> dict[str, np.ndarray]:
    """Usual values, every magnitude within float32's normal numbers, ties, borders of rules, and zeros."""
    rng = np.random.default_rng(0)
    shape = (64, 128)
    wide = np.ldexp(rng.normal(size=shape), rng.integers(-100, 100, (shape[0], 1))).astype(np.float32)
    halves = (rng.integers(-64, 64, shape) / 8).astype(np.float32)
    borders = np.ldexp(np.float32([1, 1.5, 1.75, 1.875, 1.9375, 2 - 2**-9])[rng.integers(0, 6, shape)], 3)
    mixed = np.where(rng.random(shape) < 0.3, np.float32(0), rng.normal(size=shape).astype(np.float32))
    mixed[:4] = 0
    near = np.nextafter(borders, rng.choice(np.float32([0, np.inf]), shape)) * rng.choice(np.float32([-1, 1]), shape)
    small = rng.random((shape[0], 4, 1)) < 0.5
    near = (near.reshape(64, 4, 32) * np.where(np.arange(32) == 0, 1, np.where(small, 0.3, 1))).reshape(shape)
    found = {"wide": wide, "halves": halves, "borders": borders, "mixed": mixed, "near": near.astype(np.float32)}
    return {**found, "usual": rng.normal(size=shape).astype(np.float32)}


def of_run(name: str, rule: str | None = None) -> QParams:
    size = 16 if name == "nvfp4" else 32
    spec = QuantSpec(name, granularity=PerBlock(-1, size), dynamic=True, scale_rule=rule)
    return qparams_from_range(-1.0, 1.0, spec)


def test_mx_has_the_numbers_of_quarks_own_function(tmp_path: Path) -> None:
    reader_python("quark")
    given, values, wanted = inputs(), {}, {}
    for kind, x in given.items():
        for name, element in QUARKS.items():
            for rule in ("floor", "even"):
                if rule == "floor" and kind == "near":
                    continue  # Quark takes a float32 logarithm there, to which numbers next to a power of two are one
                key = f"{kind} {name} {rule}"
                values |= {f"{key}/input": x, f"{key}/element": np.array(element), f"{key}/rule": np.array(rule)}
                wanted[key] = fake_quantize(x, of_run(name, rule))
    np.savez(tmp_path / "cases.npz", **values)
    answer = run_check("quark", tmp_path / "cases.npz", script="mx.py")
    assert answer["cases"] == len(wanted)
    compared = 0
    with np.load(tmp_path / "cases_quark.npz") as theirs:
        for key, expected in wanted.items():
            np.testing.assert_array_equal(theirs[f"{key}/result"], expected, err_msg=key)
            compared += expected.size
    record("quark", answer["version"], "academic", "MX formats", "values equal to Quark's fake_quantize_mx", compared)


def test_mxfp8_and_nvfp4_have_the_numbers_of_modelopts_own_tensors(tmp_path: Path) -> None:
    reader_python("modelopt")
    given, values = inputs(), {}
    scales = {kind: np.float32(np.abs(x).max() / np.float32(2688)) for kind, x in given.items()}
    for kind, x in given.items():
        values |= {f"{kind}/input": x, f"{kind}/tensor_scale": scales[kind]}
    np.savez(tmp_path / "cases.npz", **values)
    answer = run_check("modelopt", tmp_path / "cases.npz", script="blocks.py")
    assert answer["cases"] == len(given)
    compared = 0
    with np.load(tmp_path / "cases_modelopt.npz") as theirs:
        for kind, x in given.items():
            mxfp8 = fake_quantize(x, of_run("mxfp8_e4m3", "ceil"))
            np.testing.assert_array_equal(theirs[f"{kind}/mxfp8"], mxfp8, err_msg=kind)
            spec = of_run("nvfp4").spec
            nvfp4 = fake_quantize(x, QParams(spec, scales[kind], np.int32(0)))
            np.testing.assert_array_equal(theirs[f"{kind}/nvfp4"], nvfp4, err_msg=kind)
            compared += 2 * x.size
    record("modelopt", answer["version"], "academic", "MXFP8, NVFP4", "values equal to ModelOpt's tensors", compared)
