"""preserve_attr, extra_fuse_dict and concrete_args on exported networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxq
from onnxq.compat.mqbench import translate
from onnxq.config import read_config
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import QuantPlan
from tests.compat.mqbench_plans import SCHEMES, TRANSFORMER, became, planned, quantized, translated
from tests.networks.exported import exported, samples

FUSE = "extra_fuse_dict"


def fused(**values: Any) -> dict[str, Any]:
    return {FUSE: values}


def graph_of(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: list[int]) -> Graph:
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph(nodes, "net", [x], [y], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    return Graph.from_model(model)


def linear_and_norm() -> Graph:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], "fc", transB=1),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["y"], "bn"),
    ]
    weights = {"w": np.eye(4), "s": np.ones(4), "b": np.zeros(4), "m": np.zeros(4), "v": np.ones(4)}
    return graph_of(nodes, weights, [1, 4])


def deconvolution() -> Graph:
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up")]
    return graph_of(nodes, {"w": np.ones((2, 2, 2, 2))}, [1, 2, 4, 4])


def plan_for(extra: dict[str, Any], graph: Graph, backend: str) -> QuantPlan:
    translation = translate(extra, graph, backend)
    return make_plan(prepare(graph.copy(), translation.backend, translation))


# ---- preserve_attr ---------------------------------------------------------------------------------------------------


def test_a_module_becomes_a_further_output(tmp_path: Path) -> None:
    result = quantized({"preserve_attr": {"": ["layer1"], "layer3": ["conv1"]}}, tmp_path)
    outputs = [value.name for value in onnx.load(result.model).graph.output]
    assert outputs == ["logits", "/layer1/layer1.1/relu_1/Relu_output_0", "/layer3/conv1/Conv_output_0"]


def test_a_tensor_becomes_a_further_output() -> None:
    extra = {"preserve_attr": {"": ["/gate/Conv_output_0", "logits"]}}
    translation = translated(extra)
    assert translation.config["extra_outputs"] == ["/gate/Conv_output_0"]
    assert "is an output of the model already" in became(translation, "preserve_attr['']")


def test_metadata_is_kept(tmp_path: Path) -> None:
    model = onnx.load(exported("resnet_torchscript"))
    helper.set_model_props(model, {"func1": "one", "backbone.func2": "two"})
    extra = {"preserve_attr": {"": ["func1"], "backbone": ["func2"]}}
    translation = translate(extra, Graph.from_model(model), "Tensorrt")
    assert "metadata 'backbone.func2'" in became(translation, "preserve_attr['backbone']")
    np.savez(tmp_path / "data.npz", **samples("resnet_torchscript"))  # type: ignore[arg-type]
    result = onnxq.quantize(
        model,
        backend=translation.backend,
        data=tmp_path / "data.npz",
        config=read_config(translation),
        out=tmp_path / "out",
    )
    kept = {item.key: item.value for item in onnx.load(result.model).metadata_props}
    assert kept.items() >= {"func1": "one", "backbone.func2": "two"}.items()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"": ["func1"]}, "'func1' is neither metadata nor a tensor nor a module"),
        ({"layer3": ["conv7"]}, r"layer3\.conv"),
        ({"": ["fc.weight"]}, "an input or a constant"),
        ({"": [3]}, "are names, got 3"),
        (["func1"], "must hold modules and lists of attributes"),
    ],
)
def test_an_attribute_that_an_onnx_file_cannot_have_is_an_error(attributes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated({"preserve_attr": attributes})


# ---- extra_fuse_dict -------------------------------------------------------------------------------------------------


def fuse_linear_bn() -> None:
    """Stands for MQBench's function of this name, which torch would call."""


@pytest.mark.parametrize(
    ("key", "chain"),
    [
        ("additional_fuser_method_mapping", ("torch.nn.Conv2d", "torch.nn.Sigmoid")),
        ("additional_fuser_method_mapping", "(torch.nn.Conv2d, torch.nn.Sigmoid)"),
        ("additional_fusion_pattern", ("torch.nn.Sigmoid", "torch.nn.Conv2d")),
        ("additional_fusion_pattern", "torch.nn.Sigmoid, torch.nn.Conv2d"),
    ],
)
def test_a_chain_runs_as_one(key: str, chain: Any) -> None:
    between = "/gate/Conv_output_0"
    assert between in planned(None, "SNPE").placements
    plan = planned(fused(**{key: {chain: fuse_linear_bn}}), "SNPE")
    assert between not in plan.placements
    assert plan.fused["/Sigmoid"] == "/gate/Conv"


