"""The lint on positions: each shift is found in a plain Q/DQ file, wherever it comes from."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.lint.limits import lint
from onnxq.targets import get_backend
from tests.targets.amd.dpu_graphs import network

VITIS = get_backend("vitis")


class File:
    """A Q/DQ file as another tool writes it: names of its own, float weights behind a Q and a DQ."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants = {"zero": np.int8(0)}

    def quantized(self, tensor: str, position: int) -> str:
        self.constants[f"{tensor}_s"] = np.float32(2.0**-position)
        for op, read, made in (
            ("QuantizeLinear", tensor, f"{tensor}_q"),
            ("DequantizeLinear", f"{tensor}_q", f"{tensor}_d"),
        ):
            self.nodes.append(helper.make_node(op, [read, f"{tensor}_s", "zero"], [made], name=made))
        return f"{tensor}_d"

    def node(self, op: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], name=op.lower(), **attributes))

    def findings(self, output: str) -> list[tuple[str, str, str]]:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 8, 8]) for name in ("x", "z")],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        found = lint(Graph.from_model(model), VITIS)
        assert all(f"'{item.tensor}'" in item.message and "Move it to position" in item.remedy for item in found)
        return [(item.rule, item.tensor, item.node) for item in found]


def conv(*, weight: int, bias: int = 8, output: int = 4, follower: str | None = None) -> list[tuple[str, str, str]]:
    file = File()
    x = file.quantized("x", 4)
    file.constants |= {"w": np.ones((2, 2, 1, 1), np.float32), "b": np.ones(2, np.float32)}
    file.node("Conv", [x, file.quantized("w", weight), file.quantized("b", bias)], "made")
    if follower:
        file.node(follower, ["made"], "active")
    return file.findings(file.quantized("active" if follower else "made", output))


def test_a_convolution_that_fits_has_no_findings() -> None:
    assert conv(weight=7) == []


@pytest.mark.parametrize("follower", [None, "Relu", "LeakyRelu"])
def test_shift_cut_is_found_behind_an_activation_too(follower: str | None) -> None:
    assert conv(weight=-1, bias=0, follower=follower) == [("shift_cut", "w", "conv")]


def test_shift_bias_starts_at_zero_in_front_of_a_leaky_relu() -> None:
    assert conv(weight=4, bias=10, follower="Relu") == []
    assert conv(weight=4, bias=10, follower="LeakyRelu") == [("shift_bias", "b", "conv")]
    assert conv(weight=12, bias=-1, output=4) == [("shift_bias", "b", "conv")]


@pytest.mark.parametrize(("op", "one", "other", "output", "wanted"), [
    ("Add", 3, 9, 5, []),
    ("Add", 1, 9, 1, [("shift_read", "z", "add")]),
    ("Add", 3, 3, 12, [("shift_write", "made", "add")]),
    ("Mul", 3, 3, 7, [("shift_write", "made", "mul")]),
])  # fmt: skip
def test_element_wise_shifts(op: str, one: int, other: int, output: int, wanted: list[tuple[str, str, str]]) -> None:
    file = File()
    file.node(op, [file.quantized("x", one), file.quantized("z", other)], "made")
    assert file.findings(file.quantized("made", output)) == wanted


def test_tensors_that_read_one_scale_are_named_one_by_one() -> None:
    """Other tools write equal numbers once; the finding is about its own tensor all the same."""
    file = File()
    reads = [file.quantized("x", 4), file.quantized("z", 11)]
    file.node("Concat", [file.quantized("first", 11), reads[0]], "joined", axis=0)
    file.nodes.insert(0, helper.make_node("Relu", ["x"], ["first"], name="relu"))
    for node in file.nodes:
        if node.input[1:2] == ["first_s"]:
            node.input[1] = "z_s"  # one number for two tensors
    found = file.findings(file.quantized("joined", 4))
    assert found == [("align_concat", "first", "concat")]


def test_pooling_with_the_factor_of_another_tool_behind_it() -> None:
    file = File()
    file.constants["factor"] = np.float32(63 / 64)
    file.node("AveragePool", [file.quantized("x", 4)], "mean", kernel_shape=[3, 3])
    file.node("Mul", ["mean", "factor"], "made")
    assert file.findings(file.quantized("made", 6)) == [("align_pool", "made", "averagepool")]


def test_the_message_names_value_interval_and_remedy() -> None:
    file = File()
    file.node("Add", [file.quantized("x", 1), file.quantized("z", 9)], "made")
    graph_output = file.quantized("made", 1)
    graph = helper.make_graph(
        file.nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "z")],
        [helper.make_tensor_value_info(graph_output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in file.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    text = str(lint(Graph.from_model(model), VITIS)[0])
    assert text.startswith("[shift_read] tensor 'z' is at position 9 (scale 2^-9), which vitis refuses: ")
    assert "max(i) - min(i) is 8, allowed is 0 .. 7" in text
    assert "Move it to position 8" in text


def test_a_float_model_and_other_scales_have_no_positions() -> None:
    assert lint(Graph.from_model(network()), VITIS) == []
    file = File()
    file.node("Relu", [file.quantized("x", 4)], "made")
    file.constants["x_s"] = np.float32(0.3)
    graph = helper.make_graph(
        file.nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("made", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in file.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert {found.rule for found in lint(Graph.from_model(model), VITIS)} == {"power-of-two"}
