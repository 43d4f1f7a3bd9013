"""How far quantization reaches through nodes that only move values: their output has the scale of their input."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxq.graph import Graph
from onnxq.place.facts import Facts
from onnxq.place.requests import Requests
from onnxq.place.select import Selection, declined
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.types import Backend, Edge
from onnxq.types.reason import Reason


@dataclass(frozen=True)
class Propagated:
    """Nodes -> what they move; and why others, whose operators move values too, do not."""

    nodes: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, Reason] = field(default_factory=dict)


def propagate(
    graph: Graph, backend: Backend, selection: Selection, overrides: TensorOverrides, requests: Requests
) -> Propagated:
    """Ask for quantizers around the nodes that move quantized values, and tie them."""
    propagated = Propagated()
    if backend.scheme.activation is None:
        return propagated
    apart = selection.selected.keys() | selection.exempt.keys() | selection.fused.keys() | selection.skipped
    for node in selection.nodes:
        rule = backend.same_scale_rule_for(node.op) if node.name not in apart else None
        if rule is None:
            continue
        facts = Facts(graph, node)
        reason = declined(rule.decline, facts)
        data = facts.data_tensors(rule.inputs)
        if not data and node.name in selection.reasons:
            continue  # a rule of its own has refused its constants
        if reason or not data or not all(name in requests and requests[name].everywhere for name in data):
            text = "its input is not quantized, and moving values needs no arithmetic"
            propagated.reasons[node.name] = reason or Reason("input_not_quantized", text)
            continue
        moved = requests[data[0]].spec
        for port in range(len(node.inputs)) if rule.inputs is None else rule.inputs:
            if port < len(node.inputs) and node.inputs[port].name in data:
                why = f"input of {node.op} '{node.name}'"
                requests.ask(node.inputs[port], moved, "activation", why, Edge(node.name, port))
        for made in facts.moved_outputs():
            if overrides.stays_float(made, node, "output"):
                continue
            why = f"{node.op} '{node.name}' keeps the scale of its input"
            requests.ask(made, moved, "activation", why, None)
            for name in data:
                requests.ties.join(name, made.name)
        propagated.nodes[node.name] = f"moves the quantized values of '{data[0]}'"
    return propagated
