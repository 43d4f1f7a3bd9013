"""A net of two layers with a scale that is learnt, and data that it can be trained on: what training needs of a net."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from onnxq.graph import Graph
from onnxq.torchnet.net import TorchNet
from onnxq.torchnet.program import Quantizer

FEATURES, HIDDEN, CLASSES = 6, 8, 3


class LearntScale(nn.Module):
    """Rounds to multiples of a scale; rounding is passed straight through, the scale is a parameter.

    `seen` follows the largest value while it observes.
    """

    seen: Tensor
    lr_multipliers: ClassVar[dict[str, float]] = {}

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.register_buffer("seen", torch.tensor(0.0))
        self.observing = True
        self.quantizing = True
        self.muted = False

    def forward(self, x: Tensor) -> Tensor:
        if self.observing:
            self.seen.copy_(torch.maximum(self.seen, x.detach().abs().max()))
        if not self.quantizing or self.muted:
            return x
        ratio = x / self.scale
        return (ratio + (ratio.round() - ratio).detach()) * self.scale


class ToyNet(TorchNet):
    """What training asks of a QatNet, without a plan."""

    def __init__(self, graph: Graph, scale: float = 0.25) -> None:
        quantizer = LearntScale(scale)
        super().__init__(graph, quantizers={"hidden": Quantizer(quantizer, None)})
        self.fake_quantizers = nn.ModuleDict({"hidden": quantizer})
        self.batch_norms = "live"
        self.original = graph.copy()

    def observe(self, on: bool) -> None:
        for module in self.fake_quantizers.values():
            module.observing = on

    def quantize(self, on: bool) -> None:
        for module in self.fake_quantizers.values():
            module.quantizing = on

    def mute(self, on: bool) -> None:
        for module in self.fake_quantizers.values():
            module.muted = on


def toy_graph(*, last: str | None = None) -> Graph:
    """x -> Gemm -> Relu (`hidden`) -> Gemm -> y, with another operator at the end where `last` names one."""
    generator = np.random.default_rng(3)
    arrays = {
        "first.weight": generator.normal(0, 0.4, (HIDDEN, FEATURES)),
        "first.bias": generator.normal(0, 0.1, HIDDEN),
        "second.weight": generator.normal(0, 0.4, (CLASSES, HIDDEN)),
        "second.bias": generator.normal(0, 0.1, CLASSES),
    }
    out = "y" if last is None else "z"
    nodes = [
        helper.make_node("Gemm", ["x", "first.weight", "first.bias"], ["a"], "first", transB=1),
        helper.make_node("Relu", ["a"], ["hidden"], "relu"),
        helper.make_node("Gemm", ["hidden", "second.weight", "second.bias"], [out], "second", transB=1),
    ]
    if last is not None:
        nodes.append(helper.make_node(last, ["z"], ["y"], "last"))
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", FEATURES])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()],
    )
    return Graph.from_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10))


def toy_net(**given: Any) -> ToyNet:
    return ToyNet(toy_graph(), **given)


def toy_data(samples: int = 60, seed: int = 0) -> dict[str, np.ndarray]:
    """Samples whose class can be learnt: the largest of three sums of features."""
    x = np.random.default_rng(seed).normal(0, 1, (samples, FEATURES)).astype(np.float32)
    return {"x": x, "labels": x.reshape(samples, CLASSES, -1).sum(axis=2).argmax(axis=1)}
