"""bfp16 in files: float operators that onnxruntime computes bit for bit as `onnxq.numerics` does, and whole models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxq.emit.qdq import to_qdq
from onnxq.emit.simulate import simulate
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.numerics import fake_quantize, qparams_from_range
from onnxq.targets import get_backend
from onnxq.types import Edge, PerBlock, Placement, QParamsTable, QuantPlan, QuantSpec

BACKEND = get_backend("vitis:strategy=fs")
LEVELS = {
    "as it is": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "optimized": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def awkward(shape: Sequence[int], seed: int) -> np.ndarray:
    """Any bit patterns, halves of steps, borders between exponents, zeros; blocks of all kinds side by side."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(0, 2**32, shape, dtype=np.uint32).view(np.float32)
    usual = rng.normal(size=shape).astype(np.float32)
    halves = np.ldexp(rng.integers(-512, 512, shape).astype(np.float32), rng.integers(-4, 4, shape))
    powers = np.ldexp(np.float32(1), rng.integers(-149, 128, shape))
    borders = np.nextafter(powers, rng.choice(np.float32([0, np.inf]), shape)) * rng.choice(np.float32([-1, 1]), shape)
    tiny = rng.integers(-(2**24), 2**24, shape).astype(np.float32) * np.float32(2.0**-149)
    kinds = np.stack([usual, halves, borders, tiny, anything, np.zeros(shape, np.float32)])
    if rng.integers(2):  # one kind for the whole tensor, else a mixture
        return np.asarray(kinds[rng.integers(len(kinds))], np.float32)
    return np.asarray(np.take_along_axis(kinds, rng.integers(len(kinds), size=(1, *shape)), 0)[0], np.float32)


def relu_model(declared: Sequence[Any] | None, opset: int, kind: int = onnx.TensorProto.FLOAT) -> Graph:
    """x -> Identity -> y -> Identity -> z, so that a quantizer on y has a reader."""
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["y"], name="first"),
            helper.make_node("Identity", ["y"], ["z"], "second"),
        ],
        "g",
        [helper.make_tensor_value_info("x", kind, declared)],
        [helper.make_tensor_value_info("z", kind, declared)],
        value_info=[helper.make_tensor_value_info("y", kind, declared)],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8))


def planned(spec: QuantSpec, tensor: str = "y", **others: Any) -> tuple[QuantPlan, QParamsTable]:
    plan, table = QuantPlan(BACKEND.name), QParamsTable()
    plan.placements[tensor] = Placement(tensor, spec, others.pop("role", "activation"), "test", **others)
    table.put(tensor, qparams_from_range(-1.0, 1.0, spec), "test")
    return plan, table


def run(graph: Graph, level: str = "as it is", **feed: np.ndarray) -> list[np.ndarray]:
    model = graph.to_model()
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    return ort.InferenceSession(model.SerializeToString(), options).run(None, feed)


def assert_same_bits(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    real = ~np.isnan(wanted)  # a NaN has many bit patterns, and no arithmetic keeps them
    width = np.dtype(f"u{wanted.dtype.itemsize}")
    np.testing.assert_array_equal(found[real].view(width), wanted[real].view(width))


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Any], PerBlock, int]:
    rank = draw(st.integers(0, 5))
    shape = tuple(draw(st.integers(1, 20 if rank < 4 else 9)) for _ in range(rank))
    declared = [draw(st.sampled_from([size, size, f"dim{i}"])) for i, size in enumerate(shape)]
    axis = draw(st.integers(-max(rank, 1), max(rank, 1) - 1))
    size = draw(st.sampled_from([8, 8, 8, 2, 3, 16]))
    return shape, declared, PerBlock(axis, size), draw(st.sampled_from([13, 17, 18, 21]))


@settings(max_examples=120, deadline=None)
@given(case=cases(), seed=st.integers(0, 2**32 - 1), level=st.sampled_from(sorted(LEVELS)), emitter=st.booleans())
def test_activations_are_what_numpy_says_to_the_bit(
    case: tuple[tuple[int, ...], list[Any], PerBlock, int], seed: int, level: str, emitter: bool
) -> None:
    shape, declared, blocks, opset = case
    spec = QuantSpec("bfp16", granularity=blocks)
    x = awkward(shape, seed)
    plan, table = planned(spec)
    written = (to_qdq if emitter else simulate)(relu_model(declared, opset), plan, table, BACKEND)[0]
    assert written.opset == opset
    assert_same_bits(run(written, level, x=x)[0], fake_quantize(x, table["y"]))


