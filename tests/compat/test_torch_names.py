"""PyTorch's layers and functions, as objects and as text, become ONNX operators and nodes."""

from __future__ import annotations

import operator
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxq.compat.torch_names import chain_of, nodes_of_type, operators_of, torch_name, type_note
from onnxq.compat.torch_table import FUNCTIONAL, FUSED, LAYERS, OPERATOR, TENSOR
from onnxq.errors import ConfigError
from onnxq.graph import Graph, load
from tests.networks.exported import exported

CONTRIBUTED = {"SimplifiedLayerNormalization", "Silu", "LogSigmoid"}  # operators outside of the ONNX standard


def named(module: str, qualified: str) -> type:
    """A class that tells the given name, as one of torch does."""
    return type(qualified, (), {"__module__": module, "__qualname__": qualified})


# ---- names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (operator.add, "operator.add"),
        (operator.iadd, "operator.add"),
        (operator.getitem, "operator.getitem"),
        (abs, "operator.abs"),
        ("_operator.mul", "operator.mul"),
        (" torch.nn.Upsample ", "torch.nn.Upsample"),
        ("torch.nn.modules.conv.Conv2d", "torch.nn.Conv2d"),
        ("nn.Conv2d", "torch.nn.Conv2d"),
        ("F.relu", "torch.nn.functional.relu"),
        ("torch.relu_", "torch.relu"),
        ("torch.Tensor.__add__", "torch.Tensor.add"),
        ("torch.Tensor.__radd__", "torch.Tensor.add"),
        ("torch.Tensor.__truediv__", "torch.Tensor.div"),
        ("torch._C._nn.gelu", "torch.nn.functional.gelu"),
        ("torch._C._nn.log_sigmoid", "torch.nn.functional.logsigmoid"),
        ("torch.functional.split", "torch.split"),
        ("aten.add.Tensor", "torch.add"),
        ("torch.ao.nn.intrinsic.qat.modules.conv_fused.ConvBnReLU2d", "torch.nn.intrinsic.qat.ConvBnReLU2d"),
        ("nniqat.ConvBnReLU2d", "torch.nn.intrinsic.qat.ConvBnReLU2d"),
        ("qnniqat.ConvBnReLU2d_sophgo", "sophgo_mq.nn.intrinsic.qat.ConvBnReLU2d_sophgo"),
        ("mqbench.nn.intrinsic.qat.modules.linear_fused.LinearBn1d", "mqbench.nn.intrinsic.qat.LinearBn1d"),
        ("mean", "torch.Tensor.mean"),
        ("Conv2d", "torch.nn.Conv2d"),
        ("gelu", "torch.nn.functional.gelu"),
        ("truediv", "operator.truediv"),
        ("Conv", "onnx.Conv"),
        ("whatever", "whatever"),
        (named("torch.nn.modules.upsampling", "Upsample"), "torch.nn.Upsample"),
        (named("torch.nn.modules.upsampling", "Upsample")(), "torch.nn.Upsample"),
        (named("sophgo_mq.nn.qat.modules.conv", "Conv2d_sophgo"), "sophgo_mq.nn.qat.Conv2d_sophgo"),
    ],
)
def test_every_spelling_has_one_full_name(thing: object, name: str) -> None:
    assert torch_name(thing) == name


def test_objects_of_torch_tell_their_names() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    pairs = {
        torch.add: "torch.add",
        torch.sigmoid: "torch.sigmoid",
        functional.sigmoid: "torch.nn.functional.sigmoid",
        functional.gelu: "torch.nn.functional.gelu",
        functional.max_pool2d: "torch.nn.functional.max_pool2d",
        functional.interpolate: "torch.nn.functional.interpolate",
        functional.logsigmoid: "torch.nn.functional.logsigmoid",
        torch.Tensor.mean: "torch.Tensor.mean",
        torch.Tensor.__add__: "torch.Tensor.add",
        torch.Tensor.split: "torch.Tensor.split",
        torch.split: "torch.split",
        torch.ops.aten.add: "torch.add",
        torch.ops.aten.add.Tensor: "torch.add",
        torch.nn.Conv2d: "torch.nn.Conv2d",
        torch.nn.intrinsic.ConvReLU2d: "torch.nn.intrinsic.ConvReLU2d",
        torch.ao.nn.intrinsic.qat.ConvBnReLU2d: "torch.nn.intrinsic.qat.ConvBnReLU2d",
    }
    assert {thing: torch_name(thing) for thing in pairs} == pairs


def test_the_tables_hold_names_that_torch_has() -> None:
    torch = pytest.importorskip("torch")
    elsewhere = {"FrozenBatchNorm2d", "NonDynamicallyQuantizableLinear", "_LinearWithBias"}
    assert {name for name in LAYERS if not hasattr(torch.nn, name)} == elsewhere
    assert [name for name in FUNCTIONAL if not hasattr(torch.nn.functional, name)] == []
    assert [name for name in TENSOR if not hasattr(torch, name) and not hasattr(torch.Tensor, name)] == []
    assert [name for name in OPERATOR if not hasattr(operator, name)] == []
    for name in LAYERS.keys() - elsewhere:
        assert operators_of(getattr(torch.nn, name), "key") == operators_of(f"torch.nn.{name}", "key")
    for name in FUNCTIONAL:
        assert operators_of(getattr(torch.nn.functional, name), "key") == operators_of(f"F.{name}", "key"), name


