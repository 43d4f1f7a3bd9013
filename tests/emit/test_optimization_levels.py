"""model.onnx loads without onnxruntime's optimizations and with the basic ones; a refusal of more is reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxq
from tests.golden_graphs import GOLDEN

LEVELS = ort.GraphOptimizationLevel


def few_bits(bits: int) -> dict[str, Any]:
    return {"weight": {"dtype": f"int{bits}"}, "activation": {"dtype": f"uint{bits}", "symmetric": False}}


def loads(path: object, level: Any) -> bool:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    try:
        ort.InferenceSession(str(path), options)
    except Exception:  # onnxruntime has a class of its own for each kind of refusal
        return False
    return True


@pytest.mark.parametrize("bits", [3, 4, 6])
def test_few_bits_load_with_basic_optimizations_and_a_refusal_of_more_is_reported(bits: int) -> None:
    golden = GOLDEN["residual"]()
    config = {"effort": 0, "minimum_sqnr_db": -100, **few_bits(bits)}
    result = onnxq.quantize(golden.model, backend="academic", data=golden.samples, config=config)
    assert loads(result.model, LEVELS.ORT_DISABLE_ALL)
    assert loads(result.model, LEVELS.ORT_ENABLE_BASIC)
    reported = "optimizer_refuses" in result.report["kinds"]
    assert reported is not loads(result.model, LEVELS.ORT_ENABLE_ALL)
    assert np.isfinite(list(result.report["sqnr_db"].values())).all()
