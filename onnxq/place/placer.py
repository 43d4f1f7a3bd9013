"""Graph + backend -> QuantPlan: which tensors get a quantizer, on which edges, and why.

Three walks over the nodes in topological order, each linear:
1. decide which nodes run quantized (`Selection`), following the backend's rules and the exemptions;
2. ask for a quantizer wherever a selected node needs one (`_request`);
3. tie tensors that must share a scale, and write placements and reasons (`_finish`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node, collector_paused
from onnxq.match import resolve
from onnxq.place.facts import FLOAT_TYPES, Facts
from onnxq.place.formats import Formats, wider
from onnxq.place.legal import no_rule
from onnxq.place.select import Selection
from onnxq.place.ties import Ties
from onnxq.types import Backend, BiasOf, Edge, OpRule, PerChannel, Placement, QuantPlan, QuantSpec
from onnxq.types.backend import per_tensor


@dataclass
class _Request:
    """A quantizer that somebody needs on a tensor."""

    spec: QuantSpec
    role: str
    why: str
    edges: dict[Edge, None] = field(default_factory=dict)
    everywhere: bool = False
    derive: BiasOf | None = None
    observer: str = "minmax"


def place(graph: Graph, backend: Backend, *, skip: Sequence[str] = ()) -> QuantPlan:
    """Decide what is quantized. `skip` names nodes (exact, glob, re:, op:) that stay float.

    The graph's shapes must be inferred. A pure function of its arguments: the graph is not changed.
    """
    with collector_paused():
        return _Placer(graph, backend, _skipped(graph, skip)).plan()


def _skipped(graph: Graph, patterns: Sequence[str]) -> dict[str, str]:
    """Node name -> the pattern that excludes it; names of the user's file find what became of them."""
    candidates = {node.name: node.op for node in graph.nodes()}
    for old in graph.origins.nodes:
        current = graph.origins.current_node(old)
        if current in candidates:
            candidates.setdefault(old, candidates[current])
    found = resolve(patterns, candidates, "node")
    return {graph.origins.current_node(name): pattern for name, pattern in found.items()}


