"""Which results of a graph are scores, and along which axis their classes lie."""

from __future__ import annotations

import pytest
from onnx import parser

from onnxq.graph import Graph
from onnxq.graph.joined import with_shapes
from onnxq.graph.scored import Scores, Stretch, scores_of

SIGNATURE = "(float[1,4,6] a, float[1,3,6] b, float[1,8] v) => (float y)"


def of(body: str, stretch: Stretch | None = None, signature: str = SIGNATURE, weights: str = "") -> Scores | None:
    text = f'<ir_version: 8, opset_import: ["" : 17]> g {signature} {weights} {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")  # the text knows no unknown rank
    graph = Graph.from_model(model)
    graph.infer_shapes()
    return scores_of(with_shapes(graph), "y", stretch)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Softmax<axis=1>(b)", Scores("probabilities", 1)),
        ("s = LogSoftmax<axis=-1>(b) y = Identity(s)", Scores("probabilities", 2)),
        ("s = Softmax<axis=1>(b) y = Transpose<perm=[0, 2, 1]>(s)", Scores("probabilities", 2)),
        ("s = Softmax<axis=1>(b) i = Constant<value_ints=[3, 6]>() y = Reshape(s, i)", Scores("probabilities", 0)),
        ("s = Softmax<axis=1>(b) i = Constant<value_ints=[18]>() y = Reshape(s, i)", None),
        ("s = Softmax<axis=1>(b) t = Softmax<axis=1>(b) y = Concat<axis=2>(s, t)", Scores("probabilities", 1)),
        ("s = Softmax<axis=1>(b) y = Concat<axis=2>(s, b)", None),
        ("s = Sigmoid(b) y = Transpose<perm=[0, 2, 1]>(s)", Scores("independent")),
        ("s = Sigmoid(b) t = HardSigmoid(b) y = Mul(s, t)", Scores("independent")),
        ("s = Sigmoid(b) y = Mul(s, b)", None),
        ("s = Sigmoid(a) y = Transpose<perm=[0, 2, 1]>(s)", None),  # four numbers for each of six: boxes
        ("y = Relu(b)", None),
        ("e = Exp(b) t = ReduceSum(e, one) y = Div(e, t)", Scores("probabilities", 1)),
        ("e = Exp(b) t = ReduceSum(e, one) d = Identity(t) y = Div(e, d)", Scores("probabilities", 1)),
        ("e = Exp(b) t = ReduceSum(b, one) y = Div(e, t)", None),
        ("y = Gemm(v, w)", Scores("logits", 1)),
        ("m = MatMul(v, w) y = Add(m, k)", Scores("logits", 1)),
        ("y = MatMul(v, w)", Scores("logits", 1)),
        ("m = MatMul(v, w) y = Relu(m)", None),
        ("t = Transpose<perm=[0, 2, 1]>(b) y = MatMul(a, t)", None),
    ],
)
def test_scores_are_known_by_how_the_graph_ends(body: str, expected: Scores | None) -> None:
    assert (
        of(body, weights="<float[8,3] w = {" + ", ".join(["1"] * 24) + "}, float[3] k = {1, 2, 3}, int64[1] one = {1}>")
        == expected
    )


def test_scores_beside_boxes_are_known_by_their_stretch() -> None:
    body = "s = Sigmoid(b) c = Concat<axis=1>(a, s) y = Transpose<perm=[0, 2, 1]>(c)"
    assert of(body) is None
    assert of(body, (2, 4, 7)) == Scores("independent")
    assert of(body, (2, 0, 4)) is None


def test_scores_are_known_level_by_level() -> None:
    body = (
        "s = Softmax<axis=1>(b) one = Concat<axis=1>(a, s) i = Constant<value_ints=[1, 7, 2, 3]>() "
        "two = Reshape(one, i) y = Concat<axis=2>(two, two)"
    )
    assert of(body, (1, 4, 7)) == Scores("probabilities", 1)
    assert of(body, (1, 0, 4)) is None


def test_a_plain_layer_beside_scores_is_no_classifier() -> None:
    weights = f"<float[8,3] w = {{{', '.join(['1'] * 24)}}}>"
    signature = "(float[1,8] v) => (float[1,3] y, float[1,3] scores)"
    assert of("y = MatMul(v, w) scores = MatMul(v, w)", signature=signature, weights=weights) == Scores("logits", 1)
    assert of("y = MatMul(v, w) scores = Softmax(y)", signature=signature, weights=weights) is None
