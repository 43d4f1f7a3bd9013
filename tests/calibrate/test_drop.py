"""A branch that no sample takes stays float, with everything that belongs to it, and the report says so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.calibrate import calibrate
from onnxq.calibrate.drop import drop_unseen
from onnxq.graph import Graph
from onnxq.types import BiasOf, Edge, Placement, QuantPlan, QuantSpec

UINT8 = QuantSpec("uint8", symmetric=False)
INT8 = QuantSpec("int8")


def info(name: str, shape: list[int | str | None], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def branch(name: str) -> onnx.GraphProto:
    """Two Gemms; the second one shares its weight with the other branch."""
    nodes = [
        helper.make_node("Relu", ["x"], [f"{name}_r"], name=f"{name}_relu"),
        helper.make_node("Gemm", [f"{name}_r", f"{name}_w", f"{name}_b"], [f"{name}_g"], name=f"{name}_gemm"),
        helper.make_node("MatMul", [f"{name}_g", "shared"], [f"{name}_out"], name=f"{name}_matmul"),
    ]
    return helper.make_graph(nodes, name, [], [info(f"{name}_out", [None, 4])])


def branching() -> Graph:
    node = helper.make_node("If", ["flag"], ["y"], name="choose", then_branch=branch("yes"), else_branch=branch("no"))
    generator = np.random.default_rng(0)
    constants = {
        name: generator.normal(size=shape).astype(np.float32)
        for name, shape in (("yes_w", (4, 4)), ("yes_b", 4), ("no_w", (4, 4)), ("no_b", 4), ("shared", (4, 4)))
    }
    graph = helper.make_graph(
        [node],
        "main",
        [info("x", ["N", 4]), info("flag", [], TensorProto.BOOL)],
        [info("y", ["N", 4])],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return Graph.from_model(model)


def plan_for_both() -> QuantPlan:
    placements = [Placement("shared", INT8, "weight", "", (Edge("yes_matmul", 1), Edge("no_matmul", 1)))]
    for name in ("yes", "no"):
        placements += [
            Placement(f"{name}_r", UINT8, "activation", "", (Edge(f"{name}_gemm", 0),), observe=(f"{name}_r",)),
            Placement(f"{name}_w", INT8, "weight", "", (Edge(f"{name}_gemm", 1),)),
            Placement(
                f"{name}_b",
                QuantSpec("int32"),
                "bias",
                "",
                (Edge(f"{name}_gemm", 2),),
                derive=BiasOf(f"{name}_r", f"{name}_w"),
            ),
            Placement(f"{name}_g", UINT8, "activation", "", (Edge(f"{name}_matmul", 0),), observe=(f"{name}_g",)),
        ]
    quantized = {f"{name}_{op}": "rule" for name in ("yes", "no") for op in ("gemm", "matmul")}
    return QuantPlan(
        "test", {p.tensor: p for p in placements}, quantized, {"yes_relu": "yes_gemm", "no_relu": "no_gemm"}
    )


def feed(flag: bool, seed: int = 0) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32), "flag": np.array(flag)}


def test_both_branches_are_calibrated_when_samples_take_both() -> None:
    table, plan, report = calibrate(branching(), plan_for_both(), [feed(True), feed(False)])
    assert set(table) == set(plan_for_both().placements)
    assert report.unseen == {}
    assert plan == plan_for_both()


def test_a_branch_never_taken_stays_float_and_is_reported() -> None:
    table, plan, report = calibrate(branching(), plan_for_both(), [feed(True), feed(True, 1)])
    assert report.unseen == {"no_r": "no calibration sample reached it", "no_g": "no calibration sample reached it"}
    assert set(table) == {"shared", "yes_r", "yes_w", "yes_b", "yes_g"}
    assert set(plan.placements) == set(table)
    assert plan["shared"].edges == (Edge("yes_matmul", 1),)
    assert set(plan.quantized) == {"yes_gemm", "yes_matmul"}
    assert plan.left_float["no_gemm"] == "its input 'no_r' has no range: no calibration sample reached it"
    assert "no_gemm" in plan.left_float["no_relu"]
    assert plan.fused == {"yes_relu": "yes_gemm"}
    assert "tensor 'no_r' stays float: no calibration sample reached it" in report.warnings


def chain() -> Graph:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2]),
        helper.make_node("Add", ["a", "u"], ["s"], name="add"),
        helper.make_node("Neg", ["p"], ["n"], name="neg"),
        helper.make_node("Abs", ["u"], ["z"], name="abs"),
    ]
    graph = helper.make_graph(
        nodes,
        "main",
        [info("x", [1, 1, 4]), info("u", [1, 1, 4])],
        [info("s", [1, 1, 4]), info("n", [1, 1, 3]), info("z", [1, 1, 4])],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_a_leader_whose_readers_stay_float_remains_for_those_tied_to_it() -> None:
    placements = [
        Placement("a", UINT8, "activation", "", (Edge("add", 0),), observe=("a",)),
        Placement("p", UINT8, "activation", "", (Edge("neg", 0),), tie="a"),
        Placement("u", UINT8, "activation", "", (Edge("add", 1),), observe=("u",)),
    ]
    plan = QuantPlan("t", {p.tensor: p for p in placements}, {"add": "rule", "neg": "rule"})
    left = drop_unseen(chain(), plan, {"u": "test"})
    assert left["a"].edges == ()
    assert left["p"] == plan["p"]
    assert "u" not in left
    assert set(left.left_float) == {"add"}


@pytest.mark.parametrize("name", ["a", "p"])
def test_ties_go_with_their_leader(name: str) -> None:
    placements = [
        Placement("a", UINT8, "activation", "", observe=("a",)),
        Placement("p", UINT8, "activation", "", tie="a"),
        Placement("u", UINT8, "activation", "", observe=("u",)),
    ]
    plan = QuantPlan("t", {p.tensor: p for p in placements}, {"add": "rule", "neg": "rule", "abs": "rule"})
    left = drop_unseen(chain(), plan, {"a": "test"})
    assert name not in left
    assert left["u"].edges == (Edge("abs", 0),)
    assert {"add", "neg", "pool"} <= set(left.left_float)


def test_a_plan_with_everything_seen_is_returned_as_it_is() -> None:
    plan = plan_for_both()
    assert drop_unseen(branching(), plan, {}) is plan
