"""What the emitted file computes: onnxruntime must agree with onnxq.numerics bit for bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.emit.qdq import required_opset, to_qdq
from onnxq.errors import SpecError, UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.targets import get_backend
from onnxq.types import Edge, PerBlock, PerChannel, Placement, QParams, QParamsTable, QuantPlan, QuantSpec

ANY = get_backend("onnxruntime")
RANDOM = np.random.default_rng(7)
X = np.concatenate([RANDOM.normal(0, 2, 2000), [0.0, -0.0, 1e-8, 30.0, -30.0]]).astype(np.float32).reshape(5, -1)


def model(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], opset: int = 13, element: int = TensorProto.FLOAT
) -> Graph:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", element, ["n", X.shape[1]])],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    result = Graph.from_model(made)
    result.infer_shapes()
    return result


def run(graph: Graph, x: np.ndarray = X) -> np.ndarray:
    proto = graph.to_model()
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})[0]


def placed(
    tensor: str, qparams: QParams, role: str = "activation", edges: tuple[Edge, ...] | None = None
) -> tuple[QuantPlan, QParamsTable]:
    plan = QuantPlan("test", {tensor: Placement(tensor, qparams.spec, role, "test", edges=edges)})  # type: ignore[arg-type]
    table = QParamsTable()
    table.put(tensor, qparams, "test")
    return plan, table


ACTIVATION_SPECS = [
    QuantSpec("int8"),
    QuantSpec("int8", narrow_range=True),
    QuantSpec("uint8", symmetric=False),
    QuantSpec("int16"),
    QuantSpec("uint16", symmetric=False),
    QuantSpec("int4"),
    QuantSpec("uint4", symmetric=False),
    QuantSpec("int2"),
    QuantSpec("int5"),
    QuantSpec("uint7", symmetric=False),
    QuantSpec("int12", symmetric=False),
    QuantSpec("int8", power_of_two=True),
    QuantSpec("fp8_e4m3"),
    QuantSpec("fp8_e5m2"),
    QuantSpec("fp16"),
    QuantSpec("bf16"),
]


@pytest.mark.parametrize("spec", ACTIVATION_SPECS, ids=str)
def test_an_activation_quantizer_equals_numerics(spec: QuantSpec) -> None:
    qparams = qparams_from_range(-3.0, 5.0, spec)
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {}, opset=10)
    emitted, _ = to_qdq(graph, *placed("x", qparams), ANY)
    np.testing.assert_array_equal(run(emitted), np.maximum(fake_quantize(X, qparams), 0))


# A 7-bit weight behind QuantizeLinear would need a Clip with a bound per channel: it is refused, not written.
STORED = [
    (dtype, storage) for dtype in ("int8", "int4", "uint8", "int16", "fp8_e4m3") for storage in ("integer", "float")
]


@pytest.mark.parametrize(("dtype", "storage"), [*STORED, ("int7", "integer")])
@pytest.mark.parametrize("granularity", [PerChannel(0), PerChannel(1), PerBlock(1, 16)], ids=str)
def test_a_weight_equals_numerics(storage: str, dtype: str, granularity: PerChannel | PerBlock) -> None:
    spec = QuantSpec(dtype, symmetric=not dtype.startswith("u"), granularity=granularity)
    weight = RANDOM.normal(0, 1, X.shape).astype(np.float32)
    shape = granularity.scale_shape(weight.shape)
    qparams = qparams_from_range(np.full(shape, -2.5), np.linspace(1, 3, int(np.prod(shape))).reshape(shape), spec)
    graph = model([helper.make_node("Mul", ["x", "w"], ["y"], name="mm")], {"w": weight})
    emitted, _ = to_qdq(graph, *placed("w", qparams, "weight", (Edge("mm", 1),)), ANY.replace(weight_storage=storage))
    np.testing.assert_array_equal(run(emitted), X * fake_quantize(weight, qparams))
    assert emitted.input_names == ["x"]
    assert emitted.output_names == ["y"]


@pytest.mark.parametrize(
    ("spec", "opset"),
    [
        (QuantSpec("int8"), 10),
        (QuantSpec("int8", granularity=PerChannel(0)), 13),
        (QuantSpec("fp8_e4m3"), 19),
        (QuantSpec("int16"), 21),
        (QuantSpec("int4"), 21),
        (QuantSpec("int2"), 25),
        (QuantSpec("int8", granularity=PerBlock(0, 32)), 21),
    ],
    ids=str,
)
def test_the_opset_is_raised_only_as_far_as_needed(spec: QuantSpec, opset: int) -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {}, opset=9)
    plan = QuantPlan("test", {"x": Placement("x", spec, "activation", "test")})
    assert required_opset(graph, plan) == opset


def test_a_quantized_graph_output_keeps_its_name_and_gives_the_dequantized_value() -> None:
    qparams = qparams_from_range(0.0, 4.0, QuantSpec("uint8", symmetric=False))
    graph = model([helper.make_node("Abs", ["x"], ["y"])], {})
    emitted, _ = to_qdq(graph, *placed("y", qparams), ANY)
    assert emitted.output_names == ["y"]
    np.testing.assert_array_equal(run(emitted), fake_quantize(np.abs(X), qparams))


def test_float16_graphs_get_float16_scales() -> None:
    spec = QuantSpec("int8")
    qparams = QParams(spec, np.float32(np.float16(0.03)), np.int32(0))
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {}, opset=13, element=TensorProto.FLOAT16)
    emitted, _ = to_qdq(graph, *placed("x", qparams), ANY)
    assert emitted.opset == 19
    half = X.astype(np.float16)
    expected = np.maximum(fake_quantize(half.astype(np.float32), qparams).astype(np.float16), 0)
    np.testing.assert_array_equal(run(emitted, half), expected)


@pytest.mark.parametrize(("low", "high", "dropped"), [(0.0, 5.0, True), (-1.0, 5.0, False), (0.0, 7.0, False)])
def test_a_clip_is_dropped_exactly_when_the_quantizer_saturates_at_its_bounds(
    low: float, high: float, dropped: bool
) -> None:
    bounds = {"lo": np.float32(0.0), "hi": np.float32(5.0)}
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Clip", ["a", "lo", "hi"], ["y"], name="clip")]
    graph = model(nodes, {k: np.asarray(v) for k, v in bounds.items()})
    qparams = qparams_from_range(low, high, QuantSpec("uint8", symmetric=False))
    emitted, notes = to_qdq(graph, *placed("y", qparams), ANY)
    assert emitted.has_node("clip") != dropped
    assert bool(notes) == dropped
    np.testing.assert_array_equal(run(emitted), fake_quantize(np.clip(np.abs(X), 0, 5), qparams))


def test_a_plan_for_another_model_is_refused() -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {})
    with pytest.raises(SpecError, match="does not have"):
        to_qdq(graph, *placed("elsewhere", qparams_from_range(0.0, 1.0, QuantSpec("int8"))), ANY)


def test_the_float_graph_is_not_changed() -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {})
    before = graph.to_model().SerializeToString(deterministic=True)
    to_qdq(graph, *placed("x", qparams_from_range(0.0, 1.0, QuantSpec("int8"))), ANY)
    assert graph.to_model().SerializeToString(deterministic=True) == before


def test_generated_names_give_way_to_the_users() -> None:
    names = ["x_QuantizeLinear", "x_DequantizeLinear", "x_scale", "x_zero_point"]
    nodes = [helper.make_node("Relu", ["x"], [names[0]], name=names[1])]
    nodes += [helper.make_node("Abs", [a], [b], name=a) for a, b in zip(names, [*names[1:], "y"], strict=True)]
    graph = model(nodes, {})
    qparams = qparams_from_range(-2.0, 2.0, QuantSpec("int8"))
    emitted, _ = to_qdq(graph, *placed("x", qparams), ANY)
    np.testing.assert_array_equal(run(emitted), np.maximum(fake_quantize(X, qparams), 0))


def test_a_rounding_that_quantizelinear_does_not_have_is_refused() -> None:
    graph = model([helper.make_node("Relu", ["x"], ["y"])], {})
    qparams = qparams_from_range(-2.0, 2.0, QuantSpec("int8", rounding="floor"))
    with pytest.raises(UnsupportedError, match="rounds half_even"):
        to_qdq(graph, *placed("x", qparams), ANY)


def test_a_seven_bit_weight_behind_quantizelinear_is_limited_channel_by_channel() -> None:
    qparams = qparams_from_range(np.full(5, -0.5), np.full(5, 0.5), QuantSpec("int7", granularity=PerChannel(0)))
    graph = model([helper.make_node("Mul", ["x", "w"], ["y"], name="mm")], {"w": np.ones_like(X)})
    plan, table = placed("w", qparams, "weight", (Edge("mm", 1),))
    written, _ = to_qdq(graph, plan, table, ANY.replace(weight_storage="float"))
    (quantize,) = written.nodes("QuantizeLinear")
    assert quantize.inputs[0].values.max() == pytest.approx(float(qparams.scale[0]) * 63)
    assert not written.nodes("Clip")
