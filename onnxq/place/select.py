"""Which nodes run quantized: the backend's rules, the exemptions and the user's exclusions, node by node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.place.decisions import decisive_nodes
from onnxq.place.exempt import exempt_nodes, masked_tensors, why_no_table
from onnxq.place.facts import FLOAT_TYPES, Facts
from onnxq.place.forced import forced_rule
from onnxq.place.fusions import Fusions
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.residual import Residual, residual_of
from onnxq.types import Backend, OpRule
from onnxq.types.backend import Decline
from onnxq.types.reason import Reason


class Selection:
    """The decision for every node.

    selected          node -> the rule it is quantized by
    forced            nodes among them that the backend would leave float, with where that was said
    decisive          node -> what it decides; it stays float, and so does what it reads
    reasons           node -> why it stays float, where that is decided here
    integer_tensors   tensors that integer kernels make, or that only move such values
    """

    def __init__(self, graph: Graph, backend: Backend, choices: OverrideResolver) -> None:
        self.graph = graph
        self.backend = backend
        self.choices = choices
        self.nodes: list[Node] = graph.nodes()
        self.skipped = {node.name for node in self.nodes if choices.flag(node.name, "skip") is not None}
        self.fusions = Fusions(graph, self.nodes, choices.overrides.fuse, self.skipped)
        self._wanted = {node.name for node in self.nodes if choices.flag(node.name, "force") is not None}
        self.decisive = decisive_nodes(graph, self.nodes, backend.fused_activations)
        reasons = exempt_nodes(graph, self.nodes, self.decisive)
        reasons.update((name, join.why_float(name)) for name, join in choices.tails.items())
        self.exempt = {name: why for name, why in reasons.items() if name not in self._wanted}
        self.forced: dict[str, str] = {}
        self.masked = masked_tensors(graph, self.nodes)
        self.selected: dict[str, OpRule] = {}
        self.reasons: dict[str, Reason] = {}
        self.integer_tensors: set[str] = set()
        self._residuals: dict[str, Residual] = {}
        for node in self.nodes:
            self._select(node)
        self._drop_pointless_joins()

    def _select(self, node: Node) -> None:
        name = node.name
        reason = self.exempt.get(name)
        if reason is None and name in self.skipped:
            skip = self.choices.flag(name, "skip")
            assert skip is not None
            reason = Reason("excluded", f"excluded by {skip.source}")
        facts = Facts(self.graph, node)
        rules = self.backend.rules_for(facts.op)
        if reason is None and self._adds_a_bias(node):
            return  # it runs inside the MatMul, which asks for everything
        leader = self.fusions.leader(name)
        if reason is None and leader is not None and leader in self.selected:
            return  # it runs inside the first node of its chain
        if reason is None:
            for rule in rules:
                refusal = self._refusal(facts, rule)
                if refusal is None:
                    self.selected[name] = rule
                    if rule.output:
                        self.integer_tensors.add(self.result(node).name)
                    return
                reason = reason or refusal
        if self._force(facts, reason):
            return
        same = self.backend.same_scale_rule_for(facts.op)
        apart = name in self.exempt or name in self.skipped
        if same is not None and not apart and self._is_carrier(facts, same.inputs, same.decline):
            self.integer_tensors.update(t.name for t in self.moved_outputs(node))
        elif reason is not None:
            self.reasons[name] = reason

    def _force(self, facts: Facts, reason: Reason | None) -> bool:
        """Select a node that the rules leave float, if the user wants it quantized all the same."""
        node = facts.node
        force = self.choices.flag(node.name, "force")
        if force is None:
            return False
        rule = forced_rule(facts, self.backend)
        if isinstance(rule, str):
            raise ConfigError(f"node '{node.name}' cannot be forced into quantization: {rule} ({force.source})")
        self.forced[node.name] = force.source
        self.selected[node.name] = replace(rule, decline=None, joins=False)
        if rule.output:
            self.integer_tensors.add(self.result(node).name)
        return True

    def _adds_a_bias(self, node: Node) -> bool:
        """Whether a node is the Add of a MatMulAdd unit whose MatMul is quantized."""
        unit = self.graph.units.of(node.name)
        return (
            unit is not None
            and unit.kind == "MatMulAdd"
            and node.name != unit.nodes[0]
            and unit.nodes[0] in self.selected
        )

    def _is_carrier(self, facts: Facts, ports: tuple[int, ...] | None, decline: Decline | None) -> bool:
        data = self.data_tensors(facts.node, ports)
        return bool(data) and all(t in self.integer_tensors for t in data) and declined(decline, facts) is None

    def data_tensors(self, node: Node, ports: tuple[int, ...] | None) -> list[str]:
        chosen = range(len(node.inputs)) if ports is None else [p for p in ports if p < len(node.inputs)]
        return [
            node.inputs[p].name for p in chosen if node.inputs[p].name and not self.graph.is_constant(node.inputs[p])
        ]

    def _refusal(self, facts: Facts, rule: OpRule) -> Reason | None:
        """Why a node that has a rule stays float nevertheless, or None."""
        node = facts.node
        ports = self.activation_ports(facts, rule)
        variable = [p for p in ports if facts.has(p) and not facts.is_constant(p)]
        only_a_weight = rule.inputs == () and rule.weight is not None and facts.is_constant(rule.weight)
        if not variable and not only_a_weight:
            return Reason("constant_inputs", "all its inputs are constants")
        read = [*ports, rule.weight] if only_a_weight and rule.weight is not None else ports
        if any(0 in (facts.shape(port) or ()) for port in read if facts.is_constant(port)):
            return Reason("empty_input", "one of its inputs is empty")
        for port in variable:
            name = node.inputs[port].name
            if name in self.masked:
                return Reason("mask_values", f"its input '{name}' holds mask values, which would ruin the range")
            kind = facts.dtype(port)
            if kind is not None and kind not in self.backend.limits.float_types:
                types = " or ".join(self.backend.limits.float_types)
                return Reason("float_type", f"computes in {kind}, {self.backend.name} quantizes {types}")
        reason = declined(rule.decline, facts)
        if reason is None and only_a_weight and rule.weight is not None and self.backend.scheme.activation is not None:
            reason = why_no_table(self.graph, node, node.inputs[rule.weight])
        if reason is not None:
            return reason
        if rule.weight is not None and facts.has(rule.weight) and not facts.is_constant(rule.weight):
            source = self.graph.producer(node.inputs[rule.weight])
            if source is not None and source.op == "DequantizeLinear":
                return Reason("already_quantized", "its weight is quantized already in the model that was given")
        if self.backend.residual == "skip" and node.op == "Add":
            residual = self.residual(node)
            if residual.in_float:
                return Reason("residual", residual.why)
        if rule.joins and not all(self._comes_as_integer(node.inputs[p].name) for p in variable):
            float_input = next(node.inputs[p].name for p in variable if not self._comes_as_integer(node.inputs[p].name))
            text = f"its input '{float_input}' is not quantized, so quantizing it would only add conversions"
            return Reason("input_not_quantized", text)
        return None

    def _comes_as_integer(self, tensor: str) -> bool:
        return tensor in self.integer_tensors or self.graph.producer(tensor) is None

    def activation_ports(self, facts: Facts, rule: OpRule) -> list[int]:
        """Ports read as activations: the rule's, and the weight port when its tensor is computed at run time."""
        if rule.inputs is None:
            return [p for p in range(facts.input_count) if p not in (rule.weight, rule.bias)]
        ports = [p for p in rule.inputs if p < facts.input_count]
        if rule.weight is not None and facts.has(rule.weight) and not facts.is_constant(rule.weight):
            ports.append(rule.weight)
        return ports

    def _drop_pointless_joins(self) -> None:
        """Element-wise nodes whose result no quantized node reads stay float; backwards, so that chains fall whole."""
        for node in reversed(self.nodes):
            rule = self.selected.get(node.name)
            if rule is None or not rule.joins:
                continue
            if not self._reaches_quantized(self.result(node)):
                del self.selected[node.name]
                self.integer_tensors.discard(self.result(node).name)
                self.reasons[node.name] = Reason("result_not_quantized", "no quantized node reads its result")

    def _reaches_quantized(self, tensor: Any) -> bool:
        pending, seen = [tensor], set()
        while pending:
            for use in self.graph.consumers(pending.pop()):
                if use.node.name in self.selected:
                    return True
                if use.node.name not in seen and self.backend.same_scale_rule_for(use.node.op) is not None:
                    seen.add(use.node.name)
                    pending.extend(made for made in use.node.outputs if made.name)
        return False

    def residual(self, add: Node) -> Residual:
        if add.name not in self._residuals:
            self._residuals[add.name] = residual_of(self.graph, add)
        return self._residuals[add.name]

    def result(self, node: Node) -> Any:
        """The tensor that leaves a node together with the bias Add and the activation fused behind it."""
        made = node.outputs[0]
        adder = self.bias_adder(node)
        if adder is not None:
            made = adder.outputs[0]
        made = self.fusions.end(node.name, made)
        follower = self.fused_activation(made)
        return made if follower is None else follower.outputs[0]

    def bias_adder(self, node: Node) -> Node | None:
        """The Add that belongs to a MatMul as its bias; one that adds a mask does not."""
        unit = self.graph.units.of(node.name)
        if unit is None or unit.kind != "MatMulAdd" or unit.nodes[0] != node.name or unit.last in self.exempt:
            return None
        adder: Node = self.graph.node(unit.last)
        return adder

    def fused_activation(self, tensor: Any) -> Node | None:
        if self.graph.is_output(tensor):
            return None
        uses = self.graph.consumers(tensor)
        if len(uses) == 1 and uses[0].port == 0 and uses[0].node.op in self.backend.fused_activations:
            follower: Node = uses[0].node
            bounds_known = all(self.graph.is_constant(t) for t in follower.inputs[1:] if t.name)
            apart = follower.name in self.skipped or follower.name in self.exempt or follower.name in self._wanted
            if bounds_known and not apart:
                return follower
        return None

    def moved_outputs(self, node: Node) -> list[Any]:
        """The outputs that hold moved values: all float ones (MaxPool also gives indices)."""
        kinds = [(tensor, self.graph.dtype(tensor)) for tensor in node.outputs if tensor.name]
        return [tensor for tensor, kind in kinds if kind is None or kind.name in FLOAT_TYPES]


def declined(decline: Decline | None, facts: Facts) -> Reason | None:
    """Why the target's rule does not take a node."""
    text = decline(facts) if decline is not None else None
    return Reason.of(text, "declined_by_target") if text else None
