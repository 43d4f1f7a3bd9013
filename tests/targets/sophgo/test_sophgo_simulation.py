"""The simulated Add and average of BM chips against integer arithmetic done by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.targets import get_backend
from onnxq.targets.sophgo.simulate_multipliers import multiplier_and_shift
from onnxq.types import Placement, QParams, QParamsTable, QuantPlan, QuantSpec


@pytest.mark.parametrize(
    ("one", "result", "expected"),
    [
        # scales and multipliers that tpu-mlir 1.30.2 printed for Adds and an average over 16 values
        (0.0488918163, 0.0318481587, (49, 5)),
        (0.0216071475, 0.0318481587, (87, 7)),
        (0.0640723706, 0.0443695075, (23, 4)),
        (0.0556126758, 0.0443695075, (5, 2)),
        (0.0235294122, 16 * 0.00643448671, (117, 9)),
    ],
)
def test_multipliers_are_those_of_tpu_mlir(one: float, result: float, expected: tuple[int, int]) -> None:
    assert multiplier_and_shift(float(np.float32(one / result))) == expected


def model_of(*nodes: onnx.NodeProto, inputs: tuple[str, ...]) -> Graph:
    shape = [1, 2, 4, 4]
    graph = helper.make_graph(
        list(nodes),
        "one",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    made = Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    made.infer_shapes()
    return made


def run(graph: Graph, scales: dict[str, float], node: str, feed: dict[str, np.ndarray], folder: Path) -> np.ndarray:
    plan = QuantPlan("sophgo_bm1688", quantized={node: "by hand"})
    qparams = QParamsTable()
    for name, scale in scales.items():
        plan.placements[name] = Placement(name, QuantSpec("int8"), "activation", "by hand")
        qparams.put(name, QParams(QuantSpec("int8"), np.float32(scale), np.int32(0)), "by hand")
    result, notes = simulate(graph, plan, qparams, get_backend("sophgo_bm1688"))
    assert notes == []
    result.save(folder / "simulated.onnx")
    session = onnxruntime.InferenceSession(str(folder / "simulated.onnx"), providers=["CPUExecutionProvider"])
    made: np.ndarray = session.run(["y"], feed)[0]
    return made


def codes(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(-128, 128, (1, 2, 4, 4))


def test_an_add_rounds_each_product_up_at_halves_and_saturates(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    scales = {"a": 0.048891816, "b": 0.021607148, "y": 0.031848159}
    first, second = codes(rng), codes(rng)
    feed = {"a": (first * np.float32(scales["a"])).astype(np.float32)}
    feed["b"] = (second * np.float32(scales["b"])).astype(np.float32)
    graph = model_of(helper.make_node("Add", ["a", "b"], ["y"], name="add"), inputs=("a", "b"))
    made = run(graph, scales, "add", feed, tmp_path)
    expected = np.clip(((first * 49 + 16) >> 5) + ((second * 87 + 64) >> 7), -128, 127)
    np.testing.assert_array_equal(np.round(made / np.float32(scales["y"])), expected)


def test_an_average_rounds_halves_away_from_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    scales = {"a": 0.023529412, "y": 0.0064344867}
    values = codes(rng) // 4
    feed = {"a": (values * np.float32(scales["a"])).astype(np.float32)}
    graph = model_of(helper.make_node("GlobalAveragePool", ["a"], ["y"], name="mean"), inputs=("a",))
    made = run(graph, scales, "mean", feed, tmp_path)
    total = values.sum((2, 3), keepdims=True) * 117
    expected = np.clip(np.sign(total) * ((np.abs(total) + 256) >> 9), -128, 127)
    np.testing.assert_array_equal(np.round(made / np.float32(scales["y"])), expected)
