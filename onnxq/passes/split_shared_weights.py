"""Give layers that share a constant their own one where they could not share its quantization.

A weight stays shared between layers whose output channels lie along the same axis; other readers (a Gemm that reads it
the other way round, a Gather from a tied embedding) get another initializer. A bias is never shared, because its scale
is that of the layer's input times that of its weight. Only names multiply: all copies hold the same values in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onnxq.graph import Constant, Graph, Use
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.channels import BIAS, LINEAR, WEIGHT, group_of, output_axis
from onnxq.passes.edits import held_values
from onnxq.passes.rewriter import Rewriter, is_op, known_shape

Purpose = tuple[str, ...]
OTHER: Purpose = ("other",)


@PASSES.register("split_shared_weights")
def split_shared_weights(graph: Graph) -> PassResult:
    """Copy every shared constant once for each further purpose; the first weight or bias keeps its name."""
    return split_by_purpose(graph, _purpose)


def split_by_purpose(graph: Graph, purpose_of: Callable[[Use, int], Purpose]) -> PassResult:
    """Copy every shared constant once for each further purpose of its uses; `purpose_of` also gets the rank."""
    rewriter = Rewriter(graph)
    for tensor in list(_shared_constants(graph)):
        rank = len(known_shape(graph, tensor) or ())
        by_purpose: dict[Purpose, list[Use]] = {}
        for use in graph.consumers(tensor):
            by_purpose.setdefault(purpose_of(use, rank), []).append(use)
        # The original must stay where the model returns it; otherwise its name belongs to a layer.
        other = by_purpose.pop(OTHER, None)
        groups = list(by_purpose.values())
        if graph.is_output(tensor):
            groups.insert(0, other or [])
        elif other is not None:
            groups.append(other)
        for uses in groups[1:]:
            held = held_values(graph, tensor) if isinstance(tensor, Constant) else graph.values(tensor)
            copy = graph.add_constant(tensor.name, held)
            graph.origins.tensor_copied(tensor.name, copy.name)
            for node, port in uses:
                node.inputs[port] = copy
            readers = ", ".join(f"'{node.name}'" for node, _ in uses[:3]) + (", ..." if len(uses) > 3 else "")
            rewriter.changed(uses[0].node, f"reads '{copy.name}', a copy of the shared '{tensor.name}' for {readers}")
    return rewriter.finish()


def _shared_constants(graph: Graph) -> Iterator[Any]:
    returned = {id(tensor) for scope in graph.scopes() for tensor in scope.outputs}
    made_by_nodes = [node.outputs[0] for node in graph.nodes("Constant") if graph.is_constant(node.outputs[0])]
    for tensor in [*graph.constants(), *made_by_nodes]:
        if len(tensor.outputs) + (id(tensor) in returned) > 1:
            yield tensor


def _purpose(use: Use, rank: int) -> Purpose:
    """Uses with the same purpose can share one quantized constant."""
    node, port = use
    if port == BIAS and is_op(node, "Conv", "ConvTranspose", "Gemm"):
        return "bias", node.name
    if port == WEIGHT and rank and is_op(node, *LINEAR):
        if is_op(node, "ConvTranspose") and group_of(node) > 1:
            return "weight", "grouped", str(group_of(node))
        return "weight", str(output_axis(node) % rank)
    return OTHER
