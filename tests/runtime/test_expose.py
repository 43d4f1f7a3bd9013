"""Tensors inside If, Loop and Scan bodies are observed exactly: each value that was computed, and nothing else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.runtime.collect import _Run, collect
from onnxq.runtime.expose import expose
from onnxq.runtime.reduce import SMALLEST
from onnxq.runtime.tap import Tap

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, shape: list[int | str | None] | None = None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def constant(name: str, values: object, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def model_of(graph: onnx.GraphProto, opset: int = 17) -> Graph:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return Graph.from_model(model)


def branch(name: str, factor: str, dtype: int = FLOAT) -> onnx.GraphProto:
    """<name>_inner = x * factor; <name>_out = <name>_inner + x."""
    nodes = [
        helper.make_node("Mul", ["x", factor], [f"{name}_inner"], name=f"{name}_mul"),
        helper.make_node("Add", [f"{name}_inner", "x"], [f"{name}_out"], name=f"{name}_add"),
    ]
    return helper.make_graph(nodes, name, [], [info(f"{name}_out", None, dtype)])


def if_model(dtype: int = FLOAT, opset: int = 17) -> Graph:
    numpy_type = np.float16 if dtype == TensorProto.FLOAT16 else np.float32
    node = helper.make_node(
        "If",
        ["flag"],
        ["y"],
        name="choose",
        then_branch=branch("yes", "two", dtype),
        else_branch=branch("no", "ten", dtype),
    )
    graph = helper.make_graph(
        [node],
        "main",
        [info("x", ["N"], dtype), info("flag", [], BOOL)],
        [info("y", ["N"], dtype)],
        [constant("two", 2, numpy_type), constant("ten", 10, numpy_type)],
    )
    return model_of(graph, opset)


def if_feed(flag: bool, values: object, dtype: type = np.float32) -> dict[str, np.ndarray]:
    return {"x": np.asarray(values, dtype), "flag": np.asarray(flag)}


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_each_branch_of_an_if_is_seen_only_where_it_was_taken(opset: int) -> None:
    tap = Tap(if_model(opset=opset), ["yes_inner", "no_inner", "y"])
    taken = tap.run(if_feed(True, [1, 2]))
    assert taken["yes_inner"].tolist() == [2, 4]
    assert taken["no_inner"].size == 0
    assert taken["y"].tolist() == [3, 6]
    other = tap.run(if_feed(False, [1, 2, 3]))
    assert other["yes_inner"].size == 0
    assert other["no_inner"].tolist() == [10, 20, 30]


def nested_if_model(size: int) -> Graph:
    """An If inside an If; the inner one reads a tensor of the main graph and one of the body around it."""
    inner = helper.make_node(
        "If",
        ["flag"],
        ["middle_y"],
        name="inner_if",
        then_branch=helper.make_graph(
            [
                helper.make_node("Add", ["middle", "outer"], ["deep"], name="deep_add"),
                helper.make_node("Mul", ["deep", "two"], ["deep_out"], name="deep_mul"),
            ],
            "deep_body",
            [],
            [info("deep_out", [size])],
        ),
        else_branch=helper.make_graph(
            [helper.make_node("Identity", ["middle"], ["other_out"], name="other")],
            "other_body",
            [],
            [info("other_out", [size])],
        ),
    )
    middle = helper.make_graph(
        [helper.make_node("Mul", ["outer", "two"], ["middle"], name="middle_mul"), inner],
        "middle_body",
        [],
        [info("middle_y", [size])],
    )
    plain = helper.make_graph(
        [helper.make_node("Neg", ["outer"], ["plain_out"], name="plain")], "plain_body", [], [info("plain_out", [size])]
    )
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["x", "ten"], ["outer"], name="outer_mul"),
            helper.make_node("If", ["flag"], ["y"], name="outer_if", then_branch=middle, else_branch=plain),
        ],
        "main",
        [info("x", [size]), info("flag", [], BOOL)],
        [info("y", [size])],
        [constant("two", 2), constant("ten", 10)],
    )
    return model_of(graph)


@pytest.mark.parametrize("arranged", [False, True])
@pytest.mark.parametrize("size", [4, SMALLEST])
def test_ranges_of_large_and_small_tensors_in_nested_bodies_are_found(monkeypatch, size: int, arranged: bool) -> None:
    """Large tensors of the main graph are reduced inside of it; those of bodies are not the main graph's to reduce."""
    monkeypatch.setattr(_Run, "_arranging_pays", lambda self, pinned: arranged)
    graph = nested_if_model(size)
    graph.infer_shapes()
    seen = {name: [RangeStatistic()] for name in ("outer", "middle", "deep", "y")}
    samples = [{"x": np.linspace(-1, 3, size, dtype=np.float32), "flag": np.asarray(flag)} for flag in (True, False)]
    collect(graph, samples, seen)
    ends = {name: (one.minimum.min(), one.maximum.max()) for name, (one,) in seen.items()}
    assert ends == {"outer": (-10, 30), "middle": (-20, 60), "deep": (-30, 90), "y": (-60, 180)}


