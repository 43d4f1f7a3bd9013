"""A HardSwish in small operators is one operator in files for onnxruntime, behind one conversion from integers."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

import onnxq
from tests.passes.equivalence import build_model


def test_a_hardswish_in_four_operators_is_one_and_reads_one_conversion() -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], name="first"),
        helper.make_node("Add", ["c", "three"], ["a"], name="add"),
        helper.make_node("Clip", ["a", "zero", "six"], ["d"], name="clip"),
        helper.make_node("Mul", ["c", "d"], ["m"], name="mul"),
        helper.make_node("Div", ["m", "six"], ["h"], name="div"),
        helper.make_node("Conv", ["h", "w2"], ["y"], name="second"),
    ]
    constants = {
        "w1": rng.normal(0, 1, (8, 4, 1, 1)).astype(np.float32),
        "w2": rng.normal(0, 1, (4, 8, 1, 1)).astype(np.float32),
        **{name: np.array(value, np.float32) for name, value in {"zero": 0.0, "three": 3.0, "six": 6.0}.items()},
    }
    model = build_model(nodes, {"x": (1, 4, 6, 6)}, ["y"], constants)
    data = [{"x": rng.normal(0, 1, (1, 4, 6, 6)).astype(np.float32)} for _ in range(8)]
    result = onnxq.quantize(model, backend="onnxruntime", data=data, config={"effort": 0, "report": "no"})
    operators = [node.op_type for node in onnx.load(result.model).graph.node]
    kernels = result.report["kernels"]

    assert operators.count("HardSwish") == 1
    assert not {"Add", "Clip", "Mul", "Div"} & {*operators}
    assert kernels["integer"] == {"QLinearConv": 2}
    assert kernels["quantizers"] == {"QuantizeLinear": 2, "DequantizeLinear": 2}  # both ends, and the HardSwish
    assert result.report["sqnr_db"]["y"] > 30
