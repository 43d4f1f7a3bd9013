"""Weights that onnxruntime's kernels do not saturate on, whatever the processor.

x86 processors without VNNI multiply uint8 activations by int8 weights with an instruction that adds two products in 16
bits: 255 * 127 * 2 does not fit. Ways out:

- fitting pairs: scales grow until what is added fits, by less than two; the kernels stay the fastest
  (`onnxq.emit.pair_sums`). Weights that this costs more than MOST_NOISE are unsigned;
- seven bits, where nobody knows the order in which a kernel adds: 255 * 64 * 2 fits, and weights have half the steps;
- unsigned: q + 128 with zero point 128 stands for the same numbers, and the uint8 x uint8 kernels are exact but slower.

Tables of embeddings are not multiplied by anything and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxq.emit.pair_sums import with_fitting_pairs
from onnxq.graph import Graph
from onnxq.types import Placement, QParams, QParamsTable, QuantPlan, QuantSpec

MOST_NOISE = 2.0
"""By how much the squared error of a weight's rounding may grow so that its pairs fit."""


def with_unsigned_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[QuantPlan, QParamsTable]:
    """Every symmetric int8 weight as asymmetric uint8 of the same values; neither argument changes."""
    new_plan, table = _with_weights(graph, plan, qparams, lambda _, old: _unsigned(old), fixed=True)
    for name, integers in qparams.integer_weights.items():
        if table[name] != qparams[name]:
            table.integer_weights[name] = integers.astype(np.int16) + 128
    return new_plan, table


def with_fitting_weights(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[QuantPlan, QParamsTable]:
    """Every symmetric int8 weight with scales at which no pair saturates, or unsigned; and biases to match.

    A weight that is summed in an order nobody knows has 7 bits. Neither argument changes.
    """

    def fitting(placement: Placement, old: QParams) -> QParams:
        found = with_fitting_pairs(graph, placement, old)
        if found is None:
            return _halved(old)
        grown = float(np.square(found.scale, dtype=np.float64).sum())
        return found if grown <= MOST_NOISE * np.square(old.scale, dtype=np.float64).sum() else _unsigned(old)

    new_plan, table = _with_weights(graph, plan, qparams, fitting)
    for name, placement in new_plan.placements.items():
        if placement.derive is not None:
            scale = table[new_plan.leader(placement.derive.input)].scale * table[placement.derive.weight].scale
            table.entries[name] = QParams(placement.spec, scale, np.zeros(scale.shape, np.int32))
    return new_plan, table


def _halved(old: QParams) -> QParams:
    spec = old.spec.replace(narrow_range=False, quant_min=-64, quant_max=63)
    return QParams(spec, old.scale * np.float32(min(-old.spec.qmin, old.spec.qmax) / 63), old.zero_point)


def _with_weights(
    graph: Graph,
    plan: QuantPlan,
    qparams: QParamsTable,
    change: Callable[[Placement, QParams], QParams],
    *,
    fixed: bool = False,
) -> tuple[QuantPlan, QParamsTable]:
    """With `fixed` also those whose integers an algorithm has fixed, which are right for their own scale only."""
    new_plan = replace(plan, placements=dict(plan.placements))
    table = qparams.copy()
    for name, placement in plan.placements.items():
        if placement.observe_only or _only_looked_up(graph, placement):
            continue  # nobody computes with it
        if name in table.integer_weights and not fixed:
            continue
        if placement.role == "weight" and _is_signed_byte(placement.spec):
            table.entries[name] = change(placement, qparams[name])
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


def _unsigned(old: QParams) -> QParams:
    spec = old.spec
    low, high = spec.qmin + 128, spec.qmax + 128
    unsigned = spec.replace(
        dtype="uint8",
        symmetric=False,
        narrow_range=False,
        quant_min=None if low == 0 else low,
        quant_max=None if high == 255 else high,
    )
    return QParams(unsigned, old.scale, old.zero_point + 128)