def test_a_branch_that_no_sample_takes_leaves_an_empty_statistic() -> None:
    statistics = {"yes_inner": RangeStatistic(), "no_inner": RangeStatistic()}
    watched = {name: [statistic] for name, statistic in statistics.items()}
    collect(if_model(), [if_feed(True, [1, -2]), if_feed(True, [5])], watched)
    assert (float(statistics["yes_inner"].minimum[0]), float(statistics["yes_inner"].maximum[0])) == (-4, 10)
    assert statistics["no_inner"].rows == 0


def test_half_precision_tensors_of_a_body_come_as_float32() -> None:
    seen = Tap(if_model(TensorProto.FLOAT16), ["yes_inner"]).run(if_feed(True, [1.5], np.float16))
    assert seen["yes_inner"].dtype == np.float32
    assert seen["yes_inner"].tolist() == [3.0]


def loop_model(*, grows: bool = False, shape: list[int | None] | None = None, opset: int = 17) -> Graph:
    """state = x; each iteration: inner = state * 2; state = inner, or with `grows` inner followed by x."""
    nodes = [helper.make_node("Mul", ["state_in", "two"], ["inner"], name="double")]
    if grows:
        nodes.append(helper.make_node("Concat", ["inner", "x"], ["state_out"], axis=0, name="grow"))
    else:
        nodes.append(helper.make_node("Identity", ["inner"], ["state_out"], name="keep"))
    nodes.append(helper.make_node("Identity", ["go_in"], ["go_out"], name="go"))
    nodes.append(helper.make_node("ReduceSum", ["inner"], ["sum"], keepdims=0, name="sum"))
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", [], INT64), info("go_in", [], BOOL), info("state_in", shape)],
        [info("go_out", [], BOOL), info("state_out", shape), info("sum", [])],
        value_info=[info("inner", shape)],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y", "sums"], name="loop", body=body)
    return model_of(
        helper.make_graph(
            [loop],
            "main",
            [info("x", [2]), info("count", [], INT64)],
            [info("y", [None]), info("sums", [None])],
            [constant("two", 2)],
        ),
        opset,
    )


def loop_feed(count: int) -> dict[str, np.ndarray]:
    return {"x": np.array([1, 3], np.float32), "count": np.array(count, np.int64)}


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
@pytest.mark.parametrize("shape", [[2], [None], None])
def test_every_iteration_of_a_loop_is_seen(shape: list[int | None] | None, opset: int) -> None:
    tap = Tap(loop_model(shape=shape, opset=opset), ["inner", "state_in", "sums", "y"])
    seen = tap.run(loop_feed(3))
    assert seen["inner"].ravel().tolist() == [2, 6, 4, 12, 8, 24]
    assert seen["state_in"].ravel().tolist() == [1, 3, 2, 6, 4, 12]
    assert seen["sums"].tolist() == [8, 16, 32]
    assert seen["y"].tolist() == [8, 24]
    assert tap.run(loop_feed(0))["inner"].size == 0


def test_iterations_of_different_size_are_seen_whole() -> None:
    seen = Tap(loop_model(grows=True, shape=[None]), ["inner", "y"]).run(loop_feed(3))
    assert seen["inner"].tolist() == [2, 6, 4, 12, 2, 6, 8, 24, 4, 12, 2, 6]
    assert seen["y"].tolist() == [8, 24, 4, 12, 2, 6, 1, 3]


def test_an_output_of_the_body_can_be_observed_itself() -> None:
    seen = Tap(loop_model(shape=[2]), ["state_out"]).run(loop_feed(2))
    assert seen["state_out"].ravel().tolist() == [2, 6, 4, 12]


def scan_body(nodes: list[onnx.NodeProto]) -> onnx.GraphProto:
    return helper.make_graph(
        nodes,
        "body",
        [info("sum_in", [2]), info("row", [2])],
        [info("sum_out", [2]), info("scaled", [2])],
    )


def scan_model(opset: int = 17, **attributes: list[int]) -> Graph:
    """sum over rows, and scaled = 2 * row."""
    nodes = [
        helper.make_node("Mul", ["row", "two"], ["inner"], name="double"),
        helper.make_node("Add", ["sum_in", "inner"], ["sum_out"], name="add"),
        helper.make_node("Identity", ["inner"], ["scaled"], name="out"),
    ]
    scan = helper.make_node(
        "Scan", ["start", "x"], ["total", "all"], name="scan", body=scan_body(nodes), num_scan_inputs=1, **attributes
    )
    graph = helper.make_graph(
        [scan],
        "main",
        [info("x", ["T", 2])],
        [info("total", [2]), info("all", [None, None])],
        [constant("two", 2), constant("start", [0, 0])],
    )
    return model_of(graph, opset)


