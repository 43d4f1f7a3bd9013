"""Bodies of If, Loop and Scan, and local functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import ModelError
from onnxq.graph import Graph
from tests.graph.models import FLOAT, body, model, node, same_results, sample, value

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64
KX = [value("x"), value("k", (), BOOL)]


def branches(
    then_nodes: Sequence[onnx.NodeProto], else_nodes: Sequence[onnx.NodeProto], then_out: str = "o", else_out: str = "o"
) -> onnx.ModelProto:
    """x -> Relu -> r; y = If(k) of two bodies that may read x and r."""
    choose = node(
        "If",
        "k",
        "y",
        name="choose",
        then_branch=body(then_nodes, [value(then_out)], name="then"),
        else_branch=body(else_nodes, [value(else_out)], name="else"),
    )
    return model([node("Relu", "x", "r", name="outside"), choose], KX)


def check_both_ways(source: onnx.ModelProto, written: onnx.ModelProto) -> None:
    onnx.checker.check_model(written)
    for flag in (True, False):
        same_results(source, written, {"x": sample(2, 3), "k": np.array(flag)})


def test_equal_names_in_sibling_branches_become_unique() -> None:
    source = branches(
        [node("Neg", "r", "t", name="n"), node("Abs", "t", "o")],
        [node("Exp", "x", "t", name="n"), node("Neg", "t", "o")],
    )
    graph = Graph.from_model(source)
    produced = [t.name for n in graph.nodes() for t in n.outputs]
    assert len(set(produced)) == len(produced) == 6
    assert {"r", "y"} <= set(produced)
    assert len({n.name for n in graph.nodes()}) == 6
    check_both_ways(source, graph.to_model())
    check_both_ways(source, graph.copy().to_model())


def test_a_body_tensor_with_the_name_of_an_outer_one_is_told_apart() -> None:
    source = branches([node("Neg", "x", "y")], [node("Abs", "r", "r2")], "y", "r2")
    graph = Graph.from_model(source)
    (neg,) = graph.nodes("Neg")
    assert neg.outputs[0].name != "y"
    assert graph.producer("y") is graph.node("choose")
    check_both_ways(branches([node("Neg", "x", "q")], [node("Abs", "r", "r2")], "q", "r2"), graph.to_model())


def test_annotations_in_bodies_follow_their_tensors() -> None:
    source = branches([node("Neg", "r", "t"), node("Abs", "t", "o")], [node("Exp", "x", "t"), node("Neg", "t", "o")])
    for attribute in source.graph.node[1].attribute:
        attribute.g.quantization_annotation.add(tensor_name="t")
    graph = Graph.from_model(source)
    for scope in graph.scopes()[1:]:
        (annotation,) = scope.quantization_annotation
        assert annotation.tensor_name == scope.nodes[0].outputs[0].name


def test_readers_and_makers_are_found_across_scopes() -> None:
    graph = Graph.from_model(branches([node("Neg", "r", "a")], [node("Add", "r r", "b")], "a", "b"))
    uses = {(use.node.op, use.port) for use in graph.consumers("r")}
    assert uses == {("Neg", 0), ("Add", 0), ("Add", 1)}
    assert graph.producer("r") is graph.node("outside")
    (neg,) = graph.nodes("Neg")
    assert graph.scope_of(neg).name == "then"
    assert graph.scope_of(graph.node("choose")) is graph.gs
    assert graph.is_output("a")
    assert not graph.is_output("r")
    assert [scope.name for scope in graph.scopes()] == ["main", "else", "then"]  # attributes are sorted by name


def test_a_body_output_may_be_an_outer_tensor() -> None:
    source = branches([], [node("Neg", "x", "b")], "r", "b")
    graph = Graph.from_model(source)
    assert graph.is_output("r")
    assert graph.remove_dead() == []
    assert graph.to_model() == source
    copy = graph.copy()
    assert copy.to_model() == source
    assert copy.scopes()[2].outputs[0] is copy.tensor("r")


def test_nested_bodies_see_all_outer_scopes() -> None:
    deep = node(
        "If",
        "k",
        "o",
        then_branch=body([node("Sum", "x r m", "d")], [value("d")], name="deep then"),
        else_branch=body([node("Sub", "m x", "d")], [value("d")], name="deep else"),
    )
    source = branches([node("Neg", "r", "m"), deep], [node("Abs", "x", "o")])
    graph = Graph.from_model(source)
    assert [s.name for s in graph.scopes()] == ["main", "else", "then", "deep else", "deep then"]
    assert [n.op for n in graph.nodes()] == ["Relu", "If", "Abs", "Neg", "If", "Sub", "Sum"]
    check_both_ways(source, graph.to_model())
    check_both_ways(source, graph.copy().to_model())


def loop_model() -> onnx.ModelProto:
    """Three rounds of v = relu(v + w * x), which also collects every v."""
    inner = body(
        [
            node("Mul", "x w", "wx"),
            node("Add", "v wx", "s"),
            node("Relu", "s", "v_next"),
            node("Identity", "v_next", "seen"),
            node("Identity", "go", "go_on"),
        ],
        [value("go_on", (), BOOL), value("v_next"), value("seen")],
        [value("i", (), INT64), value("go", (), BOOL), value("v")],
        {"w": sample(2, 3, seed=4)},
        "round",
    )
    return model(
        [node("Loop", "times _ x", "y all", body=inner, name="loop")],
        outputs=[value("y"), value("all", (3, 2, 3))],
        constants={"times": np.array(3, np.int64)},
    )


def scan_model() -> onnx.ModelProto:
    inner = body(
        [node("Add", "state row", "sum"), node("Mul", "sum bias", "out")],
        [value("sum", (3,)), value("out", (3,))],
        [value("state", (3,)), value("row", (3,))],
        name="row",
    )
    return model(
        [node("Scan", "start x", "last y", body=inner, num_scan_inputs=1)],
        outputs=[value("last", (3,)), value("y")],
        constants={"start": np.zeros(3, np.float32), "bias": sample(3, seed=2)},
    )


@pytest.mark.parametrize("source", [loop_model(), scan_model()], ids=["loop", "scan"])
def test_loops_and_scans_compute_the_same(source: onnx.ModelProto) -> None:
    graph = Graph.from_model(source)
    graph.infer_shapes()
    for written in (graph.to_model(), graph.copy().to_model()):
        onnx.checker.check_model(written)
        same_results(source, written, {"x": sample(2, 3)})


def test_constants_of_a_body_belong_to_it() -> None:
    graph = Graph.from_model(loop_model())
    assert graph.is_constant("w")
    assert graph.tensor("w").scope.name == "round"
    assert [c.name for c in graph.constants()] == ["times", "w"]


# ---- local functions -------------------------------------------------------------------------------------------------


def function(
    domain: str, name: str, inputs: str, outputs: str, nodes: list[onnx.NodeProto], **extra: object
) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    return helper.make_function(domain, name, inputs.split(), outputs.split(), nodes, imports, **extra)  # type: ignore[arg-type]


def test_functions_are_inlined() -> None:
    scale = function("lib", "Scale", "a", "b", [node("Add", "a a", "t"), node("Relu", "t", "b")])
    twice = function(
        "lib", "Twice", "a", "b", [node("Scale", "a", "t", domain="lib"), node("Scale", "t", "b", domain="lib")]
    )
    source = model(
        [node("Twice", "x", "t", domain="lib"), node("Scale", "t", "y", domain="lib")],
        domains={"lib": 1},
        functions=[scale, twice],
    )
    graph = Graph.from_model(source)
    written = graph.to_model()
    assert not written.functions
    assert [n.op for n in graph.nodes()] == ["Add", "Relu"] * 3
    assert graph.input_names + graph.output_names == ["x", "y"]
    onnx.checker.check_model(written)
    same_results(source, written, {"x": sample(2, 3)})


def test_a_function_domain_may_come_first() -> None:
    scale = function("lib", "Scale", "a", "b", [node("Add", "a a", "b")])
    source = model([node("Scale", "x", "y", domain="lib")], functions=[scale])
    del source.opset_import[:]
    source.opset_import.extend([helper.make_opsetid("lib", 1), helper.make_opsetid("", 17)])
    graph = Graph.from_model(source)
    assert graph.opset == 17
    same_results(source, graph.to_model(), {"x": sample(2, 3)})


def test_functions_with_attributes_and_overloads() -> None:
    leaky = node("LeakyRelu", "a", "b")
    leaky.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    first = function("lib", "Act", "a", "b", [leaky], attributes=["slope"])
    second = function("lib", "Act", "a", "b", [node("Neg", "a", "b")])
    second.overload = "negated"
    nodes = [node("Act", "x", "t", domain="lib", slope=0.25), node("Act", "t", "y", domain="lib")]
    nodes[1].overload = "negated"
    source = model(nodes, domains={"lib": 1}, functions=[first, second])
    graph = Graph.from_model(source)
    assert [n.op for n in graph.nodes()] == ["LeakyRelu", "Neg"]
    assert graph.nodes("LeakyRelu")[0].attrs == {"alpha": 0.25}


def test_a_function_with_an_older_opset_is_converted() -> None:
    old = helper.make_function(
        "lib", "Mean", ["a"], ["b"], [node("ReduceSum", "a", "b", axes=[1], keepdims=1)], [helper.make_opsetid("", 11)]
    )
    nodes = [node("Mean", "x", "t", domain="lib"), node("Relu", "t", "y")]
    source = model(nodes, outputs=[value("y", (2, 1))], domains={"lib": 1}, functions=[old])
    graph = Graph.from_model(source)
    (reduce,) = graph.nodes("ReduceSum")
    assert len(reduce.inputs) == 2  # the axes are an input since opset 13
    x = sample(2, 3)
    plain = model(
        [node("ReduceSum", "x axes", "t", keepdims=1), node("Relu", "t", "y")],
        outputs=[value("y", (2, 1))],
        constants={"axes": np.int64([1])},
    )
    same_results(plain, graph.to_model(), {"x": x})


def test_metadata_survives_inlining() -> None:
    scale = function("lib", "Scale", "a", "b", [node("Add", "a a", "b")])
    source = model(
        [node("Scale", "x", "t", domain="lib"), node("Add", "t c", "y", name="last")],
        domains={"lib": 1},
        functions=[scale],
        constants={"c": sample(2, 3)},
    )
    source.metadata_props.add(key="a", value="b")
    source.producer_name = "trainer"
    source.graph.node[1].metadata_props.add(key="layer", value="7")
    written = Graph.from_model(source).to_model()
    assert written.producer_name == "trainer"
    assert [(e.key, e.value) for e in written.metadata_props] == [("a", "b")]
    assert written.graph.node[1].metadata_props[0].value == "7"
    np.testing.assert_array_equal(numpy_helper.to_array(written.graph.initializer[0]), sample(2, 3))


def test_functions_that_call_each_other_are_refused() -> None:
    ping = function("lib", "Ping", "a", "b", [node("Pong", "a", "b", domain="lib")])
    pong = function("lib", "Pong", "a", "b", [node("Ping", "a", "b", domain="lib")])
    source = model([node("Ping", "x", "y", domain="lib")], domains={"lib": 1}, functions=[ping, pong])
    with pytest.raises(ModelError, match="function"):
        Graph.from_model(source)


def test_functions_are_inlined_inside_bodies() -> None:
    scale = function("lib", "Scale", "a", "b", [node("Add", "a a", "b")])
    source = branches([node("Scale", "r", "o", domain="lib")], [node("Neg", "x", "o")])
    source.functions.append(scale)
    source.opset_import.append(helper.make_opsetid("lib", 1))
    graph = Graph.from_model(source)
    assert not graph.nodes("Scale")
    check_both_ways(source, graph.to_model())
    assert graph.to_model().graph.output[0].type.tensor_type.elem_type == FLOAT
