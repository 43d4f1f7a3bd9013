"""Models with FixNeuron nodes: the form of vai_q_onnx, one node in place of QuantizeLinear and DequantizeLinear.

FixNeuron (domain ai.onnx.contrib) reads the tensor, the scale 2^-pos and a zero point of 0, and has the text attributes
bit_width and pos. It rounds x / scale half to even, limits it to the bits and multiplies it by the scale again.
Constants are stored as the values of their quantized numbers, which FixNeuron leaves as they are: the chip's own
rounding of weights, and integers that an algorithm has fixed, are then in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.vitis_positions import all_rows, position_of
from onnxq.graph import DeferredValues, Graph, Use, collector_paused
from onnxq.numerics import dequantize, fake_quantize
from onnxq.types import Backend, Placement, QParamsTable, QuantPlan

DOMAIN = "ai.onnx.contrib"
SUFFIX = "_fixneuron.onnx"


def to_fix_neurons(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Graph:
    """A copy of the float graph with one FixNeuron node for each quantizer, on weights and biases too."""
    result = graph.copy()
    result.keep_given_names()
    zero = result.add_constant("fix_neuron_zero_point", np.asarray(0, np.int8))
    with collector_paused():
        for _, row in all_rows(graph, plan, qparams):
            if row.placement.edges == ():
                continue  # only lends its parameters to others
            position = position_of(row)
            source = result.tensor(row.tensor)
            if result.is_constant(row.tensor):
                _store_quantized(result, row.placement, qparams)
            scale = result.add_constant(f"{row.tensor}_scale", row.qparams.scale)
            result.insert_after(
                source,
                "FixNeuron",
                attrs={"bit_width": str(row.qparams.spec.bits), "pos": str(position)},
                extra_inputs=[scale, zero],
                uses=_uses(result, row.placement),
                name=f"{row.tensor}_FixNeuron",
                domain=DOMAIN,
            )
    return result


def _store_quantized(graph: Graph, placement: Placement, qparams: QParamsTable) -> None:
    """Put the values of its quantized numbers in the place of a constant's; readers that stay float get a copy of it."""
    tensor, parameters = placement.tensor, qparams[placement.tensor]
    original, values = graph.tensor(tensor), graph.values(tensor)
    fixed = qparams.integer_weights.get(tensor)
    quantized = None if placement.edges is None else {(edge.node, edge.port) for edge in placement.edges}
    others = [use for use in graph.consumers(original) if quantized and (use.node.name, use.port) not in quantized]
    if others:
        copy = graph.add_constant(f"{tensor}_float", values, scope=graph.home_of(original))
        graph.redirect(original, copy, uses=others)

    def compute() -> np.ndarray:
        stored = fake_quantize(values.astype(np.float32), parameters) if fixed is None else dequantize(fixed, parameters)
        return stored.astype(values.dtype)

    original.values = DeferredValues(values.shape, values.dtype, compute)


def _uses(graph: Graph, placement: Placement) -> list[Use] | None:
    if placement.edges is None:
        return None
    return [Use(graph.node(edge.node), edge.port) for edge in placement.edges]


@EMITTERS.register("fix_neuron")
def write_fix_neurons(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_fixneuron.onnx`: float model with FixNeuron nodes, the form of vai_q_onnx."""
    return Emitted(tuple(to_fix_neurons(graph, plan, qparams).save(folder / f"{name}{SUFFIX}")))


@READ_BACKS.register("fix_neuron")
def check_fix_neurons(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    file = f"{name}{SUFFIX}"
    model = Graph.load(folder / file)
    found = {str(node.name): node for node in model.nodes("FixNeuron")}
    wanted = {f"{row.tensor}_FixNeuron": row for _, row in all_rows(graph, plan, qparams) if row.placement.edges != ()}
    for label in wanted.keys() ^ found.keys():
        yield f"{file}: node '{label}' is {'missing' if label in wanted else 'there without a quantizer'}"
    for label in wanted.keys() & found.keys():
        attrs, row = found[label].attrs, wanted[label]
        said = (int(attrs["bit_width"]), int(attrs["pos"]), float(model.values(found[label].inputs[1])))
        meant = (row.qparams.spec.bits, position_of(row), float(row.qparams.scale))
        if said != meant:
            yield f"{file}: node '{label}' has (bits, position, scale) {said}, not {meant}"
