"""What decides a branch, a loop, an index or a shape is computed in float from its last weighted layer on."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.numerics import sqnr_db
from onnxq.place import place
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import BACKENDS
from onnxq.types import Edge, QuantPlan
from tests.zoo_graphs.net import Net

SIZE = 8


def branching() -> onnx.ModelProto:
    """An If whose condition compares the mean of a layer's result, which a further layer reads as well."""
    net = Net("branching")
    x = net.input("x", [1, 3, SIZE, SIZE])
    stem = net.node("Relu", net.conv(x, 3, 4, name="stem"), output="features", name="relu")
    shifted = net.node("Sub", net.node("ReduceMean", stem, keepdims=0, name="mean"), net.floats(0.5), name="shift")
    condition = net.node("Greater", shifted, net.floats(0.0), name="compare")
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.conv(stem, 4, 4), [1, 4, SIZE, SIZE])
    otherwise.output(otherwise.conv(stem, 4, 4, 1), [1, 4, SIZE, SIZE])
    y = net.node("If", condition, then_branch=then.graph(), else_branch=otherwise.graph(), name="choice")
    net.output(net.classifier(y, 4))
    return net.model()


def picking() -> onnx.ModelProto:
    """The rows with the highest scores are looked up: TopK -> Gather."""
    net = Net("picking")
    rows = net.linear(net.input("x", [1, 6, 8]), 8, 8)
    scores = net.node("Sigmoid", net.linear(rows, 8, 1), name="sigmoid")
    flat = net.node("Reshape", scores, net.ints(-1), name="flat")
    _, best = net.many("TopK", [flat, net.ints(2)], ("highest", "best"), name="top")
    taken = net.node("Gather", rows, best, axis=1, name="take")
    net.output(net.linear(taken, 8, 4))
    return net.model()


def classified() -> onnx.ModelProto:
    """ArgMax at the end, which leaves the model."""
    net = Net("classified")
    scores = net.classifier(net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 4), 4)
    net.node("ArgMax", scores, axis=1, output="class", name="argmax")
    net.output("class", [1, 1], np.int64)
    return net.model()


def plan_of(model: onnx.ModelProto, backend: str) -> QuantPlan:
    return make_plan(prepare(model, backend))


@pytest.mark.parametrize("backend", BACKENDS.names())
def test_a_condition_is_computed_in_float_from_its_last_layer_on(backend: str) -> None:
    plan = plan_of(branching(), backend)
    for name in ("mean", "shift", "compare"):
        assert "decides the course of 'choice'" in plan.left_float[name] or "computes bool" in plan.left_float[name]
    if "features" in plan:
        edges = plan["features"].edges
        assert edges is not None
        assert edges
        assert Edge("mean", 0) not in edges


def near_zero(count: int) -> list[dict[str, np.ndarray]]:
    """Samples with values up to 2 whose mean is a ten-thousandth above or below zero: 8 bits do not tell which."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        values = rng.uniform(-2, 2, (1, 3, SIZE, SIZE))
        found.append({"x": (values - values.mean() + (-1) ** number * 1e-4).astype(np.float32)})
    return found


@pytest.mark.parametrize("backend", ["onnxruntime", "rknn", "tensorrt"])
def test_a_quantized_model_takes_the_branches_of_the_float_model(backend: str) -> None:
    net = Net("branching")
    x = net.input("x", [1, 3, SIZE, SIZE])
    stem = net.conv_relu(x, 3, 4)
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.conv(stem, 4, 4), [1, 4, SIZE, SIZE])
    otherwise.output(otherwise.conv(stem, 4, 4, 1), [1, 4, SIZE, SIZE])
    condition = net.node("Greater", net.node("ReduceMean", x, keepdims=0), net.floats(0.0))
    net.output(net.node("If", condition, then_branch=then.graph(), else_branch=otherwise.graph()))
    samples = near_zero(20)
    result = onnxq.quantize(net.model(), backend=backend, data=samples[:4], config={"effort": 0})
    before = ort.InferenceSession(net.model().SerializeToString())
    after = ort.InferenceSession(result.model.read_bytes())
    for sample in samples[4:]:
        assert sqnr_db(before.run(None, sample)[0], after.run(None, sample)[0]) > 15  # another branch: 0


@pytest.mark.parametrize("backend", BACKENDS.names())
def test_an_index_is_computed_in_float_from_its_last_layer_on(backend: str) -> None:
    prepared = prepare(picking(), backend)
    plan = place(prepared.graph, prepared.backend)
    for name in ("sigmoid", "flat", "top"):
        assert "decides what Gather 'take' takes" in plan.left_float[name], plan.left_float
    assert "take" not in plan.left_float or "decides" not in plan.left_float["take"]


@pytest.mark.parametrize("backend", BACKENDS.names())
def test_a_class_that_leaves_the_model_decides_nothing_inside_it(backend: str) -> None:
    assert not any("decides" in reason for reason in plan_of(classified(), backend).left_float.values())


def test_what_the_user_forces_is_quantized_though_it_decides() -> None:
    prepared = prepare(branching(), "onnxruntime", {"node": {"mean": {"force": True}}})
    assert "mean" in make_plan(prepared).quantized


def test_shapes_of_tensors_are_no_values() -> None:
    net = Net("shapes")
    x = net.conv_relu(net.input("x", [1, 3, SIZE, SIZE]), 3, 4)
    length = net.node("Gather", net.node("Shape", x), net.ints(1), name="length")
    target = net.node("Concat", length, net.ints(-1), axis=0)
    net.output(net.linear(net.node("Reshape", x, target, name="reshape"), SIZE * SIZE, 4))
    plan = plan_of(net.model(), "onnxruntime")
    assert "reshape" in plan.quantized
    assert not any("decides" in reason for node, reason in plan.left_float.items() if node == "length")


def test_the_state_of_a_loop_decides_through_its_iterations() -> None:
    net = Net("loop")
    start = net.linear(net.input("x", [1, 4]), 4, 4)
    body = net.branch("body")
    body.input("iteration", [], np.int64)
    body.input("going", [], np.bool_)
    state = body.input("state", [1, 4])
    after = body.node("Mul", state, body.floats(0.5), name="half")
    body.output(
        body.node("Greater", body.node("ReduceMax", state, keepdims=0, name="max"), body.floats(0.1)), [], np.bool_
    )
    body.output(after, [1, 4])
    net.many(
        "Loop",
        [net.constant(np.int64(9)), net.constant(np.bool_(True)), start],
        ("end",),
        body=body.graph(),
        name="loop",
    )
    net.output(net.gemm("end", 4, 4))
    plan = plan_of(net.model(), "onnxruntime")
    assert "decides the course of 'loop'" in plan.left_float["half"]
    assert "decides the course of 'loop'" in plan.left_float["max"]


def test_a_loop_whose_body_makes_nothing_decides_nothing() -> None:
    net = Net("idle")
    body = onnx.helper.make_graph([], "body", [], [])
    net.node("Loop", net.ints(2), "", body=body, output="idle", name="loop")
    net.output(net.linear(net.input("x", [1, 4]), 4, 4))
    net.output("idle", [1])
    assert plan_of(net.model(), "onnxruntime").quantized


def test_an_operator_of_another_domain_is_no_loop_of_onnx() -> None:
    net = Net("foreign")
    rows = net.linear(net.input("x", [1, 4]), 4, 4)
    net.output(net.node("Loop", rows, domain="mine", output="turned", name="loop"), [1, 4])
    model = net.model()
    model.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    assert "loop" in place(prepare(model, "onnxruntime").graph, BACKENDS.get("onnxruntime")).left_float
