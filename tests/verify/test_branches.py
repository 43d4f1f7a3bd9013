"""A quantized model that takes other branches than the float model, or runs its loops more often, says so."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxq
from onnxq.errors import CheckFailed, ModelError
from onnxq.graph import Graph
from onnxq.verify import branches
from onnxq.verify.comparison import Comparison
from onnxq.verify.float_side import FloatSide
from tests.zoo_graphs.net import Net

WIDTH = 8
SETTINGS = {"effort": 0, "minimum_sqnr_db": -100}


def branching() -> onnx.ModelProto:
    """An If whose condition is the sign of one number that two layers compute."""
    net = Net("branching")
    x = net.input("x", [1, WIDTH])
    hidden = net.gemm(x, WIDTH, WIDTH)
    score = net.node("ReduceSum", net.gemm(hidden, WIDTH, 1), net.ints(0, 1), keepdims=0)
    condition = net.node("Greater", score, net.floats(0.0), name="compare", output="positive")
    then, otherwise = net.branch("then"), net.branch("otherwise")
    then.output(then.gemm(hidden, WIDTH, 4), [1, 4])
    otherwise.output(otherwise.gemm(hidden, WIDTH, 4), [1, 4])
    net.output(net.node("If", condition, then_branch=then.graph(), else_branch=otherwise.graph(), name="choice"))
    return net.model()


def _loop_of(net: Net) -> tuple[str, str, str, Net, str]:
    """A layer, the number that a second one makes of it, that as an integer; the body of a Loop with its state."""
    hidden = net.gemm(net.input("x", [1, WIDTH]), WIDTH, WIDTH)
    start = net.gemm(hidden, WIDTH, 1)
    times = net.node("Cast", net.node("Reshape", start, net.ints(1)), to=onnx.TensorProto.INT64)
    body = net.branch("body")
    body.input("iteration", [], np.int64)
    body.input("going", [], np.bool_)
    state = body.input("state", [1, 1])
    return hidden, start, times, body, state


def looping(decided: str) -> onnx.ModelProto:
    """A Loop that halves a layer's result until it is small ("inside"), or as often as it says ("outside")."""
    net = Net("looping")
    hidden, start, times, body, state = _loop_of(net)
    after = body.node("Mul", state, body.floats(0.5))
    large = body.node("Greater", body.node("ReduceMax", after, keepdims=0), body.floats(0.01), output="large")
    body.output(large if decided == "inside" else body.node("Identity", "going"), [], np.bool_)
    body.output(after, [1, 1])
    count = net.ints(50) if decided == "inside" else times
    net.output(net.node("Loop", count, "", start, body=body.graph(), name="halve"), [1, 1])
    net.output(net.gemm(hidden, WIDTH, 4), [1, 4])
    return net.model()


def samples(model: onnx.ModelProto, scores: Sequence[float]) -> list[dict[str, np.ndarray]]:
    """Inputs for which the first two layers of a model compute these numbers."""
    held = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    first, second = [node for node in model.graph.node if node.op_type == "Gemm"][:2]
    weight = (held[second.input[1]] @ held[first.input[1]]).ravel()
    bias = held[second.input[1]] @ held[first.input[2]] + held[second.input[2]]
    rng = np.random.default_rng(0)
    found = []
    for score in scores:
        x = rng.uniform(-2, 2, WIDTH)
        x += weight * (score - bias[0] - x @ weight) / (weight @ weight)
        found.append({"x": x.astype(np.float32).reshape(1, WIDTH)})
    return found


def warnings(model: onnx.ModelProto, scores: Sequence[float], node: str) -> list[str]:
    result = onnxq.quantize(model, backend="onnxruntime", data=samples(model, scores), config=SETTINGS)
    return [line for line in result.report["warnings"] if f"'{node}'" in line]


def test_an_if_close_to_its_threshold_is_named_with_the_number_of_samples() -> None:
    scores = [sign * 1e-5 for sign in (1, -1) * 4]
    (line,) = warnings(branching(), scores, "choice")
    assert line.startswith("If 'choice' takes another branch than in the float model on ")
    assert " of 8 samples: 'positive'" in line


@pytest.mark.parametrize("decided", ["inside", "outside"])
def test_a_loop_that_runs_more_or_less_often_is_named(decided: str) -> None:
    near = 0.01 * 2**9 if decided == "inside" else 4
    (line,) = warnings(looping(decided), [near + sign * 1e-5 for sign in (1, -1) * 4], "halve")
    assert line.startswith("Loop 'halve' runs another number of times than in the float model on ")
    assert " of 8 samples: " in line


