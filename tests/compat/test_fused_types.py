"""The chains and classes of MQBench's own table of fusions, each on a network of exactly these layers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxq.compat.mqbench import translate
from onnxq.compat.torch_names import nodes_of_type
from onnxq.graph import Graph
from onnxq.session.prepare import make_plan, prepare
from tests.compat.mqbench_plans import SCHEMES, became
from tests.passes.equivalence import build_model

FUSE = "extra_fuse_dict"
NN = "torch.nn."
CHAINS = {
    (NN + "Linear", NN + "BatchNorm1d"): ("fc", "bn"),
    (NN + "ConvTranspose2d", NN + "BatchNorm2d"): ("deconv", "bn"),
    (NN + "ConvTranspose2d", NN + "BatchNorm2d", NN + "ReLU"): ("deconv", "bn", "relu"),
    (NN + "ConvTranspose2d", NN + "ReLU"): ("deconv", "relu"),
    (NN + "Conv2d", "torchvision.ops.misc.FrozenBatchNorm2d", NN + "ReLU"): ("conv", "frozen", "relu"),
    (NN + "Conv2d", "FrozenBatchNorm2d"): ("conv", "frozen"),
}
"""additional_fuser_method_mapping of fuse_custom_config_dict -> the layers of a network."""

PATTERNS = {
    (NN + "BatchNorm1d", NN + "Linear"): ("fc", "bn"),
    (NN + "BatchNorm2d", NN + "ConvTranspose2d"): ("deconv", "bn"),
    (NN + "ReLU", NN + "ConvTranspose2d"): ("deconv", "relu"),
    (NN + "ReLU", (NN + "BatchNorm2d", NN + "ConvTranspose2d")): ("deconv", "bn", "relu"),
    (NN + "functional.relu", NN + "ConvTranspose2d"): ("deconv", "relu"),
    (NN + "functional.relu", (NN + "BatchNorm2d", NN + "ConvTranspose2d")): ("deconv", "bn", "relu"),
    (NN + "ReLU", ("FrozenBatchNorm2d", NN + "Conv2d")): ("conv", "frozen", "relu"),
    ("FrozenBatchNorm2d", NN + "Conv2d"): ("conv", "frozen"),
}
"""additional_fusion_pattern of the same table; the last layer stands first."""

CLASSES = {
    "nn.ConvTranspose2d": ("deconv",),
    "qnni.LinearBn1d": ("fc", "bn"),
    "qnni.ConvTransposeBn2d": ("deconv", "bn"),
    "qnni.ConvTransposeReLU2d": ("deconv", "relu"),
    "qnni.ConvTransposeBnReLU2d": ("deconv", "bn", "relu"),
    "qnni.ConvFreezebn2d": ("conv", "frozen"),
    "qnni.ConvFreezebnReLU2d": ("conv", "frozen", "relu"),
    "nn.Conv2d": ("conv",),
    "nn.Linear": ("fc",),
    "nn.modules.linear._LinearWithBias": ("fc",),
    "nni.ConvBn1d": ("conv1d", "bn"),
    "nni.ConvBn2d": ("conv", "bn"),
    "nni.ConvBnReLU1d": ("conv1d", "bn", "relu"),
    "nni.ConvBnReLU2d": ("conv", "bn", "relu"),
    "nni.ConvReLU2d": ("conv", "relu"),
    "nni.LinearReLU": ("fc", "relu"),
}
"""Keys of additional_qat_module_mappings and of DEFAULT_QAT_MODULE_MAPPINGS -> the layers of a network."""


def network(*layers: str) -> onnx.ModelProto:
    """These layers one after the other, behind a first convolution or linear layer that is not meant."""
    random = np.random.default_rng(4)
    spatial = {"fc": (), "conv1d": (6,), "conv": (6, 6), "deconv": (6, 6)}[layers[0]]
    ones = (1,) * len(spatial)
    weights: dict[str, np.ndarray] = {"first.weight": random.normal(0, 1, (4, 4, *ones)).astype(np.float32)}
    first = "Gemm" if not spatial else "Conv"
    nodes, last = [helper.make_node(first, ["x", "first.weight"], ["t"], name="first")], "t"
    nodes.append(helper.make_node("Sigmoid", [last], ["s"], name="between"))
    last = "s"
    for kind in layers:
        if kind in ("fc", "conv", "conv1d", "deconv"):
            op = {"fc": "Gemm", "deconv": "ConvTranspose"}.get(kind, "Conv")
            weights["weight"] = random.normal(0, 1, (4, 4, *ones)).astype(np.float32)
            nodes.append(helper.make_node(op, [last, "weight"], [kind], name=kind))
        elif kind == "bn":
            names = ["scale", "shift", "mean", "variance"]
            weights |= {name: random.uniform(0.5, 2, 4).astype(np.float32) for name in names}
            nodes.append(helper.make_node("BatchNormalization", [last, *names], [kind], name=kind))
        elif kind == "frozen":
            weights |= {name: random.uniform(0.5, 2, (1, 4, *ones)).astype(np.float32) for name in ("scale", "shift")}
            nodes.append(helper.make_node("Mul", [last, "scale"], ["scaled"], name="frozen_scale"))
            nodes.append(helper.make_node("Add", ["scaled", "shift"], [kind], name="frozen_shift"))
        else:
            nodes.append(helper.make_node("Relu", [last], [kind], name=kind))
        last = kind
    return build_model(nodes, {"x": (1, 4, *spatial)}, [last], weights)


@pytest.mark.parametrize(("chain", "layers"), CHAINS.items(), ids=lambda value: "-".join(value)[:60])
@pytest.mark.parametrize("target", ["Tensorrt", "SNPE", "Academic"])
def test_a_fused_chain_has_no_quantizer_inside(chain: tuple[str, ...], layers: tuple[str, ...], target: str) -> None:
    check("additional_fuser_method_mapping", chain, layers, target)


@pytest.mark.parametrize(("pattern", "layers"), PATTERNS.items(), ids=str)
def test_a_fusion_pattern_means_the_same_backwards(pattern: tuple[object, ...], layers: tuple[str, ...]) -> None:
    for target in ("Tensorrt", "Academic"):
        check("additional_fusion_pattern", pattern, layers, target)


def check(key: str, chain: object, layers: tuple[str, ...], target: str) -> None:
    """The row knows the chain, and nothing between its layer and its end is quantized or left float by itself."""
    model = network(*layers)
    extra = {"extra_qconfig_dict": SCHEMES} if target == "Academic" else {}
    translation = translate({**extra, FUSE: {key: {chain: "a function of torch"}}}, Graph.from_model(model), target)
    assert "the model has no" not in became(translation, f"{FUSE}.{key}")
    prepared = prepare(model, translation.backend, translation)
    plan = make_plan(prepared)
    assert layers[0] in plan.quantized
    inside = {name for node in prepared.graph.nodes() if node.name in plan.fused for name in [node.inputs[0].name]}
    assert not inside & {name for name in plan.placements if plan[name].role in ("activation", "output")}
    rest = [node.name for node in prepared.graph.nodes() if node.name not in ("first", "between", layers[0])]
    if target != "Tensorrt" or "relu" not in layers:  # TensorRT fuses a Relu by itself: quantizers stand on inputs
        assert set(rest) <= set(plan.fused)


@pytest.mark.parametrize(("kind", "layers"), CLASSES.items())
def test_each_class_of_the_mappings_finds_its_layer_and_quantizes_its_weight(
    kind: str, layers: tuple[str, ...]
) -> None:
    model = network(*layers)
    graph = Graph.from_model(model)
    found = nodes_of_type(graph, kind, "key")
    assert [name for name in found if name != "first"] == [layers[0]]
    translation = translate({FUSE: {"additional_qat_module_mappings": {kind: f"{kind} of torch"}}}, graph, "ONNX_QNN")
    assert layers[0] in translation.config["force"]
    plan = make_plan(prepare(model, translation.backend, translation))
    assert any(edge.node == layers[0] for p in plan if p.role == "weight" for edge in p.edges or ())


@pytest.mark.parametrize("kind", [kind for kind, layers in CLASSES.items() if len(layers) > 1])
def test_a_fused_class_does_not_mean_the_layer_with_another_end(kind: str) -> None:
    first, *rest = CLASSES[kind]
    other = network(first) if "relu" in rest else network(first, "relu")
    assert first not in nodes_of_type(Graph.from_model(other), kind, "key")
