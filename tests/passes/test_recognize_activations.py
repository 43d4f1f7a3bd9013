"""Gelu, SiLU and HardSwish are found in any order and grouping of their operators, and nothing else is."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-4, 4, 12, dtype=np.float32).reshape(2, 6)
CONSTANTS = {
    "sqrt2": math.sqrt(2),
    "inv_sqrt2": math.sqrt(0.5),
    "one": 1.0,
    "half": 0.5,
    "two": 2.0,
    "three": 3.0,
    "slope": math.sqrt(2 / math.pi),
    "cubic": 0.044715,
    "quick": 1.702,
    "six": 6.0,
    "sixth": 1 / 6,
    "zero": 0.0,
}


def model_of(
    *steps: str, dtype: type = np.float32, opset: int = 17, outputs: tuple[str, ...] = ("y",)
) -> onnx.ModelProto:
    """A model from lines such as "e = Erf d"; x0 is the input, computed by a node."""
    nodes = [helper.make_node("Identity", ["x"], ["x0"], name="before")]
    for step in steps:
        output, _, rest = step.partition(" = ")
        op, *inputs = rest.split()
        given = [item for item in inputs if "=" not in item]
        attributes = {key: float(value) for key, value in (item.split("=") for item in inputs if "=" in item)}
        nodes.append(helper.make_node(op, given, [output], name=f"make_{output}", **attributes))
    used = {name: np.array(CONSTANTS[name], dtype) for node in nodes for name in node.input if name in CONSTANTS}
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return build_model(nodes, {"x": (2, 6)}, outputs, used, opset=opset, element_type=element_type)


ERF_GELU = [
    ("d = Div x0 sqrt2", "e = Erf d", "a = Add e one", "m = Mul x0 a", "y = Mul m half"),
    ("d = Div x0 sqrt2", "e = Erf d", "a = Add one e", "h = Mul half x0", "y = Mul a h"),
    ("d = Mul x0 inv_sqrt2", "e = Erf d", "a = Add e one", "h = Mul a half", "y = Mul h x0"),
    ("d = Mul inv_sqrt2 x0", "e = Erf d", "a = Add e one", "m = Mul a x0", "y = Div m two"),
    ("d = Mul inv_sqrt2 x0", "e = Erf d", "h = Mul x0 half", "p = Mul h e", "y = Add p h"),
]
TANH_GELU = [
    ("c = Pow x0 three", "k = Mul c cubic", "s = Add x0 k", "i = Mul s slope", "t = Tanh i", "a = Add t one",
     "m = Mul x0 a", "y = Mul m half"),
    ("s2 = Mul x0 x0", "c = Mul s2 x0", "k = Mul cubic c", "s = Add k x0", "i = Mul slope s", "t = Tanh i",
     "a = Add one t", "h = Mul x0 half", "y = Mul h a"),
    ("p = Mul x0 slope", "k = Mul x0 cubic", "k2 = Mul k x0", "f = Add k2 one", "i = Mul p f", "t = Tanh i",
     "a = Add t one", "h = Mul half x0", "y = Mul h a"),
    ("s2 = Pow x0 two", "k = Mul s2 cubic", "f = Add one k", "p = Mul x0 f", "i = Mul p slope", "t = Tanh i",
     "a = Add t one", "h = Mul a half", "y = Mul x0 h"),
]  # fmt: skip
SILU = [("s = Sigmoid x0", "y = Mul x0 s"), ("s = Sigmoid x0", "y = Mul s x0")]
HARDSWISH = [
    ("h = HardSigmoid x0 alpha=0.16666667", "y = Mul x0 h"),
    ("a = Add x0 three", "c = Clip a zero six", "m = Mul x0 c", "y = Div m six"),
    ("a = Add three x0", "c = Clip a zero six", "d = Div c six", "y = Mul d x0"),
    ("a = Add three x0", "c = Clip a zero six", "d = Mul x0 sixth", "y = Mul c d"),
    ("d = Div x0 six", "a = Add d half", "c = Clip a zero one", "y = Mul c x0"),
]
FORMS = [
    (name, kind, steps)
    for name, kind, forms in (
        ("recognize_gelu", "Gelu", ERF_GELU + TANH_GELU),
        ("recognize_silu", "SiLU", SILU),
        ("recognize_hardswish", "HardSwish", HARDSWISH),
    )
    for steps in forms
]


@pytest.mark.parametrize(("name", "kind", "steps"), FORMS)
def test_every_form_is_one_unit_of_all_its_nodes(name: str, kind: str, steps: tuple[str, ...]) -> None:
    model = model_of(*steps[:-1], f"last{steps[-1][1:]}", "y = Neg last")
    graph, report = assert_pass_keeps_outputs(model, name, {"x": X})
    (unit,) = graph.units.all()
    assert unit.kind == kind
    assert set(unit.nodes) == {node.name for node in graph.nodes()} - {"before", "make_y"}
    assert unit.last == "make_last"
    assert len(report.changed) == 1


@pytest.mark.parametrize("steps", ERF_GELU + TANH_GELU)
def test_constants_of_half_precision_are_near_enough(steps: tuple[str, ...]) -> None:
    graph = Graph.from_model(model_of(*steps, dtype=np.float16))
    run_passes(graph, ["recognize_gelu"])
    assert [unit.kind for unit in graph.units.all()] == ["Gelu"]


@pytest.mark.parametrize("opset", [7, 10])
def test_clip_with_attributes_is_the_same_clip(opset: int) -> None:
    model = model_of("a = Add x0 three", "c = Clip a min=0 max=6", "m = Mul x0 c", "y = Div m six", opset=opset)
    graph, _ = assert_pass_keeps_outputs(model, "recognize_hardswish", {"x": X})
    assert [unit.kind for unit in graph.units.all()] == ["HardSwish"]


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("recognize_gelu", ("d = Div x0 two", "e = Erf d", "a = Add e one", "m = Mul x0 a", "y = Mul m half")),
        ("recognize_gelu", ("d = Div x0 sqrt2", "e = Erf d", "a = Add e one", "m = Mul x0 a", "y = Mul m two")),
        ("recognize_gelu", ("d = Div x0 sqrt2", "e = Erf d", "a = Add e one", "m = Mul x a", "y = Mul m half")),
        ("recognize_gelu", ("t = Tanh x0", "a = Add t one", "m = Mul x0 a", "y = Mul m half")),
        ("recognize_silu", ("s = Sigmoid x0", "y = Mul x s")),
        ("recognize_silu", ("q = Mul x0 quick", "s = Sigmoid q", "y = Mul x0 s")),
        ("recognize_silu", ("s = Sigmoid x0", "y = Add x0 s")),
        ("recognize_hardswish", ("h = HardSigmoid x0", "y = Mul x0 h")),
        ("recognize_hardswish", ("a = Add x0 three", "c = Clip a zero three", "m = Mul x0 c", "y = Div m six")),
        ("recognize_hardswish", ("c = Clip x0 zero six", "m = Mul x0 c", "y = Div m six")),
    ],
)
def test_what_only_resembles_it_is_none(name: str, steps: tuple[str, ...]) -> None:
    graph = Graph.from_model(model_of(*steps))
    report = run_passes(graph, [name])[0]
    assert report.changed == ()
    assert graph.units.all() == []


def test_a_value_that_leaves_from_inside_is_a_decline() -> None:
    model = model_of("s = Sigmoid x0", "y = Mul x0 s", "z = Neg s", outputs=("y", "z"))
    graph, report = assert_pass_keeps_outputs(model, "recognize_silu", {"x": X})
    assert graph.units.all() == []
    assert report.declined == (
        "node 'make_y' (Mul): looks like a SiLU, but 's' inside of it is also read by node 'make_z'",
    )


def test_a_node_stays_in_the_unit_that_has_it() -> None:
    graph = Graph.from_model(model_of("s = Sigmoid x0", "y = Mul x0 s"))
    graph.units.add("Mine", ("make_s",))
    report = run_passes(graph, ["recognize_silu"])[0]
    assert report.declined == ("node 'make_y' (Mul): looks like a SiLU, but shares nodes with a Mine",)


def test_activations_in_a_branch_are_found() -> None:
    def branch(name: str) -> onnx.GraphProto:
        nodes = [
            helper.make_node("Sigmoid", ["x"], [f"{name}_s"]),
            helper.make_node("Mul", [f"{name}_s", "x"], [f"{name}_y"]),
        ]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 6])]
        )

    choose = helper.make_node("If", ["flag"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
    model = build_model([choose], {"x": (2, 6)}, ["y"], {"flag": np.array(True)})
    graph, _ = assert_pass_keeps_outputs(model, "recognize_silu", {"x": X})
    assert [unit.kind for unit in graph.units.all()] == ["SiLU", "SiLU"]


def test_two_thousand_gates_on_one_tensor_take_seconds() -> None:
    nodes = [helper.make_node("Sigmoid", ["x"], [f"s{i}"]) for i in range(2_000)]
    nodes += [helper.make_node("Mul", ["x", f"s{i}"], [f"m{i}"]) for i in range(2_000)]
    nodes += [helper.make_node("Sum", [f"m{i}" for i in range(2_000)], ["y"])]
    graph = Graph.from_model(build_model(nodes, {"x": (1,)}, ["y"]))
    report = run_passes(graph, ["recognize_silu"])[0]
    assert len(report.changed) == 2_000
    assert report.seconds < 10
