"""The zoo itself is sound: every case is valid ONNX, runs in onnxruntime as it says, and is the same every time."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.zoo import ZOO, Case, runnable


@pytest.fixture(params=sorted(ZOO))
def case(request: pytest.FixtureRequest) -> Case:
    return ZOO[request.param]()


def run(case: Case) -> list[list[np.ndarray]]:
    session = onnxruntime.InferenceSession(runnable(case.model).SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, feed) for feed in case.feeds]


def test_case_is_sound(case: Case, request: pytest.FixtureRequest) -> None:
    """Valid, the same every time, runs as it says, with samples that fit."""
    assert_same_as(ZOO[request.node.callspec.params["case"]](), case)
    assert_samples_fit(case)
    onnx.checker.check_model(case.model, full_check=case.runs_in_onnxruntime)
    assert case.feeds
    assert set(case.exact_outputs) <= {output.name for output in case.model.graph.output}
    if not case.runs_in_onnxruntime:
        with pytest.raises(Exception, match=r"ONNXRuntimeError|NOT_IMPLEMENTED|bfloat16"):
            run(case)
        return
    outputs = run(case)
    declared = [(o.name, o.type.tensor_type.elem_type) for o in case.model.graph.output]
    for sample in outputs:
        for (name, element_type), values in zip(declared, sample, strict=True):
            assert onnx.helper.np_dtype_to_tensor_dtype(values.dtype) == element_type, name
            if values.dtype.kind == "f":
                assert np.any(values != 0), f"output '{name}' is all zero: any quantization of it would look right"
                assert np.isfinite(values).mean() > 0.5, f"output '{name}' is not finite"


def assert_same_as(again: Case, case: Case) -> None:
    assert case.model.SerializeToString(deterministic=True) == again.model.SerializeToString(deterministic=True)
    for feed, other in zip(case.feeds, again.feeds, strict=True):
        assert feed.keys() == other.keys()
        assert all(np.array_equal(feed[name], other[name]) for name in feed)


def assert_samples_fit(case: Case) -> None:
    initializers = {tensor.name for tensor in case.model.graph.initializer}
    declared = {value.name: value for value in case.model.graph.input if value.name not in initializers}
    for feed in case.feeds:
        assert feed.keys() == declared.keys()
        for name, values in feed.items():
            tensor_type = declared[name].type.tensor_type
            assert onnx.helper.np_dtype_to_tensor_dtype(values.dtype) == tensor_type.elem_type, name
            for size, dim in zip(values.shape, tensor_type.shape.dim, strict=True):
                assert not dim.HasField("dim_value") or dim.dim_value == size, name
