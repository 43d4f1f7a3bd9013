"""The range of every tensor as tpu-mlir reads it, so that it arrives at the scale that onnxq has chosen.

tpu-mlir divides the threshold by 127 (int8), 255 (uint8: lowest value 0), 7 (int4), 15 (uint4) or the largest float8
number, so a threshold is the scale times that number. An asymmetric format is given by its lowest and highest value
instead.

A chip holds a tensor in 8 bits before it makes 4 of them. Rounding twice is rounding once where the 8-bit steps divide
the 4-bit step into an odd number of parts, so int4 has 8-bit steps of scale / 15 and uint4 of scale / 17.

What a layer makes together with a Relu is unsigned on BM chips whatever the table says: a signed format is refused
there.

tpu-mlir rearranges operators and may then ask for the range of a tensor that has no quantizer, and it ends its run
where there is none. Such a tensor takes the range of the one whose values it moves, or whose values are moved from it;
behind a multiplication by a number or the addition of a mask, the range that follows; behind Softmax and the like, the
range that the function has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnxq.emit.tables import real_range, rows
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.numerics import float_max
from onnxq.targets.sophgo.names import float_tensors
from onnxq.types import Backend, QParams, QParamsTable, QuantPlan, QuantSpec

_MOVES = ("Flatten", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout")
_BOUNDED = {"Softmax": (0.0, 1.0), "Sigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Erf": (-1.0, 1.0)}
_INT8 = QuantSpec("int8")
_STEPS = {"int8": 127.0, "uint8": 255.0, "int4": 7.0, "uint4": 15.0}
_PARTS = {"int4": 15, "uint4": 17}
"""How many 8-bit steps a 4-bit step has."""


class Row(NamedTuple):
    """The three numbers behind a name."""

    threshold: float
    low: float
    high: float


class Range(NamedTuple):
    """A tensor's row in its own format, and in 8 bits where that is another."""

    tensor: str
    spec: QuantSpec
    own: Row
    in_eight_bits: Row


def ranges(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Iterator[Range]:
    """Inputs and computed tensors that have a range, in the order of the graph."""
    if has_unsigned(backend):
        _refuse_signed_behind_relu(graph, plan, qparams)
    found_rows = rows(graph, plan, qparams)  # those with channels are only observed: a table has one number
    known = {row.tensor: row.qparams for row in found_rows if row.qparams.spec.bits <= 8 and not row.qparams.scale.ndim}
    if not known:
        return
    found: dict[str, Range] = {}
    for tensor in float_tensors(graph):
        parameters = known.get(tensor) or _moved(graph, tensor, known)
        item = range_of(tensor, parameters) if parameters is not None else _computed(graph, tensor, found)
        if item is not None:
            found[tensor] = item
            yield item


def range_of(tensor: str, parameters: QParams) -> Range:
    """The rows that give tpu-mlir these parameters."""
    spec = parameters.spec
    low, high = (float(bound) for bound in real_range(parameters))
    if not spec.symmetric:
        row = Row(max(-low, high), low, high)
        return Range(tensor, spec, row, row)
    own = _symmetric_row(spec, float(parameters.scale), low)
    if spec.bits != 4:
        return Range(tensor, spec, own, own)
    step = float(parameters.scale) / _PARTS[spec.dtype]
    wide = spec.replace(dtype="int8" if spec.signed else "uint8", narrow_range=False)
    return Range(tensor, spec, own, _symmetric_row(wide, step, step * wide.qmin))


def _symmetric_row(spec: QuantSpec, scale: float, low: float) -> Row:
    threshold = scale * steps(spec)
    return Row(threshold, low if spec.signed else 0.0, threshold)


def has_unsigned(backend: Backend) -> bool:
    """Whether the chip holds tensors from 0 on in unsigned numbers; CV18x does not."""
    return "uint8" in backend.limits.dtypes


def behind_relu(graph: Graph, plan: QuantPlan, tensor: str) -> bool:
    """Whether a tensor leaves an operator together with a Relu, or with a Clip from 0 on."""
    producer = graph.producer(tensor)
    if producer is None or producer.name not in plan.fused or producer.op not in ("Relu", "Clip"):
        return False
    return producer.op == "Relu" or clips_at_zero(graph, producer)


def clips_at_zero(graph: Graph, node: Node) -> bool:
    """Whether the lower end of a Clip is 0."""
    if "min" in node.attrs:
        return float(node.attrs["min"]) == 0
    low = node.inputs[1] if len(node.inputs) > 1 and node.inputs[1].name else None
    return low is not None and graph.is_constant(low) and not graph.values(low).any()


def _refuse_signed_behind_relu(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> None:
    for row in rows(graph, plan, qparams):
        spec = row.qparams.spec
        if spec.evenly_spaced and spec.symmetric and spec.signed and behind_relu(graph, plan, row.tensor):
            raise UnsupportedError(
                f"tensor '{row.tensor}' ({row.placement.why}) is {spec.dtype}, but it leaves a Relu, and tpu-mlir "
                f"holds it in u{spec.dtype} whatever the table says. Leave dtype under [activation] out, or give the "
                f"tensor u{spec.dtype} in the plan"
            )


def _computed(graph: Graph, tensor: str, found: dict[str, Range]) -> Range | None:
    """The range that follows from the operator and the ranges in front of it."""
    producer = graph.producer(tensor)
    if producer is None:
        return None
    if producer.op in _BOUNDED:
        low, high = _BOUNDED[producer.op]
        return Range(tensor, _INT8, Row(high, low, high), Row(high, low, high))
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
    threshold = before.in_eight_bits.threshold * factor
    row = Row(threshold, 0.0 if before.in_eight_bits.low == 0 and producer.op != "Sub" else -threshold, threshold)
    return Range(tensor, before.spec if before.spec.bits == 8 else _INT8, row, row)


def steps(spec: QuantSpec) -> float:
    """What tpu-mlir divides a threshold by."""
    return float_max(spec.dtype) if not spec.evenly_spaced else _STEPS[spec.dtype]


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