class _Placer(Selection):
    def __init__(self, graph: Graph, backend: Backend, skipped: Mapping[str, str]) -> None:
        super().__init__(graph, backend, skipped)
        self.carried: dict[str, str] = {}
        self.fused: dict[str, str] = {}
        self.requests: dict[str, _Request] = {}
        self.ties = Ties()
        self.formats = Formats(graph, backend)
        self._graph_inputs = set(graph.input_names)

    def plan(self) -> QuantPlan:
        self._ask_inputs()
        for node in self.nodes:
            if node.name in self.selected:
                self._request(node, self.selected[node.name])
        self._carry()
        return self._finish()

    # ---- 2. which tensors -----------------------------------------------------------------------------------------

    def _request(self, node: Node, rule: OpRule) -> None:
        facts = Facts(self.graph, node)
        scheme = self.backend.scheme
        at_end = scheme.ends is not None and self._at_end(node)
        ports = self.activation_ports(facts, rule)
        left_out, residual_why = None, ""
        if self.backend.residual == "skip" and node.op == "Add":
            left_out, residual_why = self.residual_port(node)
        if scheme.activation is not None:
            for port in ports:
                if facts.has(port) and port != left_out and not self._taken_as_it_is(node, port):
                    self._ask_activation(node, port, rule, residual_why, at_end=at_end)
        if rule.weight is not None and facts.is_constant(rule.weight):
            weight = self.formats.weight(rule, at_end=at_end)
            if weight is not None:
                self._ask_weight(facts, rule, weight)
                bias = self._bias_use(facts, rule)
                if bias is not None and scheme.bias is not None:
                    self._ask_bias(node, rule, *bias)
        self._note_fused(node)
        result = self.result(node)
        if rule.output and scheme.activation is not None and not self._only_taken_as_it_is(result):
            # What leaves the graph is for readers outside, which a rule for narrow operators does not know.
            own = None if self.graph.is_output(result) else rule
            spec = self.formats.activation(result, own, at_end=False)
            self._ask(result, spec, "activation", f"output of {node.op} '{node.name}'", None)

    def _at_end(self, node: Node) -> bool:
        """Whether a node reads an input of the graph or makes (with what is fused behind it) an output."""
        first = any(t.name in self._graph_inputs for t in node.inputs)
        return first or self.graph.is_output(self.result(node))

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
            self._ask(tensor, spec, "weight", f"constant input of {node.op} '{node.name}'", Edge(node.name, port))
            return
        why = f"input of {node.op} '{node.name}'" + (f"; {extra}" if extra else "")
        self._ask(tensor, spec, "activation", why, Edge(node.name, port))

    def _ask_weight(self, facts: Facts, rule: OpRule, spec: QuantSpec) -> None:
        assert rule.weight is not None
        axis = rule.weight_axis(facts) if callable(rule.weight_axis) else rule.weight_axis
        rank = len(facts.shape(rule.weight) or ())
        if not isinstance(spec.granularity, PerChannel) or axis is None or rank < 2:
            spec = per_tensor(spec)
        else:
            spec = spec.replace(granularity=PerChannel(axis % rank))
        node = facts.node
        why = f"weight of {node.op} '{node.name}'"
        self._ask(node.inputs[rule.weight], spec, "weight", why, Edge(node.name, rule.weight))

    def _bias_use(self, facts: Facts, rule: OpRule) -> tuple[Node, int] | None:
        """Where a constant bias is added: at the rule's own port, or by the Add of a MatMulAdd unit."""
        node = facts.node
        if rule.bias is not None:
            return (node, rule.bias) if facts.is_constant(rule.bias) else None
        add = self.bias_adder(node)
        if add is None:
            return None
        return next(((add, port) for port, tensor in enumerate(add.inputs) if self.graph.is_constant(tensor)), None)

    def _ask_bias(self, node: Node, rule: OpRule, adder: Node, port: int) -> None:
        assert rule.weight is not None
        assert self.backend.scheme.bias is not None
        bias, weight, data = adder.inputs[port], node.inputs[rule.weight], node.inputs[0]
        if len(bias.shape) != 1 or len(self.graph.consumers(bias)) > 1:
            return
        weight_spec = self.requests[weight.name].spec
        per_channel = isinstance(weight_spec.granularity, PerChannel)
        spec = self.backend.scheme.bias
        if spec.dtype != "int32":
            request = self._ask(bias, spec, "bias", f"bias of {node.op} '{node.name}'", Edge(adder.name, port))
            request.observer = self.backend.weight_observer
            return
        if data.name not in self.requests:
            return  # its scale derives from that of the input, which is not quantized
        spec = spec.replace(granularity=PerChannel(0)) if per_channel else per_tensor(spec)
        request = self._ask(bias, spec, "bias", f"bias of {node.op} '{node.name}'", Edge(adder.name, port))
        request.derive = BiasOf(data.name, weight.name)

    def _ask(self, tensor: Any, spec: QuantSpec, role: str, why: str, edge: Edge | None) -> _Request:
        name = tensor.name
        request = self.requests.get(name)
        if request is None:
            request = self.requests[name] = _Request(spec, role, why, observer=self._observer(tensor, role))
        elif request.spec != spec and role == "weight":
            raise UnsupportedError(
                f"constant '{name}' is needed as {request.spec} ({request.why}) and as {spec} ({why}); "
                "run the pass split_shared_weights first"
            )
        else:
            request.spec = wider(request.spec, spec)
        if edge is None:
            request.everywhere = True
        else:
            request.edges[edge] = None
        return request

    def _observer(self, tensor: Any, role: str) -> str:
        if role == "weight":
            return self.backend.weight_observer
        producer = self.graph.producer(tensor)
        if producer is None:
            return self.backend.input_observer or self.backend.activation_observer
        known = self.backend.fixed_ranges.get(producer.op) if not producer.domain else None
        return self.backend.activation_observer if known is None else f"fixed:{known[0]!r},{known[1]!r}"

    def _ask_inputs(self) -> None:
        """A quantizer on every float input of the graph that is read at all, where the target wants that."""
        if not self.backend.quantize_inputs or self.backend.scheme.activation is None:
            return
        for name in self.graph.input_names:
            tensor = self.graph.tensor(name)
            kind = self.graph.dtype(tensor)
            readers = self.graph.consumers(tensor)
            if all(use.node.name in self.exempt for use in readers):
                continue  # nobody, or only such as must stay float: a mask with minus infinity
            if kind is not None and kind.name in self.backend.limits.float_types:
                spec = self.formats.activation(tensor, None, at_end=False)
                self._ask(tensor, spec, "activation", "input of the graph", None)

    # ---- 3. ties, placements, reasons -----------------------------------------------------------------------------

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
            reason = rule.decline(facts) if rule.decline is not None else None
            data = self.data_tensors(node, rule.inputs)
            outputs = self.moved_outputs(node)
            if reason or not data or not all(self._quantized_for(t) for t in data):
                self.reasons[node.name] = reason or "its input is not quantized, and moving values needs no arithmetic"
                continue
            ports = range(len(node.inputs)) if rule.inputs is None else rule.inputs
            moved = self.requests[data[0]].spec
            for port in ports:
                if port < len(node.inputs) and node.inputs[port].name in data:
                    why = f"input of {node.op} '{node.name}'"
                    self._ask(node.inputs[port], moved, "activation", why, Edge(node.name, port))
            for made in outputs:
                self._ask(made, moved, "activation", f"{node.op} '{node.name}' keeps the scale of its input", None)
                for name in data:
                    self.ties.join(name, made.name)
            self.carried[node.name] = f"moves the quantized values of '{data[0]}'"

    def _quantized_for(self, tensor: str) -> bool:
        request = self.requests.get(tensor)
        return request is not None and request.everywhere

    def _finish(self) -> QuantPlan:
        self._tie_joined()
        self._one_format_for_tied()
        plan = QuantPlan(self.backend.name)
        observed_in = {leader: self._observed(members) for leader, members in self.ties.groups().items()}
        for name, request in self.requests.items():
            leader = self.ties.leader(name)
            constant = self.graph.is_constant(name)
            observe: tuple[str, ...] = ()
            if leader == name and not constant:
                observe = observed_in.get(name, (name,))
            edges = None if request.everywhere else tuple(request.edges)
            plan.placements[name] = Placement(
                tensor=name,
                spec=request.spec,
                role=request.role,  # type: ignore[arg-type]
                why=request.why,
                edges=edges,
                tie=None if leader == name else leader,
                observe=observe,
                derive=request.derive,
                observer=request.observer,
            )
        self._account(plan)
        return plan

    def _tie_joined(self) -> None:
        """One scale for the quantized tensors on both sides of a Concat, also where others only move values between."""
        behind: dict[str, str] = {}  # tensor -> the quantized tensor that it flows into through moving nodes alone
        for node in reversed(self.nodes):
            made = node.outputs[0].name if node.outputs else ""
            if made in self.requests:
                behind[made] = made
            elif made and node.op in self.backend.commuting:
                readers = self.graph.consumers(made)
                if len(readers) == 1 and readers[0].node.op in self.backend.commuting:
                    further = behind.get(readers[0].node.outputs[0].name)
                    if further is not None:
                        behind[made] = further
        for node in self.nodes:
            if node.op in self.backend.tied and node.outputs[0].name in behind:
                for tensor in node.inputs:
                    source = self._quantized_source(tensor)
                    if source is not None:
                        self.ties.join(behind[node.outputs[0].name], source)

    def _one_format_for_tied(self) -> None:
        """Tensors that share a scale share the format: a signed one where any of them is, else the widest.

        A range known for one of them is not the range of all.
        """
        for members in self.ties.groups().values():
            if len(self._observed(members)) > 1:
                for name in members:
                    if name in self.requests and self.requests[name].observer.startswith("fixed:"):
                        self.requests[name].observer = self.backend.activation_observer
            asked = [self.requests[name].spec for name in members if name in self.requests]
            if len(set(asked)) < 2:
                continue
            signed = [spec for spec in asked if spec.signed or not spec.symmetric] or asked
            chosen = max(signed, key=lambda spec: spec.bits)
            for name in members:
                if name in self.requests:
                    self.requests[name].spec = chosen

    def _quantized_source(self, tensor: Any) -> str | None:
        """The quantized tensor that `tensor` is, or whose values it moves."""
        while tensor.name not in self.requests or self.graph.is_constant(tensor):
            producer = self.graph.producer(tensor)
            if producer is None or producer.op not in self.backend.commuting or producer.op in self.backend.tied:
                return None
            tensor = producer.inputs[0]
        return str(tensor.name)

    def _observed(self, members: list[str]) -> tuple[str, ...]:
        """Members whose values can set the range: those not made by moving values of other members."""
        inside = set(members)
        found = []
        for name in members:
            producer = self.graph.producer(name)
            moved = producer is not None and producer.name in self.carried
            sources = {t.name for t in producer.inputs} if producer is not None else set()
            if not moved or not inside & sources:
                found.append(name)
        return tuple(found)

    def _account(self, plan: QuantPlan) -> None:
        """Every node is quantized, fused into a quantized one, or float with a reason."""
        commuting = self._commuting()
        for node in self.nodes:
            name = node.name
            if name in self.selected:
                plan.quantized[name] = f"{node.op}: rule of {self.backend.name}"
            elif name in self.carried:
                plan.quantized[name] = self.carried[name]
            elif name in commuting:
                plan.quantized[name] = commuting[name]
            elif name in self.fused and not self._stays_apart(name):
                plan.fused[name] = self.fused[name]
            else:
                plan.left_float[name] = self.reasons.get(name) or self._no_rule(node)

    def _stays_apart(self, name: str) -> bool:
        """Whether a follower is computed in float after all, because no quantizer behind it can absorb it."""
        result = self.result(self.graph.node(self.fused[name])).name
        apart = self.backend.absorb_activations and result not in self.requests
        if apart:
            self.reasons[name] = f"computed in float: the result of '{self.fused[name]}' is not quantized"
        return apart

    def _commuting(self) -> dict[str, str]:
        """Nodes the target swaps with the quantizers behind them: all their readers read quantized values."""
        found: dict[str, str] = {}
        for node in reversed(self.nodes):
            if node.op not in self.backend.commuting or node.name in self.exempt or node.name in self.skipped:
                continue
            uses = [use for made in node.outputs if made.name for use in self.graph.consumers(made)]
            if not uses or any(self.graph.is_output(made) for made in node.outputs if made.name):
                continue
            if all(self._reads_quantized(use.node, use.port) or use.node.name in found for use in uses):
                found[node.name] = f"{self.backend.name} moves the quantizer behind it in front"
        return found

    def _reads_quantized(self, node: Node, port: int) -> bool:
        request = self.requests.get(node.inputs[port].name)
        return request is not None and (request.everywhere or Edge(node.name, port) in request.edges)

    def _no_rule(self, node: Node) -> str:
        if node.domain:
            return no_rule(node, self.backend.name)
        kind = self.graph.dtype(node.outputs[0]) if node.outputs else None
        if kind is not None and kind.name not in FLOAT_TYPES:
            return f"computes {kind.name} values"
        if node.op in self.backend.commuting:
            return "not every reader of its result is quantized"
        if node.op in self.backend.fused_activations:
            return "not directly behind a quantized operator"
        return no_rule(node, self.backend.name)
