"""Rows times the matrices of a weight are what onnxruntime computes, for every kind of layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnxq.graph import Graph
from onnxq.ptq.weights.layers import reader_of
from onnxq.ptq.weights.rows import ConvRows, MatrixRows
from onnxq.runtime.session import float_session, run_session
from tests.zoo_graphs.net import Net

ALL = 10**6


def computed(op: str, data: list[int], weight: list[int], *, port: int = 1, **attributes: Any):
    """(rows times matrices [groups, rows, outputs], the output of the layer)."""
    net = Net(f"{op}{data}{weight}{sorted(attributes.items())}")
    x, w = net.input("x", data), net.floats(net.rng.normal(size=weight))
    net.output(net.node(op, *((x, w) if port == 1 else (w, x)), name="layer", **attributes))
    graph = Graph.from_model(onnx.shape_inference.infer_shapes(net.model()))
    feed = {"x": net.rng.normal(size=data).astype(np.float32)}
    (output,) = run_session(float_session(graph), graph.output_names, feed, "a sample")
    reader = reader_of(graph, graph.node("layer"), port)
    assert not isinstance(reader, str)
    matrices = reader.view.unfold(graph.values(graph.node("layer").inputs[port]))
    rows = reader.rows.rows(feed["x"], ALL, np.random.default_rng(0))
    total, count = reader.rows.sums(feed["x"])
    assert count == rows.shape[1]
    np.testing.assert_allclose(total, rows.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-4)
    return rows @ matrices.swapaxes(1, 2), output


@pytest.mark.parametrize(
    ("op", "data", "weight", "attributes"),
    [
        ("Conv", [2, 3, 9, 8], [4, 3, 3, 3], {}),
        ("Conv", [1, 3, 9, 8], [4, 3, 3, 2], {"strides": [2, 1], "dilations": [1, 3], "pads": [1, 0, 2, 3]}),
        ("Conv", [2, 6, 7, 7], [4, 3, 3, 3], {"group": 2, "pads": [1, 1, 1, 1]}),
        ("Conv", [1, 5, 7, 7], [5, 1, 3, 3], {"group": 5}),
        ("Conv", [1, 2, 9, 8], [3, 2, 4, 3], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Conv", [1, 2, 9, 8], [3, 2, 4, 3], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        ("Conv", [1, 2, 9, 8], [3, 2, 4, 3], {"auto_pad": "VALID", "strides": [3, 2]}),
        ("Conv", [2, 3, 20], [4, 3, 5], {"strides": [3], "pads": [2, 1]}),
        ("Conv", [1, 2, 5, 6, 4], [3, 2, 2, 3, 1], {"strides": [2, 1, 1]}),
        ("ConvTranspose", [2, 3, 5, 4], [3, 4, 3, 3], {}),
        ("ConvTranspose", [1, 4, 5, 4], [4, 3, 3, 2], {"group": 2, "strides": [2, 3], "pads": [1, 0, 1, 1]}),
        ("ConvTranspose", [1, 2, 5, 4], [2, 3, 3, 3], {"strides": [2, 2], "output_padding": [1, 0]}),
        ("ConvTranspose", [1, 2, 5, 4], [2, 3, 3, 3], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("ConvTranspose", [1, 2, 5, 4], [2, 3, 2, 3], {"dilations": [2, 1], "pads": [2, 2, 2, 2]}),
    ],
)
def test_patches_of_convolutions(op: str, data: list[int], weight: list[int], attributes: dict[str, Any]) -> None:
    product, output = computed(op, data, weight, **attributes)
    groups, rows, channels = product.shape
    batch, spatial = output.shape[0], output.shape[2:]
    assert rows == batch * int(np.prod(spatial))
    found = product.transpose(1, 0, 2).reshape(batch, *spatial, groups * channels)
    np.testing.assert_allclose(np.moveaxis(found, -1, 1), output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "data", "weight", "port", "attributes"),
    [
        ("Gemm", [5, 7], [7, 4], 1, {}),
        ("Gemm", [5, 7], [4, 7], 1, {"transB": 1}),
        ("Gemm", [7, 5], [4, 7], 1, {"transA": 1, "transB": 1}),
        ("MatMul", [2, 3, 5, 7], [7, 4], 1, {}),
        ("MatMul", [7], [7, 4], 1, {}),
    ],
)
def test_rows_of_matrices(op: str, data: list[int], weight: list[int], port: int, attributes: dict[str, Any]) -> None:
    product, output = computed(op, data, weight, port=port, **attributes)
    np.testing.assert_allclose(product.reshape(output.shape), output, rtol=1e-4, atol=1e-5)


def test_rows_of_a_weight_on_the_left() -> None:
    product, output = computed("MatMul", [7, 5], [4, 7], port=0)
    np.testing.assert_allclose(product[0].T, output, rtol=1e-4, atol=1e-5)


def test_rows_of_a_stack_of_matrices() -> None:
    product, output = computed("MatMul", [2, 3, 5, 7], [3, 7, 4])
    expected = output.transpose(1, 0, 2, 3).reshape(3, -1, 4)
    np.testing.assert_allclose(product, expected, rtol=1e-4, atol=1e-5)


def test_rows_of_one_matrix_for_a_whole_stack() -> None:
    product, output = computed("MatMul", [5, 7], [3, 7, 4])
    np.testing.assert_allclose(product, output, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "shape"),
    [
        (ConvRows((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), groups=2), (2, 4, 8, 8)),
        (MatrixRows(), (4, 16, 6)),
        (MatrixRows(stacked=(3,)), (3, 40, 6)),
    ],
)
def test_some_rows_are_taken_where_there_are_many(rows: ConvRows | MatrixRows, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    every = rows.rows(x, ALL, np.random.default_rng(2))
    some = rows.rows(x, 10, np.random.default_rng(2))
    assert some.shape == (every.shape[0], 10, every.shape[2])
    known = {row.tobytes() for row in np.ascontiguousarray(every.swapaxes(0, 1))}
    assert {row.tobytes() for row in np.ascontiguousarray(some.swapaxes(0, 1))} <= known
    np.testing.assert_array_equal(some, rows.rows(x, 10, np.random.default_rng(2)))


@pytest.mark.parametrize("transposed", [False, True])
def test_an_input_without_values_has_no_patches(transposed: bool) -> None:
    """As the regions of a detector that has found nothing."""
    rows = ConvRows((3, 2), (1, 1), (1, 1), (1, 1, 1, 1), groups=2, transposed=transposed)
    found = rows.rows(np.zeros((0, 6, 5, 5), np.float32), ALL, np.random.default_rng(0))
    assert found.shape == (2, 0, 3 * 6)
