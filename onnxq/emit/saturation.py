"""Weights that onnxruntime's kernels do not saturate on, whatever the processor.

x86 processors without VNNI multiply uint8 activations by int8 weights with an instruction that adds two products in 16
bits: 255 * 127 * 2 does not fit. Two ways out:

- seven bits: 255 * 64 * 2 fits, the kernels stay the fastest, and weights have half the steps;
- unsigned: q + 128 with zero point 128 stands for the same numbers, and the uint8 x uint8 kernels are exact but slower.

Tables of embeddings are not multiplied by anything and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxq.graph import Graph
from onnxq.types import Placement, QParams, QParamsTable, QuantPlan, QuantSpec


def with_unsigned_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[QuantPlan, QParamsTable]:
    """Every symmetric int8 weight as asymmetric uint8 of the same values; neither argument changes."""
    return _with_weights(
        graph, plan, qparams, lambda old: QParams(_unsigned(old.spec), old.scale, old.zero_point + 128)
    )


def with_seven_bit_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[QuantPlan, QParamsTable]:
    """Every symmetric int8 weight with 7 bits in the same range, and biases to match; neither argument changes."""

    def halved(old: QParams) -> QParams:
        spec = old.spec.replace(narrow_range=False, quant_min=-64, quant_max=63)
        return QParams(spec, old.scale * np.float32(min(-old.spec.qmin, old.spec.qmax) / 63), old.zero_point)

    new_plan, table = _with_weights(graph, plan, qparams, halved)
    for name, placement in new_plan.placements.items():
        if placement.derive is not None:
            scale = table[new_plan.leader(placement.derive.input)].scale * table[placement.derive.weight].scale
            table.entries[name] = QParams(placement.spec, scale, np.zeros(scale.shape, np.int32))
    return new_plan, table


def _with_weights(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, change: Callable[[QParams], QParams]
) -> tuple[QuantPlan, QParamsTable]:
    new_plan = replace(plan, placements=dict(plan.placements))
    table = qparams.copy()
    for name, placement in plan.placements.items():
        if placement.observe_only or _only_looked_up(graph, placement):
            continue  # nobody computes with it
        # Integers that an algorithm has fixed are right for their own scale only.
        if placement.role == "weight" and _is_signed_byte(placement.spec) and name not in table.integer_weights:
            table.entries[name] = change(qparams[name])
            new_plan.placements[name] = replace(placement, spec=table.entries[name].spec)
    return new_plan, table


def _is_signed_byte(spec: QuantSpec) -> bool:
    return spec.evenly_spaced and spec.signed and spec.bits == 8


def _only_looked_up(graph: Graph, placement: Placement) -> bool:
    if placement.edges is None:
        readers = [use.node for use in graph.consumers(placement.tensor)]
    else:
        readers = [graph.node(edge.node) for edge in placement.edges]
    return bool(readers) and all(node.op == "Gather" for node in readers)


def _unsigned(spec: QuantSpec) -> QuantSpec:
    low, high = spec.qmin + 128, spec.qmax + 128
    return spec.replace(
        dtype="uint8",
        symmetric=False,
        narrow_range=False,
        quant_min=None if low == 0 else low,
        quant_max=None if high == 255 else high,
    )
