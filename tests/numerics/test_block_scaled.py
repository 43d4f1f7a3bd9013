"""MX, NVFP4, NF4: formulas one block at a time, rules for scales, values at every border; torch has the same bits."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onnxq.errors import DataError, SpecError
from onnxq.numerics import dequantize, fake_quantize, qparams_from_range, quantize, sqnr_db
from onnxq.observers import make_observer, observe_constant
from onnxq.torchnet.fake_quantize.grids import grid_values
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec
from onnxq.types.number_format import number_format
from tests.emit.test_bfp16_model import awkward

MX = {
    "mxfp8_e4m3": (ml_dtypes.float8_e4m3fn, 448.0, 8, 3),
    "mxfp8_e5m2": (ml_dtypes.float8_e5m2, 57344.0, 15, 2),
    "mxfp6_e3m2": (ml_dtypes.float6_e3m2fn, 28.0, 4, 2),
    "mxfp6_e2m3": (ml_dtypes.float6_e2m3fn, 7.5, 2, 3),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 6.0, 2, 1),
}
RULES = ("floor", "even", "ceil")
NAMES = (*MX, "mxint8", "nvfp4", "nf4")


def dynamic(name: str, axis: int = -1, size: int | None = None, rule: str | None = None) -> QuantSpec:
    blocks = PerBlock(axis, size or number_format(name).block)  # type: ignore[attr-defined]
    return QuantSpec(name, granularity=blocks, dynamic=True, scale_rule=rule)


def of_run(spec: QuantSpec, scale: float = 1.0) -> QParams:
    return QParams(spec, np.float32(scale), np.int32(0))


def mx_exponent(largest: float, name: str, rule: str) -> int:
    """The rule in exact arithmetic."""
    if largest == 0:
        return -127
    _, top, emax, fraction = MX.get(name, (None, 127 / 64, 0, 8))
    exponent = math.frexp(largest)[1] - 1
    part = Fraction(largest) / Fraction(2) ** exponent
    higher = {
        "floor": False,
        "even": part >= 2 - Fraction(1, 2 ** (fraction + 1)),
        "ceil": part > Fraction(top) / 2**emax,
    }[rule]
    return max(-127, min(exponent + higher, 127) - emax)


def mx_values(block: list[float], name: str, rule: str) -> list[float]:
    finite = [abs(x) for x in block if math.isfinite(x)]
    scale = Fraction(2) ** mx_exponent(max(finite, default=0.0), name, rule)
    found = []
    for x in block:
        if name == "mxint8":
            steps = math.copysign(127, x) if math.isinf(x) else round(Fraction(x) / scale * 64)
            found.append(float(Fraction(max(-127, min(127, int(steps))), 64) * scale))
            continue
        kind, top, _, _ = MX[name]
        ratio = math.copysign(top, x) if math.isinf(x) else float(Fraction(x) / scale)
        found.append(float(np.float64(max(-top, min(top, ratio))).astype(kind)) * float(scale))
    return found


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [*MX, "mxint8"])
@given(block=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=8))
def test_a_block_of_mx_is_what_the_formula_says(name: str, rule: str, block: list[float]) -> None:
    x = np.float32(block)
    found = fake_quantize(x, of_run(dynamic(name, size=8, rule=rule)))
    np.testing.assert_array_equal(found, np.float32(mx_values(block, name, rule)))
    assert np.isfinite(found).all(), "no scale makes a value infinite"


@pytest.mark.parametrize(
    ("name", "rule", "largest", "exponent"),
    [
        ("mxfp4", "floor", 7.99, 0),
        ("mxfp4", "even", 6.99, 0),
        ("mxfp4", "even", 7.0, 1),
        ("mxfp4", "ceil", 6.0, 0),
        ("mxfp4", "ceil", 6.01, 1),
        ("mxfp8_e4m3", "floor", 511.0, 0),
        ("mxfp8_e4m3", "ceil", 448.0, 0),
        ("mxfp8_e4m3", "ceil", 449.0, 1),
        ("mxfp8_e4m3", "even", 496.0, 1),
        ("mxfp8_e5m2", "floor", 65535.0, 0),
        ("mxfp6_e2m3", "ceil", 7.6, 1),
        ("mxfp6_e3m2", "ceil", 28.0, 0),
        ("mxint8", "floor", 1.99, 0),
        ("mxfp4", "floor", 0.0, -127),
        ("mxfp4", "floor", 1e-45, -127),
        ("mxfp4", "ceil", 3.4e38, 125),
    ],
)
def test_rules_take_the_next_power_of_two_from_their_borders_on(
    name: str, rule: str, largest: float, exponent: int
) -> None:
    form = number_format(name)
    found = form.block_scales(np.float32([largest]), np.float32(1), dynamic(name, rule=rule))  # type: ignore[attr-defined]
    assert found == np.ldexp(np.float32(1), exponent)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_torch_has_the_bits_of_numpy_for_hostile_values(name: str, seed: int) -> None:
    rules = RULES if number_format(name).scale_rules else (None,)
    for number, rule in enumerate(rules):
        for shape, axis in (((7, 33), -1), ((4, 20, 3), 1), ((2, 40, 5, 4), 1), ((70,), 0), ((1, 1), 0), ((), 0)):
            x = np.nan_to_num(awkward(shape, 10 * seed + number), nan=3e38, posinf=np.inf, neginf=-np.inf)
            if x.size > 1 and seed % 2:
                x.reshape(-1)[:2] = np.float32([np.inf, -np.inf])
            spec = dynamic(name, axis, rule=rule)
            held = qparams_from_range(-1.0, 10.0 ** (4 * seed - 8), spec)
            wanted = fake_quantize(x, held)
            scale, zero = torch.from_numpy(np.array(held.scale)), torch.zeros(())
            found = grid_values(torch.from_numpy(np.array(x)), scale, zero, spec).numpy()
            assert found.shape == wanted.shape
            np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32), err_msg=f"{shape} {rule}")


@pytest.mark.parametrize("name", NAMES)
def test_scales_that_were_calibrated_give_a_weight_the_numbers_that_it_has_at_run_time(name: str) -> None:
    values = np.random.default_rng(0).normal(size=(100, 5)).astype(np.float32)
    blocks = PerBlock(0, dynamic(name).granularity.size)  # type: ignore[union-attr]
    for rule in RULES if number_format(name).scale_rules else (None,):
        spec = QuantSpec(name, granularity=blocks, scale_rule=rule)
        held = observe_constant(values, make_observer("minmax"), spec)
        assert held.scale.shape == spec.scale_shape(values.shape)
        stored = quantize(values, held)
        found = fake_quantize(values, held)
        np.testing.assert_array_equal(dequantize(stored, held), found)
        assert QParams.from_json(held.to_json()) == held
        if name == "nvfp4":
            continue  # the scale of its tensor is a power of two at rest, and calibrated at run time
        np.testing.assert_array_equal(found, fake_quantize(values, of_run(spec.replace(dynamic=True))))


def test_two_levels_of_scales_are_products_without_an_error() -> None:
    values = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32) * np.float32(0.0371)
    held = observe_constant(values, make_observer("minmax"), QuantSpec("nvfp4", granularity=PerBlock(1, 16)))
    at_rest = held.spec.format.at_rest
    assert at_rest is not None
    blocks, common = at_rest.scales(held.scale)
    assert math.frexp(common)[0] == 0.5
    assert 224 < blocks.astype(np.float32).max() <= 448
    np.testing.assert_array_equal(blocks.astype(np.float32) * np.float32(common), held.scale)
    # The power of two costs nothing: as good as the scale of the tensor that makes the largest block number 448.
    of_tensor = QuantSpec("nvfp4", granularity=PerBlock(1, 16), dynamic=True)
    other = fake_quantize(values, qparams_from_range(values.min(), values.max(), of_tensor))
    assert abs(sqnr_db(values, fake_quantize(values, held)) - sqnr_db(values, other)) < 0.1


def test_blocks_far_below_the_largest_have_the_smallest_normal_number() -> None:
    values = np.ones((2, 16), np.float32)
    values[1] *= np.float32(1e-7)
    held = observe_constant(values, make_observer("minmax"), QuantSpec("nvfp4", granularity=PerBlock(1, 16)))
    blocks, _ = held.spec.format.at_rest.scales(held.scale)  # type: ignore[union-attr]
    assert blocks.astype(np.float32).min() == 2.0**-6
    assert not fake_quantize(values, held)[1].any()


def test_an_nvfp4_block_is_what_the_formula_says() -> None:
    x = np.float32([[0.1, -0.7, 3.0, 0.26] * 4, [0.0] * 16])
    s = np.float32(0.003)
    number = np.float32(np.float32(3.0) / (np.float32(6) * s)).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    step = np.float32(number * s)
    wanted = (x[0] / step).astype(ml_dtypes.float4_e2m1fn).astype(np.float32) * step
    found = fake_quantize(x, of_run(dynamic("nvfp4"), float(s)))
    np.testing.assert_array_equal(found[0], wanted)
    assert not found[1].any()


def test_nf4_has_the_nearest_entry_of_its_table() -> None:
    spec = QuantSpec("nf4", granularity=PerBlock(-1, 64))
    x = np.linspace(-1, 1, 5 * 64, dtype=np.float32).reshape(5, 64)
    held = QParams(spec, np.ones((5, 1), np.float32), np.zeros((5, 1), np.int32))
    table = np.unique(fake_quantize(x, held))
    assert len(table) == 16
    nearest = table[np.abs(x[..., None].astype(np.float64) - table).argmin(-1)]
    np.testing.assert_array_equal(fake_quantize(x, held), nearest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dtype": "int8", "dynamic": True}, "int8 has no scales that blocks compute at run time"),
        ({"dtype": "mxfp4", "dynamic": True}, "are those of blocks, got per tensor"),
        ({"dtype": "mxfp4", "dynamic": True, "granularity": PerChannel(0)}, "are those of blocks"),
        (
            {"dtype": "mxfp4", "scale_rule": "nearest"},
            "unknown scale_rule 'nearest' of mxfp4. Known: floor, even, ceil",
        ),
        ({"dtype": "int8", "scale_rule": "even"}, "int8 has no rule for scales to choose"),
        ({"dtype": "mxfp4", "power_of_two": True}, "power_of_two does not apply"),
        ({"dtype": "nvfp4", "symmetric": False}, "it has no zero point"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        QuantSpec(**arguments)  # type: ignore[arg-type]


def test_scales_that_the_format_does_not_have_are_refused() -> None:
    with pytest.raises(SpecError, match="no scale of mxfp4, whose scales are powers of two"):
        QParams(QuantSpec("mxfp4"), np.float32(3.0), np.int32(0))
    with pytest.raises(SpecError, match="no scale of nvfp4, whose scales are numbers of 4 significant bits"):
        QParams(QuantSpec("nvfp4"), np.float32(1.03125), np.int32(0))
    with pytest.raises(SpecError, match="computes its scales at run time"):
        of_run(dynamic("mxfp4"), 2.0)


def test_nan_has_no_number() -> None:
    with pytest.raises(DataError, match="NaN at index"):
        fake_quantize(np.float32([1, np.nan]), of_run(dynamic("mxfp4")))


def test_what_is_computed_at_run_time_has_one_scale_or_none() -> None:
    assert not dynamic("mxfp4").has_scale
    assert not dynamic("nf4").has_scale
    assert dynamic("nvfp4").has_scale
    assert dynamic("nvfp4").scale_granularity == PerTensor()
    assert dynamic("nvfp4").scale_shape((3, 40)) == ()
    assert qparams_from_range(-2688.0, 5.0, dynamic("nvfp4")).scale == 1
