"""Which nodes run quantized: the backend's rules, the exemptions and the user's exclusions, node by node."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.place.decisions import decisive_nodes
from onnxq.place.exempt import exempt_nodes, masked_tensors, why_no_table
from onnxq.place.facts import Facts
from onnxq.place.forced import forced_rule
from onnxq.place.fused_ops import FusedOps
from onnxq.place.fusions import Fusions
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.residual import residual_of
from onnxq.types import Backend, Edge, OpRule
from onnxq.types.backend import Decline
from onnxq.types.reason import Reason


@dataclass(frozen=True)
class Selection:
    """The decision for every node.

    exempt     nodes that no target may quantize, and why
    skipped    nodes that the user leaves float
    decisive   uses by nodes that decide something, which read float values
    fused_ops  which nodes run inside others
    selected   node -> the rule it is quantized by
    forced     nodes among them that the backend would leave float -> where that was said
    reasons    node -> why it stays float, as far as that does not depend on the quantizers of others
    """

    nodes: list[Node]
    exempt: dict[str, Reason]
    skipped: set[str]
    decisive: set[Edge]
    fused_ops: FusedOps
    selected: dict[str, OpRule] = field(default_factory=dict)
    forced: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, Reason] = field(default_factory=dict)

    @cached_property
    def fused(self) -> dict[str, str]:
        """Nodes that run inside a selected one -> that one."""
        leaders = (node for node in self.nodes if node.name in self.selected)
        return {follower.name: lead.name for lead in leaders for follower in self.fused_ops.followers(lead)}


def select_nodes(graph: Graph, backend: Backend, resolver: OverrideResolver) -> Selection:
    """Decide for every node, in topological order."""
    nodes: list[Node] = graph.nodes()
    skipped = {node.name for node in nodes if resolver.flag(node.name, "skip") is not None}
    forced = {node.name for node in nodes if resolver.flag(node.name, "force") is not None}
    deciding = decisive_nodes(graph, nodes, backend.fused_activations)
    reasons = exempt_nodes(graph, nodes, deciding)
    reasons.update((name, join.why_float(name)) for name, join in resolver.tails.items())
    exempt = {name: why for name, why in reasons.items() if name not in forced}
    decisive = {
        Edge(name, port)
        for name in deciding
        if name in exempt
        for port, tensor in enumerate(graph.node(name).inputs)
        if tensor.name
    }
    chains = Fusions(graph, nodes, resolver.overrides.fuse, skipped)
    apart = skipped | forced | exempt.keys() | _declined_activations(graph, backend, nodes)
    fused_ops = FusedOps(graph, chains, backend.fused_activations, exempt, apart)
    selector = _Selector(graph, backend, resolver, Selection(nodes, exempt, skipped, decisive, fused_ops))
    for node in nodes:
        selector.decide(node)
    selector.drop_pointless_joins()
    return selector.selection


def _declined_activations(graph: Graph, backend: Backend, nodes: list[Node]) -> set[str]:
    """Activations that the target's own rule for them declines: they do not run inside other nodes either."""
    rules = {op: backend.same_scale_rule_for(op) for op in backend.fused_activations}
    declining = {op: rule.decline for op, rule in rules.items() if rule is not None and rule.decline is not None}
    candidates = (node for node in nodes if node.op in declining)
    return {node.name for node in candidates if declined(declining[node.op], Facts(graph, node)) is not None}


def declined(decline: Decline | None, facts: Facts) -> Reason | None:
    """Why the target's rule does not take a node."""
    text = decline(facts) if decline is not None else None
    return Reason.of(text, "declined_by_target") if text else None


