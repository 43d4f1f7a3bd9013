"""Every node of a plan is quantized, fused into a quantized one, or float with a reason."""

from __future__ import annotations

from onnxq.graph import Graph, Node
from onnxq.place.propagation import Propagated
from onnxq.place.requests import Requests
from onnxq.place.select import Selection
from onnxq.types import Backend, QuantPlan
from onnxq.types.reason import Reason


def account(
    graph: Graph,
    backend: Backend,
    selection: Selection,
    requests: Requests,
    propagated: Propagated,
    plan: QuantPlan,
    *,
    overridden: bool,
) -> None:
    """Write down for each node what became of it; only what is `overridden` can take away all that a node asked for."""
    commuting = _commuting(graph, backend, selection, requests)
    fused = selection.fused
    for node in selection.nodes:
        name = node.name
        if overridden and name in selection.selected and _has_no_quantizer(node, selection, requests):
            text = "its quantizers are left out, or only observe, as the configuration says"
            plan.left_float[name] = Reason("only_observed", text)
        elif name in selection.forced:
            plan.quantized[name] = Reason("forced", f"forced by {selection.forced[name]}")
        elif name in selection.selected:
            plan.quantized[name] = f"{node.op}: rule of {backend.name}"
        elif name in propagated.nodes:
            plan.quantized[name] = propagated.nodes[name]
        elif name in commuting:
            plan.quantized[name] = f"{backend.name} moves the quantizer behind it in front"
        elif name not in fused:
            known = propagated.reasons.get(name) or selection.reasons.get(name)
            plan.left_float[name] = known or _no_rule(node, backend)
        elif backend.absorb_activations and selection.fused_ops.result(graph.node(fused[name])).name not in requests:
            text = f"computed in float: the result of '{fused[name]}' is not quantized"
            plan.left_float[name] = Reason("not_fused", text)
        else:
            plan.fused[name] = fused[name]


def _has_no_quantizer(node: Node, selection: Selection, requests: Requests) -> bool:
    """Whether no quantizer that changes values is left of those that a node asked for."""
    if any(requests.is_read_quantized(node, port) for port, tensor in enumerate(node.inputs) if tensor.name):
        return False
    made = requests.get(selection.fused_ops.result(node).name)
    return not (selection.selected[node.name].output and made is not None and not made.observe_only)


def _commuting(graph: Graph, backend: Backend, selection: Selection, requests: Requests) -> set[str]:
    """Nodes the target swaps with the quantizers behind them: all their readers read quantized values."""
    found: set[str] = set()
    for node in reversed(selection.nodes):
        if node.op not in backend.commuting or node.name in selection.exempt or node.name in selection.skipped:
            continue
        uses = [use for made in node.outputs if made.name for use in graph.consumers(made)]
        if not uses or any(graph.is_output(made) for made in node.outputs if made.name):
            continue
        if all(requests.is_read_quantized(*use) or use.node.name in found for use in uses):
            found.add(node.name)
    return found


def _no_rule(node: Node, backend: Backend) -> Reason:
    known = backend.whole_operators.get(node.op)
    if known is not None:
        return Reason("composite", known)
    if node.domain:
        return Reason("no_rule", f"operator {node.domain}.{node.op} is unknown to {backend.name}")
    if node.op in backend.commuting:
        return Reason("result_not_quantized", "not every reader of its result is quantized")
    if node.op in backend.fused_activations:
        return Reason("not_fused", "not directly behind a quantized operator")
    return Reason("no_rule", f"{backend.name} has no rule for {node.op}")
