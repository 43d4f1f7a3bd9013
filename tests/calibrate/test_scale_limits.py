"""Calibration obeys the smallest scale and the PACT limit that a placement sets, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxq.calibrate import calibrate
from onnxq.calibrate.report import Calibration
from onnxq.graph import Graph
from onnxq.numerics import qparams_from_range
from onnxq.numerics.ranges import with_minimum_scale
from onnxq.types import Edge, PerChannel, Placement, QParams, QuantPlan, QuantSpec

UINT8 = QuantSpec("uint8", symmetric=False)
INT8 = QuantSpec("int8")
WEIGHT = np.array([[4.0, -8.0], [1e-6, 2e-6], [0.5, 1.0]], np.float32)
X = np.array([[-10.0, 3.0], [1.0, 20.0]], np.float32)


def graph_of(dtype: type = np.float32) -> Graph:
    """y = x * w^T, in float32 or float16."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w"], ["y"], name="fc", transB=1)],
        "test",
        [helper.make_tensor_value_info("x", kind, ["N", 2])],
        [helper.make_tensor_value_info("y", kind, ["N", 3])],
        [numpy_helper.from_array(WEIGHT.astype(dtype), "w")],
    )
    built = Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))
    built.infer_shapes()
    return built


def calibrated(activation: QuantSpec = UINT8, weight: QuantSpec = INT8, **fields: Any) -> Calibration:
    """Both tensors placed with the given formats and fields of a Placement."""
    placements = [
        Placement("x", activation, "activation", "", (Edge("fc", 0),), observe=("x",)),
        Placement("w", weight, "weight", "", (Edge("fc", 1),)),
    ]
    dtype = fields.pop("dtype", np.float32)
    plan = QuantPlan("test", {p.tensor: replace(p, **fields) for p in placements}, {"fc": "rule"})
    return calibrate(graph_of(dtype), plan, [{"x": row[None].astype(dtype)} for row in X])


@pytest.mark.parametrize("spec", [UINT8, INT8, INT8.replace(power_of_two=True), QuantSpec("uint8", symmetric=True)])
def test_pact_limits_the_range_of_an_activation(spec: QuantSpec) -> None:
    table = calibrated(spec, fake_quantizer="pact:alpha=4").qparams
    assert table["x"] == qparams_from_range(-4.0, 4.0, spec)
    assert table.provenance["x"] == "minmax, limited to 4 by pact"


def test_pact_leaves_the_end_that_lies_inside_its_limit() -> None:
    table = calibrated(fake_quantizer="pact:alpha=15").qparams
    assert table["x"] == qparams_from_range(-10.0, 15.0, UINT8)


def test_a_range_inside_the_limit_stays_and_nothing_is_said() -> None:
    table = calibrated(fake_quantizer="pact:alpha=20").qparams
    assert table["x"] == calibrated().qparams["x"]
    assert table.provenance["x"] == "minmax"


def test_pact_limits_activations_and_constants_per_channel() -> None:
    channels = QuantSpec("int8", granularity=PerChannel(1))
    table = calibrated(channels, INT8.replace(granularity=PerChannel(0)), fake_quantizer="pact:alpha=5").qparams
    np.testing.assert_array_equal(table["x"].scale, np.array([5, 5], np.float32) / np.float32(127))
    expected = qparams_from_range(np.array([-5, 0, 0]), np.array([4, WEIGHT[1, 1], 1]), table["w"].spec)
    assert table["w"] == expected
    assert table.provenance["w"] == "minmax, limited to 5 by pact"


def test_pact_limits_the_range_that_several_tensors_share() -> None:
    plan = QuantPlan(
        "test",
        {
            "x": Placement(
                "x", INT8, "activation", "", (Edge("fc", 0),), observe=("x", "y"), fake_quantizer="pact:alpha=7"
            ),
            "y": Placement("y", INT8, "activation", "", None, tie="x"),
        },
    )
    table = calibrate(graph_of(), plan, [{"x": X}]).qparams
    assert table["x"] == table["y"] == qparams_from_range(-7.0, 7.0, INT8)