class _Selector:
    """Fills a selection node by node; `_integers` are tensors that integer kernels make, or that only move such."""

    def __init__(self, graph: Graph, backend: Backend, resolver: OverrideResolver, selection: Selection) -> None:
        self.selection = selection
        self._graph = graph
        self._backend = backend
        self._resolver = resolver
        self._masked = masked_tensors(graph, selection.nodes)
        self._integers: set[str] = set()

    def decide(self, node: Node) -> None:
        name = node.name
        facts = Facts(self._graph, node)
        apart = self._apart(name)
        reason = apart
        if apart is None:
            if self._runs_inside(node):
                return
            for rule in self._backend.rules_for(facts.op):
                refusal = self._refusal(facts, rule)
                if refusal is None:
                    self._select(node, rule)
                    return
                reason = reason or refusal
        if self._force(facts):
            return
        same = self._backend.same_scale_rule_for(facts.op)
        if same is not None and apart is None and self._moves_integers(facts, same.inputs, same.decline):
            self._integers.update(t.name for t in facts.moved_outputs())
        elif reason is not None:
            self.selection.reasons[name] = reason

    def _apart(self, name: str) -> Reason | None:
        """Why a node is float whatever the target's rules say."""
        if name not in self.selection.exempt and name in self.selection.skipped:
            skip = self._resolver.flag(name, "skip")
            assert skip is not None
            return Reason("excluded", f"excluded by {skip.source}")
        return self.selection.exempt.get(name)

    def _runs_inside(self, node: Node) -> bool:
        """Whether a node runs inside a selected one that asks for everything: a MatMul, the first of a chain."""
        unit = self._graph.units.of(node.name)
        adds_bias = unit is not None and unit.kind == "MatMulAdd" and node.name != unit.nodes[0]
        if adds_bias and unit is not None and unit.nodes[0] in self.selection.selected:
            return True
        return self.selection.fused_ops.chains.leader(node.name) in self.selection.selected

    def _select(self, node: Node, rule: OpRule) -> None:
        self.selection.selected[node.name] = rule
        if rule.output:
            self._integers.add(self.selection.fused_ops.result(node).name)

    def _force(self, facts: Facts) -> bool:
        """Select a node that the rules leave float, if the user wants it quantized all the same."""
        node = facts.node
        force = self._resolver.flag(node.name, "force")
        if force is None:
            return False
        rule = forced_rule(facts, self._backend)
        if isinstance(rule, str):
            raise ConfigError(f"node '{node.name}' cannot be forced into quantization: {rule} ({force.source})")
        self.selection.forced[node.name] = force.source
        self._select(node, replace(rule, decline=None, joins=False))
        return True

    def _moves_integers(self, facts: Facts, ports: tuple[int, ...] | None, decline: Decline | None) -> bool:
        data = facts.data_tensors(ports)
        return bool(data) and all(t in self._integers for t in data) and declined(decline, facts) is None

    def _refusal(self, facts: Facts, rule: OpRule) -> Reason | None:
        """Why a node that has a rule stays float nevertheless, or None."""
        node = facts.node
        ports = facts.activation_ports(rule)
        variable = [p for p in ports if facts.has(p) and not facts.is_constant(p)]
        only_a_weight = rule.inputs == () and rule.weight is not None and facts.is_constant(rule.weight)
        if not variable and not only_a_weight:
            return Reason("constant_inputs", "all its inputs are constants")
        read = [*ports, rule.weight] if only_a_weight and rule.weight is not None else ports
        if any(0 in (facts.shape(port) or ()) for port in read if facts.is_constant(port)):
            return Reason("empty_input", "one of its inputs is empty")
        for port in variable:
            name = node.inputs[port].name
            if name in self._masked:
                return Reason("mask_values", f"its input '{name}' holds mask values, which would ruin the range")
            kind = facts.dtype(port)
            if kind is not None and kind not in self._backend.limits.float_types:
                types = " or ".join(self._backend.limits.float_types)
                return Reason("float_type", f"computes in {kind}, {self._backend.name} quantizes {types}")
        reason = declined(rule.decline, facts)
        if reason is None and only_a_weight and rule.weight is not None and self._backend.scheme.activation is not None:
            reason = why_no_table(self._graph, node, node.inputs[rule.weight])
        if reason is not None:
            return reason
        if rule.weight is not None and facts.has(rule.weight) and not facts.is_constant(rule.weight):
            source = self._graph.producer(node.inputs[rule.weight])
            if source is not None and source.op == "DequantizeLinear":
                return Reason("already_quantized", "its weight is quantized already in the model that was given")
        if self._backend.residual == "skip" and node.op == "Add":
            residual = residual_of(self._graph, node)
            if residual.in_float:
                return Reason("residual", residual.why)
        if rule.joins and not all(self._comes_as_integer(node.inputs[p].name) for p in variable):
            float_input = next(node.inputs[p].name for p in variable if not self._comes_as_integer(node.inputs[p].name))
            text = f"its input '{float_input}' is not quantized, so quantizing it would only add conversions"
            return Reason("input_not_quantized", text)
        return None

    def _comes_as_integer(self, tensor: str) -> bool:
        return tensor in self._integers or self._graph.producer(tensor) is None

    def drop_pointless_joins(self) -> None:
        """Element-wise nodes whose result no quantized node reads stay float; backwards, so that chains fall whole."""
        for node in reversed(self.selection.nodes):
            rule = self.selection.selected.get(node.name)
            if rule is None or not rule.joins:
                continue
            if not self._reaches_quantized(self.selection.fused_ops.result(node)):
                del self.selection.selected[node.name]
                self.selection.reasons[node.name] = Reason("result_not_quantized", "no quantized node reads its result")

    def _reaches_quantized(self, tensor: Any) -> bool:
        pending, seen = [tensor], set()
        while pending:
            for use in self._graph.consumers(pending.pop()):
                if use.node.name in self.selection.selected:
                    return True
                if use.node.name not in seen and self._backend.same_scale_rule_for(use.node.op) is not None:
                    seen.add(use.node.name)
                    pending.extend(made for made in use.node.outputs if made.name)
        return False
