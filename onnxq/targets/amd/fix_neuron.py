"""Models with FixNeuron nodes: the form of vai_q_onnx, one node in place of QuantizeLinear and DequantizeLinear.

FixNeuron (domain ai.onnx.contrib) reads the tensor, the scale 2^-pos and a zero point of 0, and has the text attributes
bit_width and pos. It rounds x / scale half to even, limits it to the bits and multiplies it by the scale again.
Constants are stored as the values of their quantized numbers, which FixNeuron leaves as they are: the chip's own
rounding of weights, and integers that an algorithm has fixed, are then in the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import rows_of
from onnxq.emit.uses import keep_for_others, origin, readings, uses_of
from onnxq.graph import DeferredValues, Graph, collector_paused
from onnxq.numerics import dequantize, fake_quantize
from onnxq.targets.amd.position_tables import ROLES, position_of
from onnxq.types import Placement, QParamsTable, QuantPlan

DOMAIN = "ai.onnx.contrib"
OPERATOR = "FixNeuron"
SUFFIX = "_fixneuron.onnx"


def to_fix_neurons(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Graph:
    """A copy of the float graph with one FixNeuron node for each quantizer, on weights and biases too."""
    result = graph.copy()
    result.keep_given_names()
    zero = result.add_constant("fix_neuron_zero_point", np.asarray(0, np.int8))
    with collector_paused():
        for row in rows_of(graph, plan, qparams, *ROLES):
            if row.placement.edges == ():
                continue  # only lends its parameters to others
            position = position_of(row)
            source = result.tensor(row.tensor)
            if result.is_constant(row.tensor):
                _store_quantized(result, row.placement, qparams)
            scale = result.add_constant(f"{row.tensor}_scale", row.qparams.scale)
            result.insert_after(
                source,
                OPERATOR,
                attrs={"bit_width": str(row.qparams.spec.bits), "pos": str(position)},
                extra_inputs=[scale, zero],
                uses=uses_of(result, row.placement),
                name=f"{row.tensor}_FixNeuron",
                domain=DOMAIN,
            )
    return result


def _store_quantized(graph: Graph, placement: Placement, qparams: QParamsTable) -> None:
    """Put the values of its quantized numbers in the place of a constant's; readers that stay float get a copy."""
    tensor, parameters = placement.tensor, qparams[placement.tensor]
    original, values = graph.tensor(tensor), graph.values(tensor)
    fixed = qparams.integer_weights.get(tensor)
    keep_for_others(graph, placement, values)

    def compute() -> np.ndarray:
        stored = (
            fake_quantize(values.astype(np.float32), parameters) if fixed is None else dequantize(fixed, parameters)
        )
        return stored.astype(values.dtype)

    original.values = DeferredValues(values.shape, values.dtype, compute)


def write_fix_neurons(request: EmitRequest) -> Emitted:
    """Write `<name>_fixneuron.onnx`: float model with FixNeuron nodes, the form of vai_q_onnx."""
    return Emitted(tuple(to_fix_neurons(*request.quantized).save(request.path(SUFFIX))))


def check_fix_neurons(request: EmitRequest) -> Iterator[str]:
    """Look from every reader of a quantized tensor back to the FixNeuron in front of it, and compare its numbers."""
    path = request.path(SUFFIX)
    model = Graph.load(path)
    left = {str(node.name) for node in model.nodes(OPERATOR)}
    for row in rows_of(*request.quantized, *ROLES):
        for reader, read in readings(request.graph, model, row.placement):
            node = None if read is None else model.producer(read)
            if (
                node is None
                or node.op != OPERATOR
                or origin(model, node.inputs[0]) != origin(request.graph, row.tensor)
            ):
                yield f"{path.name}: tensor '{row.tensor}' has no FixNeuron where {reader} reads it"
                continue
            left.discard(str(node.name))
            scale, zero_point = (float(model.values(tensor)) for tensor in node.inputs[1:3])
            said = (int(node.attrs["bit_width"]), 2.0 ** -int(node.attrs["pos"]), scale, zero_point)
            meant = (row.qparams.spec.bits, float(row.qparams.scale), float(row.qparams.scale), 0.0)
            if said != meant:
                yield f"{path.name}: '{node.name}' has (bits, 2^-pos, scale, zero point) {said}, not {meant}"
    for label in sorted(left):
        yield f"{path.name}: node '{label}' is there without a quantizer"


EMITTERS.add("fix_neuron", Emitter(write_fix_neurons, files=(SUFFIX,), read_back=check_fix_neurons))