def test_other_fake_quantizers_change_no_number() -> None:
    assert calibrated(fake_quantizer="lsq").qparams["x"] == calibrated().qparams["x"]


def test_no_scale_is_below_the_smallest() -> None:
    weight = INT8.replace(granularity=PerChannel(0))
    table, plain = calibrated(weight=weight, minimum_scale=1e-5).qparams, calibrated(weight=weight).qparams
    assert plain["w"].scale[1] < 1e-5
    np.testing.assert_array_equal(table["w"].scale, [plain["w"].scale[0], np.float32(1e-5), plain["w"].scale[2]])
    assert table.provenance == {"x": "minmax", "w": "minmax, scale raised to 1e-05"}


def test_a_raised_scale_of_an_activation_keeps_the_low_end() -> None:
    table = calibrated(minimum_scale=0.25).qparams
    assert table["x"].scale == 0.25
    assert table["x"].zero_point == 40  # -10 / 0.25
    assert table.provenance["x"] == "minmax, scale raised to 0.25"


def test_power_of_two_scales_are_raised_to_the_next_power() -> None:
    spec = INT8.replace(power_of_two=True)
    table = calibrated(spec, spec, minimum_scale=0.3).qparams
    assert table["x"].scale == table["w"].scale == 0.5
    assert table.provenance["x"] == "minmax, scale raised to 0.5"
    assert calibrated(spec, spec, minimum_scale=0.25).qparams["x"].scale == 0.25


def test_limit_and_smallest_scale_work_together() -> None:
    table = calibrated(INT8, fake_quantizer="pact:alpha=4", minimum_scale=0.1).qparams
    assert table["x"].scale == np.float32(0.1)
    assert table.provenance["x"] == "minmax, limited to 4 by pact, scale raised to 0.1"


def test_float16_models_round_the_raised_scale_up() -> None:
    table = calibrated(INT8, minimum_scale=0.3, dtype=np.float16).qparams
    assert np.float16(table["x"].scale) == table["x"].scale >= 0.3


def test_formats_without_a_scale_keep_theirs() -> None:
    halves = QuantSpec("fp16"), QuantSpec("bf16")
    table = calibrated(*halves, minimum_scale=3.0, fake_quantizer="pact:alpha=1").qparams
    assert table["x"].scale == table["w"].scale == 1.0
    assert table.provenance == {"x": "minmax", "w": "minmax"}


@pytest.mark.parametrize("minimum", [1e-3, 0.7, 3.0])
def test_the_largest_value_of_nnie_stays_on_its_grid(minimum: float) -> None:
    spec = QuantSpec("nnie8")
    raised = with_minimum_scale(qparams_from_range(0.0, 1e-5, spec), minimum)
    steps = 16 * np.log2(float(raised.scale))
    assert abs(steps - round(steps)) < 1e-5
    assert minimum <= raised.scale < minimum * 2 ** (1.01 / 16)


@given(
    st.floats(-100, 0, width=32),
    st.floats(0, 100, width=32),
    st.floats(1e-6, 10),
    st.sampled_from([UINT8, QuantSpec("int4", symmetric=False), UINT8.replace(power_of_two=True), INT8]),
)
def test_a_raised_range_still_reaches_its_low_end(low: float, high: float, minimum: float, spec: QuantSpec) -> None:
    plain = qparams_from_range(low, high, spec)
    raised = with_minimum_scale(plain, minimum)
    assert raised.scale == max(
        plain.scale, with_minimum_scale(QParams(spec, np.asarray(1e-12), np.asarray(0)), minimum).scale
    )
    assert raised.scale >= np.float32(minimum)
    lowest = (spec.qmin - int(raised.zero_point)) * float(raised.scale)
    # half a step of each grid, from the rounding of the two zero points
    assert lowest <= low + (float(raised.scale) + float(plain.scale)) / 2 * (1 + 1e-6)
