"""Nodes that their operators do not allow: refused on load, by name, before a library below reads past an end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.errors import ModelError
from onnxq.graph import Graph
from tests.graph.models import body, model, node, same_results, sample, value

BOOL = TensorProto.BOOL


def refused(source: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as caught:
        Graph.from_model(source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("Conv", "x", r"node 'bad' \(Conv\) has 1 input, but it takes 2 to 3 \(X, W, B\)"),
        ("Gather", "x", r"has 1 input, but it takes 2 \(data, indices\)"),
        ("Shape", "", r"has 0 inputs, but it takes 1 \(data\)"),
        ("Div", "x", r"has 1 input, but it takes 2"),
        ("Relu", "x x", r"has 2 inputs, but it takes 1"),
        ("MatMul", "x _", r"has 1 input, but it takes 2"),
        ("Conv", "_ x", r"leaves out input 0 \(X\)"),
        ("Concat", "x _ x", r"leaves out one of its inputs"),
        ("Cast", "x", r"has no attribute 'to', which has to be given"),
        ("Constant", "", r"has 0 attributes, but the one that holds its value is needed"),
    ],
)
def test_inputs_are_counted(op: str, inputs: str, message: str) -> None:
    attributes = {"axis": 0} if op == "Concat" else {}
    with pytest.raises(ModelError, match=message):
        Graph.from_model(model([node(op, inputs, "y", name="bad", **attributes)]))


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Softmax", {"axis": "one"}, "an attribute 'axis' of type STRING, but it has to be INT"),
        ("Softmax", {"axis": 1.0}, "of type FLOAT, but it has to be INT"),
        ("LeakyRelu", {"alpha": 1}, "of type INT, but it has to be FLOAT"),
        ("Transpose", {"perm": 1}, "of type INT, but it has to be INTS"),
    ],
)
def test_attributes_have_their_types(op: str, attributes: dict[str, object], message: str) -> None:
    said = refused(model([node(op, "x", "y", name="bad", **attributes)]))
    assert f"node 'bad' ({op})" in said
    assert message in said


def _twice(source: onnx.ModelProto) -> None:
    source.graph.node[0].attribute.append(source.graph.node[0].attribute[0])


def _empty(source: onnx.ModelProto) -> None:
    source.graph.node[0].attribute[0].CopyFrom(onnx.AttributeProto(name="axis", type=onnx.AttributeProto.GRAPH))


def _reference(source: onnx.ModelProto) -> None:
    source.graph.node[0].attribute[0].ref_attr_name = "outer"


@pytest.mark.parametrize(
    ("change", "message"),
    [(_twice, "'axis' twice"), (_empty, "says that it is a GRAPH and holds none"), (_reference, "is in no function")],
)
def test_attributes_make_sense(change: Callable[[onnx.ModelProto], None], message: str) -> None:
    source = model([node("Softmax", "x", "y", axis=1)])
    change(source)
    assert message in refused(source)


def test_nodes_of_bodies_and_functions_are_looked_at() -> None:
    inner = body([node("Add", "x", "o", name="inner")], [value("o")])
    good = body([node("Neg", "x", "p")], [value("p")])
    source = model([node("If", "k", "y", then_branch=inner, else_branch=good)], [value("x"), value("k", (), BOOL)])
    assert "node 'inner' (Add)" in refused(source)

    function = helper.make_function(
        "mine", "f", ["a"], ["b"], [node("Add", "a", "b", name="deep")], [helper.make_opsetid("", 17)]
    )
    source = model([node("f", "x", "y", domain="mine")])
    source.functions.append(function)
    source.opset_import.add(domain="mine", version=1)
    assert "node 'deep' (Add)" in refused(source)


def test_unknown_operators_are_left_alone() -> None:
    source = model([node("Relu", "x x x", "y", domain="my.domain", axis="text")])
    source.opset_import.add(domain="my.domain", version=1)
    assert Graph.from_model(source).to_model() == source


def test_an_empty_name_at_the_end_of_a_layer_normalization_is_left_out() -> None:
    source = model([node("LayerNormalization", "x g _", "y")], constants={"g": sample(3)})
    graph = Graph.from_model(source)
    assert [tensor.name for tensor in graph.gs.nodes[0].inputs] == ["x", "g"]
    plain = model([node("LayerNormalization", "x g", "y")], constants={"g": sample(3)})
    same_results(plain, graph.to_model(), {"x": sample(2, 3)})


@pytest.mark.parametrize("version", [2**31, 2**62, 0, -3])
@pytest.mark.parametrize("domain", ["", "my.domain"])
def test_versions_of_operator_sets_are_numbers_that_exist(version: int, domain: str) -> None:
    source = model([node("Relu", "x", "y")])
    if domain:
        source.opset_import.add(domain=domain, version=version)
    else:
        source.opset_import[0].version = version
    assert f"version {version} of the operator set '{domain or 'ai.onnx'}'" in refused(source)


@pytest.mark.parametrize("equation", ["....", "a.b", "ij-", "i>j", "1,2", "ij,jk->ik->i"])
def test_an_equation_that_onnx_would_read_for_ever(equation: str) -> None:
    assert "which is not one" in refused(model([node("Einsum", "x x", "y", equation=equation)]))


@pytest.mark.parametrize("equation", ["ij,kj->ik", "i j , k j", "...ij,...kj->...ik"])
def test_equations_that_are_some(equation: str) -> None:
    source = model([node("Einsum", "x x", "y", equation=equation)])
    assert Graph.from_model(source).to_model() == source


def damaged(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    """A model in which the text QQZZ, wherever it is, is not UTF-8."""
    source = model([node("Relu", "x", "t", name="act"), node("Neg", "t", "y")], constants={"c": sample(2)})
    change(source)
    data = source.SerializeToString()
    assert b"QQZZ" in data
    broken = onnx.ModelProto()
    broken.ParseFromString(data.replace(b"QQZZ", b"Q\xff\xfeZ"))
    return broken


def _name(holder: Callable[[onnx.ModelProto], object], field: str) -> Callable[[onnx.ModelProto], None]:
    return lambda source: setattr(holder(source), field, "QQZZ")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (_name(lambda m: m.graph.node[0], "name"), "graph.node[0].name"),
        (_name(lambda m: m.graph.node[0], "op_type"), "graph.node[0].op_type"),
        (_name(lambda m: m.graph.node[0], "domain"), "graph.node[0].domain"),
        (_name(lambda m: m.graph.node[1], "doc_string"), "graph.node[1].doc_string"),
        (_name(lambda m: m.graph.initializer[0], "name"), "graph.initializer[0].name"),
        (_name(lambda m: m.graph, "name"), "graph.name"),
        (_name(lambda m: m, "producer_name"), "producer_name"),
        (lambda m: m.metadata_props.add(key="a", value="QQZZ"), "metadata_props[0].value"),
        (lambda m: m.opset_import.add(domain="QQZZ", version=1), "opset_import[1].domain"),
        (lambda m: m.graph.node[0].input.__setitem__(0, "QQZZ"), "graph.node[0].input[0]"),
        (
            lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", "QQZZ"),
            "graph.input[0].type.tensor_type.shape.dim[0].dim_param",
        ),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_its_place(
    change: Callable[[onnx.ModelProto], object], place: str
) -> None:
    said = refused(damaged(change))
    assert "not UTF-8 text: b'Q\\xff\\xfeZ'" in said
    assert f"in the field {place}." in said


def test_bodies_nested_deeper_than_protobuf_reads(tmp_path: Path) -> None:
    def field(number: int, data: bytes) -> bytes:
        length, size = b"", len(data)
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + data

    graph = b""
    for _ in range(60):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"))
    path = tmp_path / "deep.onnx"
    path.write_bytes(field(7, graph))
    with pytest.raises(ModelError, match="nested deeper than protobuf reads"):
        Graph.load(path)
