"""HardSigmoid and HardSwish on the DPU: 2731 / 16384 in place of 1 / 6.

    hard_sigmoid(x) = min(max(x + 3, 0), 6) * 2731 / 16384
    hard_swish(x)   = x * q(hard_sigmoid(x))      q: int8 at position 7, halves rounded up

Everything between the quantizers is computed in float64, where all of it is exact.
"""

from __future__ import annotations

import numpy as np

from onnxq.emit.simulations import SIMULATIONS
from onnxq.emit.simulations.rewrite import Rewrite, becomes_identity, line, on_chip
from onnxq.graph import Graph, Node
from onnxq.targets.amd.dpu_sites import is_hard_sigmoid
from onnxq.types import QParamsTable, QuantPlan

SIXTH = 2731 / 16384
_DOUBLE = np.dtype(np.float64)


@SIMULATIONS.register("dpu_hard_sigmoid")
def simulate_hard_sigmoid(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """HardSigmoid with slope 1/6 is computed with 2731/16384."""
    return [_rewrite_hard_sigmoid(graph, node) for node in on_chip(graph, plan, "HardSigmoid") if is_hard_sigmoid(node)]


@SIMULATIONS.register("dpu_sigmoid")
def simulate_sigmoid(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """Sigmoid is computed as HardSigmoid: the DPU has no other."""
    return [_rewrite_hard_sigmoid(graph, node) for node in on_chip(graph, plan, "Sigmoid")]


@SIMULATIONS.register("dpu_hard_swish")
def simulate_hard_swish(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """HardSwish is computed as x times a HardSigmoid in int8."""
    notes = []
    for node in on_chip(graph, plan, "HardSwish"):
        notes.append(line(node, "computed as x * q(min(max(x + 3, 0), 6) * 2731 / 16384), q: int8 at position 7"))
        kind = graph.dtype(node.outputs[0]) or np.dtype(np.float32)
        becomes_identity(node)
        rewrite = Rewrite(graph, node)
        source = rewrite.then("Cast", kind=_DOUBLE, attrs={"to": _DOUBLE})
        _gate(rewrite)
        rewrite.then("Mul", rewrite.constant(128, _DOUBLE))
        rewrite.then("Add", rewrite.constant(0.5, _DOUBLE))
        rewrite.then("Floor")
        rewrite.then("Min", rewrite.constant(127, _DOUBLE))
        rewrite.then("Mul", rewrite.constant(1 / 128, _DOUBLE))
        rewrite.then("Mul", source)
        rewrite.finish("Cast", attrs={"to": kind})
    return notes


def _rewrite_hard_sigmoid(graph: Graph, node: Node) -> str:
    note = line(node, "computed as min(max(x + 3, 0), 6) * 2731 / 16384")
    kind = graph.dtype(node.outputs[0]) or np.dtype(np.float32)
    becomes_identity(node)
    rewrite = Rewrite(graph, node)
    rewrite.then("Cast", kind=_DOUBLE, attrs={"to": _DOUBLE})
    _gate(rewrite)
    rewrite.finish("Cast", attrs={"to": kind})
    return note


def _gate(rewrite: Rewrite) -> None:
    """min(max(x + 3, 0), 6) * 2731 / 16384 of a float64 x."""
    rewrite.then("Add", rewrite.constant(3, _DOUBLE))
    rewrite.then("Max", rewrite.constant(0, _DOUBLE))
    rewrite.then("Min", rewrite.constant(6, _DOUBLE))
    rewrite.then("Mul", rewrite.constant(SIXTH, _DOUBLE))
