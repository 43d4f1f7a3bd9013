"""Which tensors need a quantizer: what selected nodes ask for, and how far nodes that only move values carry it."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph, Node
from onnxq.place.constants import Constants
from onnxq.place.facts import Facts
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.select import declined
from onnxq.types import Backend, Edge, OpRule
from onnxq.types.backend import per_tensor
from onnxq.types.reason import Reason


class Requests(Constants):
    """The quantizers that the nodes of a graph need.

    carried    nodes that move quantized values -> what they move
    fused      nodes that run inside another one -> that one
    """

    def __init__(self, graph: Graph, backend: Backend, choices: OverrideResolver) -> None:
        super().__init__(graph, backend, choices)
        self.carried: dict[str, str] = {}
        self.fused: dict[str, str] = {}
        self._graph_inputs = set(graph.input_names)
        self._ask_inputs()
        for node in self.nodes:
            if node.name in self.selected:
                self._request(node, self.selected[node.name])
        self._carry()
        self._drop_unread()

    def _drop_unread(self) -> None:
        """Take back what was asked for results that only decide something: nobody reads them quantized."""
        for name in {self.graph.node(edge.node).inputs[edge.port].name for edge in self._decides}:
            if name in self.requests and self.requests[name].everywhere and self.edges_of(name) == ():
                del self.requests[name]

    def _request(self, node: Node, rule: OpRule) -> None:
        facts = Facts(self.graph, node)
        scheme = self.backend.scheme
        at_end = scheme.ends is not None and self._at_end(node)
        ports = self.activation_ports(facts, rule)
        left_out, residual_why = None, ""
        if self.backend.residual == "skip" and node.op == "Add":
            left_out, residual_why, _ = self.residual(node)
        if scheme.activation is not None:
            for port in ports:
                if not facts.has(port) or port == left_out or self._taken_as_it_is(node, port):
                    continue
                if self._stays_float(node.inputs[port], node, "activation"):
                    self._float_edges.setdefault(node.inputs[port].name, set()).add(Edge(node.name, port))
                else:
                    self._ask_activation(node, port, rule, residual_why, at_end=at_end)
        if rule.weight is not None and facts.is_constant(rule.weight):
            weight = self.formats.weight(rule, at_end=at_end)
            if weight is not None and not self._stays_float(node.inputs[rule.weight], node, "weight"):
                self._ask_weight(facts, rule, weight)
                bias = self._bias_use(facts, rule)
                if bias is not None and not self._stays_float(bias[0].inputs[bias[1]], node, "bias"):
                    self._ask_bias(node, rule, *bias)
        self._note_fused(node)
        result = self.result(node)
        wants_output = rule.output and not self._stays_float(result, node, "output")
        if wants_output and scheme.activation is not None and not self._only_taken_as_it_is(result):
            # What leaves the graph is for readers outside, which a rule for narrow operators does not know.
            own = None if self.graph.is_output(result) else rule
            spec = self.formats.activation(result, own, at_end=False)
            self._ask(result, spec, "activation", f"output of {node.op} '{node.name}'", None)
            moves = node.name in self.forced and self.backend.same_scale_rule_for(node.op) is not None
            if moves and node.inputs[0].name in self.requests:
                self.ties.join(node.inputs[0].name, result.name)

    def _at_end(self, node: Node) -> bool:
        """Whether a node reads an input of the graph or makes (with what is fused behind it) an output.

        Casts count for nothing: a model in float16 has them at both ends.
        """
        first = any(self._is_given(t) for t in node.inputs)
        result = self.result(node)
        casts = [use.node for use in self.graph.consumers(result) if use.node.op == "Cast"]
        return first or self.graph.is_output(result) or any(self.graph.is_output(cast.outputs[0]) for cast in casts)

    def _is_given(self, tensor: Any) -> bool:
        """Whether a tensor is an input of the graph, or a Cast of one."""
        producer = self.graph.producer(tensor)
        name = producer.inputs[0].name if producer is not None and producer.op == "Cast" else tensor.name
        return name in self._graph_inputs

    def _taken_as_it_is(self, node: Node, port: int) -> bool:
        producer = self.graph.producer(node.inputs[port])
        return producer is not None and (node.op, producer.op) in self.backend.unquantized_pairs

    def _only_taken_as_it_is(self, result: Any) -> bool:
        """Whether all that read a result take it as it is, so that it needs no quantizer: ("Add", "Mul")."""
        uses = self.graph.consumers(result)
        if not uses or self.graph.is_output(result):
            return False
        return all(use.node.name in self.selected and self._taken_as_it_is(use.node, use.port) for use in uses)

    def _note_fused(self, node: Node) -> None:
        made, end = node.outputs[0], self.result(node)
        while made is not end:
            follower = self.graph.consumers(made)[0].node
            self.fused[follower.name] = node.name
            self.reasons.pop(follower.name, None)
            made = follower.outputs[0]

    def _ask_activation(self, node: Node, port: int, rule: OpRule, extra: str, *, at_end: bool) -> None:
        tensor = node.inputs[port]
        spec = self.formats.activation(tensor, rule, at_end=at_end)
        if self.graph.is_constant(tensor):
            picks = self.choices.of_constant(tensor.name, node.name, "weight")
            spec = self.wanted(tensor.name, per_tensor(spec), picks)
            why = f"constant input of {node.op} '{node.name}'"
            self._ask(tensor, spec, "weight", why, Edge(node.name, port), picks)
            return
        why = f"input of {node.op} '{node.name}'" + (f"; {extra}" if extra else "")
        self._ask(tensor, spec, "activation", why, Edge(node.name, port))

    def _ask_inputs(self) -> None:
        """A quantizer on every float input of the graph that is read at all, where the target wants that."""
        if not self.backend.quantize_inputs or self.backend.scheme.activation is None:
            return
        results_stay_float = not any(rule.output for rule in self.backend.rules)
        for name in self.graph.input_names:
            tensor = self.graph.tensor(name)
            kind = self.graph.dtype(tensor)
            readers = self.graph.consumers(tensor)
            if all(use.node.name in self.exempt for use in readers):
                continue  # nobody, or only such as must stay float: a mask with minus infinity
            if results_stay_float and all(self._feeds_normalization(use.node) for use in readers):
                continue
            wanted = kind is not None and kind.name in self.backend.limits.float_types
            if wanted and not self._stays_float(tensor, None, "activation"):
                spec = self.formats.activation(tensor, None, at_end=False)
                self._ask(tensor, spec, "activation", "input of the graph", None)

    def _feeds_normalization(self, node: Node) -> bool:
        """Whether a node that stays float normalizes what it reads, or adds to what is normalized."""
        facts = Facts(self.graph, node)
        return node.name not in self.selected and (facts.normalizes() or (node.op == "Add" and facts.is_normalized()))

    def _carry(self) -> None:
        """Nodes that only move values continue the quantization of their input, with its scale."""
        if self.backend.scheme.activation is None:
            return
        for node in self.nodes:
            if (
                node.name in self.selected
                or node.name in self.exempt
                or node.name in self.fused
                or node.name in self.skipped
            ):
                continue
            rule = self.backend.same_scale_rule_for(node.op)
            if rule is None:
                continue
            facts = Facts(self.graph, node)
            reason = declined(rule.decline, facts)
            data = self.data_tensors(node, rule.inputs)
            outputs = self.moved_outputs(node)
            if not data and node.name in self.reasons:
                continue  # a rule of its own has refused its constants
            if reason or not data or not all(self._quantized_for(t) for t in data):
                text = "its input is not quantized, and moving values needs no arithmetic"
                self.reasons[node.name] = reason or Reason("input_not_quantized", text)
                continue
            self.reasons.pop(node.name, None)
            ports = range(len(node.inputs)) if rule.inputs is None else rule.inputs
            moved = self.requests[data[0]].spec
            for port in ports:
                if port < len(node.inputs) and node.inputs[port].name in data:
                    why = f"input of {node.op} '{node.name}'"
                    self._ask(node.inputs[port], moved, "activation", why, Edge(node.name, port))
            for made in outputs:
                if self._stays_float(made, node, "output"):
                    continue
                self._ask(made, moved, "activation", f"{node.op} '{node.name}' keeps the scale of its input", None)
                for name in data:
                    self.ties.join(name, made.name)
            self.carried[node.name] = f"moves the quantized values of '{data[0]}'"

    def _quantized_for(self, tensor: str) -> bool:
        request = self.requests.get(tensor)
        return request is not None and request.everywhere