def test_a_nested_pattern_is_read_from_the_inside() -> None:
    pattern = ("torch.nn.ReLU", ("torch.nn.BatchNorm2d", "torch.nn.Conv2d"))
    for given in (pattern, "(torch.nn.ReLU, (torch.nn.BatchNorm2d, torch.nn.Conv2d))"):
        extra = {"extra_qconfig_dict": SCHEMES, **fused(additional_fusion_pattern={given: None})}
        translation = translated(extra, "Academic")
        assert translation.config["fuse"] == [["Conv", "BatchNormalization", "Relu"]]
        assert planned(extra, "Academic").fused["/relu/Relu"] == "/conv1/Conv"


def test_a_chain_that_the_target_folds_anyway_is_named() -> None:
    extra = fused(additional_fuser_method_mapping={("torch.nn.Linear", "torch.nn.BatchNorm1d"): fuse_linear_bn})
    translation = translate(extra, linear_and_norm(), "Tensorrt")
    assert "tensorrt folds Gemm -> BatchNormalization anyway" in became(
        translation, f"{FUSE}.additional_fuser_method_mapping"
    )
    assert "fuse" not in translation.config
    research = {"extra_qconfig_dict": SCHEMES, **extra}
    assert translate(research, linear_and_norm(), "Academic").config["fuse"] == [["Gemm", "BatchNormalization"]]


def test_a_chain_that_the_target_runs_as_one_anyway_is_named() -> None:
    extra = fused(additional_fuser_method_mapping={("torch.nn.Conv2d", "torch.nn.ReLU"): None})
    assert "runs Conv -> Relu as one anyway" in became(translated(extra), f"{FUSE}.additional_fuser_method_mapping")


def test_a_chain_that_the_model_does_not_have_is_named() -> None:
    extra = fused(additional_fuser_method_mapping={("torch.nn.Linear", "torch.nn.BatchNorm1d"): fuse_linear_bn})
    text = became(translated(extra), f"{FUSE}.additional_fuser_method_mapping")
    assert text.startswith("no effect: the model has no Gemm|MatMul -> BatchNormalization")
    assert "fuse_linear_bn is code for torch" in text


def test_a_chain_of_excluded_nodes_is_named() -> None:
    extra = fused(additional_fuser_method_mapping={("torch.nn.Conv2d", "torch.nn.Sigmoid"): None})
    extra["extra_quantizer_dict"] = {"exclude_module_name": ["gate"]}
    assert "/gate/Conv" in planned(extra, "SNPE").left_float
    text = became(translated(extra, "SNPE"), f"{FUSE}.additional_fuser_method_mapping")
    assert text.startswith("no effect: /gate/Conv excluded")


@pytest.mark.parametrize("key", ["additional_qat_module_mapping", "additional_qat_module_mappings"])
def test_the_weight_of_a_mapped_type_gets_a_quantizer(key: str) -> None:
    graph = deconvolution()
    plain = {"extra_quantizer_dict": {"exclude_function_type": []}}
    extra = {**plain, **fused(**{key: {"torch.nn.ConvTranspose2d": "qnn.qat.ConvTranspose2d"}})}
    translation = translate(extra, graph, "ONNX_QNN")
    assert translation.config["force"] == ["up"]
    assert plan_for(extra, graph, "ONNX_QNN")["w"].role == "weight"