@pytest.mark.parametrize(
    ("model", "scores", "node"),
    [
        (branching(), [2.0, -2.0, 1.5, -1.5], "choice"),
        (looping("inside"), [0.01 * 2**8.5, 0.01 * 2**7.5], "halve"),
        (looping("outside"), [4.5, 3.5], "halve"),
    ],
)
def test_nothing_is_said_far_from_the_threshold(model: onnx.ModelProto, scores: list[float], node: str) -> None:
    assert warnings(model, scores, node) == []


def test_the_number_of_samples_is_the_number_of_branches_that_onnxruntime_takes_otherwise() -> None:
    model = branching()
    feeds = samples(model, [sign * 0.003 for sign in (1, -1) * 4])
    result = onnxq.quantize(model, backend="onnxruntime", data=feeds, config=SETTINGS)
    visible = []
    for each in (model, onnx.load(result.model)):
        each.graph.output.append(onnx.helper.make_tensor_value_info("positive", onnx.TensorProto.BOOL, []))
        session = ort.InferenceSession(each.SerializeToString(), _unoptimized())
        visible.append([bool(session.run(["positive"], feed)[0]) for feed in feeds])
    other = sum(one != two for one, two in zip(*visible, strict=True))
    assert 0 < other < 8
    assert any(f"on {other} of 8 samples" in line for line in result.report["warnings"])


def _unoptimized() -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def test_a_condition_that_cannot_be_looked_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ModelError("onnxruntime refuses the model with its conditions as outputs")

    monkeypatch.setattr(branches, "Tap", refuse)
    (line,) = warnings(branching(), [2.0, -2.0], "choice")
    assert line.startswith("If 'choice': not compared")
    assert line.endswith("onnxruntime refuses the model with its conditions as outputs")


def growing() -> onnx.ModelProto:
    """A Loop that runs as often as a layer says, and returns what it has seen: an output whose length is decided."""
    net = Net("growing")
    hidden, start, times, body, state = _loop_of(net)
    body.output(body.node("Identity", "going"), [], np.bool_)
    body.output(body.node("Mul", state, body.floats(0.9)), [1, 1])
    body.output(body.node("Identity", state), [1, 1])
    _, seen = net.many("Loop", (times, "", start), ("last", "seen"), body=body.graph(), name="grow")
    net.output(seen, ["times", 1, 1])
    net.output(net.gemm(hidden, WIDTH, 4), [1, 4])
    return net.model()


def test_what_a_loop_leaves_out_or_adds_is_noise() -> None:
    model = growing()
    feeds = samples(model, [4 + sign * 1e-5 for sign in (1, -1) * 4])
    result = onnxq.quantize(model, backend="onnxruntime", data=feeds, config=SETTINGS)

    check, _ = result.report["checks"]["outputs"]
    assert check["reshaped"] > 0
    assert check["sqnr_db"] < 15, "four values where there should be three, or the other way round"
    assert check["compared"] > 8 * 3, "values of all samples"
    (line,) = [line for line in result.report["warnings"] if "another shape" in line]
    assert line.endswith("what is missing or too much counts as noise")


def test_a_loop_that_goes_astray_can_fail_the_run() -> None:
    model = growing()
    feeds = samples(model, [2 + sign * 1e-5 for sign in (1, -1) * 4])

    with pytest.raises(CheckFailed, match=r"below the required 12 dB(.|\n)*Loop 'grow' runs another number of times"):
        onnxq.quantize(model, backend="onnxruntime", data=feeds, config={"effort": 0, "minimum_sqnr_db": 12})


@pytest.mark.parametrize(
    ("expected", "measured", "agreement"),
    [([5, 0, 0, 0], [5], 0.25), ([5], [5, 0, 0, 0], 0.25), ([[5]], [5], 0.0)],
    ids=["shorter", "longer", "another rank"],
)
def test_integers_that_are_missing_or_too_many_do_not_agree(expected: Any, measured: Any, agreement: float) -> None:
    comparison = Comparison(FloatSide(Graph.from_model(growing())))
    (name, *_) = comparison._names
    comparison._add(name, np.array(expected), np.array(measured), 0, astray=True)

    assert next(iter(comparison.outputs())).agreement == agreement


def test_masks_in_what_is_too_much_are_no_failure() -> None:
    comparison = Comparison(FloatSide(Graph.from_model(growing())))
    (name, *_) = comparison._names
    comparison._add(name, np.float32([[1, 2]]), np.float32([[1, 2, -np.inf]]), 0, astray=True)

    assert list(comparison.failures()) == []
    assert next(iter(comparison.outputs())).sqnr_db == math.inf


def test_only_outputs_behind_a_loop_that_went_astray_are_aligned() -> None:
    comparison = Comparison(FloatSide(Graph.from_model(growing())))

    assert [comparison._is_behind(name, frozenset({"grow"})) for name in comparison._names] == [True, False]
