"""Graph + backend -> QuantPlan: which tensors get a quantizer, on which edges, and why.

Walks over the nodes in topological order, each linear:
1. decide which nodes run quantized (`Selection`), following the backend's rules, the exemptions and the user;
2. ask for a quantizer wherever a selected node needs one (`Requests`; `Constants` for weights and biases, `Asked` for
   what was asked so far);
3. tie tensors that must share a scale, change what the user wants changed (`Wishes`), write placements and reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnxq.graph import Graph, Node, collector_paused
from onnxq.place.override_resolver import OverrideResolver
from onnxq.place.wishes import Wishes
from onnxq.types import Backend, Edge, Placement, QuantPlan
from onnxq.types.overrides import NOT_IN_BACKENDS, Override, OverrideSet
from onnxq.types.reason import Reason
from onnxq.types.spec import why_no_derived_bias
from onnxq.types.unlike import UnlikeJoin


def place(
    graph: Graph,
    backend: Backend,
    overrides: OverrideSet | None = None,
    *,
    skip: Sequence[str] = (),
    unlike: Sequence[UnlikeJoin] = (),
) -> QuantPlan:
    """Decide what is quantized. `skip` names nodes (exact, glob, re:, op:) that stay float, `controls` all the rest.

    The tails of `unlike` joins, which only data can show, stay float too. The graph's shapes must be inferred. A pure
    function of its arguments: the graph is not changed.
    """
    wanted = overrides or OverrideSet()
    if skip:
        named = (Override.of_nodes(text, {"skip": True}, {("skip",): f"'{text}'"}) for text in skip)
        wanted = replace(wanted, overrides=(*named, *wanted.overrides))
    with collector_paused(), graph.unchanging():
        plan = _Placer(graph, backend, OverrideResolver(graph, wanted, unlike)).plan()
    plan.unlike = tuple(unlike)
    return plan


class _Placer(Wishes):
    def plan(self) -> QuantPlan:
        self._tie_joined()
        self.share()
        self._one_format_for_tied()
        groups = self.ties.groups()
        self.choose(groups)
        plan = QuantPlan(self.backend.name)
        plan.notes.extend(self._drop_biases_without_scale())
        observed_in = {leader: self._observed(members) for leader, members in groups.items()}
        for name, request in self.requests.items():
            leader = self.ties.leader(name)
            constant = self.graph.is_constant(name)
            observe: tuple[str, ...] = ()
            if leader == name and not constant:
                observe = observed_in.get(name, (name,))
            edges = self.edges_of(name)
            plan.placements[name] = Placement(
                tensor=name,
                spec=request.spec,
                role=request.role,  # type: ignore[arg-type]
                why=request.why,
                edges=() if request.observe_only else edges,
                tie=None if leader == name else leader,
                observe=observe,
                derive=request.derive,
                observer=request.observer,
                fake_quantizer=self.fake_quantizer(request),
                set_by=tuple(self.set_by(request)),
                **{key: request.picks[key].value for key in NOT_IN_BACKENDS if key in request.picks},
            )
        self._account(plan)
        plan.left_out.update((name, said) for name, said in self.left_out.items() if name not in plan)
        plan.notes.extend([*self.remarks, *self.choices.unused(), *self._unused_everywhere(plan)])
        plan.notes.extend(self.fusions.unused(set(self.selected)))
        return plan

    def _unused_everywhere(self, plan: QuantPlan) -> list[str]:
        roles: set[str] = {placement.role for placement in plan}
        roles.update("input" for name in self.graph.input_names if name in plan)
        roles.update("output" for name in self.graph.output_names if name in plan)
        return self.choices.unused_everywhere(roles)

    def _drop_biases_without_scale(self) -> list[str]:
        """Leave biases float whose scale would derive from formats that have none to give, such as bfp16."""
        lines = []
        for name, request in list(self.requests.items()):
            if request.derive is None:
                continue
            data, weight = self.requests[request.derive.input], self.requests[request.derive.weight]
            reason = why_no_derived_bias(data.spec, weight.spec)
            if data.observe_only or weight.observe_only:  # known now that all who share a quantizer have had their say
                del self.requests[name]
            elif reason is not None:
                del self.requests[name]
                lines.append(f"bias '{name}' stays float: {reason}. Give it a dtype under [bias]")
        return lines

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
            if name in self.selected and self._only_watched(node):
                text = "its quantizers are left out, or only observe, as the configuration says"
                plan.left_float[name] = Reason("only_observed", text)
            elif name in self.selected:
                rule = f"{node.op}: rule of {self.backend.name}"
                plan.quantized[name] = f"forced by {self.forced[name]}" if name in self.forced else rule
            elif name in self.carried:
                plan.quantized[name] = self.carried[name]
            elif name in commuting:
                plan.quantized[name] = commuting[name]
            elif name in self.fused and not self._stays_apart(name):
                plan.fused[name] = self.fused[name]
            else:
                plan.left_float[name] = self.reasons.get(name) or self._no_rule(node)

    def _only_watched(self, node: Node) -> bool:
        """Whether no quantizer that changes values is left of those that a node asked for."""
        if not self.choices.overrides.overrides and not self.choices.overrides.everywhere:
            return False
        if any(self._reads_quantized(node, port) for port, tensor in enumerate(node.inputs) if tensor.name):
            return False
        made = self.requests.get(self.result(node).name)
        return not (self.selected[node.name].output and made is not None and not made.observe_only)

    def _stays_apart(self, name: str) -> bool:
        """Whether a follower is computed in float after all, because no quantizer behind it can absorb it."""
        result = self.result(self.graph.node(self.fused[name])).name
        apart = self.backend.absorb_activations and result not in self.requests
        if apart:
            text = f"computed in float: the result of '{self.fused[name]}' is not quantized"
            self.reasons[name] = Reason("not_fused", text)
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
        name = node.inputs[port].name
        request = self.requests.get(name)
        if request is None or request.observe_only:
            return False
        edge = Edge(node.name, port)
        return edge in request.edges or (request.everywhere and edge not in self.float_edges(name))

    def _no_rule(self, node: Node) -> Reason:
        if node.domain:
            return Reason("no_rule", f"operator {node.domain}.{node.op} is unknown to {self.backend.name}")
        if node.op in self.backend.commuting:
            return Reason("result_not_quantized", "not every reader of its result is quantized")
        if node.op in self.backend.fused_activations:
            return Reason("not_fused", "not directly behind a quantized operator")
        return Reason("no_rule", f"{self.backend.name} has no rule for {node.op}")
