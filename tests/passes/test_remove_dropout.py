"""Dropout leaves where it does nothing, and stays where it may do something."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.passes.equivalence import assert_pass_keeps_outputs, build_model

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("opset", "inputs", "constants", "attributes"),
    [
        (10, ["r"], {}, {"ratio": 0.3}),
        (13, ["r"], {}, {}),
        (13, ["r", "ratio"], {"ratio": np.float32(0.3)}, {}),
        (13, ["r", "ratio", "mode"], {"ratio": np.float32(0.3), "mode": np.array(False)}, {}),
        (13, ["r", "", "mode"], {"mode": np.array(False)}, {}),
    ],
)
def test_dropout_at_inference_leaves(opset: int, inputs: list[str], constants: dict, attributes: dict) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Dropout", inputs, ["d", "unread_mask"], name="n", **attributes),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], constants, opset=opset)
    graph, report = assert_pass_keeps_outputs(model, "remove_dropout", {"x": X})
    assert [node.op for node in graph.nodes()] == ["Relu", "Neg"]
    assert report.changed == ("node 'n' (Dropout): removed, it does nothing at inference",)
    assert graph.origins.current_tensor("d") == "r"


def test_dropout_before_an_output_leaves_the_name() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Dropout", ["r"], ["y"])]
    graph, _ = assert_pass_keeps_outputs(build_model(nodes, {"x": (2, 3)}, ["y"]), "remove_dropout", {"x": X})
    assert graph.output_names == ["y"]
    assert len(graph.nodes()) == 1


def test_a_mask_that_is_read_keeps_the_dropout() -> None:
    nodes = [
        helper.make_node("Dropout", ["x"], ["d", "mask"], name="n"),
        helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["d", "m"], ["y"]),
    ]
    graph, report = assert_pass_keeps_outputs(build_model(nodes, {"x": (2, 3)}, ["y"]), "remove_dropout", {"x": X})
    assert graph.has_node("n")
    assert report.declined == ("node 'n' (Dropout): its mask 'mask' is read",)


def test_training_mode_keeps_the_dropout() -> None:
    nodes = [
        helper.make_node("Dropout", ["x", "zero", "mode"], ["d"], name="n"),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    constants = {"zero": np.float32(0), "mode": np.array(True)}
    _, report = assert_pass_keeps_outputs(
        build_model(nodes, {"x": (2, 3)}, ["y"], constants), "remove_dropout", {"x": X}
    )
    assert report.declined == ("node 'n' (Dropout): it is in training mode",)


def test_a_training_mode_decided_at_run_time_keeps_the_dropout() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "hundred"], ["mode"]),
        helper.make_node("Dropout", ["x", "", "mode"], ["d"], name="n"),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    model = build_model(nodes, {"x": (2, 3)}, ["y"], {"hundred": np.float32(100)})
    _, report = assert_pass_keeps_outputs(model, "remove_dropout", {"x": X})
    assert report.declined == ("node 'n' (Dropout): its training mode 'mode' is decided at run time",)
