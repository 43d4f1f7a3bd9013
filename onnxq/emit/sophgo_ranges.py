"""The range of every tensor as tpu-mlir reads it, so that it arrives at the scale that onnxq has chosen.

tpu-mlir divides the threshold by 127 (int8), 255 (uint8: lowest value 0), 7 (int4) or the largest float8 number:

    threshold = scale * 127, 255, 7, 15, 448 or 57344

An asymmetric format is given by its lowest and highest value instead. A tensor without a quantizer takes the range of
the one whose values it moves, or whose values are moved from it: tpu-mlir may take Reshape and the like out of the way,
and then asks for the range of that tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnxq.emit.sophgo_names import is_float
from onnxq.emit.tables import real_range, rows
from onnxq.graph import Graph
from onnxq.numerics import float_max
from onnxq.types import QParams, QParamsTable, QuantPlan, QuantSpec

_MOVES = ("Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout")


class Range(NamedTuple):
    """One row of a calibration table, before it has a name."""

    tensor: str
    spec: QuantSpec
    threshold: float
    low: float
    high: float


def ranges(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Iterator[Range]:
    """Inputs and computed tensors that have a range, in the order of the graph."""
    known = {row.tensor: row.qparams for row in rows(graph, plan, qparams) if row.qparams.spec.bits <= 8}
    made = [t for node in graph.nodes() for t in node.outputs if t.name and is_float(graph, t)]
    for tensor in [*graph.input_names, *(str(t.name) for t in made)]:
        parameters = known.get(tensor) or _moved(graph, tensor, known)
        if parameters is not None:
            yield range_of(tensor, parameters)


def range_of(tensor: str, parameters: QParams) -> Range:
    """The row that gives tpu-mlir these parameters."""
    spec = parameters.spec
    low, high = (float(bound) for bound in real_range(parameters))
    if not spec.symmetric:
        return Range(tensor, spec, max(-low, high), low, high)
    threshold = float(parameters.scale) * steps(spec)
    return Range(tensor, spec, threshold, 0.0 if not spec.signed else low, threshold)


def steps(spec: QuantSpec) -> float:
    """What tpu-mlir divides a threshold by."""
    return float_max(spec.dtype) if spec.grid != "affine" else float(spec.qmax)


def _moved(graph: Graph, tensor: str, known: dict[str, QParams]) -> QParams | None:
    """Parameters of the nearest tensor with the same values: backwards first, then forwards."""
    current = tensor
    while (producer := graph.producer(current)) is not None and producer.op in _MOVES:
        current = str(producer.inputs[0].name)
        if current in known:
            return known[current]
    pending = [tensor]
    while pending:
        for use in graph.consumers(pending.pop(0)):
            if use.node.op in _MOVES and use.port == 0:
                result = str(use.node.outputs[0].name)
                if result in known:
                    return known[result]
                pending.append(result)
    return None