def test_one_file_takes_every_size_of_an_open_axis() -> None:
    plan, table = planned(QuantSpec("bfp16", granularity=PerBlock(1, 8)))
    written = to_qdq(relu_model(["n", "c", "w"], 17), plan, table, BACKEND)[0]
    for shape in ((1, 1, 1), (2, 8, 3), (3, 9, 1), (1, 31, 5), (4, 64, 2), (0, 5, 3), (2, 0, 3)):
        x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
        assert_same_bits(run(written, x=x)[0], fake_quantize(x, table["y"]))


def test_channels_in_whole_blocks_need_no_filling_up() -> None:
    plan, table = planned(QuantSpec("bfp16"))
    for declared in (["n", 16, 5, 5], ["n", 3, 5, 5]):  # the second is one short block
        written = to_qdq(relu_model(declared, 13), plan, table, BACKEND)[0]
        assert not {"Pad", "Slice", "Shape"} & {node.op for node in written.nodes()}
    written = to_qdq(relu_model(["n", 12, 5, 5], 13), plan, table, BACKEND)[0]
    assert {"Pad", "Slice"} <= {node.op for node in written.nodes()}


def test_a_float16_tensor_keeps_its_type() -> None:
    x = np.random.default_rng(4).normal(size=(2, 11)).astype(np.float16)
    plan, table = planned(QuantSpec("bfp16"))
    written = to_qdq(relu_model([2, 11], 19, onnx.TensorProto.FLOAT16), plan, table, BACKEND)[0]
    assert_same_bits(run(written, x=x)[0], fake_quantize(x, table["y"]).astype(np.float16))


def test_an_output_keeps_its_name_and_holds_the_values_of_the_format() -> None:
    plan, table = planned(QuantSpec("bfp16"), "z")
    graph = relu_model([2, 11], 13)
    written = to_qdq(graph, plan, table, BACKEND)[0]
    x = awkward((2, 11), 1)
    assert written.output_names == ["z"]
    assert_same_bits(run(written, x=x)[0], fake_quantize(x, table["z"]))


def test_only_the_named_readers_read_the_values_of_the_format() -> None:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["one"], "first"), helper.make_node("Identity", ["x"], ["two"], "second")],
        "g",
        [helper.make_tensor_value_info("x", 1, [3, 10])],
        [helper.make_tensor_value_info(name, 1, [3, 10]) for name in ("one", "two")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    plan, table = planned(QuantSpec("bfp16"), "x", edges=(Edge("second", 0),))
    x = np.random.default_rng(5).normal(size=(3, 10)).astype(np.float32)
    one, two = run(to_qdq(Graph.from_model(model), plan, table, BACKEND)[0], x=x)
    assert_same_bits(one, x)
    assert_same_bits(two, fake_quantize(x, table["x"]))


@pytest.mark.parametrize("write", [to_qdq, simulate])
def test_weights_are_stored_as_the_values_of_the_format(write: Any) -> None:
    weight = np.random.default_rng(6).normal(size=(20, 12)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", 20])],
        [helper.make_tensor_value_info("y", 1, ["n", 12])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    spec = QuantSpec("bfp16", granularity=PerBlock(0, 8))
    plan, table = planned(spec, "w", role="weight", edges=(Edge("product", 1),))
    written = write(Graph.from_model(model), plan, table, BACKEND)[0]
    assert [node.op for node in written.nodes()] == ["MatMul"]
    stored = numpy_helper.to_array(written.to_model().graph.initializer[0])
    assert_same_bits(stored, fake_quantize(weight, table["w"]))
    assert not np.array_equal(stored, weight)


def test_a_tensor_of_unknown_rank_is_refused_with_its_name() -> None:
    graph = relu_model([2, 11], 13)
    graph.tensor("y").shape = None
    plan, table = planned(QuantSpec("bfp16"))
    with pytest.raises(UnsupportedError, match="tensor 'y' has an unknown rank"):
        to_qdq(graph, plan, table, BACKEND)
