"""What tpu-mlir has no kernel for is never written: operators in float8, layers of 4 bits behind each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.errors import UnsupportedError
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan

FLOAT8 = "sophgo_bm1690:precision=F8E4M3"
Nodes = list[tuple[str, list[str], list[str], dict[str, Any]]]
SAME = {"pads": [1] * 4}


def network(nodes: Nodes, **constants: np.ndarray) -> onnx.ModelProto:
    """Nodes named by their first output; constants called w... are weights of 8 channels."""
    rng = np.random.default_rng(0)
    names = dict.fromkeys(name for _, inputs, _, _ in nodes for name in inputs if name.startswith("w"))
    shapes = {name: (8, 1, 3, 3) if name == "w_groups" else (8, 8, 3, 3) for name in names}
    held = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()} | constants
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, name=outputs[0], **attrs) for op, inputs, outputs, attrs in nodes],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def around(*middle: tuple[str, list[str], list[str], dict[str, Any]]) -> Nodes:
    """A convolution that makes 'a', the nodes that make 'b' of it, and a convolution behind."""
    return [("Conv", ["x", "w1"], ["a"], SAME), *middle, ("Conv", ["b", "w2"], ["y"], SAME)]


def planned(model: onnx.ModelProto, backend: str, **config: Any) -> QuantPlan:
    return make_plan(prepare(model, backend, config))


@pytest.mark.parametrize(
    ("op", "more", "attributes"),
    [
        *[(op, [], {}) for op in ("Sigmoid", "Tanh", "Elu", "HardSigmoid", "HardSwish", "Softplus", "LeakyRelu")],
        ("Max", ["x"], {}),
        ("Min", ["x"], {}),
        ("PRelu", ["slope"], {}),
        ("Clip", ["minus_one", "one"], {}),
        ("MatMul", ["x"], {}),
        ("MatMul", ["matrix"], {}),
        ("ConvTranspose", ["w3"], {"pads": [1] * 4}),
    ],
)
def test_an_operator_without_a_float8_kernel_stays_float_with_its_reason(
    op: str, more: list[str], attributes: dict[str, Any]
) -> None:
    constants = {
        "slope": np.full((8, 1, 1), 0.1, np.float32),
        "minus_one": np.float32(-1),
        "one": np.float32(1),
        "matrix": np.eye(8, dtype=np.float32),
    }
    model = network(
        around((op, ["a", *more], ["b"], attributes)),
        **{name: np.asarray(value) for name, value in constants.items() if name in more},
    )
    plan = planned(model, FLOAT8)
    assert plan.left_float["b"].code == "declined_by_target"
    assert "tpu-mlir" in plan.left_float["b"]
    assert {"a", "y"} <= plan.quantized.keys()
    if op != "MatMul" or more == ["x"]:
        assert "b" in planned(model, "sophgo_bm1690").quantized | planned(model, "sophgo_bm1690").fused


@pytest.mark.parametrize("op", ["Relu", "Abs"])
def test_what_moves_values_is_there_in_float8(op: str) -> None:
    plan = planned(network(around((op, ["a"], ["b"], {}))), FLOAT8)
    assert "b" in plan.quantized | plan.fused


@pytest.mark.parametrize(
    ("op", "more", "reason"),
    [
        ("Sigmoid", [], "tpu-mlir has no float8 kernel for Sigmoid"),
        ("Max", ["x"], "tpu-mlir has no float8 kernel for Max"),
        ("Clip", ["minus_one", "one"], "for a Clip that does not begin at 0"),
        ("MatMul", ["x"], "multiplies two computed matrices"),
        ("MatMul", ["matrix"], "multiplies a tensor with 4 dimensions"),
    ],
)
def test_what_is_forced_into_float8_without_a_kernel_is_refused_before_calibration(
    op: str, more: list[str], reason: str
) -> None:
    constants = {
        "minus_one": np.asarray(np.float32(-1)),
        "one": np.asarray(np.float32(1)),
        "matrix": np.eye(8, dtype=np.float32),
    }
    held = {name: value for name, value in constants.items() if name in more}
    model = network(around((op, ["a", *more], ["b"], {})), **held)
    with pytest.raises(UnsupportedError, match=rf"'b' \({op}\) would run in float8, and .*{reason}"):
        planned(model, FLOAT8, force=["b"])


def test_a_function_that_is_forced_into_float8_leaves_no_file(tmp_path: Path) -> None:
    model = network(around(("Sigmoid", ["a"], ["b"], {})))
    samples = [{"x": np.ones((1, 8, 8, 8), np.float32)}]
    with pytest.raises(UnsupportedError, match="'b' \\(Sigmoid\\) would run in float8"):
        onnxq.quantize(model, backend=FLOAT8, data=samples, out=tmp_path / "out", config={"force": ["b"], "effort": 0})
    assert not (tmp_path / "out").exists()


SHARED: Nodes = [
    ("Conv", ["x", "w0"], ["stem"], SAME),
    ("Conv", ["stem", "w1"], ["shared"], SAME),
    ("Conv", ["shared", "w2"], ["left"], SAME),
    ("Conv", ["shared", "w_groups"], ["right"], {**SAME, "group": 8}),
    ("Add", ["left", "right"], ["joined"], {}),
    ("Conv", ["joined", "w3"], ["y"], SAME),
]
"""'shared' has 8 bits because of the groups; it comes from a layer that reads 4."""


def test_a_weight_of_four_bits_straight_behind_four_bits_gets_eight_with_a_note() -> None:
    plan = planned(network(SHARED), "sophgo_bm1688:precision=INT4")
    assert plan["w1"].spec.dtype == "int4"
    assert plan["w2"].spec.dtype == "int8"
    assert [note for note in plan.notes if "weight 'w2' of 'left' has 8 bits" in note]


def test_two_computed_matrices_have_eight_bits_in_a_model_of_four() -> None:
    plan = planned(network(around(("MatMul", ["a", "x"], ["b"], {}))), "sophgo_bm1688:precision=INT4")
    assert plan["a"].spec.dtype == plan["x"].spec.dtype == "int8"
    assert "b" in plan.quantized


def test_four_bits_that_the_user_has_set_there_are_refused() -> None:
    wanted = {"left": {"weight": {"bits": 4}}}
    with pytest.raises(UnsupportedError, match=r"'left' .* has a weight of 4 bits .*straight from 'shared'"):
        planned(network(SHARED), "sophgo_bm1688:precision=INT4", node=wanted)


def test_a_reader_with_eight_bits_of_a_tensor_with_four_is_refused_before_calibration() -> None:
    nodes: Nodes = [
        ("Conv", ["x", "w0"], ["stem"], SAME),
        ("Conv", ["stem", "w1"], ["left"], SAME),
        ("Conv", ["stem", "w2"], ["right"], SAME),
        ("Add", ["left", "right"], ["b"], {}),
        ("Conv", ["b", "w3"], ["y"], SAME),
    ]
    wanted = {"left": {"weight": {"bits": 4}, "activation": {"bits": 4}}}
    with pytest.raises(UnsupportedError, match=r"'right' .* reads 'stem' with 4 bits, and its weight has 8"):
        planned(network(nodes), "sophgo_bm1688", node=wanted)
