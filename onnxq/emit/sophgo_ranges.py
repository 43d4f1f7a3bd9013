"""The range of every tensor as tpu-mlir reads it, so that it arrives at the scale that onnxq has chosen.

tpu-mlir divides the threshold by 127 (int8), 255 (uint8: lowest value 0), 7 (int4) or the largest float8 number:

    threshold = scale * 127, 255, 7, 15, 448 or 57344

An asymmetric format is given by its lowest and highest value instead.

tpu-mlir rearranges operators and may then ask for the range of a tensor that has no quantizer, and it ends its run
where there is none. Such a tensor takes the range of the one whose values it moves, or whose values are moved from it;
behind a multiplication by a number or the addition of a mask, the range that follows; behind Softmax and the like, the
range that the function has.
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
_BOUNDED = {"Softmax": (0.0, 1.0), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Erf": (-1.0, 1.0)}
_INT8 = QuantSpec("int8")


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
    if not known:
        return
    made = [t for node in graph.nodes() for t in node.outputs if t.name and is_float(graph, t)]
    found: dict[str, Range] = {}
    for tensor in [*graph.input_names, *(str(t.name) for t in made)]:
        parameters = known.get(tensor) or _moved(graph, tensor, known)
        item = range_of(tensor, parameters) if parameters is not None else _computed(graph, tensor, found)
        if item is not None:
            found[tensor] = item
            yield item


def range_of(tensor: str, parameters: QParams) -> Range:
    """The row that gives tpu-mlir these parameters."""
    spec = parameters.spec
    low, high = (float(bound) for bound in real_range(parameters))
    if not spec.symmetric:
        return Range(tensor, spec, max(-low, high), low, high)
    threshold = float(parameters.scale) * steps(spec)
    return Range(tensor, spec, threshold, 0.0 if not spec.signed else low, threshold)


def _computed(graph: Graph, tensor: str, found: dict[str, Range]) -> Range | None:
    """The range that follows from the operator and the ranges in front of it."""
    producer = graph.producer(tensor)
    if producer is None:
        return None
    if producer.op in _BOUNDED:
        low, high = _BOUNDED[producer.op]
        return Range(tensor, _INT8, high, low, high)
    before = next((found[t.name] for t in producer.inputs if t.name in found), None)
    if before is None or producer.op not in ("Mul", "Div", "Add", "Sub", *_MOVES):
        return None
    factor = 1.0
    if producer.op in ("Mul", "Div"):
        constants = [graph.values(t) for t in producer.inputs if graph.is_constant(t)]
        if len(constants) != 1 or constants[0].size != 1 or not constants[0].all():
            return None
        factor = abs(float(constants[0].reshape(-1)[0]))
        if producer.op == "Div":
            if graph.is_constant(producer.inputs[0]):
                return None
            factor = 1 / factor
    low = 0.0 if before.low == 0 and producer.op != "Sub" else -before.threshold * factor
    return Range(tensor, before.spec, before.threshold * factor, low, before.threshold * factor)


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
