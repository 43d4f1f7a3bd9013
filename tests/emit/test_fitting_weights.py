"""Weights whose pairs of products fit into 16 bits: exact in kernels without VNNI, and finer than 7 bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.calibrate import calibrate
from onnxq.emit import emit
from onnxq.emit.pair_sums import LARGEST_PAIR
from onnxq.emit.saturation import with_fitting_weights, with_unsigned_weights
from onnxq.graph import Graph
from onnxq.numerics import dequantize, quantize
from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.targets import get_backend
from onnxq.types import QParamsTable, QuantPlan

RANDOM = np.random.default_rng(11)
Attributes = Mapping[str, Any]

LAYERS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], Attributes]] = {
    "convolution": ("Conv", (1, 16, 9, 9), (8, 16, 3, 3), {}),
    "image": ("Conv", (1, 3, 9, 9), (8, 3, 3, 3), {}),
    "odd_channels": ("Conv", (1, 5, 9, 9), (7, 5, 3, 3), {}),
    "pointwise": ("Conv", (1, 33, 6, 6), (16, 33, 1, 1), {}),
    "groups": ("Conv", (1, 12, 9, 9), (8, 3, 3, 3), {"group": 4}),
    "one_channel_to_two": ("Conv", (1, 8, 9, 9), (16, 1, 3, 3), {"group": 8}),
    "depthwise": ("Conv", (1, 8, 9, 9), (8, 1, 3, 3), {"group": 8}),
    "sequence": ("Conv", (1, 6, 30), (8, 6, 5), {}),
    "volume": ("Conv", (1, 6, 6, 6, 6), (8, 6, 3, 3, 3), {}),
    "matrix": ("MatMul", (7, 65), (65, 16), {}),
    "row": ("MatMul", (1, 64), (64, 16), {}),
    "stack": ("MatMul", (3, 4, 32), (3, 32, 8), {}),
    "gemm": ("Gemm", (7, 64), (64, 16), {}),
    "gemm_turned": ("Gemm", (7, 64), (16, 64), {"transB": 1}),
}


def model(name: str, weights: np.ndarray) -> onnx.ModelProto:
    op, shape, _, attributes = LAYERS[name]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], name="layer", **attributes)],
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )


def placed(name: str, weights: np.ndarray) -> tuple[Graph, QuantPlan, QParamsTable]:
    prepared = prepare(model(name, weights), "onnxruntime")
    found = calibrate(prepared.graph, place(prepared.graph, prepared.backend), feeds(name))
    return prepared.graph, found.plan, found.qparams


def feeds(name: str) -> list[dict[str, np.ndarray]]:
    return [{"x": RANDOM.choice([0.0, 1.0], LAYERS[name][1], p=[0.1, 0.9]).astype(np.float32)} for _ in range(2)]


def run(path: Path, level: ort.GraphOptimizationLevel, given: list[dict[str, np.ndarray]]) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options)
    return np.stack([np.asarray(session.run(None, feed)[0]) for feed in given])


def heavy(name: str) -> np.ndarray:
    """Nearly all pairs would saturate."""
    return np.random.default_rng(11).uniform(0.7, 1.0, LAYERS[name][2])


def usual(name: str) -> np.ndarray:
    """Some pairs would: the same weights in whatever order tests run, as it depends on them what is done."""
    return np.random.default_rng(11).normal(0.05, 0.1, LAYERS[name][2])


def alternating(name: str) -> np.ndarray:
    """A large weight beside a small one: pairs fit as they are, and would not in another order."""
    op, _, shape, attributes = LAYERS[name]
    summed = 1 if op == "Conv" or attributes else len(shape) - 2
    moved = np.moveaxis(np.empty(shape), summed, -1).shape
    kept = 1 if op == "Conv" else len(shape) - 1
    row = np.resize([1.0, 1 / 127], int(np.prod(moved[kept:])))
    return np.moveaxis(np.broadcast_to(row.reshape(moved[kept:]), moved), -1, summed)


@pytest.mark.parametrize("weights", [heavy, usual, alternating])
@pytest.mark.parametrize("name", LAYERS)
def test_kernels_of_every_processor_are_exact_on_weights_whose_pairs_fit(
    tmp_path: Path, name: str, weights: Callable[[str], np.ndarray]
) -> None:
    values = weights(name)
    graph, plan, before = placed(name, values)
    plan, qparams = with_fitting_weights(graph, plan, before)
    if weights is alternating:
        assert qparams["w"] == before["w"]
    written = emit(graph, plan, qparams, get_backend("onnxruntime"), tmp_path, "model")
    path = next(file for file in written.files if file.suffix == ".onnx")
    given = feeds(name)
    literal = run(path, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, given)
    fused = run(path, ort.GraphOptimizationLevel.ORT_ENABLE_ALL, given)
    # Outputs of a Conv are rounded to 8 bits, where the last bit may differ; sums that saturate lose a quarter.
    assert np.abs(literal - fused).max() <= 1.01 / 255 * np.abs(literal).max()


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("depthwise", "stack")])
def test_only_scales_of_channels_with_large_pairs_grow_and_by_less_than_two(name: str) -> None:
    op, _, shape, attributes = LAYERS[name]
    weights = RANDOM.normal(0, 0.1, shape)
    axis = 0 if op == "Conv" or attributes else 1
    lonely = np.moveaxis(weights, axis, 0)
    lonely[0] = 0.0
    lonely[0].flat[0] = 1.0  # one large weight in its channel: no pair that is too large
    graph, plan, before = placed(name, weights)
    _, after = with_fitting_weights(graph, plan, before)
    growth = after["w"].scale / before["w"].scale
    assert growth[0] == 1.0
    assert np.all(growth >= 1.0)
    assert 1.0 < growth.max() < 2.0


def test_depthwise_weights_stay_as_they_are() -> None:
    graph, plan, before = placed("depthwise", heavy("depthwise"))
    _, after = with_fitting_weights(graph, plan, before)
    assert after["w"] == before["w"]


def test_one_scale_for_a_stack_fits_its_largest_pair() -> None:
    weights = RANDOM.uniform(0.2, 0.6, LAYERS["stack"][2])
    weights[0, :2, 0] = 1.0, 0.2
    graph, plan, before = placed("stack", weights)
    _, after = with_fitting_weights(graph, plan, before)
    integers = quantize(graph.values("w"), after["w"]).astype(int)
    pairs = np.abs(integers[:, 0::2] + integers[:, 1::2])
    assert after["w"].scale.shape == ()
    assert 120 < pairs.max() <= LARGEST_PAIR


@pytest.mark.parametrize("name", ["convolution", "matrix"])
def test_weights_that_would_lose_much_are_unsigned(name: str) -> None:
    graph, plan, before = placed(name, heavy(name))
    other, after = with_fitting_weights(graph, plan, before)
    assert other["w"].spec.dtype == after["w"].spec.dtype == "uint8"
    np.testing.assert_array_equal(after["w"].scale, before["w"].scale)
    graph, plan, before = placed(name, usual(name))
    other, after = with_fitting_weights(graph, plan, before)
    assert other["w"].spec.dtype == after["w"].spec.dtype == "int8"


def test_integers_that_an_algorithm_has_fixed_stand_for_the_same_numbers_unsigned() -> None:
    graph, plan, before = placed("matrix", RANDOM.normal(0, 0.1, LAYERS["matrix"][2]))
    before.integer_weights["w"] = quantize(graph.values("w"), before["w"])[::-1].copy()
    _, after = with_unsigned_weights(graph, plan, before)
    assert after["w"].spec.dtype == "uint8"
    np.testing.assert_array_equal(
        dequantize(after.integer_weights["w"].astype(np.uint8), after["w"]),
        dequantize(before.integer_weights["w"], before["w"]),
    )
    _, fitting = with_fitting_weights(graph, plan, before)
    assert fitting["w"] == before["w"]
