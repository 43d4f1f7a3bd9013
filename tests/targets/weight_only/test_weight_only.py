"""The target weight_only: which weights it takes, in which formats, and what it refuses."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxq.config import override_set
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.place import place
from onnxq.session.prepare import prepare
from onnxq.targets import get_backend
from onnxq.types import PerBlock, PerChannel, QuantPlan
from onnxq.verify import lint
from tests.flow.language_model import language_model
from tests.zoo_graphs.net import Net


def plan_of(
    model: onnx.ModelProto, backend: str = "weight_only", config: dict | None = None
) -> tuple[Graph, QuantPlan]:
    prepared = prepare(model, backend, config)
    return prepared.graph, place(prepared.graph, prepared.backend, override_set(prepared.config))


@pytest.mark.parametrize(
    ("options", "dtype", "symmetric", "granularity"),
    [
        ("", "uint4", False, PerBlock(0, 32)),
        (":symmetric=yes", "int4", True, PerBlock(0, 32)),
        (":bits=2", "uint2", False, PerBlock(0, 32)),
        (":bits=8,block=128", "int8", True, PerBlock(0, 128)),
        (":bits=2,symmetric=no,block=16", "uint2", False, PerBlock(0, 16)),
        (":symmetric=no,form=nbits", "uint4", False, PerBlock(0, 32)),
        (":format=fp8_e4m3,block=channel", "fp8_e4m3", True, PerChannel(0)),
        (":format=fp8_e5m2,bits=8", "fp8_e5m2", True, PerBlock(0, 32)),
        (":bits=4", "uint4", False, PerBlock(0, 32)),
    ],
)
def test_options_say_the_format(options: str, dtype: str, symmetric: bool, granularity: object) -> None:
    scheme = get_backend(f"weight_only{options}").scheme
    assert scheme.activation is None
    assert scheme.weight is not None
    assert (scheme.weight.dtype, scheme.weight.symmetric, scheme.weight.granularity) == (dtype, symmetric, granularity)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("bits=3", "option 'bits' of backend 'weight_only' cannot be '3'. Known: auto, 4, 8, 2"),
        (
            "block=20",
            "option 'block' of backend 'weight_only' cannot be '20'. Known: auto, 32, 16, 64, 128, 256, channel",
        ),
        ("form=nbits,format=fp8_e5m2", "MatMulNBits holds integers, and MatMulBnb4 nf4, not fp8_e5m2"),
        ("form=nbits,block=channel", "MatMulNBits has blocks of 16 .. 256"),
        ("format=fp8_e4m3,symmetric=no", "has no zero point"),
        ("format=fp8_e4m3,bits=2", "format=fp8_e4m3 has 8 bits. Leave out bits=2 or the format"),
        ("format=fp8_e5m2,bits=4", "format=fp8_e5m2 has 8 bits. Leave out bits=4 or the format"),
    ],
)
def test_formats_that_do_not_exist_are_refused(options: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        get_backend(f"weight_only:{options}")
    assert message in str(error.value)


def test_only_weights_are_quantized_and_everything_else_has_its_reason() -> None:
    graph, plan = plan_of(language_model("apart"))
    assert {placement.role for placement in plan} == {"weight"}
    assert {graph.node(name).op for name in plan.quantized} == {"MatMul", "Gather"}
    computed = [name for name in plan.left_float if graph.node(name).op == "MatMul"]
    assert {plan.left_float[name] for name in computed} == {"its weight is computed at run time"}
    assert len(plan.quantized) + len(plan.left_float) == len(graph.nodes())


def test_embeddings_can_stay_float() -> None:
    graph, plan = plan_of(language_model("apart"), "weight_only:ops=linear")
    assert {graph.node(name).op for name in plan.quantized} == {"MatMul"}
    assert plan.left_float[graph.nodes("Gather")[0].name] == "weight_only:ops=linear has no rule for Gather"


def convolutions() -> onnx.ModelProto:
    net = Net("convolutions")
    x = net.input("x", [1, 32, 8, 8])
    x = net.conv(x, 32, 32, 1)
    x = net.conv(x, 32, 32, 3)
    net.output(net.conv(x, 32, 32, 1, group=32))
    return net.model()


def test_only_convolutions_of_one_pixel_and_without_groups_have_blocks() -> None:
    graph, plan = plan_of(convolutions())
    one, three, grouped = (node.name for node in graph.nodes("Conv"))
    assert list(plan.quantized) == [one]
    assert plan.left_float[three] == "its kernel is 3x3: blocks are for 1x1 convolutions"
    assert plan.left_float[grouped] == "it has groups, whose weights are too short for blocks"


def test_a_user_can_give_some_weights_other_bits_and_leave_others_float() -> None:
    config = {"node": {"second": {"weight": {"bits": 8}}}, "skip": ["third"]}
    net = Net("mixed")
    x = net.input("x", [2, 64])
    for name in ("first", "second", "third"):
        x = net.node("MatMul", x, net.weight(64, 64, name=f"w_{name}"), name=name)
    net.output(x)
    _, plan = plan_of(net.model(), config=config)
    assert {p.tensor: (p.spec.dtype, str(p.spec.granularity)) for p in plan} == {
        "w_first": ("uint4", "per block of 32 (axis 0)"),
        "w_second": ("uint8", "per block of 32 (axis 0)"),
    }


# ---- shared weights --------------------------------------------------------------------------------------------------


def test_a_tied_table_has_one_quantizer_for_both_ends() -> None:
    for head in ("transposed", "gemm"):
        graph, plan = plan_of(language_model(head))
        assert plan["embeddings"].spec.granularity == PerBlock(1, 32)
        readers = {graph.node(edge.node).op for edge in plan["embeddings"].edges or ()}
        assert readers == {"Gather", "Transpose" if head == "transposed" else "Gemm"}
        assert len([c for c in graph.constants() if c.name.startswith("embeddings")]) == 1


def test_layers_that_sum_along_different_axes_get_weights_of_their_own() -> None:
    net = Net("tied_autoencoder")
    weight = net.weight(64, 64, name="w")
    code = net.node("Gemm", net.input("x", [2, 64]), weight)
    net.output(net.node("Gemm", code, weight, transB=1))
    _, plan = plan_of(net.model())
    assert [p.spec.granularity for p in plan] == [PerBlock(0, 32), PerBlock(1, 32)]


def test_a_transpose_whose_result_others_read_too_stays_float() -> None:
    net = Net("transposed_elsewhere")
    weight = net.weight(96, 64, name="w")
    turned = net.node("Transpose", weight, perm=[1, 0])
    net.output(net.node("MatMul", net.input("x", [2, 64]), turned))
    net.output(net.node("Add", turned, net.input("a", [64, 96])))
    net.output(net.node("Gather", weight, net.input("ids", [3], np.int64)))
    graph, plan = plan_of(net.model())
    (transpose,) = graph.nodes("Transpose")
    assert plan.left_float[transpose.name] == "its result is not the weight of a MatMul"
    assert [edge.node for edge in plan["w"].edges or ()] == [graph.nodes("Gather")[0].name]


# ---- files from elsewhere --------------------------------------------------------------------------------------------


def packed(bits: int, size: int, scales: int) -> onnx.ModelProto:
    """A MatMulNBits of 64 inputs and 8 outputs with this many scales."""
    codes = np.zeros((8, -(-64 // size), size * bits // 8), np.uint8)
    held = [numpy_helper.from_array(codes, "b"), numpy_helper.from_array(np.ones(scales, np.float32), "s")]
    node = helper.make_node(
        "MatMulNBits", ["x", "b", "s"], ["y"], name="n", domain="com.microsoft", K=64, N=8, bits=bits, block_size=size
    )
    return _model([node], held, 21)


def blocked(size: int, scales: tuple[int, int]) -> onnx.ModelProto:
    held = [
        numpy_helper.from_array(np.zeros((64, 8), np.int8), "b"),
        numpy_helper.from_array(np.ones(scales, np.float32), "s"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["b", "s"], ["w"], name="n", axis=0, block_size=size),
        helper.make_node("MatMul", ["x", "w"], ["y"], name="m"),
    ]
    return _model(nodes, held, 21)


def _model(nodes: list[onnx.NodeProto], held: list[onnx.TensorProto], opset: int) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 64])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 8])
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=10
    )


@pytest.mark.parametrize(
    ("model", "rule", "message"),
    [
        (packed(4, 32, 16), None, ""),
        (packed(4, 512, 8), "block-size", "has blocks of 512, weight_only has blocks of 16, 32, 64, 128, 256"),
        (packed(5, 32, 16), "bits", "has weights of 5 bits, weight_only has 2, 4 or 8"),
        (packed(4, 32, 15), "packed-shape", "has scales of shape [15]; N=8 and K=64 need 16"),
        (blocked(32, (2, 8)), None, ""),
        (blocked(8, (8, 8)), "block-size", "has blocks of 8"),
        (blocked(32, (3, 8)), "scale-shape", "has scales [3, 8]; blocks of 32 of [64, 8] have [2, 8]"),
    ],
)
def test_lint_knows_the_blocks(model: onnx.ModelProto, rule: str | None, message: str) -> None:
    findings = lint(Graph.from_model(model), get_backend("weight_only"))
    assert [finding.rule for finding in findings] == ([] if rule is None else [rule])
    assert all(message in str(finding) for finding in findings)


def test_lint_refuses_activations_that_are_quantized() -> None:
    net = Net("activation")
    x = net.input("x", [2, 4])
    scale, zero = net.floats(0.1), net.constant(np.int8(0))
    net.output(net.node("DequantizeLinear", net.node("QuantizeLinear", x, scale, zero), scale, zero))
    findings = lint(Graph.from_model(net.model()), get_backend("weight_only"))
    assert {finding.rule for finding in findings} == {"dtype"}
    assert "takes for weights only" in str(findings[0])
