"""Shape inference: complete where it can be, silent about what the user declared, and away from the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from onnxq.graph import DeferredValues, Graph
from tests.graph.models import FLOAT, body, external_tensor, model, node, sample, value, write


def untouchable() -> np.ndarray:
    raise AssertionError("a large weight was read")


def test_shapes_and_types_are_filled_in() -> None:
    nodes = [
        node("Conv", "x w", "c", kernel_shape=[3, 3]),
        node("Shape", "c", "s"),
        node("Reshape", "c flat", "r"),
        node("Cast", "r", "h", to=TensorProto.FLOAT16),
        node("Greater", "r zero", "g"),
        node("Where", "g r zero", "y"),
    ]
    constants = {"w": sample(8, 3, 3, 3), "flat": np.int64([1, -1]), "zero": np.float32(0)}
    graph = Graph.from_model(model(nodes, [value("x", (1, 3, 8, 8))], [value("y", None)], constants))
    graph.infer_shapes()
    assert graph.shape("c") == (1, 8, 6, 6)
    assert graph.shape("r") == (1, 288)
    assert [str(graph.dtype(t)) for t in "csrhgy"] == ["float32", "int64", "float32", "float16", "bool", "float32"]
    onnx.checker.check_model(graph.to_model(), full_check=True)


def test_what_was_declared_stays() -> None:
    source = model([node("Relu", "x", "t"), node("Neg", "t", "y")], [value("x", ["n", 3])], [value("y", ["n", 3])])
    source.graph.value_info.append(value("t", ["rows", None]))
    graph = Graph.from_model(source)
    graph.infer_shapes()
    assert graph.shape("t") == ("rows", 3)  # the name stays, the unknown size is known now
    assert graph.shape("y") == ("n", 3)


def test_large_weights_are_not_read(tmp_path: Path) -> None:
    graph = Graph.from_model(
        model([node("MatMul", "x x", "t"), node("Relu", "t", "y")], [value("x", (64, 64))], [value("y", None)])
    )
    weight = graph.add_constant("w", DeferredValues((64, 64), np.dtype(np.float32), untouchable))
    graph.nodes("MatMul")[0].inputs[1] = weight
    graph.infer_shapes()
    assert graph.shape("y") == (64, 64)


def test_large_tensors_in_attributes_are_not_read() -> None:
    from onnxq.graph import Constant

    graph = Graph.from_model(model([node("Relu", "x", "y")], [value("x", (300, 300))], [value("y", None)]))
    held = Constant("", DeferredValues((300, 300), np.dtype(np.float32), untouchable))
    constant = graph.add_node("Constant", [], attrs={"value": held})
    graph.add_node("Neg", constant.outputs, name="reader")
    graph.infer_shapes()
    assert graph.shape(graph.node("reader").outputs[0]) == (300, 300)


def test_small_external_values_steer_shapes(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.int64([3, 2]).tobytes())
    source = model([node("Reshape", "x to", "y")], outputs=[value("y", None)])
    source.graph.initializer.append(external_tensor("to", TensorProto.INT64, [2], location="w.bin"))
    graph = Graph.load(write(tmp_path / "m.onnx", source))
    graph.infer_shapes()
    assert graph.shape("y") == (3, 2)


def test_types_reach_past_custom_operators_in_both_directions() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Mystery", "a", "b", domain="my.domain"),
        node("Neg", "b", "c"),
        node("Conv", "c w", "d"),
        node("Shape", "c", "s"),
        node("Equal", "c d", "e"),
        node("Mystery", "d", "f", domain="my.domain"),
        node("Abs", "f", "g"),
        node("Concat", "g h", "y", axis=0),
    ]
    inputs = [value("x", (1, 3, 4, 4)), value("h", None)]
    outputs = [value("y", None), value("s", None, TensorProto.INT64), value("e", None, TensorProto.BOOL)]
    graph = Graph.from_model(model(nodes, inputs, outputs, {"w": sample(3, 3, 1, 1)}, domains={"my.domain": 1}))
    graph.infer_shapes()
    assert {t: str(graph.dtype(t)) for t in "abcdfg"} == dict.fromkeys("abcdfg", "float32")
    assert (str(graph.dtype("s")), str(graph.dtype("e"))) == ("int64", "bool")


def test_types_are_not_guessed_where_nothing_tells_them() -> None:
    nodes = [
        node("Mystery", "x", "a", domain="my.domain"),
        node("Relu", "a", "b"),
        node("Mystery", "b", "y", domain="my.domain"),
    ]
    graph = Graph.from_model(model(nodes, domains={"my.domain": 1}))
    graph.infer_shapes()
    assert graph.dtype("a") is None
    assert graph.dtype("b") is None
    assert graph.to_model().graph.node[1].op_type == "Relu"


def test_tensors_in_bodies_get_shapes_too() -> None:
    then = body([node("Neg", "r", "a"), node("Abs", "a", "o")], [value("o")])
    other = body([node("Mystery", "x", "m", domain="my.domain"), node("Add", "m x", "p")], [value("p")])
    nodes = [node("Relu", "x", "r"), node("If", "k", "y", then_branch=then, else_branch=other)]
    source = model(nodes, [value("x"), value("k", (), TensorProto.BOOL)], domains={"my.domain": 1})
    graph = Graph.from_model(source)
    graph.infer_shapes()
    assert (graph.shape("a"), str(graph.dtype("a"))) == ((2, 3), "float32")
    assert str(graph.dtype("m")) == "float32"


def test_types_of_sequences_are_found() -> None:
    nodes = [node("SplitToSequence", "x", "seq", axis=0), node("SequenceAt", "seq zero", "y")]
    graph = Graph.from_model(model(nodes, outputs=[value("y", None)], constants={"zero": np.array(0, np.int64)}))
    graph.infer_shapes()
    assert graph.tensor("seq").type == "sequence_type"
    assert graph.dtype("seq") is None
    assert str(graph.dtype("y")) == "float32"
    onnx.checker.check_model(graph.to_model())


@pytest.mark.parametrize("count", [1, 40])
def test_variadic_operators_of_any_length(count: int) -> None:
    names = [f"m{i}" for i in range(count)]
    nodes = [node("Mystery", "x", name, domain="my.domain") for name in names]
    graph = Graph.from_model(model([*nodes, node("Sum", " ".join([*names, "x"]), "y")], domains={"my.domain": 1}))
    graph.infer_shapes()
    assert {str(graph.dtype(name)) for name in names} == {"float32"}


def test_inference_keeps_order_names_and_results() -> None:
    source = model([node("Relu", "x", "y")])
    graph = Graph.from_model(source)
    graph.infer_shapes()
    graph.infer_shapes()
    assert graph.to_model() == source
    assert source.graph.output[0].type.tensor_type.elem_type == FLOAT


def attention_reshapes(opset: int) -> onnx.ModelProto:
    """Heads are split off and joined again with sizes that the graph computes, as exporters write it."""

    def unsqueeze(name: str, result: str) -> onnx.NodeProto:
        if opset < 13:
            return node("Unsqueeze", name, result, axes=[0])
        return node("Unsqueeze", f"{name} zero", result)

    nodes = [
        node("MatMul", "x w", "m"),
        node("Shape", "m", "s"),
        node("Gather", "s first", "batch", axis=0),
        node("Gather", "s second", "length", axis=0),
        unsqueeze("batch", "b1"),
        unsqueeze("length", "l1"),
        node("Concat", "b1 l1 heads size", "split", axis=0),
        node("Reshape", "m split", "r"),
        node("Transpose", "r", "t", perm=[0, 2, 1, 3]),
        node("Transpose", "t", "u", perm=[0, 2, 1, 3]),
        node("Mul", "heads size", "width"),
        node("Concat", "b1 l1 width", "joined", axis=0),
        node("Reshape", "u joined", "j"),
        node("MatMul", "j w", "y"),
    ]
    constants = {
        "w": sample(8, 8),
        "first": np.int64(0),
        "second": np.int64(1),
        "zero": np.int64([0]),
        "heads": np.int64([2]),
        "size": np.int64([4]),
    }
    return model(nodes, [value("x", ["n", "t", 8])], [value("y", None)], constants, opset=opset)


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_reshapes_by_computed_sizes_keep_ranks_and_channels(opset: int) -> None:
    graph = Graph.from_model(attention_reshapes(opset))
    graph.infer_shapes()
    for name, rank, sizes in (("r", 4, {2: 2, 3: 4}), ("t", 4, {1: 2, 3: 4}), ("j", 3, {2: 8}), ("y", 3, {2: 8})):
        shape = graph.shape(name)
        assert shape is not None
        assert len(shape) == rank
        assert {axis: shape[axis] for axis in sizes} == sizes


def test_reshape_with_copied_and_remaining_sizes() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s", "tail", starts=[1], ends=[3]),
        node("Concat", "one tail", "to", axis=0),
        node("Reshape", "x to", "r"),
        node("Concat", "copy rest", "flat", axis=0),
        node("Reshape", "r flat", "y"),
    ]
    constants = {"one": np.int64([1]), "copy": np.int64([0]), "rest": np.int64([-1])}
    graph = Graph.from_model(model(nodes, [value("x", (1, 3, 4))], [value("y", None)], constants, opset=9))
    graph.infer_shapes()
    assert graph.shape("r") == (1, 3, 4)
    assert graph.shape("y") == (1, 12)


def test_sizes_that_become_float_are_not_followed() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Div", "f half", "d"),
        node("Cast", "d", "i", to=TensorProto.INT64),
        node("Div", "f f", "ones"),
        node("Div", "ones f", "inverse"),
        node("Mul", "inverse f", "again"),
        node("Cast", "again", "to", to=TensorProto.INT64),
        node("Reshape", "x to", "r"),
        node("Expand", "r i", "y"),
    ]
    graph = Graph.from_model(
        model(nodes, [value("x", (1, 1, 1))], [value("y", None)], {"half": np.float32(0.5)}, opset=11)
    )
    graph.infer_shapes()
    assert graph.shape("r") in (None, (None, None, None)) or not any(isinstance(size, int) for size in graph.shape("r"))


def test_sizes_through_casts_between_integers_and_arithmetic() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "small", to=TensorProto.INT32),
        node("Gather", "small second", "channels"),
        node("Div", "channels two", "half"),
        node("Unsqueeze", "half", "h1", axes=[0]),
        node("Cast", "h1", "wide", to=TensorProto.INT64),
        node("Concat", "minus pair wide", "to", axis=0),
        node("Reshape", "x to", "y"),
    ]
    constants = {"second": np.int64(1), "two": np.int32(2), "minus": np.int64([-1]), "pair": np.int64([2])}
    graph = Graph.from_model(model(nodes, [value("x", ("n", 6, 4))], [value("y", None)], constants, opset=11))
    graph.infer_shapes()
    shape = graph.shape("y")
    assert shape is not None
    assert shape[1:] == (2, 3)
