"""What layers with dynamic quantization read: every run rounds it to 256 steps between its own extremes.

DynamicQuantizeLinear and DequantizeLinear in front of a layer say it. An LSTM also rounds its state in every step,
which no operator around it can: it becomes the operator that does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxq.emit.simulations import SIMULATIONS
from onnxq.graph import Graph, Node
from onnxq.numerics import quantize
from onnxq.targets.onnxruntime.dynamic_layers import DYNAMIC_LSTM, DynamicInputs, Weight, dynamic_lstm
from onnxq.targets.onnxruntime.qlinear import MICROSOFT
from onnxq.types import QParamsTable, QuantPlan

_FRONTED = ("MatMul", "Gemm", "Conv")


@SIMULATIONS.register("dynamic_activations")
def simulate_dynamic(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """What quantized layers read is rounded between the extremes that it has in each run."""
    inputs = DynamicInputs(graph)
    rounded: dict[tuple[str, int], Any] = {}
    for node in graph.nodes():
        if node.domain or node.name not in plan.quantized:
            continue
        if node.op == "LSTM":
            _exchange_lstm(graph, node, [_weight(graph, node, port, qparams) for port in (1, 2)])
        elif node.op in _FRONTED and node.inputs[1].name in plan:
            scope = graph.scope_of(node)
            read, factors = inputs.read_by(node, scope)
            key = (read.name, id(scope))
            if key not in rounded:
                rounded[key] = _rounded(inputs, read, factors, scope)
            node.inputs[0] = rounded[key]
    return []


def _rounded(inputs: DynamicInputs, read: Any, factors: Any, scope: Any) -> Any:
    """A tensor as its integers stand for it, multiplied back where its rows have been divided."""
    graph, name = inputs.graph, f"{read.name}_rounded"
    made = graph.add_variable(name, np.dtype(np.float32), read.shape)
    graph.add_node("DequantizeLinear", list(inputs.of(read, scope)), [made], name=name, scope=scope)
    if factors is None:
        return made
    name = f"{read.name}_multiplied"
    whole = graph.add_variable(name, np.dtype(np.float32), read.shape)
    graph.add_node("Mul", [made, factors], [whole], name=name, scope=scope)
    return whole


def _exchange_lstm(graph: Graph, node: Node, weights: list[Weight]) -> None:
    """Put a DynamicQuantizeLSTM beside an LSTM, which stays without a reader: plans name it as one of its weights."""
    read, attrs = dynamic_lstm(graph, node, weights)
    made = list(node.outputs)
    for place, tensor in enumerate(made):
        if tensor.name:
            node.outputs[place] = graph.add_variable(f"{tensor.name}_unread", tensor.dtype, tensor.shape)
    scope, name = graph.scope_of(node), f"{node.name}_dynamic"
    graph.add_node(DYNAMIC_LSTM, read, made, attrs=attrs, name=name, domain=MICROSOFT, scope=scope)


def _weight(graph: Graph, node: Node, port: int, qparams: QParamsTable) -> Weight:
    tensor = node.inputs[port]
    parameters = qparams[tensor.name]
    fixed = qparams.integer_weights.get(tensor.name)
    kind = parameters.spec.format.onnx_storage

    def integers() -> np.ndarray:
        values = quantize(graph.values(tensor), parameters) if fixed is None else fixed
        return values.astype(kind)

    zero_point = np.asarray(parameters.zero_point).astype(kind)
    shape = tuple(tensor.shape)
    scale = np.asarray(parameters.scale, np.float32)
    return Weight(tensor.name, shape, np.dtype(kind), integers, scale, zero_point, graph.home_of(tensor))
