"""A BatchNormalization with statistics that are no statistics is an error before anything is measured."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.errors import ModelError
from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.session.prepare import prepare
from tests.passes.equivalence import build_model

PLACES = {
    "behind a Conv": [("Conv", ["x", "w"]), ("BatchNormalization", []), ("Relu", [])],
    "in front of a Conv": [("BatchNormalization", ["x"]), ("Relu", []), ("Conv", ["w"])],
}


def model(place: str = "behind a Conv", **vectors: list[float]) -> onnx.ModelProto:
    """Four channels through a 1x1 Conv and a BatchNormalization, and a Relu that would hide a NaN."""
    constants = {"w": np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)}
    for name, value in {"gamma": 1.0, "beta": 0.0, "mean": 0.0, "var": 1.0}.items():
        constants[name] = np.float32(vectors.get(name, [value] * 4))
    nodes, source = [], "x"
    for index, (op, inputs) in enumerate(PLACES[place]):
        names = [source, *(name for name in inputs if name != "x")]
        if op == "BatchNormalization":
            names = [source, "gamma", "beta", "mean", "var"]
        source = "y" if index == 2 else f"t{index}"
        nodes.append(helper.make_node(op, names, [source], name=op.lower()))
    return build_model(nodes, {"x": [1, 4, 3, 3]}, {"y": [1, 4, 3, 3]}, constants)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"var": [1, np.nan, 1, 1]}, r"variance 'var' of BatchNormalization .* holds nan at index \(1,\)"),
        ({"var": [1, 1, np.inf, np.inf]}, r"variance 'var' .* holds inf at index \(2,\); 2 of its 4 values"),
        ({"var": [1, 1, 1, -0.5]}, r"variance 'var' .* holds -0.5 at index \(3,\): plus epsilon 1e-05"),
        ({"gamma": [np.nan, 1, 1, 1]}, "scale 'gamma' .* holds nan"),
        ({"beta": [1, np.inf, 1, 1]}, "bias 'beta' .* holds inf"),
        ({"mean": [1, -np.inf, 1, 1]}, "mean 'mean' .* holds -inf"),
    ],
)
@pytest.mark.parametrize("backend", ["onnxruntime", "rknn"])
def test_unusable_statistics_are_an_error_that_names_the_tensor(
    place: str, vectors: dict[str, list[float]], message: str, backend: str
) -> None:
    with pytest.raises(ModelError, match=message):
        prepare(model(place, **vectors), backend)


@pytest.mark.parametrize("variance", [[0, 0, 0, 0], [1, -5e-6, 1, 1], [3e38, 1, 1, 1]])
def test_what_epsilon_makes_positive_is_accepted(variance: list[float]) -> None:
    prepare(model(var=variance), "onnxruntime")


def test_an_infinite_variance_is_not_folded_into_weights_of_zero() -> None:
    graph = Graph.from_model(model(var=[1, 1, np.inf, 1]))
    report = run_passes(graph, ["fold_batchnorm"])[0]
    assert "infinities or NaN" in report.declined[0]
