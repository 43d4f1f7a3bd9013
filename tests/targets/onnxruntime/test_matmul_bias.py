"""The bias of a MatMul is quantized where onnxruntime makes a Gemm of both, and stays float elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import onnxq
from tests.passes.equivalence import build_model


@pytest.mark.parametrize(
    ("axes", "quantized", "kernel"),
    [((6,), True, "QGemm"), ((2, 6), True, "QGemm"), (("batch", 6), False, "MatMulIntegerToFloat")],
)
def test_every_matmul_is_in_integers(axes: tuple[int | str, ...], *, quantized: bool, kernel: str) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="matmul"),
        helper.make_node("Add", ["a", "b"], ["y"], name="add"),
    ]
    constants = {"w": rng.normal(0, 1, (16, 8)).astype(np.float32), "b": rng.normal(0, 1, 8).astype(np.float32)}
    model = build_model(nodes, {"x": (*axes, 16)}, ["y"], constants)
    lengths = [length if isinstance(length, int) else 2 for length in axes]
    data = [{"x": rng.normal(0, 1, (*lengths, 16)).astype(np.float32)} for _ in range(4)]
    result = onnxq.quantize(model, backend="onnxruntime", data=data, config={"effort": 0, "report": "no"})
    assert ("b" in result.plan) is quantized
    assert result.report["kernels"]["integer"] == {kernel: 1}
    assert result.report["kernels"]["float"] == {}
