"""Bodies of If, Loop and Scan, and local functions: broken, recursive, or growing without end when they are inlined."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import onnx
from onnx import TensorProto, helper

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change
from tools.fuzz.formats.onnx_models.parts import graphs, tensor_names

DOMAIN = "local"


def _bodies(model: onnx.ModelProto) -> list[Any]:
    return [graph for graph in graphs(model) if graph is not model.graph and isinstance(graph, onnx.GraphProto)]


def _float_name(model: onnx.ModelProto, rng: Random) -> str:
    names = [value for node in model.graph.node for value in node.output if value]
    return rng.choice(names) if names else "nowhere"


def _call(model: onnx.ModelProto, name: str, rng: Random) -> None:
    model.graph.node.append(
        helper.make_node(name, [_float_name(model, rng)], [f"called.{rng.getrandbits(16)}"], domain=DOMAIN)
    )
    if not any(entry.domain == DOMAIN for entry in model.opset_import):
        model.opset_import.add(domain=DOMAIN, version=1)


def _function(name: str, nodes: list[onnx.NodeProto], opset: int = 17) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, ["x"], ["y"], nodes, imports)


def recursive_function(model: onnx.ModelProto, rng: Random) -> None:
    other = rng.choice(("Recursive", "Partner"))
    model.functions.append(_function("Recursive", [helper.make_node(other, ["x"], ["y"], domain=DOMAIN)]))
    model.functions.append(_function("Partner", [helper.make_node("Recursive", ["x"], ["y"], domain=DOMAIN)]))
    _call(model, "Recursive", rng)


def exponential_functions(model: onnx.ModelProto, rng: Random) -> None:
    """Each calls the next one twice: 2 ** depth nodes when inlined."""
    depth = rng.choice((4, 12, 40))
    for level in range(depth):
        below = f"Level{level + 1}"
        first, second = (
            (helper.make_node(below, ["x"], ["a"], domain=DOMAIN), helper.make_node(below, ["a"], ["b"], domain=DOMAIN))
            if level + 1 < depth
            else (helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["b"]))
        )
        model.functions.append(_function(f"Level{level}", [first, second, helper.make_node("Identity", ["b"], ["y"])]))
    _call(model, "Level0", rng)


def odd_function(model: onnx.ModelProto, rng: Random) -> None:
    """A function of another opset, with a wrong number of inputs, without nodes, or there twice."""
    function = _function(
        "Odd", [helper.make_node(rng.choice(("Relu", "Softmax", "NoSuch")), ["x"], ["y"])], rng.choice((9, 13, 18, 99))
    )
    choice = rng.randrange(5)
    if choice == 0:
        del function.node[:]
    elif choice == 1:
        function.input.extend(["more", "x"])
    elif choice == 2:
        function.output.append("nowhere")
    elif choice == 3:
        del function.opset_import[:]
    model.functions.append(function)
    if rng.random() < 0.2:
        model.functions.append(function)
    _call(model, "Odd", rng)


def rename_function(model: onnx.ModelProto, rng: Random) -> None:
    if model.functions:
        function = rng.choice(model.functions)
        if rng.random() < 0.5:
            function.name = hostile.name(rng)
        else:
            function.domain = hostile.name(rng)


def other_body_borders(model: onnx.ModelProto, rng: Random) -> None:
    """A body with more or fewer inputs or outputs than its node has."""
    bodies = _bodies(model)
    if bodies:
        body = rng.choice(bodies)
        side = rng.choice((body.input, body.output))
        if side and rng.random() < 0.5:
            del side[rng.randrange(len(side))]
        else:
            side.append(
                helper.make_tensor_value_info(rng.choice(["nowhere", *tensor_names(body)]), TensorProto.FLOAT, None)
            )


def body_reads_elsewhere(model: onnx.ModelProto, rng: Random) -> None:
    bodies = [body for body in _bodies(model) if body.node]
    if bodies:
        node = rng.choice(rng.choice(bodies).node)
        names = [*tensor_names(model.graph), "nowhere"]
        if node.input:
            node.input[0] = rng.choice(names)


def shadow_outer_name(model: onnx.ModelProto, rng: Random) -> None:
    bodies = [body for body in _bodies(model) if body.node]
    if bodies:
        node = rng.choice(rng.choice(bodies).node)
        names = tensor_names(model.graph)
        if node.output and names:
            node.output[0] = rng.choice(names)


def empty_body(model: onnx.ModelProto, rng: Random) -> None:
    bodies = _bodies(model)
    if bodies:
        rng.choice(bodies).Clear()


def swap_bodies(model: onnx.ModelProto, rng: Random) -> None:
    bodies = _bodies(model)
    if len(bodies) > 1:
        first, second = rng.sample(bodies, 2)
        kept = onnx.GraphProto()
        kept.CopyFrom(second)
        second.CopyFrom(first)
        first.CopyFrom(kept)


def nest_ifs(model: onnx.ModelProto, rng: Random) -> None:
    """Ifs in Ifs, deeper than most walks expect; protobuf itself reads about 100 levels of messages."""
    depth = rng.choice((3, 12, 30))
    source = _float_name(model, rng)
    out = helper.make_tensor_value_info("deep.out", TensorProto.FLOAT, None)
    flat = helper.make_graph([helper.make_node("Identity", [source], ["deep.out"])], "flat", [], [out])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
    condition = helper.make_node("Constant", [], ["deep.cond"], value=yes)
    body = flat
    for level in range(depth):
        node = helper.make_node("If", ["deep.cond"], ["deep.out"], then_branch=body, else_branch=flat)
        body = helper.make_graph([node], f"level{level}", [], [out])
    model.graph.node.append(condition)
    model.graph.node.append(helper.make_node("If", ["deep.cond"], ["deep.top"], then_branch=body, else_branch=body))


def add_loop(model: onnx.ModelProto, rng: Random) -> None:
    """A Loop whose state is a tensor of the graph, and whose trip count is a constant, also zero."""
    state = helper.make_tensor_value_info("state.out", TensorProto.FLOAT, None)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go.out"]), helper.make_node("Neg", ["state"], ["state.out"])],
        "looped",
        [
            helper.make_tensor_value_info("index", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor_value_info("go.out", TensorProto.BOOL, []), state],
    )
    count = rng.choice((0, 3, 100))
    model.graph.initializer.append(helper.make_tensor("looped.count", TensorProto.INT64, [], [count]))
    model.graph.initializer.append(helper.make_tensor("looped.go", TensorProto.BOOL, [], [True]))
    node = helper.make_node("Loop", ["looped.count", "looped.go", _float_name(model, rng)], ["looped.out"], body=body)
    model.graph.node.append(node)
    if rng.random() < 0.5:
        model.graph.output.append(helper.make_tensor_value_info("looped.out", TensorProto.FLOAT, None))


CHANGES: Mapping[str, Change] = {
    f"body.{change.__name__}": change
    for change in (
        *(recursive_function, exponential_functions, odd_function, rename_function, other_body_borders),
        *(body_reads_elsewhere, shadow_outer_name, empty_body, swap_bodies, nest_ifs, add_loop),
    )
}