def test_the_tables_hold_operators_that_onnx_has() -> None:
    every = " > ".join([*LAYERS.values(), *FUSED.values(), *FUNCTIONAL.values(), *OPERATOR.values(), *TENSOR.values()])
    operators = {name for link in every.split(" > ") for name in link.split("|")}
    assert {name for name in operators if not onnx.defs.has(name)} <= CONTRIBUTED


# ---- operators ----------------------------------------------------------------------------------------------------


def test_a_thing_becomes_its_operators() -> None:
    assert operators_of("torch.nn.Upsample", "key") == ("Resize", "Upsample")
    assert operators_of(operator.add, "key") == ("Add",)
    assert operators_of("torch.nn.functional.sigmoid", "key") == ("Sigmoid",)
    assert operators_of("mean", "key") == ("ReduceMean",)
    assert operators_of("torch.nn.LazyConv2d", "key") == ("Conv",)


def test_a_fused_class_is_a_chain() -> None:
    expected = (("Conv",), ("BatchNormalization",), ("Relu", "Clip"))
    for name in ("torch.nn.intrinsic.ConvBnReLU2d", "nniqat.ConvBnReLU2d", "qnniqat.ConvBnReLU2d_sophgo"):
        assert chain_of(name, "key") == expected
    assert chain_of("torch.nn.Conv2d", "key") == (("Conv",),)
    assert chain_of("qnniqat.ConvTransposeBnReLU2d_sophgo", "key")[0] == ("ConvTranspose",)
    assert chain_of("qnniqat.Linear_sophgo", "key") == (("Gemm", "MatMul"),)


def test_a_class_of_ones_own_is_what_it_is_derived_from() -> None:
    base = named("torch.nn.modules.conv", "Conv2d")
    own = type("MyConv", (base,), {"__module__": "mine"})
    assert operators_of(own, "key") == ("Conv",)


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("torch.nn.Upsmaple", "torch.nn.Upsample"),
        ("nn.Conv2D", "nn.Conv2d"),
        ("operator.ad", "operator.add"),
        ("torch.nn.functional.sigmoidd", "torch.nn.functional.sigmoid"),
        ("torch.nnn.Upsample", "torch.nn.Upsample"),
        ("qnniqat.ConvBnReLU2d_sofgo", "qnniqat.ConvBnReLU2d_sophgo"),
    ],
)
def test_a_typo_gets_the_nearest_name_in_the_same_spelling(wrong: str, near: str) -> None:
    with pytest.raises(ConfigError, match="exclude_function_type: .*" + f"Did you mean '{near}'") as error:
        operators_of(wrong, "exclude_function_type")
    assert f"'{wrong}'" in str(error.value)


@pytest.mark.parametrize("wrong", [5, None, object(), named("mine", "Block"), SimpleNamespace(), len])
def test_what_is_no_layer_and_no_function_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"key: .* module paths or by node names"):
        operators_of(wrong, "key")


