"""Operators that take few bits badly: probabilities of a Softmax, and normalizations."""

from __future__ import annotations

from collections.abc import Iterator

from onnxq.diagnose.causes import Costly, NormalizationInFewBits, SoftmaxInFewBits
from onnxq.diagnose.evidence.case import Case, Evidence
from onnxq.diagnose.experiment import step_of, with_more_bits
from onnxq.graph import Node

SOFTMAX = ("Softmax", "LogSoftmax")
NORMALIZATIONS = (
    *("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization"),
    *("LpNormalization", "MeanVarianceNormalization", "ReduceL2", "LRN", "SimplifiedLayerNormalization"),
)
FEW = 8


def operators(case: Case) -> Iterator[Evidence]:
    for row in case.costly:
        parameters = case.state.qparams[row.name]
        if parameters.spec.bits > FEW or not parameters.spec.evenly_spaced:
            continue
        made = _maker(case, row, SOFTMAX)
        if made is not None:
            seen = case.seen.get(made.outputs[0].name)
            median = 0.0 if seen is None else seen.median_magnitude()
            finding = SoftmaxInFewBits(row.name, made.name, made.op, FEW, step_of(parameters), median)
            yield Evidence(finding, with_more_bits(row.name))
        made = _maker(case, row, NORMALIZATIONS) or _reader(case, row)
        if made is not None:
            yield Evidence(NormalizationInFewBits(row.name, made.name, made.op, FEW), with_more_bits(row.name))


def _maker(case: Case, row: Costly, ops: tuple[str, ...]) -> Node | None:
    for name in row.tensors:
        node: Node | None = case.graph.producer(name)
        if node is not None and node.op in ops:
            return node
    return None


def _reader(case: Case, row: Costly) -> Node | None:
    """The normalization whose factors a quantizer is for."""
    if row.role != "weight":
        return None
    readers = [use.node for name in row.tensors for use in case.graph.consumers(name)]
    found: Node | None = next((node for node in readers if node.op in NORMALIZATIONS), None)
    return found
