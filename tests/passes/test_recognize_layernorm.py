"""LayerNorm and RMSNorm are found in the forms that exporters write, grouped whole, and left alone where they leak."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
CONSTANTS = {
    "two": np.float32(2),
    "half": np.float32(0.5),
    "minus_half": np.float32(-0.5),
    "one": np.float32(1),
    "epsilon": np.float32(1e-5),
    "gamma": np.linspace(0.5, 1.5, 8, dtype=np.float32),
    "beta": np.linspace(-1, 1, 8, dtype=np.float32),
    "axes": np.int64([-1]),
}


def chain(*steps: str) -> list[onnx.NodeProto]:
    """Nodes from lines such as "m = ReduceMean x"; ReduceMean gets the last axis as an attribute, Cast its type."""
    nodes = []
    for step in steps:
        output, _, rest = step.partition(" = ")
        op, *inputs = rest.split()
        attributes: dict[str, object] = {"axes": [-1]} if op == "ReduceMean" and len(inputs) == 1 else {}
        if op.startswith("Cast"):
            attributes = {"to": TensorProto.FLOAT if op == "Cast32" else TensorProto.FLOAT16}
            op = "Cast"
        nodes.append(helper.make_node(op, inputs, [output], name=f"make_{output}", **attributes))
    return nodes


def model_of(
    *steps: str, opset: int = 17, outputs: tuple[str, ...] = ("y",), element_type: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    nodes = chain(*steps)
    used = {name: CONSTANTS[name] for node in nodes for name in node.input if name in CONSTANTS}
    if element_type == TensorProto.FLOAT16:
        used = {name: v.astype(np.float16) if name in ("gamma", "beta") else v for name, v in used.items()}
    shapes = dict.fromkeys(outputs, (2, 4, 8))
    return build_model(nodes, {"x": (2, 4, 8)}, shapes, used, opset=opset, element_type=element_type)


LAYERNORM = {
    "pow and div": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Pow d two",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "n = Div d s",
        "g = Mul n gamma",
        "y = Add g beta",
    ),
    "mul by itself": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Mul d d",
        "v = ReduceMean q",
        "e = Add epsilon v",
        "s = Sqrt e",
        "n = Div d s",
        "g = Mul gamma n",
        "y = Add beta g",
    ),
    "reciprocal": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Pow d two",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "r = Reciprocal s",
        "n = Mul d r",
        "g = Mul n gamma",
        "y = Add g beta",
    ),
    "one divided by the root": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Pow d two",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "r = Div one s",
        "n = Mul r d",
        "y = Mul n gamma",
    ),
    "negative power": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Pow d two",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "r = Pow e minus_half",
        "y = Mul d r",
    ),
    "power of a half": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Pow d two",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Pow e half",
        "y = Div d s",
    ),
    "two subtractions": (
        "m = ReduceMean x",
        "d = Sub x m",
        "c = Sub x m",
        "q = Pow c two",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "n = Div d s",
        "g = Mul n gamma",
        "y = Add g beta",
    ),
    "two subtractions and two means": (
        "m = ReduceMean x",
        "k = ReduceMean x",
        "d = Sub x m",
        "c = Sub x k",
        "q = Mul c d",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "n = Div d s",
        "g = Mul n gamma",
        "y = Add g beta",
    ),
    "keras": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Mul d d",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "r = Reciprocal s",
        "f = Mul r gamma",
        "a = Mul x f",
        "b = Mul m f",
        "t = Sub beta b",
        "y = Add a t",
    ),
    "keras without parameters": (
        "m = ReduceMean x",
        "d = Sub x m",
        "q = Mul d d",
        "v = ReduceMean q",
        "e = Add v epsilon",
        "s = Sqrt e",
        "r = Reciprocal s",
        "a = Mul x r",
        "b = Mul m r",
        "y = Sub a b",
    ),
}
RMSNORM = {
    "pow and div": (
        "q = Pow x two", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "n = Div x s", "y = Mul n gamma",
    ),
    "reciprocal": (
        "q = Mul x x", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "r = Reciprocal s", "n = Mul x r",
        "y = Mul gamma n",
    ),
    "one divided by the root": (
        "q = Pow x two", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "r = Div one s", "n = Mul x r",
        "y = Mul n gamma",
    ),
}  # fmt: skip
FORMS = [("LayerNorm", steps) for steps in LAYERNORM.values()] + [("RMSNorm", steps) for steps in RMSNORM.values()]
NAMES = [f"LayerNorm {name}" for name in LAYERNORM] + [f"RMSNorm {name}" for name in RMSNORM]


@pytest.mark.parametrize(("kind", "steps"), FORMS, ids=NAMES)
def test_every_form_is_one_unit_of_all_its_nodes(kind: str, steps: tuple[str, ...]) -> None:
    inside = [step.replace(" x", " x0") for step in steps]
    model = model_of("x0 = Relu x", *inside[:-1], f"last{inside[-1][1:]}", "y = Relu last")
    graph, report = assert_pass_keeps_outputs(model, "recognize_layernorm", {"x": X})
    (unit,) = graph.units.all()
    assert unit.kind == kind
    assert set(unit.nodes) == {node.name for node in graph.nodes()} - {"make_x0", "make_y"}
    assert unit.last == "make_last"
    assert len(report.changed) == 1


def test_the_nodes_of_a_unit_are_in_the_order_they_run() -> None:
    graph = Graph.from_model(model_of(*LAYERNORM["keras"]))
    run_passes(graph, ["recognize_layernorm"])
    (unit,) = graph.units.all()
    done: set[str] = set()
    for name in unit.nodes:
        makers = {maker.name for maker in map(graph.producer, graph.node(name).inputs) if maker is not None}
        assert makers <= done
        done.add(name)


def test_axes_may_be_an_input() -> None:
    steps = [
        s.replace("ReduceMean x", "ReduceMean x axes").replace("ReduceMean q", "ReduceMean q axes")
        for s in LAYERNORM["pow and div"]
    ]
    graph, _ = assert_pass_keeps_outputs(model_of(*steps, opset=18), "recognize_layernorm", {"x": X})
    assert [unit.kind for unit in graph.units.all()] == ["LayerNorm"]


def test_axes_counted_from_different_ends_are_the_same_axes() -> None:
    nodes = chain(*LAYERNORM["pow and div"])
    nodes[0].attribute[0].ints[:] = [2]
    used = {name: CONSTANTS[name] for node in nodes for name in node.input if name in CONSTANTS}
    graph, _ = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 4, 8)}, ["y"], used), "recognize_layernorm", {"x": X}
    )
    assert [unit.kind for unit in graph.units.all()] == ["LayerNorm"]


def test_casts_around_a_norm_in_float32_belong_to_it() -> None:
    steps = (
        "w = Cast32 x", "q = Pow w two", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "r = Reciprocal s",
        "n = Mul w r", "h = Cast16 n", "y = Mul gamma h",
    )  # fmt: skip
    model = model_of(*steps, element_type=TensorProto.FLOAT16)
    graph, _ = assert_pass_keeps_outputs(model, "recognize_layernorm", {"x": X.astype(np.float16)}, rtol=1e-2)
    (unit,) = graph.units.all()
    assert unit.kind == "RMSNorm"
    assert unit.nodes[0] == "make_w"
    assert len(unit.nodes) == len(steps)


def test_a_cast_that_others_read_too_stays_outside() -> None:
    steps = (
        "w = Cast32 x", "q = Pow w two", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "n = Div w s",
        "h = Cast16 n", "k = Mul h gamma", "a = Neg w", "b = Cast16 a", "y = Add k b",
    )  # fmt: skip
    model = model_of(*steps, element_type=TensorProto.FLOAT16)
    graph, _ = assert_pass_keeps_outputs(model, "recognize_layernorm", {"x": X.astype(np.float16)}, rtol=1e-2)
    (unit,) = graph.units.all()
    assert "make_w" not in unit.nodes
    assert unit.last == "make_k"


def test_gamma_stays_outside_when_the_normalised_values_are_read_elsewhere() -> None:
    model = model_of(*LAYERNORM["pow and div"], "z = Neg n", outputs=("y", "z"))
    graph, _ = assert_pass_keeps_outputs(model, "recognize_layernorm", {"x": X})
    (unit,) = graph.units.all()
    assert unit.last == "make_n"


def test_a_value_that_leaves_from_inside_is_a_decline() -> None:
    model = model_of(*LAYERNORM["pow and div"], "z = Neg d", outputs=("y", "z"))
    graph, report = assert_pass_keeps_outputs(model, "recognize_layernorm", {"x": X})
    assert graph.units.all() == []
    assert report.declined == (
        "node 'make_y' (Add): looks like a LayerNorm, but 'd' inside of it is also read by node 'make_z'",
    )


@pytest.mark.parametrize(
    "steps",
    [
        ("q = Pow x two", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "y = Add x s"),
        ("q = Mul x gamma", "v = ReduceMean q", "e = Add v epsilon", "s = Sqrt e", "y = Div x s"),
        ("q = Pow x two", "v = ReduceMean q", "s = Sqrt v", "y = Div x s"),
        ("m = ReduceMean x", "y = Sub x m"),
    ],
)
def test_what_only_resembles_a_norm_is_none(steps: tuple[str, ...]) -> None:
    graph = Graph.from_model(model_of(*steps))
    assert run_passes(graph, ["recognize_layernorm"])[0].changed == ()


def test_different_axes_make_no_layernorm() -> None:
    nodes = chain(*LAYERNORM["pow and div"])
    nodes[0].attribute[0].ints[:] = [1]
    used = {name: CONSTANTS[name] for node in nodes for name in node.input if name in CONSTANTS}
    graph = Graph.from_model(build_model(nodes, {"x": (2, 4, 8)}, ["y"], used))
    run_passes(graph, ["recognize_layernorm"])
    assert [unit.kind for unit in graph.units.all()] == ["RMSNorm"]


def test_norms_in_a_branch_are_found() -> None:
    def branch(name: str) -> onnx.GraphProto:
        nodes = chain(*LAYERNORM["pow and div"])
        for node in nodes:
            node.name = f"{name}_{node.name}"
            node.input[:] = [i if i in CONSTANTS or i == "x" else f"{name}_{i}" for i in node.input]
            node.output[:] = [f"{name}_{o}" for o in node.output]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [2, 4, 8])]
        )

    choose = helper.make_node("If", ["flag"], ["y"], then_branch=branch("t"), else_branch=branch("e"))
    constants = {name: CONSTANTS[name] for name in ("two", "epsilon", "gamma", "beta")}
    model = build_model([choose], {"x": (2, 4, 8)}, ["y"], {**constants, "flag": np.array(True)})
    graph, _ = assert_pass_keeps_outputs(model, "recognize_layernorm", {"x": X})
    assert [unit.kind for unit in graph.units.all()] == ["LayerNorm", "LayerNorm"]