def test_neither_torch_nor_onnxruntime_is_imported() -> None:
    code = (
        "import sys, onnxq.compat.torch_names as t, onnxq.compat.modules; t.operators_of('torch.nn.ReLU', 'key');"
        "print([name for name in ('torch', 'onnxruntime') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# ---- nodes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_types_of_layers_in_a_resnet(exporter: str) -> None:
    graph = load(exported(f"resnet_{exporter}"))
    counts = {
        "torch.nn.Conv2d": 17,
        "torch.nn.Conv1d": 0,
        "torch.nn.intrinsic.qat.ConvBnReLU2d": 6,
        "qnniqat.ConvBn2d_sophgo": 6,
        "torch.nn.intrinsic.ConvReLU2d": 3,
        "qnnqat.Conv2d_sophgo": 2,
        "torch.nn.Linear": 1,
        "torch.nn.ReLU": 14,
        "torch.nn.Upsample": 1,
        "torch.nn.AdaptiveAvgPool2d": 1,
        "torch.nn.functional.sigmoid": 1,
        "torch.flatten": 1,
        "torch.mul": 1,
        "operator.add": 5,
        "torch.matmul": 0,
    }
    assert {name: len(nodes_of_type(graph, name, "key")) for name in counts} == counts
    assert type_note(graph, "ConvBn2d", "key") == ""  # here the folded ones have left their traces


def test_fused_classes_divide_the_convolutions_among_themselves() -> None:
    graph = load(exported("resnet_torchscript"))
    kinds = ("ConvBnReLU2d_sophgo", "ConvBn2d_sophgo", "ConvReLU2d_sophgo", "Conv2d_sophgo")
    found = [name for kind in kinds for name in nodes_of_type(graph, kind, "key")]
    assert sorted(found) == sorted(nodes_of_type(graph, "torch.nn.Conv2d", "key"))
    assert nodes_of_type(graph, "ConvReLU2d_sophgo", "key") == [
        "/layer1/conv1/Conv",
        "/layer3/conv1/Conv",
        "/layer3/conv2/Conv",
    ]


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_types_of_layers_in_a_transformer(exporter: str) -> None:
    graph = load(exported(f"transformer_{exporter}"))
    counts = {
        "torch.nn.Linear": 14,
        "torch.matmul": 4,
        "torch.bmm": 4,
        "operator.add": 7,  # not the biases, not the inside of GELU
        "operator.mul": 1,
        "operator.truediv": 2,
        "torch.nn.GELU": 10,  # two of five nodes each
        "torch.nn.LayerNorm": 5,
        "torch.nn.Embedding": 1,
        "operator.getitem": 0,
        "torch.nn.functional.softmax": 2,
        "mean": 1,
        "MatMul": 16,  # an operator of ONNX: wherever it came from
    }
    assert {name: len(nodes_of_type(graph, name, "key")) for name in counts} == counts


def chain_graph(*, weight: tuple[int, ...], shape: tuple[int, ...], norm: bool = False) -> Graph:
    """A convolution, a batch normalization if wanted, and a Relu."""
    constants = {"w": np.ones(weight, np.float32), "one": np.ones(weight[0], np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv")]
    if norm:
        nodes.append(helper.make_node("BatchNormalization", ["c", "one", "one", "one", "one"], ["b"], name="bn"))
    nodes.append(helper.make_node("Relu", ["b" if norm else "c"], ["y"], name="relu"))
    info = helper.make_tensor_value_info
    made = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in constants.items() if norm or name == "w"],
    )
    return Graph.from_model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]))


def test_dimensions_are_told_by_the_weight() -> None:
    graph = chain_graph(weight=(2, 2, 3), shape=(1, 2, 8))
    assert nodes_of_type(graph, "torch.nn.Conv1d", "key") == ["conv"]
    assert nodes_of_type(graph, "torch.conv1d", "key") == ["conv"]
    assert nodes_of_type(graph, "torch.nn.Conv2d", "key") == []


def test_without_traces_of_batch_normalization_both_classes_mean_the_same_and_a_note_says_so() -> None:
    graph = chain_graph(weight=(2, 2, 3, 3), shape=(1, 2, 8, 8))
    assert nodes_of_type(graph, "ConvReLU2d", "key") == ["conv"]
    assert nodes_of_type(graph, "ConvBnReLU2d", "key") == ["conv"]
    assert "no BatchNormalization" in type_note(graph, "ConvBnReLU2d", "key")
    assert type_note(graph, "ConvReLU2d", "key") == ""


def test_with_batch_normalization_the_classes_are_told_apart() -> None:
    graph = chain_graph(weight=(2, 2, 3, 3), shape=(1, 2, 8, 8), norm=True)
    assert nodes_of_type(graph, "ConvBnReLU2d", "key") == ["conv"]
    assert nodes_of_type(graph, "ConvReLU2d", "key") == []
    assert nodes_of_type(graph, "ConvBn2d", "key") == []
    assert nodes_of_type(graph, "BNReLU2d", "key") == ["bn"]


def test_an_attention_layer_is_told_by_its_joint_projections() -> None:
    names = [("MatMul", "/attention/MatMul", "attention.in_proj_weight"), ("MatMul", "/head/MatMul", "head.weight")]
    nodes = [
        helper.make_node(op, [f"t{number}", weight], [f"t{number + 1}"], name=name)
        for number, (op, name, weight) in enumerate(names)
    ]
    info = helper.make_tensor_value_info
    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), weight) for _, _, weight in names]
    ends = [info("t0", TensorProto.FLOAT, (2, 4))], [info("t2", TensorProto.FLOAT, (2, 4))]
    graph = Graph.from_model(helper.make_model(helper.make_graph(nodes, "g", *ends, weights)))
    assert nodes_of_type(graph, "torch.nn.MultiheadAttention", "key") == ["/attention/MatMul"]
    assert nodes_of_type(graph, "torch.nn.Linear", "key") == ["/attention/MatMul", "/head/MatMul"]
    assert nodes_of_type(graph, "F.scaled_dot_product_attention", "key") == []


def test_the_newer_names_of_sophgo_mq_mean_the_same() -> None:
    newer = "tpu_mq.nn.intrinsic.qat.modules.conv_fused_tpu.ConvBnReLU2d_tpu"
    assert torch_name(newer) == torch_name("sophgo_mq.nn.intrinsic.qat.ConvBnReLU2d_sophgo")
    assert chain_of(newer, "object_type") == chain_of("ConvBnReLU2d_sophgo", "object_type")
