"""Requests for the quantizers of computed tensors: inputs of the graph, what selected nodes read and make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.place.constants import ConstantRequests
from onnxq.place.facts import Facts
from onnxq.place.formats import Formats
from onnxq.place.override_resolver import OverrideResolver, with_overrides
from onnxq.place.requests import Requests
from onnxq.place.residual import residual_of
from onnxq.place.select import Selection
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.types import Backend, Edge, OpRule, QuantSpec
from onnxq.types.backend import per_tensor


def request_quantizers(
    graph: Graph, backend: Backend, resolver: OverrideResolver, selection: Selection, overrides: TensorOverrides
) -> Requests:
    """What inputs of the graph and selected nodes ask for; the constants of a node are asked for with its inputs."""
    requests = Requests(graph, backend, selection.decisive)
    constants = ConstantRequests(graph, backend, resolver, selection, overrides, requests)
    formats = Formats(graph, backend)
    asking = NodeRequests(graph, backend, resolver, selection, overrides, requests, formats, constants)
    if backend.quantize_inputs and backend.scheme.activation is not None:
        asking.ask_graph_inputs()
    for node in selection.nodes:
        if node.name in selection.selected:
            asking.ask(node, selection.selected[node.name])
        elif node.name in selection.skipped:
            asking.leave_inputs_float(node)
    return requests


@dataclass(frozen=True)
class NodeRequests:
    """Asks for the quantizers that a selected node needs."""

    graph: Graph
    backend: Backend
    resolver: OverrideResolver
    selection: Selection
    overrides: TensorOverrides
    requests: Requests
    formats: Formats
    constants: ConstantRequests

    def ask(self, node: Node, rule: OpRule) -> None:
        """Ask for the quantizers on what a node reads, on its weight and bias, and on its result."""
        facts = Facts(self.graph, node)
        at_end = self.backend.scheme.ends is not None and self._at_end(node)
        if self.backend.scheme.activation is not None:
            self._ask_inputs(facts, rule, at_end=at_end)
        if rule.weight is not None and facts.is_constant(rule.weight):
            weight = self.formats.weight(rule, at_end=at_end)
            if weight is not None and not self.overrides.stays_float(node.inputs[rule.weight], node, "weight"):
                self.constants.ask_weight(facts, rule, rule.weight, weight)
                self.constants.ask_bias(facts, rule)
            self._ask_state_weight(facts, rule, weight)
        result = self.selection.fused_ops.result(node)
        if rule.output and not self.overrides.stays_float(result, node, "output"):
            self._ask_result(node, rule, result)

    def _ask_state_weight(self, facts: Facts, rule: OpRule, spec: QuantSpec | None) -> None:
        port = rule.state_weight
        if spec is None or port is None or not facts.is_constant(port):
            return
        if not self.overrides.stays_float(facts.node.inputs[port], facts.node, "weight"):
            self.constants.ask_weight(facts, rule, port, spec)

    def _ask_inputs(self, facts: Facts, rule: OpRule, *, at_end: bool) -> None:
        node, fused_port, extra = facts.node, None, ""
        # Who forces an Add wants its inputs quantized, also the one that a convolution could compute together with it.
        if self.backend.residual == "skip" and node.op == "Add" and self.resolver.flag(node.name, "force") is None:
            fused_port, extra, _ = residual_of(self.graph, node)
        for port in facts.activation_ports(rule):
            if not facts.has(port) or port == fused_port or self._taken_as_it_is(node, port):
                continue
            tensor, edge = node.inputs[port], Edge(node.name, port)
            if self.overrides.stays_float(tensor, node, "activation"):
                self.requests.leave_float(tensor.name, edge)
                continue
            spec = self.formats.activation(tensor, rule, at_end=at_end)
            if facts.is_constant(port):
                picks = self.resolver.of_constant(tensor.name, node.name, "weight")
                spec = with_overrides(tensor.name, per_tensor(spec), picks)
                why = f"constant input of {node.op} '{node.name}'"
                self.requests.ask(tensor, spec, "weight", why, edge, picks)
            else:
                why = f"input of {node.op} '{node.name}'" + (f"; {extra}" if extra else "")
                self.requests.ask(tensor, spec, "activation", why, edge)

    def leave_inputs_float(self, node: Node) -> None:
        """Let a node that the user leaves float read float values too, where the user says that of its inputs."""
        for port, tensor in enumerate(node.inputs):
            computed = bool(tensor.name) and not self.graph.is_constant(tensor)
            if computed and self.overrides.stays_float(tensor, node, "activation"):
                self.requests.leave_float(tensor.name, Edge(node.name, port))

    def _ask_result(self, node: Node, rule: OpRule, result: Any) -> None:
        if self.backend.scheme.activation is None or self._only_taken_as_it_is(result):
            return
        # What leaves the graph is for readers outside, which a rule for narrow operators does not know.
        own = None if self.graph.is_output(result) else rule
        spec = self.formats.activation(result, own, at_end=False)
        self.requests.ask(result, spec, "activation", f"output of {node.op} '{node.name}'", None)
        moves = node.name in self.selection.forced and self.backend.same_scale_rule_for(node.op) is not None
        if moves and node.inputs[0].name in self.requests:
            self.requests.ties.join(node.inputs[0].name, result.name)

    def _at_end(self, node: Node) -> bool:
        """Whether a node reads an input of the graph or makes (with what is fused behind it) an output.

        Casts count for nothing: a model in float16 has them at both ends.
        """
        first = any(self._is_given(t) for t in node.inputs)
        result = self.selection.fused_ops.result(node)
        casts = [use.node for use in self.graph.consumers(result) if use.node.op == "Cast"]
        return first or self.graph.is_output(result) or any(self.graph.is_output(cast.outputs[0]) for cast in casts)

    def _is_given(self, tensor: Any) -> bool:
        """Whether a tensor is an input of the graph, or a Cast of one."""
        producer = self.graph.producer(tensor)
        name = producer.inputs[0].name if producer is not None and producer.op == "Cast" else tensor.name
        return name in self.graph.input_names

    def _taken_as_it_is(self, node: Node, port: int) -> bool:
        producer = self.graph.producer(node.inputs[port])
        return producer is not None and (node.op, producer.op) in self.backend.unquantized_pairs

    def _only_taken_as_it_is(self, result: Any) -> bool:
        """Whether all that read a result take it as it is, so that it needs no quantizer: ("Add", "Mul")."""
        uses = self.graph.consumers(result)
        if not uses or self.graph.is_output(result):
            return False
        return all(use.node.name in self.selection.selected and self._taken_as_it_is(*use) for use in uses)

    def ask_graph_inputs(self) -> None:
        """A quantizer on every float input of the graph that is read at all."""
        results_stay_float = not any(rule.output for rule in self.backend.rules)
        for name in self.graph.input_names:
            tensor = self.graph.tensor(name)
            kind = self.graph.dtype(tensor)
            readers = self.graph.consumers(tensor)
            if all(use.node.name in self.selection.exempt for use in readers):
                continue  # nobody, or only such as must stay float: a mask with minus infinity
            if results_stay_float and all(self._feeds_normalization(use.node) for use in readers):
                continue
            wanted = kind is not None and kind.name in self.backend.limits.float_types
            if wanted and not self.overrides.stays_float(tensor, None, "activation"):
                spec = self.formats.activation(tensor, None, at_end=False)
                self.requests.ask(tensor, spec, "activation", "input of the graph", None)

    def _feeds_normalization(self, node: Node) -> bool:
        """Whether a node that stays float normalizes what it reads, or adds to what is normalized."""
        facts = Facts(self.graph, node)
        normalizes = facts.normalizes() or (node.op == "Add" and facts.is_normalized())
        return node.name not in self.selection.selected and normalizes
