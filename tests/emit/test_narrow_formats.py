"""Formats narrower than the type that stores them, written as QuantizeLinear: every value is what numerics says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from onnxq.emit.qdq import to_qdq
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize
from onnxq.targets import get_backend
from onnxq.types import PerChannel, PerTensor, Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from tests.products import pairwise

SHAPE = (2, 4, 5, 3)


def graph() -> Graph:
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[2,4,5,3] x) => (float[2,4,5,3] y) { y = Add (x, w) }'
    model = onnx.parser.parse_model(text)
    values = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32) * 4
    model.graph.initializer.append(numpy_helper.from_array(values, "w"))
    return Graph.from_model(model)


DTYPES = ["int2", "int3", "int5", "int7", "uint3", "uint6", "int12", "uint10", "int1", "uint1"]


@pytest.mark.parametrize(
    ("dtype", "symmetric", "axis", "tensor"), pairwise(DTYPES, [True, False], [None, 0, 1, 3], ["x", "w"])
)
def test_values_beyond_the_format_saturate_at_its_bounds(
    dtype: str, symmetric: bool, axis: int | None, tensor: str, tmp_path: Path
) -> None:
    spec = QuantSpec(dtype, symmetric=symmetric, granularity=PerTensor() if axis is None else PerChannel(axis))
    random = np.random.default_rng(2)
    count = () if axis is None else (SHAPE[axis],)
    zero = 0 if symmetric else random.integers(spec.qmin, spec.qmax + 1, count or None)
    qparams = QParams(spec, random.uniform(0.1, 0.7, count).astype(np.float32), np.broadcast_to(zero, count))
    role = "weight" if tensor == "w" else "activation"
    plan = QuantPlan(
        "tensorrt", {tensor: Placement(tensor, spec, role, "test", observe=() if tensor == "w" else ("x",))}
    )
    table = QParamsTable()
    table.put(tensor, qparams, "test")
    float_model = graph()
    written, _ = to_qdq(float_model, plan, table, get_backend("tensorrt"))
    x = random.normal(size=SHAPE).astype(np.float32) * 4
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(written.to_model().SerializeToString(), options)
    w = float_model.values("w")
    expected = fake_quantize(x, qparams) + w if tensor == "x" else x + fake_quantize(w, qparams)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_the_model_of_the_user_is_not_changed() -> None:
    before = graph()
    values = before.values("w").copy()
    spec = QuantSpec("int4", granularity=PerChannel(1))
    table = QParamsTable()
    table.put("w", QParams(spec, np.full(4, 0.1, np.float32), np.zeros(4, np.int32)), "test")
    to_qdq(before, QuantPlan("tensorrt", {"w": Placement("w", spec, "weight", "test")}), table, get_backend("tensorrt"))
    np.testing.assert_array_equal(before.values("w"), values)
