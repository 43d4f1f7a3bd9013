"""Constants that loops carry along unchanged become what bodies read: weights of recurrent cells are weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxq
from onnxq.graph import Graph, bodies
from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
generator = np.random.default_rng(5)
KERNEL = generator.standard_normal((3, 3)).astype(np.float32)
X = {"x": generator.standard_normal((2, 3)).astype(np.float32)}
PASS = "propagate_loop_constants"


def info(name: str, kind: int = FLOAT, shape: tuple[int, ...] | None = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def loop_model(
    *, returned: str = "Identity", last_read: bool = False, read_behind: bool = False, times: int = 3
) -> onnx.ModelProto:
    """x = tanh(x @ kernel), some times; the kernel is a state of the loop, as exporters of TensorFlow write it."""
    nodes = [
        helper.make_node("Identity", ["go"], ["go_on"], name="cond"),
        helper.make_node(returned, ["k"], ["k_next"], name="pass"),
        helper.make_node("MatMul", ["v", "k_next" if read_behind else "k"], ["m"], name="product"),
        helper.make_node("Tanh", ["m"], ["v_next"], name="tanh"),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [info("i", INT64, ()), info("go", BOOL, ()), info("k", FLOAT, (3, 3)), info("v", FLOAT, (2, 3))],
        [
            info("go_on", BOOL, ()),
            info("k_next", FLOAT, (3, 3)),
            info("v_next", FLOAT, (2, 3)),
            info("m", FLOAT, (2, 3)),
        ],
    )
    loop = helper.make_node("Loop", ["times", "", "kernel", "x"], ["last", "y", "all"], name="loop", body=body)
    outputs: dict[str, tuple[int, ...]] = {"y": (2, 3), "all": (times, 2, 3)}
    if last_read:
        outputs["last"] = (3, 3)
    return build_model([loop], {"x": (2, 3)}, outputs, {"times": np.int64(times), "kernel": KERNEL})


def scan_model() -> onnx.ModelProto:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["row", "k"], ["m"], name="product"),
            helper.make_node("Add", ["s", "m"], ["s_next"], name="sum"),
            helper.make_node("Identity", ["k"], ["k_next"], name="pass"),
        ],
        "body",
        [info("s", FLOAT, (3,)), info("k", FLOAT, (3, 3)), info("row", FLOAT, (3,))],
        [info("s_next", FLOAT, (3,)), info("k_next", FLOAT, (3, 3)), info("m", FLOAT, (3,))],
    )
    scan = helper.make_node(
        "Scan", ["zero", "kernel", "x"], ["y", "last", "all"], name="scan", body=body, num_scan_inputs=1
    )
    return build_model(
        [scan], {"x": (2, 3)}, {"y": (3,), "all": (2, 3)}, {"zero": np.zeros(3, np.float32), "kernel": KERNEL}
    )


def loop_of(graph: Graph) -> tuple[list[str], list[str], list[str]]:
    """What the product in the body reads, and the inputs and outputs of the loop."""
    loop = next(node for node in graph.nodes() if bodies(node))
    return [t.name for t in graph.node("product").inputs], [t.name for t in loop.inputs], [t.name for t in loop.outputs]


@pytest.mark.parametrize("read_behind", [False, True])
def test_a_kernel_that_a_loop_carries_is_read_from_outside_and_no_state_any_more(read_behind: bool) -> None:
    graph, report = assert_pass_keeps_outputs(loop_model(read_behind=read_behind), PASS, X)
    assert loop_of(graph) == (["v", "kernel"], ["times", "", "x"], ["y", "all"])
    assert report.changed == (
        "node 'loop' (Loop): its body reads the constant 'kernel' itself",
        "node 'loop' (Loop): 'kernel' is no state any more",
    )
    assert graph.origins.current_tensor("k") == "kernel"


def test_a_state_of_a_scan() -> None:
    graph, _ = assert_pass_keeps_outputs(scan_model(), PASS, X)
    assert loop_of(graph) == (["row", "kernel"], ["zero", "x"], ["y", "all"])


def test_a_state_whose_last_value_is_read_stays_a_state() -> None:
    graph, _ = assert_pass_keeps_outputs(loop_model(last_read=True), PASS, X)
    assert loop_of(graph) == (["v", "kernel"], ["times", "", "kernel", "x"], ["last", "y", "all"])


def test_a_state_that_changes_stays() -> None:
    graph, report = assert_pass_keeps_outputs(loop_model(returned="Neg"), PASS, X)
    assert loop_of(graph)[0] == ["v", "k"]
    assert report.changed == ()


def test_a_state_that_callers_may_override_stays() -> None:
    model = loop_model()
    model.graph.input.append(info("kernel", FLOAT, (3, 3)))
    graph, report = assert_pass_keeps_outputs(model, PASS, X)
    assert loop_of(graph)[0] == ["v", "k"]
    assert report.changed == ()


@pytest.mark.parametrize("backend", ["onnxruntime", "qnn", "nnie"])
def test_the_kernel_is_quantized_as_a_weight(backend: str, tmp_path) -> None:
    data = [{"x": generator.standard_normal((2, 3)).astype(np.float32)} for _ in range(4)]
    result = onnxq.quantize(loop_model(), backend=backend, data=data, config={"effort": 0}, out=tmp_path / "out")
    assert result.plan["kernel"].role == "weight"
