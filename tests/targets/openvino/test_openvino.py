"""The target openvino: which sums are quantized, and activations with zero points."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.targets import get_backend
from onnxq.types import QuantPlan, QuantSpec
from tests.golden_graphs import GOLDEN
from tests.zoo_graphs.net import Net


def plan_of(model: onnx.ModelProto, backend: str = "openvino") -> QuantPlan:
    prepared = prepare(model, backend)
    return place(prepared.graph, prepared.backend)


def residual_sum(normalize: str) -> onnx.ModelProto:
    """x + x W, then something, then a layer."""
    net = Net("residual_sum", opset=17)
    x = net.input("x", [2, 5, 16])
    made = net.node("MatMul", x, net.constant(net.normal(16, 16), "first"))
    total = net.node("Add", x, made, name="sum")
    gamma = net.constant(np.abs(net.normal(16)) + 0.5, "gamma")
    if normalize == "LayerNormalization":
        total = net.node("LayerNormalization", total, gamma, net.constant(net.normal(16), "beta"), axis=-1)
    elif normalize:
        if normalize == "LayerNorm":
            mean = net.node("ReduceMean", total, axes=[-1], keepdims=1)
            total = net.node("Sub", total, mean)
        squares = net.node("Pow", total, net.constant(np.float32(2), "two"))
        mean = net.node("ReduceMean", squares, axes=[-1], keepdims=1)
        root = net.node("Sqrt", net.node("Add", mean, net.constant(np.float32(1e-5), "epsilon")))
        total = net.node("Mul", net.node("Div", total, root), gamma)
    net.output(net.node("MatMul", total, net.constant(net.normal(16, 4), "second")), [2, 5, 4])
    return net.model()


@pytest.mark.parametrize("normalize", ["LayerNormalization", "LayerNorm", "RMSNorm"])
def test_a_sum_that_is_normalized_stays_float(normalize: str) -> None:
    plan = plan_of(residual_sum(normalize))
    assert "a normalization reads its result" in plan.left_float["sum"]
    assert {"first", "second"} <= set(plan.placements)


def test_an_input_that_only_such_sums_and_normalizations_read_stays_float() -> None:
    assert "tokens" not in plan_of(GOLDEN["transformer"]().model)
    assert "x" in plan_of(residual_sum("LayerNormalization"))  # the first layer reads it too


def test_a_sum_that_a_layer_reads_is_quantized() -> None:
    assert "sum" in plan_of(residual_sum("")).quantized
    adds = [name for name in plan_of(GOLDEN["residual"]().model).quantized if "add" in name.lower()]
    assert adds


def test_a_sum_with_outliers_does_not_cost_what_is_normalized_behind_it(tmp_path) -> None:
    model = residual_sum("LayerNormalization")
    outlier = onnx.numpy_helper.to_array(next(one for one in model.graph.initializer if one.name == "first")).copy()
    outlier[:, 3] *= 300
    for one in model.graph.initializer:
        if one.name == "first":
            one.CopyFrom(onnx.numpy_helper.from_array(outlier, "first"))
    rng = np.random.default_rng(3)
    data = [{"x": rng.normal(size=(2, 5, 16)).astype(np.float32)} for _ in range(8)]
    found = onnxq.quantize(model, backend="openvino", data=data, out=tmp_path / "out", config={"effort": 0})
    (decibels,) = found.report["sqnr_db"].values()
    assert decibels > 30


def test_asymmetric_activations_have_zero_points_and_weights_have_none(tmp_path) -> None:
    golden = GOLDEN["transformer"]()
    plan = plan_of(golden.model, "openvino:activations=asymmetric")
    activations = [one.spec for one in plan if one.role == "activation"]
    assert set(activations) == {QuantSpec("uint8", symmetric=False)}
    assert all(one.spec.symmetric for one in plan if one.role == "weight")
    backend = get_backend("openvino:activations=asymmetric")
    assert not backend.limits.zero_point_zero
    assert get_backend("openvino").limits.zero_point_zero

    found = onnxq.quantize(
        golden.model, backend=backend.name, data=golden.samples, out=tmp_path / "out", config={"effort": 0}
    )
    assert any(found.qparams[one.tensor].zero_point.any() for one in found.plan if one.role == "activation")
