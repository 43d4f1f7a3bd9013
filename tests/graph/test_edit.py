"""Edits: each one small, local, and without effect on anything else."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

from onnxq.errors import ModelError
from onnxq.graph import Graph, Use
from tests.graph.models import body, chain, checked, if_model, model, node, run, same_results, sample, value

X = {"x": sample(2, 3)}
BOOL = TensorProto.BOOL


# ---- insert_after ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tensor", ["x", "t1", "y", "c"])
def test_an_identity_behind_any_tensor_changes_no_result(tensor: str) -> None:
    source = model(
        [node("Relu", "x", "t1"), node("Add", "t1 c", "y"), node("Neg", "t1", "z")],
        outputs=[value("y"), value("z")],
        constants={"c": sample(2, 3, seed=1)},
    )
    graph = Graph.from_model(source)
    inserted = graph.insert_after(tensor, "Identity")
    assert inserted.outputs[0].outputs or graph.is_output(inserted.outputs[0])
    written = checked(graph)
    assert [i.name for i in written.graph.input] == ["x"]
    assert [o.name for o in written.graph.output] == ["y", "z"]
    same_results(source, written, X)


def test_behind_an_output_the_node_makes_the_output_and_readers_read_it() -> None:
    source = model([node("Relu", "x", "y"), node("Neg", "y", "z")], outputs=[value("y"), value("z")])
    graph = Graph.from_model(source)
    inserted = graph.insert_after("y", "Abs")
    assert graph.output_names == ["y", "z"]
    assert inserted.outputs[0] is graph.tensor("y")
    assert graph.nodes("Neg")[0].inputs[0] is inserted.outputs[0]
    assert inserted.inputs[0].name not in ("y", "z")
    checked(graph)


def test_only_the_chosen_uses_read_the_new_tensor() -> None:
    graph = Graph.from_model(model([node("Add", "x x", "t", name="sum"), node("Mul", "t x", "y", name="mul")]))
    graph.insert_after("x", "Neg", uses=[Use(graph.node("sum"), 1)])
    assert [t.name for t in graph.node("sum").inputs] == ["x", "x_Neg"]
    assert graph.node("mul").inputs[1].name == "x"
    x = X["x"]
    np.testing.assert_array_equal(run(checked(graph), X)[0], (x - x) * x)


def test_no_uses_at_all_is_a_side_branch() -> None:
    source = chain("Relu")
    graph = Graph.from_model(source)
    graph.insert_after("x", "Neg", uses=[])
    same_results(source, checked(graph), X)
    assert graph.remove_dead() == ["x_Neg"]
    assert graph.to_model() == source


def test_extra_inputs_and_attributes() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    scale, zero = graph.add_constant("scale", np.float32(0.5)), graph.add_constant("zero", np.int8(0))
    quantize = graph.insert_after("t1", "QuantizeLinear", extra_inputs=[scale, zero.name])
    graph.insert_after(quantize.outputs[0], "DequantizeLinear", extra_inputs=["scale", "zero"])
    quantize.outputs[0].dtype = np.dtype(np.int8)
    expected = -np.rint(np.maximum(X["x"], 0) / 0.5) * 0.5
    np.testing.assert_allclose(run(checked(graph), X)[0], expected)


@pytest.mark.parametrize("tensor", ["a", "o", "w", "r", "x", "k", "y"])
def test_an_identity_behind_any_tensor_in_or_around_a_body(tensor: str) -> None:
    source = if_model()
    graph = Graph.from_model(source)
    inserted = graph.insert_after(tensor, "Identity")
    assert graph.scope_of(inserted).name == ("then" if tensor in "aow" else "main")
    written = checked(graph)
    for flag in (True, False):
        same_results(source, written, {**X, "k": np.array(flag)})


def test_behind_an_input_of_a_body() -> None:
    inner = body(
        [node("Add", "v x", "n"), node("Identity", "go", "g")],
        [value("g", (), BOOL), value("n")],
        [value("i", (), TensorProto.INT64), value("go", (), BOOL), value("v")],
    )
    source = model([node("Loop", "times _ x", "y", body=inner)], constants={"times": np.array(2, np.int64)})
    graph = Graph.from_model(source)
    inserted = graph.insert_after("v", "Identity")
    assert graph.scope_of(inserted) is graph.scopes()[1]
    same_results(source, checked(graph), X)


def test_behind_an_input_that_is_an_output_the_interface_stays() -> None:
    source = model([node("Relu", "x", "y")], outputs=[value("y"), value("x")])
    graph = Graph.from_model(source)
    graph.insert_after("x", "Identity")
    assert (graph.input_names, graph.output_names) == (["x"], ["y", "x"])
    same_results(source, graph.to_model(), X)


def test_a_tensor_that_nothing_makes_cannot_be_followed() -> None:
    graph = Graph.from_model(chain("Relu"))
    orphan = graph.add_variable("orphan")
    with pytest.raises(ModelError, match="'orphan'"):
        graph.insert_after(orphan, "Neg")


# ---- redirect --------------------------------------------------------------------------------------------------------


def test_readers_move_and_an_output_keeps_its_name() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    graph.redirect("y", "t1")
    graph.remove(graph.nodes("Neg"))
    assert graph.output_names == ["y"]
    np.testing.assert_array_equal(run(checked(graph), X)[0], np.maximum(X["x"], 0))


def test_an_output_fed_by_an_input_a_constant_or_another_output_gets_an_identity() -> None:
    for new in ("x", "c", "z"):
        graph = Graph.from_model(
            model(
                [node("Relu", "x", "y"), node("Neg", "x", "z")],
                outputs=[value("y"), value("z")],
                constants={"c": sample(2, 3)},
            )
        )
        graph.redirect("y", new)
        graph.remove_dead()
        assert graph.output_names == ["y", "z"]
        assert [n.op for n in graph.nodes()].count("Identity") == 1
        np.testing.assert_array_equal(run(checked(graph), X)[0], {"x": X["x"], "c": sample(2, 3), "z": -X["x"]}[new])


def test_an_output_listed_twice_moves_twice() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "t"), node("Neg", "t", "y")], outputs=[value("y"), value("y")]))
    graph.redirect("y", "t")
    assert graph.output_names == ["y", "y"]
    assert graph.gs.outputs[0] is graph.gs.outputs[1] is graph.nodes("Relu")[0].outputs[0]


def test_the_maker_of_the_new_tensor_keeps_reading_the_old_one() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    made = graph.add_node("Abs", ["t1"])
    graph.redirect("t1", made.outputs[0])
    assert [n.op for n in (graph.sort() or graph.nodes())] == ["Relu", "Abs", "Neg"]


def test_outputs_of_bodies_are_redirected() -> None:
    source = if_model()
    graph = Graph.from_model(source)
    graph.redirect("o", "a")
    graph.remove_dead()
    assert not graph.nodes("Neg")
    feeds = {**X, "k": np.array(True)}
    np.testing.assert_array_equal(run(checked(graph), feeds)[0], -run(source, feeds)[0])


def test_a_body_that_should_return_an_outer_tensor_returns_a_copy_because_runtimes_want_that() -> None:
    graph = Graph.from_model(if_model())
    graph.redirect("o", "r")
    graph.remove_dead()
    assert [n.op for n in graph.nodes()] == ["Relu", "If", "Add", "Identity"]
    np.testing.assert_array_equal(run(checked(graph), {**X, "k": np.array(True)})[0], np.maximum(X["x"], 0))


# ---- remove, remove_dead ---------------------------------------------------------------------------------------------


def test_a_removed_maker_is_missed_when_writing_and_can_be_replaced() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    tensor = graph.tensor("t1")
    graph.remove(graph.node("Relu0"))
    with pytest.raises(ModelError, match="'t1' is read by node 'Neg1'"):
        graph.to_model()
    graph.add_node("Abs", ["x"], [tensor])
    np.testing.assert_array_equal(run(checked(graph), X)[0], -np.abs(X["x"]))


def test_a_removed_node_is_gone_from_all_lookups() -> None:
    graph = Graph.from_model(if_model())
    choose = graph.node("choose")
    graph.redirect("y", "r")
    graph.remove(choose)
    assert not graph.has_node("choose")
    assert not graph.has_node("inner")
    assert not any(graph.has_tensor(name) for name in ("a", "o", "p", "w"))
    assert graph.consumers("x") == [Use(graph.nodes("Relu")[0], 0)]
    assert len(graph.scopes()) == 1
    with pytest.raises(ModelError, match="'choose'"):
        graph.scope_of(choose)
    with pytest.raises(ModelError, match="'choose'"):
        graph.remove(choose)


def test_two_makers_of_one_tensor_are_refused_when_writing() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    graph.add_node("Abs", ["x"], ["t1"], name="second")
    with pytest.raises(ModelError, match="'t1' is made by two nodes, 'Relu0' and 'second'"):
        graph.to_model()


def test_a_tensor_of_a_body_cannot_be_read_outside() -> None:
    graph = Graph.from_model(if_model())
    graph.add_node("Neg", ["a"], name="outside")
    with pytest.raises(ModelError, match="'a' is read by node 'outside'"):
        graph.to_model()


def test_dead_nodes_and_their_constants_leave() -> None:
    nodes = [
        node("Relu", "x", "y"),
        node("Mul", "x c", "d", name="dead1"),
        node("Neg", "d", "e", name="dead2"),
        node("Add", "x kept", "z"),
    ]
    graph = Graph.from_model(
        model(nodes, outputs=[value("y"), value("z")], constants={"c": sample(2, 3), "kept": sample(2, 3)})
    )
    assert sorted(graph.remove_dead()) == ["dead1", "dead2"]
    assert [c.name for c in graph.constants()] == ["kept"]
    assert not graph.has_tensor("d")
    assert graph.remove_dead() == []
    checked(graph)


def test_values_that_bodies_read_keep_their_makers_alive() -> None:
    source = if_model()
    graph = Graph.from_model(source)
    assert graph.remove_dead() == []
    assert graph.to_model() == source


def test_dead_code_in_a_body_frees_what_it_read_outside() -> None:
    then = body([node("Neg", "only", "unused", name="dead inside"), node("Neg", "x", "o")], [value("o")])
    other = body([node("Abs", "x", "p")], [value("p")])
    nodes = [node("Relu", "x", "only", name="dead outside"), node("If", "k", "y", then_branch=then, else_branch=other)]
    graph = Graph.from_model(model(nodes, [value("x"), value("k", (), BOOL)]))
    assert graph.remove_dead() == ["dead inside", "dead outside"]
    checked(graph)


def test_a_dead_if_leaves_with_its_bodies() -> None:
    source = if_model()
    source.graph.node.append(node("Exp", "x", "z"))
    source.graph.output[0].name = "z"
    graph = Graph.from_model(source)
    assert sorted(graph.remove_dead()) == ["Relu_r", "choose"]
    assert len(graph.scopes()) == 1
    assert not graph.constants()
    checked(graph)


def test_an_unread_output_of_an_if_stays_because_the_branches_still_make_it() -> None:
    def two(a: str, b: str) -> onnx.GraphProto:
        return body([node("Neg", "x", a), node("Abs", "x", b)], [value(a), value(b)])

    source = model(
        [node("If", "k", "y unread", then_branch=two("a", "b"), else_branch=two("c", "d"))],
        [value("x"), value("k", (), BOOL)],
    )
    graph = Graph.from_model(source)
    assert graph.remove_dead() == []
    checked(graph)


def test_unused_constants_leave_from_bodies_too() -> None:
    graph = Graph.from_model(if_model())
    graph.add_constant("outer", sample(2))
    graph.node("inner").inputs[1] = graph.tensor("x")
    assert sorted(graph.remove_unused_constants()) == ["outer", "w"]
    checked(graph)


# ---- replace ---------------------------------------------------------------------------------------------------------


def test_a_chain_becomes_one_node_under_the_name_of_the_last() -> None:
    graph = Graph.from_model(chain("Relu", "Neg", "Abs"))
    graph.node("Neg1").metadata["layer"] = "3"
    (match,) = graph.find("Relu -> Neg")
    new = graph.replace(match, "Elu", ["x"], attrs={"alpha": 0.5})
    assert (new.name, new.op, new.outputs[0].name) == ("Neg1", "Elu", "t2")
    assert new.metadata == {"layer": "3"}
    assert graph.origins.current_node("Relu0") == "Neg1"
    assert graph.origins.current_node("Neg1") == "Neg1"
    assert not graph.has_tensor("t1")
    assert [n.op_type for n in checked(graph).graph.node] == ["Elu", "Abs"]


def test_a_new_name_may_be_given() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    new = graph.replace(graph.node("Relu0"), "Abs", ["x"], name="Neg1")
    assert new.name == "Neg1_1"
    assert graph.origins.current_node("Relu0") == "Neg1_1"


def test_a_group_whose_inside_is_read_elsewhere_is_refused_and_untouched() -> None:
    source = model(
        [node("Relu", "x", "t", name="a"), node("Neg", "t", "y", name="b"), node("Abs", "t", "z", name="c")],
        outputs=[value("y"), value("z")],
    )
    graph = Graph.from_model(source)
    with pytest.raises(ModelError, match="exactly one tensor that is read outside, it has 't', 'y'"):
        graph.replace([graph.node("a"), graph.node("b")], "Exp", ["x"])
    with pytest.raises(ModelError, match="'t' is also read by node 'c'"):
        graph.replace([graph.node("a"), graph.node("b")], "Exp", ["x"], output="y")
    with pytest.raises(ModelError, match="no node of the group makes tensor 'z'"):
        graph.replace([graph.node("a")], "Exp", ["x"], output="z")
    assert graph.to_model() == source


def test_a_new_node_cannot_read_what_it_replaces() -> None:
    graph = Graph.from_model(chain("Relu", "Neg"))
    with pytest.raises(ModelError, match="cannot read 't1'"):
        graph.replace([graph.node("Relu0"), graph.node("Neg1")], "Exp", ["t1"])


def test_replacing_inside_a_body_stays_inside() -> None:
    source = if_model()
    graph = Graph.from_model(source)
    new = graph.replace(graph.node("inner"), "Div", ["r", "w"])
    assert graph.scope_of(new).name == "then"
    checked(graph)


def test_one_of_several_outputs() -> None:
    source = model(
        [node("Split", "x", "t unused", axis=1, num_outputs=2, name="split"), node("Neg", "t", "y")],
        [value("x", (2, 4))],
        [value("y", (2, 2))],
        opset=18,
    )
    graph = Graph.from_model(source)
    ends = [graph.add_constant(n, np.int64([v])) for n, v in (("from", 0), ("to", 2), ("axis", 1))]
    graph.replace(graph.node("split"), "Slice", ["x", *ends])
    same_results(source, checked(graph), {"x": sample(2, 4)})


# ---- new nodes -------------------------------------------------------------------------------------------------------


def test_new_nodes_make_their_own_output_and_may_omit_inputs() -> None:
    graph = Graph.from_model(chain("Relu"))
    top = graph.add_constant("top", np.float32(0.5))
    clip = graph.add_node("Clip", ["y", None, top])
    assert [t.name for t in clip.inputs] == ["y", "", "top"]
    assert clip.outputs[0].name == "Clip_output"
    tensor = clip.outputs[0]
    graph.redirect("y", tensor)
    assert graph.output_names == ["y"]
    np.testing.assert_array_equal(run(checked(graph), X)[0], np.clip(X["x"], 0, 0.5))


def test_a_new_node_may_have_bodies() -> None:
    graph = Graph.from_model(model([node("Relu", "x", "r"), node("Neg", "r", "y")], [value("x"), value("k", (), BOOL)]))
    made = gs.Variable("inner_out", np.float32, [2, 3])
    then = gs.Graph([gs.Node("Exp", "inner", inputs=[graph.tensor("r")], outputs=[made])], outputs=[made], name="then")
    twin = gs.Variable("twin", np.float32, [2, 3])
    other = gs.Graph([gs.Node("Identity", inputs=[graph.tensor("r")], outputs=[twin])], outputs=[twin], name="else")
    choose = graph.add_node("If", ["k"], attrs={"then_branch": then, "else_branch": other})
    graph.redirect("r", choose.outputs[0], uses=[Use(graph.nodes("Neg")[0], 0)])
    assert graph.has_node("inner")
    assert len(graph.scopes()) == 3
    relu = np.maximum(X["x"], 0)
    for flag, expected in ((True, -np.exp(relu)), (False, -relu)):
        np.testing.assert_allclose(run(graph.to_model(), {**X, "k": np.array(flag)})[0], expected, rtol=1e-6)


def test_a_new_constant_may_live_in_a_body() -> None:
    graph = Graph.from_model(if_model())
    scope = graph.scope_of(graph.node("inner"))
    constant = graph.add_constant("w2", sample(2, 3), scope=scope)
    graph.node("inner").inputs[1] = constant
    graph.remove_unused_constants()
    written = checked(graph)
    then = next(a.g for a in written.graph.node[1].attribute if a.name == "then_branch")
    assert [t.name for t in then.initializer] == ["w2"]
    assert graph.copy().to_model() == written


@pytest.mark.parametrize("constant", ["c", "k"])
def test_a_constant_gets_new_values_of_its_own_shape_and_type_only(constant: str) -> None:
    made = node("Constant", "", "k", value_floats=[1.0, 2.0, 3.0])
    graph = Graph.from_model(
        model([made, node("Add", "x c", "t"), node("Mul", "t k", "y")], constants={"c": np.zeros(3, np.float32)})
    )
    graph.set_values(constant, np.full(3, 7.0, np.float32))
    np.testing.assert_array_equal(Graph.from_model(checked(graph)).values(constant), np.full(3, 7.0))
    for wrong in (np.zeros(4, np.float32), np.zeros(3)):
        with pytest.raises(ModelError, match="cannot take its place"):
            graph.set_values(constant, wrong)
