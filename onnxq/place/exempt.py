"""Nodes that no target may quantize, whatever its rules say, each with its reason.

- what only serves the condition or trip count of an If or Loop, and what decides such a thing, an index or a shape
  (`decisions`): rounding could take another branch
- what computes in integers, booleans or strings: shapes, indices, masks as conditions
- attention masks: an Add of minus infinity (or -1e4) in front of a Softmax; one such value would ruin the range. What
  reads such a result stays float as well
- a Max or Min with an infinite constant, which has no code
- nodes between existing QuantizeLinear / DequantizeLinear pairs, which are quantized already
- the inside of units (a decomposed LayerNorm) that targets compute in float
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node, bodies
from onnxq.graph.sort import captured
from onnxq.place.decisions import Decision
from onnxq.place.facts import FLOAT_TYPES
from onnxq.types.reason import Reason

MASK_VALUE = -1e4
"""Additive constants at or below this are masks: no trained bias is that large."""

_QDQ = ("QuantizeLinear", "DequantizeLinear")
_MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Flatten", "Identity", "Cast")
_TRANSPARENT_UNITS = ("MatMulAdd",)


def exempt_nodes(graph: Graph, nodes: list[Node], decisive: Mapping[str, Decision]) -> dict[str, Reason]:
    """Node name -> why it stays float; `decisive` are those that decide something."""
    reasons: dict[str, Reason] = {}
    for node in nodes:
        reason = (
            _kind_of_values(graph, node)
            or _mask(graph, node)
            or _infinite_bound(graph, node)
            or _quantized_already(graph, node)
            or _in_unit(graph, node)
        )
        if reason:
            reasons[node.name] = reason
    for name, owner in _serving_conditions(graph, nodes).items():
        reasons.setdefault(name, Decision(owner, "If").why_float)
    for name, decision in decisive.items():
        reasons.setdefault(name, decision.why_float)
    return reasons


def _kind_of_values(graph: Graph, node: Node) -> Reason | None:
    if node.op in ("If", "Loop", "Scan"):
        return Reason("control_flow", "control flow: the nodes inside are treated one by one")
    made = [graph.dtype(t) for t in node.outputs if t.name]
    if made and made[0] is not None and made[0].name not in FLOAT_TYPES:
        return Reason("not_float", f"computes {made[0].name} values")
    return None


def _in_unit(graph: Graph, node: Node) -> Reason | None:
    unit = graph.units.of(node.name)
    if unit is None or unit.kind in _TRANSPARENT_UNITS:
        return None
    return Reason("composite", f"part of a {unit.kind}, which is computed in float as a whole")


def masked_tensors(graph: Graph, nodes: list[Node]) -> set[str]:
    """Tensors that hold mask values: results of nodes that make or add them, also where others only move them."""
    found: set[str] = set()
    for node in nodes:
        moves = node.op in _MOVES and bool(node.inputs) and node.inputs[0].name in found
        if moves or _mask(graph, node):
            found.update(made.name for made in node.outputs if made.name)
    return found


def _mask(graph: Graph, node: Node) -> Reason | None:
    if node.op == "Pad":
        return _pads_with_mask(graph, node)
    if node.op not in ("Add", "Sub", "Mul", "Where"):
        return None
    # A constant shows whether it is a mask or the bias of a classifier; what is computed could be one.
    if node.op == "Mul" or any(tensor.name and graph.is_constant(tensor) for tensor in node.inputs):
        return _mask_constant(graph, node)
    if _feeds_softmax(graph, node):
        text = "adds the attention mask in front of a Softmax: a mask value would ruin the range"
        return Reason("mask_values", text)
    return _mask_constant(graph, node)


def _mask_constant(graph: Graph, node: Node) -> Reason | None:
    for tensor in node.inputs:
        if tensor.name and graph.is_constant(tensor) and _holds_mask(graph, tensor):
            text = f"'{tensor.name}' holds mask values (minus infinity or nearly): they would ruin the range"
            return Reason("mask_values", text)
    return None


def _infinite_bound(graph: Graph, node: Node) -> Reason | None:
    """A bound that limits nothing, such as what a maximum over an axis begins with in JAX, has no code."""
    for tensor in node.inputs if node.op in ("Max", "Min") and not node.domain else ():
        if not tensor.name or not graph.is_constant(tensor):
            continue
        values = graph.values(tensor)
        if values.dtype.name in FLOAT_TYPES and np.isinf(np.asarray(values, dtype=np.float64)).any():
            return Reason("not_finite", f"'{tensor.name}' is infinite, which no format can say")
    return None


def _pads_with_mask(graph: Graph, node: Node) -> Reason | None:
    value = float(node.attrs.get("value", 0.0))
    if len(node.inputs) > 2 and node.inputs[2].name and graph.is_constant(node.inputs[2]):
        value = float(np.asarray(graph.values(node.inputs[2]), np.float64).min(initial=0.0))
    return Reason("mask_values", f"pads with {value:g}, which would ruin the range") if value <= MASK_VALUE else None


def _feeds_softmax(graph: Graph, node: Node) -> bool:
    for _ in range(4):
        uses = graph.consumers(node.outputs[0])
        if len(uses) != 1:
            return bool(uses) and all(use.node.op == "Softmax" for use in uses)
        node = uses[0].node
        if node.op == "Softmax":
            return True
        if node.op not in _MOVES:
            return False
    return False


def _holds_mask(graph: Graph, tensor: Any) -> bool:
    values = graph.values(tensor)
    if values.dtype.name not in FLOAT_TYPES or values.size == 0:
        return False
    return bool(np.asarray(values, dtype=np.float64).min() <= MASK_VALUE)


def why_no_table(graph: Graph, node: Node, table: Any) -> Reason | None:
    """A reason to leave a constant float that a node looks rows up in."""
    others = [use.node.name for use in graph.consumers(table) if use.node.op != node.op or use.port != 0]
    if others or graph.is_output(table):
        who = f"'{others[0]}' reads" if others else "the caller gets"
        return Reason("shared_table", f"{who} its table too, which would have to be stored twice")
    values = graph.values(table)
    if values.dtype.name not in FLOAT_TYPES or not np.isfinite(values).all() or values.min() <= MASK_VALUE:
        text = f"'{table.name}' holds mask values (minus infinity or nearly), or others that are no numbers"
        return Reason("mask_values", text)
    return None


def _quantized_already(graph: Graph, node: Node) -> Reason | None:
    if node.op in _QDQ:
        return Reason("already_quantized", "quantizes already: it is in the model that was given")
    sources = [_maker(graph, t) for t in node.inputs if t.name and not graph.is_constant(t)]
    if any(source is not None and source.op == "DequantizeLinear" for source in sources):
        return Reason("already_quantized", "its input is quantized already in the model that was given")
    readers = [reader for t in node.outputs if t.name for reader in _readers(graph, t)]
    if readers and all(reader.op == "QuantizeLinear" for reader in readers):
        return Reason("already_quantized", "its result is quantized already in the model that was given")
    return None


def _hands_on(node: Node) -> bool:
    """Whether a node is a Max of one input, as stands on both sides of float8 quantizers."""
    return bool(node.op == "Max" and len(node.inputs) == 1)


def _maker(graph: Graph, tensor: Any) -> Node | None:
    maker: Node | None = graph.producer(tensor)
    if maker is not None and _hands_on(maker):
        maker = graph.producer(maker.inputs[0])
    return maker


def _readers(graph: Graph, tensor: Any) -> list[Node]:
    found: list[Node] = []
    for use in graph.consumers(tensor):
        behind = graph.consumers(use.node.outputs[0]) if _hands_on(use.node) else [use]
        found.extend(further.node for further in behind)
    return found


def _serving_conditions(graph: Graph, nodes: list[Node]) -> dict[str, str]:
    """Nodes whose values reach nothing but a condition; name -> the control-flow node."""
    serving: dict[str, str] = {}
    pending: list[tuple[Any, str]] = []
    for node in nodes:
        if node.domain not in (None, "", "ai.onnx"):
            continue
        ports = {"If": (0,), "Loop": (0, 1)}.get(node.op, ())
        pending.extend(
            (node.inputs[port], node.name) for port in ports if port < len(node.inputs) and node.inputs[port].name
        )
        if node.op == "Loop":
            pending.extend((made, node.name) for body in bodies(node) for made in body.outputs[:1])
    read_inside = {id(t) for node in nodes for t in captured(node)} if pending else set()
    conditions = {id(tensor) for tensor, _ in pending}
    while pending:
        tensor, owner = pending.pop()
        source = graph.producer(tensor)
        if source is None or source.name in serving:
            continue
        for made in source.outputs:
            if made.name and id(made) not in conditions and (graph.is_output(made) or id(made) in read_inside):
                break
            if any(use.node.name not in serving and use.node.op not in ("If", "Loop") for use in graph.consumers(made)):
                break
        else:
            serving[source.name] = owner
            pending.extend((t, owner) for t in source.inputs if t.name)
    return serving