@pytest.mark.parametrize("attributes", [{}, {"scan_output_axes": [1], "scan_output_directions": [0]}])
def test_every_step_of_a_scan_is_seen(attributes: dict[str, list[int]]) -> None:
    tap = Tap(scan_model(**attributes), ["inner", "sum_in", "total"])
    seen = tap.run({"x": np.array([[1, 2], [3, 4], [5, 6]], np.float32)})
    assert seen["inner"].ravel().tolist() == [2, 4, 6, 8, 10, 12]
    assert seen["sum_in"].ravel().tolist() == [0, 0, 2, 4, 8, 12]
    assert seen["total"].tolist() == [18, 24]


def test_an_if_inside_a_loop_is_seen_in_the_iterations_that_take_it() -> None:
    """Even iterations double, odd ones multiply by ten."""

    def inner_branch(name: str, factor: str) -> onnx.GraphProto:
        nodes = [helper.make_node("Mul", ["state_in", factor], [f"{name}_inner"], name=f"{name}_mul")]
        nodes.append(helper.make_node("Identity", [f"{name}_inner"], [f"{name}_out"], name=f"{name}_identity"))
        return helper.make_graph(nodes, name, [], [info(f"{name}_out", [1])])

    body_nodes = [
        helper.make_node("Mod", ["i", "two_int"], ["odd_int"], name="mod"),
        helper.make_node("Cast", ["odd_int"], ["odd"], to=BOOL, name="cast"),
        helper.make_node(
            "If",
            ["odd"],
            ["state_out"],
            name="choose",
            then_branch=inner_branch("odd", "ten"),
            else_branch=inner_branch("even", "two"),
        ),
        helper.make_node("Identity", ["go_in"], ["go_out"], name="go"),
    ]
    body = helper.make_graph(
        body_nodes,
        "body",
        [info("i", [], INT64), info("go_in", [], BOOL), info("state_in", [1])],
        [info("go_out", [], BOOL), info("state_out", [1])],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], name="loop", body=body)
    graph = model_of(
        helper.make_graph(
            [loop],
            "main",
            [info("x", [1]), info("count", [], INT64)],
            [info("y", [1])],
            [constant("two", 2), constant("ten", 10), constant("two_int", 2, np.int64)],
        )
    )
    tap = Tap(graph, ["odd_inner", "even_inner", "y"])
    seen = tap.run({"x": np.array([1], np.float32), "count": np.array(4, np.int64)})
    assert seen["even_inner"].tolist() == [2, 40]
    assert seen["odd_inner"].tolist() == [20, 400]
    assert seen["y"].tolist() == [400]
    assert tap.run({"x": np.array([1], np.float32), "count": np.array(1, np.int64)})["odd_inner"].size == 0


def test_an_if_inside_a_scan_is_refused_with_the_reason() -> None:
    def inner_branch(name: str, factor: str) -> onnx.GraphProto:
        nodes = [helper.make_node("Mul", ["row", factor], [f"{name}_out"], name=f"{name}_mul")]
        return helper.make_graph(nodes, name, [], [info(f"{name}_out", [2])])

    nodes = [
        helper.make_node("ReduceSum", ["row"], ["height"], keepdims=0, name="height"),
        helper.make_node("Cast", ["height"], ["flag"], to=BOOL, name="cast"),
        helper.make_node(
            "If",
            ["flag"],
            ["scaled"],
            name="choose",
            then_branch=inner_branch("yes", "two"),
            else_branch=inner_branch("no", "ten"),
        ),
        helper.make_node("Add", ["sum_in", "scaled"], ["sum_out"], name="add"),
    ]
    scan = helper.make_node(
        "Scan", ["start", "x"], ["total", "all"], name="scan", body=scan_body(nodes), num_scan_inputs=1
    )
    graph = model_of(
        helper.make_graph(
            [scan],
            "main",
            [info("x", ["T", 2])],
            [info("total", [2]), info("all", [None, None])],
            [constant("two", 2), constant("ten", 10), constant("start", [0, 0])],
        )
    )
    with pytest.raises(UnsupportedError, match="inside the Scan 'scan'"):
        expose(graph.copy(), "yes_out")
    tap = Tap(graph, ["yes_out", "sum_in"])
    assert "inside the Scan" in tap.unreachable["yes_out"]
    assert tap.run({"x": np.array([[1, 2]], np.float32)})["sum_in"].ravel().tolist() == [0, 0]


def test_tensors_of_the_main_graph_carry_themselves() -> None:
    graph = if_model()
    assert expose(graph, "y") == "y"