def test_a_mapped_type_that_the_model_does_not_have_is_named() -> None:
    extra = fused(additional_qat_module_mapping={"torch.nn.ConvTranspose2d": None})
    assert became(translated(extra), f"{FUSE}.additional_qat_module_mapping").startswith("no effect")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"additional_fusion_patern": {}}, "Did you mean 'additional_fusion_pattern'"),
        ({"additional_fusion_pattern": ["x"]}, "must hold types and what they become"),
        ({"additional_fusion_pattern": {"torch.nn.Conv2d": None}}, "two types or more"),
        ({"additional_fusion_pattern": {("torch.nn.ReLu6x", "torch.nn.Conv2d"): None}}, "torch.nn.ReLU6"),
        ({"additional_fusion_pattern": {"(torch.nn.ReLU, (torch.nn.Conv2d": None}}, "closing bracket"),
        ({"additional_fusion_pattern": {"torch.nn.ReLU, torch.nn.Conv2d)": None}}, "bracket too many"),
        ({"additional_fusion_pattern": {("operator.add", ("a", "b"), ("c", "d")): None}}, "two branches"),
        ({"additional_fuser_method_mapping": {("a", ("b", "c")): None}}, "flat tuple"),
        ({"additional_qat_module_mapping": {"torch.nn.ConvTranspse2d": None}}, "torch.nn.ConvTranspose2d"),
    ],
)
def test_wrong_patterns_are_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(fused(**values))


# ---- concrete_args ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["concrete_args", "concrect_args"])
@pytest.mark.parametrize("make", [lambda mask: mask, lambda mask: mask.tolist()])
def test_a_value_makes_an_input_a_constant(key: str, make: Callable[[np.ndarray], Any], tmp_path: Path) -> None:
    mask = np.ones((1, 16), np.float32)
    extra = {"extra_qconfig_dict": SCHEMES, key: {"mask": make(mask)}}
    translation = translated(extra, "Academic_NLP", TRANSFORMER)
    assert translation.config["inputs"]["mask"]["value"] == mask.tolist()
    data = tmp_path / "data.npz"
    np.savez(data, tokens=samples(TRANSFORMER)["tokens"])
    result = onnxq.quantize(
        exported(TRANSFORMER),
        backend=translation.backend,
        data=data,
        config=read_config(translation),
        out=tmp_path / "out",
    )
    assert [value.name for value in onnx.load(result.model).graph.input] == ["tokens"]


def test_a_shape_fixes_the_shape(tmp_path: Path) -> None:
    result = quantized({"concrete_args": {"image": {"shape": [1, 3, 32, 32]}}}, tmp_path)
    (image,) = onnx.load(result.model).graph.input
    assert [size.dim_value for size in image.type.tensor_type.shape.dim] == [1, 3, 32, 32]


def test_a_torch_size_is_a_shape_and_a_tensor_a_value() -> None:
    torch = pytest.importorskip("torch")
    translation = translated({"concrete_args": {"image": torch.Size([2, 3, 32, 32])}})
    assert translation.config["inputs"] == {"image": {"shape": [2, 3, 32, 32]}}
    translation = translated({"concrete_args": {"image": torch.zeros(1, 2, requires_grad=True)}})
    assert translation.config["inputs"] == {"image": {"value": [[0.0, 0.0]]}}
    translation = translated({"concrete_args": {"image": torch.fx.PH}})
    assert translation.config == {"effort": 0}


def test_arguments_that_never_are_inputs_of_a_file_are_named() -> None:
    translation = translated({"concrete_args": {"attention_mask": None, "return_dict": False}})
    assert translation.config == {"effort": 0}
    for key in ("attention_mask", "return_dict"):
        assert became(translation, f"concrete_args.{key}").startswith("no effect")
    for empty in ({}, None):
        assert became(translated({"concrect_args": empty}), "concrect_args") == "no effect: no input is fixed"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"imgae": 1.0}, "Did you mean 'image'"),
        ({"image": None}, "Give a value, or export the model without it"),
        ({"image": object()}, "is fixed to a number"),
        ({"image": {"shape": 3}}, "a shape is a list of sizes"),
        ({"image": {"shape": "13"}}, "a shape is a list of sizes"),
        ({"image": {"shape": [1.5, 3]}}, "a shape is a list of sizes"),
        ([1], "must hold names of inputs and values"),
    ],
)
def test_wrong_arguments_are_errors(given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated({"concrete_args": given})


def test_one_of_two_spellings_is_enough() -> None:
    with pytest.raises(ConfigError, match="two spellings of one key"):
        translated({"concrete_args": {}, "concrect_args": {}})
