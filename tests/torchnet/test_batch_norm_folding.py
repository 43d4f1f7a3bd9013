"""Layers with a batch norm that is folded for the quantizer and apart for training."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from onnxq.graph import Graph
from onnxq.passes import run_passes
from onnxq.torchnet import TorchNet, to_torch

RNG = np.random.default_rng(15)
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any], dict[str, int]]] = {
    # input, weight, attributes of the layer, where the output channels lie
    "Conv": ((5, 4, 6, 6), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}, {"axis": 0}),
    "ConvTranspose": ((5, 4, 6, 6), (4, 3, 3, 3), {"group": 2, "strides": [2, 2]}, {"axis": 1, "groups": 2}),
    "Gemm": ((9, 4), (6, 4), {"transB": 1}, {"axis": 0}),
}
CHANNELS, EPSILON, MOMENTUM = 6, 1e-3, 0.75


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def numbers(layer: str) -> dict[str, np.ndarray]:
    return {
        "w": values(*LAYERS[layer][1]),
        "gamma": RNG.uniform(0.5, 2, CHANNELS).astype(np.float32),
        "beta": values(CHANNELS),
        "mean": values(CHANNELS),
        "variance": RNG.uniform(0.5, 2, CHANNELS).astype(np.float32),
        "b": values(CHANNELS),
    }


def model_of(nodes: list[onnx.NodeProto], layer: str, constants: dict[str, np.ndarray]) -> Graph:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, LAYERS[layer][0])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid("onnxq", 1)]
    return Graph.from_model(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def apart(layer: str, constants: dict[str, np.ndarray]) -> TorchNet:
    """The layer as it is trained."""
    _, _, attributes, where = LAYERS[layer]
    bias = "b" if "b" in constants else ""
    nodes = [
        helper.make_node("FoldedWeight", ["w", "gamma", "variance"], ["fw"], domain="onnxq", epsilon=EPSILON, **where),
        helper.make_node(
            "FoldedBias", [bias, "gamma", "beta", "mean", "variance"], ["fb"], domain="onnxq", epsilon=EPSILON
        ),
        helper.make_node(
            "ConvBatchNorm",
            ["x", "fw", "fb", "gamma", "beta", "mean", "variance", *([bias] if bias else [])],
            ["y"],
            domain="onnxq",
            layer=layer,
            epsilon=EPSILON,
            momentum=MOMENTUM,
            **attributes,
        ),
    ]
    return to_torch(model_of(nodes, layer, constants), keep=["fw", "fb"])


def plain(layer: str, constants: dict[str, np.ndarray]) -> Graph:
    """The layer and its batch norm as a file has them."""
    bias = ["b"] if "b" in constants else []
    nodes = [
        helper.make_node(layer, ["x", "w", *bias], ["z"], name="layer", **LAYERS[layer][2]),
        helper.make_node(
            "BatchNormalization",
            ["z", "gamma", "beta", "mean", "variance"],
            ["y"],
            name="norm",
            epsilon=EPSILON,
            momentum=MOMENTUM,
        ),
    ]
    return model_of(nodes, layer, constants)


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("bias", [True, False])
def test_folded_values_are_those_of_the_pass_that_folds(layer: str, bias: bool) -> None:
    constants = numbers(layer)
    if not bias:
        del constants["b"]
    net = apart(layer, constants).eval()
    net(torch.from_numpy(values(*LAYERS[layer][0])))
    folded = plain(layer, constants)
    run_passes(folded, ["fold_batchnorm"])
    node = folded.node("layer")
    for name, port in (("fw", 1), ("fb", 2)):
        np.testing.assert_allclose(
            net.kept[name].detach().numpy(), folded.values(node.inputs[port]), rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("bias", [True, False])
def test_frozen_and_live_it_is_the_layer_with_its_batch_norm(layer: str, bias: bool) -> None:
    constants = numbers(layer)
    if not bias:
        del constants["b"]
    net, twin = apart(layer, constants).train(), to_torch(plain(layer, constants)).train()
    x = torch.from_numpy(values(*LAYERS[layer][0]))
    torch.testing.assert_close(net(x), twin(x), rtol=1e-4, atol=1e-5)
    net.mode.live_statistics = twin.mode.live_statistics = True
    torch.testing.assert_close(net(x), twin(x), rtol=1e-4, atol=1e-4)
    for name in ("mean", "variance"):
        torch.testing.assert_close(net.value(name), twin.value(name), rtol=1e-4, atol=1e-5)


def test_live_statistics_that_equal_the_running_ones_change_nothing(layer: str) -> None:
    constants = numbers(layer)
    x = torch.from_numpy(values(*LAYERS[layer][0]))
    z = to_torch(plain(layer, constants), keep=["z"])
    z(x)
    before = z.kept["z"].detach()
    axes = [axis for axis in range(before.dim()) if axis != 1]
    variance, mean = torch.var_mean(before, dim=axes, correction=0)
    constants |= {"mean": mean.numpy(), "variance": variance.numpy()}
    net = apart(layer, constants).train()
    frozen = net(x)
    net.mode.live_statistics = True
    torch.testing.assert_close(net(x), frozen, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(net.value("mean"), mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("live", [True, False])
def test_gradients_are_those_of_the_layer_and_its_batch_norm(layer: str, live: bool) -> None:
    constants = numbers(layer)
    net, twin = apart(layer, constants).train(), to_torch(plain(layer, constants)).train()
    x = torch.from_numpy(values(*LAYERS[layer][0]))
    for one in (net, twin):
        one.mode.live_statistics = live
        y = one(x)
        (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
    found = {name: parameter.grad for name, parameter in net.named_parameters()}
    assert set(found) == {"w", "gamma", "beta", "b"}
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_a_channel_with_gamma_zero_stays_finite(layer: str) -> None:
    constants = numbers(layer)
    constants["gamma"][2] = 0.0
    net = apart(layer, constants).train()
    net.mode.live_statistics = True
    y = net(torch.from_numpy(values(*LAYERS[layer][0])))
    y.sum().backward()
    torch.testing.assert_close(y[:, 2], torch.full_like(y[:, 2], float(constants["beta"][2])))
    assert all(torch.isfinite(parameter.grad).all() for parameter in net.parameters() if parameter.grad is not None)
