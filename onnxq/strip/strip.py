"""strip: a graph in which nothing is quantized any more, and what could not be made float, with reasons.

The weights become exactly the numbers that the integers stand for. Activations are not rounded any more, so that the
outputs differ from those of the quantized model by its quantization noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.errors import SpecError
from onnxq.graph import Graph, Node, collector_paused
from onnxq.passes.rewriter import is_op, shown
from onnxq.strip.float_ops import FLOAT_RESULTS
from onnxq.strip.grid import Stays
from onnxq.strip.linear_ops import LAYERS
from onnxq.strip.operators import is_quantized
from onnxq.strip.reals import Reals
from onnxq.strip.sums import scaled_sum


@dataclass(frozen=True)
class Left:
    """A node that is still quantized, and why."""

    node: str
    op: str
    reason: str


@dataclass(frozen=True)
class Stripped:
    """What was done.

    before      operators of quantization that the model had, with their counts
    restored    tensor -> the activation that stands behind it again, because saturation had taken its place
    left        nodes that are still quantized
    """

    before: Mapping[str, int]
    restored: Mapping[str, str]
    left: tuple[Left, ...]


def quantized_operators(graph: Graph) -> Counter[str]:
    """The operators of quantization in a graph, bodies included."""
    return Counter(str(node.op) for node in graph.nodes() if is_quantized(node.op))


def strip(graph: Graph, *, keep_ranges: bool = False) -> Stripped:
    """Take quantization out of a graph, in place; a graph without any is left as it is.

    With `keep_ranges` a Clip cuts off what each quantizer of an activation has cut off.
    """
    before = quantized_operators(graph)
    if not before:
        return Stripped({}, {}, ())
    graph.infer_shapes()
    reals = Reals(graph, LAYERS, keep_ranges=keep_ranges)
    reasons: dict[str, str] = {}
    with collector_paused():
        for node in graph.nodes():
            try:
                _replace(reals, node)
            except Stays as reason:
                reasons[reason.node or node.name] = str(reason)
            except SpecError as reason:
                reasons[node.name] = str(reason)
            except (IndexError, KeyError, ValueError) as error:  # operators of onnxruntime are not looked at on load
                reasons[node.name] = f"its inputs and attributes are not those of its operator ({error!r})"
        graph.remove_dead()
    for scope in graph.scopes():
        scope.quantization_annotation = []
    left = [
        Left(str(node.name), str(node.op), reasons.get(node.name) or _read_by(graph, node))
        for node in graph.nodes()
        if is_quantized(node.op)
    ]
    return Stripped(dict(before.most_common()), dict(reals.saturation.restored), tuple(left))


def _replace(reals: Reals, node: Node) -> None:
    """Let those who read float values of a node read those of its float form; in topological order."""
    graph, key = reals.graph, (node.domain or "", node.op)
    if key in LAYERS:
        grid = LAYERS[key][1](node)
        if grid is not None:  # found now, so that no chain of layers is looked through from its end
            reals.real(node.outputs[0], grid)
            return
    if key in FLOAT_RESULTS:
        made = FLOAT_RESULTS[key](reals, node)
    elif is_op(node, "Mul"):
        made = scaled_sum(reals, node)
    else:
        return
    if made is not None:
        old = node.outputs[0]
        if made.dtype is None:  # a new variable
            made.dtype = old.dtype
        graph.redirect(old, made)


def _read_by(graph: Graph, node: Node) -> str:
    """Why a node is still there that had nothing against leaving."""
    for tensor in node.outputs:
        if tensor.name and graph.is_output(tensor):
            return f"its result '{tensor.name}' is an output of the model or of a body"
    for tensor in node.outputs:
        for use in graph.consumers(tensor):
            return f"{shown(use.node)} reads its result '{tensor.name}'"
    return "it has no float form that is known"
