"""Small networks with every operator that the DPU's rules speak of, and tables of positions drawn at random."""

from __future__ import annotations

import numpy as np
import onnx

from onnxq.graph import Graph
from onnxq.numerics.positions import scale_at
from onnxq.session.prepare import make_plan, prepare
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan
from tests.zoo_graphs.net import Net


def network() -> onnx.ModelProto:
    """Conv, Gemm, Add, Sub, Mul, Concat, pools, Pad, Slice, LeakyRelu, HardSigmoid and a swish of it."""
    net = Net("dpu")
    x = net.input("x", (1, 3, 16, 16))
    stem = net.conv_relu(x, 3, 8)
    pooled = net.node("MaxPool", stem, kernel_shape=[2, 2], strides=[2, 2])
    branch = net.conv(net.conv_relu(pooled, 8, 8), 8, 8)
    joined = net.relu(net.node("Add", branch, pooled))
    leaky = net.node("LeakyRelu", net.conv(joined, 8, 8), alpha=0.1)
    both = net.node("Concat", joined, leaky, axis=1)
    less = net.node("Sub", net.conv(both, 16, 8), joined)
    gate = net.node("HardSigmoid", less, alpha=1 / 6, beta=0.5)
    swish = net.node("Mul", less, gate)
    padded = net.node("Pad", swish, net.ints(0, 0, 1, 1, 0, 0, 1, 1))
    part = net.node("Slice", padded, net.ints(0), net.ints(9), net.ints(2))
    mean = net.node("AveragePool", part, kernel_shape=[3, 3], strides=[2, 2])
    net.node("Identity", net.classifier(mean, 8), output="y")
    net.output("y", (1, 10))
    return net.model()


def planned(backend: str = "vitis", model: onnx.ModelProto | None = None) -> tuple[Graph, QuantPlan, Backend]:
    prepared = prepare(network() if model is None else model, backend)
    return prepared.graph, make_plan(prepared), prepared.backend


def table_at(plan: QuantPlan, positions: dict[str, int]) -> QParamsTable:
    """Parameters with these positions of the leaders; tied tensors share them."""
    table = QParamsTable()
    for placement in plan:
        scale = np.asarray(scale_at(positions[plan.leader(placement.tensor)]))
        table.put(placement.tensor, QParams(placement.spec, scale, np.zeros((), np.int32)), "drawn")
    return table


def drawn(plan: QuantPlan, seed: int, low: int = -2, high: int = 12) -> QParamsTable:
    """Positions drawn at random, every leader by itself."""
    generator = np.random.default_rng(seed)
    leaders = dict.fromkeys(plan.leader(placement.tensor) for placement in plan)
    return table_at(plan, {leader: int(generator.integers(low, high + 1)) for leader in leaders})
