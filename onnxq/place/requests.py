"""Which tensors need a quantizer: what selected nodes ask for, and how far nodes that only move values carry it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnxq.errors import ConfigError, SpecError, UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.place.choices import Choices, Picks, formats
from onnxq.place.facts import Facts
from onnxq.place.formats import Formats, wider
from onnxq.place.select import Selection
from onnxq.place.ties import Ties
from onnxq.types import Backend, BiasOf, Edge, OpRule, PerChannel, QuantSpec
from onnxq.types.backend import per_tensor
from onnxq.types.control import changed
from onnxq.types.presets import usual_weight_axis

LAYERS_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")


@dataclass
class Request:
    """A quantizer that somebody needs on a tensor."""

    spec: QuantSpec
    role: str
    why: str
    edges: dict[Edge, None] = field(default_factory=dict)
    everywhere: bool = False
    derive: BiasOf | None = None
    observer: str = "minmax"
    picks: Picks = field(default_factory=dict)
    across: bool = False  # scales along another axis than that of the output channels, which a bias has

    @property
    def observe_only(self) -> bool:
        return "observe_only" in self.picks and bool(self.picks["observe_only"].value)


class Requests(Selection):
    """The quantizers that the nodes of a graph need.

    requests   tensor -> what is asked of its quantizer
    carried    nodes that move quantized values -> what they move
    fused      nodes that run inside another one -> that one
    ties       tensors that share a scale
    left_out   tensors that stay float because the user wants it -> where that was said
    remarks    what the user should know about wishes that could not be fulfilled
    """

    def __init__(self, graph: Graph, backend: Backend, choices: Choices) -> None:
        super().__init__(graph, backend, choices)
        self.carried: dict[str, str] = {}
        self.fused: dict[str, str] = {}
        self.requests: dict[str, Request] = {}
        self.ties = Ties()
        self.left_out: dict[str, str] = {}
        self.remarks: list[str] = []
        self._float_edges: dict[str, set[Edge]] = {}
        self.formats = Formats(graph, backend)
        self._makers: dict[str, list[str]] = {}
        for node in self.nodes if not choices.silent else ():
            for made in dict.fromkeys([*(tensor.name for tensor in node.outputs), self.result(node).name]):
                self._makers.setdefault(made, []).append(node.name)
        self._graph_inputs = set(graph.input_names)
        self._ask_inputs()
        for node in self.nodes:
            if node.name in self.selected:
                self._request(node, self.selected[node.name])
        self._carry()

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

    def _stays_float(self, tensor: Any, node: Node | None, part: str) -> bool:
        """Whether the user wants no quantizer on a tensor for this use of it."""
        if self.choices.silent:
            return False
        name, is_output = str(tensor.name), self.graph.is_output(tensor)
        said = self.choices.left_out(name, None if node is None else str(node.name), part, is_output=is_output)
        if said is not None:
            self.left_out[name] = said
        return said is not None

    def float_edges(self, tensor: str) -> set[Edge]:
        """The uses of a tensor that read it as float because the user wants it."""
        return self._float_edges.get(tensor, set())

    def edges_of(self, tensor: str) -> tuple[Edge, ...] | None:
        """The uses that read a tensor quantized; None for all of them."""
        request = self.requests[tensor]
        if not request.everywhere:
            return tuple(request.edges)
        left = self._float_edges.get(tensor)
        if not left:
            return None
        if self.graph.is_output(tensor):
            readers = ", ".join(f"'{edge.node}'" for edge in sorted(left))
            self.remarks.append(
                f"tensor '{tensor}' is quantized for {readers} all the same: it is an output of the model, which has "
                f"one form ({self.left_out[tensor]})"
            )
            return None
        uses = [Edge(use.node.name, use.port) for use in self.graph.consumers(tensor)]
        return tuple(edge for edge in uses if edge not in left)

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
            picks = self.choices.of_constant(tensor.name, node.name, "weight")
            spec = self.wanted(tensor.name, per_tensor(spec), picks)
            why = f"constant input of {node.op} '{node.name}'"
            self._ask(tensor, spec, "weight", why, Edge(node.name, port), picks)
            return
        why = f"input of {node.op} '{node.name}'" + (f"; {extra}" if extra else "")
        self._ask(tensor, spec, "activation", why, Edge(node.name, port))

    def _ask_weight(self, facts: Facts, rule: OpRule, spec: QuantSpec) -> Request:
        assert rule.weight is not None
        node = facts.node
        tensor = node.inputs[rule.weight]
        picks = self.choices.of_constant(tensor.name, node.name, "weight")
        spec = self.wanted(tensor.name, spec, picks)
        if isinstance(spec.granularity, PerChannel):
            axis = rule.weight_axis(facts) if callable(rule.weight_axis) else rule.weight_axis
            if "channel_axis" in picks:
                axis = int(picks["channel_axis"].value)
            elif self.choices.format_source("weight", "channel_axis") is not None:
                axis = spec.granularity.axis
            elif axis is None and "per_channel" in picks:
                axis = usual_weight_axis(facts)
            rank = len(facts.shape(rule.weight) or ())
            said = picks["channel_axis"].source if "channel_axis" in picks else None
            said = said or self.choices.format_source("weight", "channel_axis")
            if said is not None and axis is not None and not -rank <= axis < rank:
                raise ConfigError(f"channel_axis {axis}: weight '{tensor.name}' has {rank} axes ({said})")
            spec = per_tensor(spec) if axis is None or rank < 2 else spec.replace(granularity=PerChannel(axis % rank))
        why = f"weight of {node.op} '{node.name}'"
        request = self._ask(tensor, spec, "weight", why, Edge(node.name, rule.weight), picks)
        if isinstance(spec.granularity, PerChannel):
            request.across = usual_weight_axis(facts) not in (None, spec.granularity.axis)
        return request

    def wanted(self, tensor: str, spec: QuantSpec, picks: Picks) -> QuantSpec:
        """The format with what the user wants changed in it."""
        wanted = formats(picks)
        if not wanted:
            return spec
        try:
            return changed(spec, wanted)
        except SpecError as error:
            said = ", ".join(dict.fromkeys(picks[key].source for key in wanted))
            raise ConfigError(f"tensor '{tensor}' ({spec}) cannot be changed as {said} wants: {error}") from None

    def _bias_use(self, facts: Facts, rule: OpRule) -> tuple[Node, int] | None:
        """Where a constant bias is added: at the rule's own port, or by the Add of a MatMulAdd unit."""
        node = facts.node
        port = rule.bias
        if port is None and node.op in LAYERS_WITH_BIAS and facts.is_constant(2) and self._wants_bias(node):
            port = 2
        if port is not None:
            return (node, port) if facts.is_constant(port) else None
        add = self.bias_adder(node)
        if add is None:
            return None
        return next(((add, port) for port, tensor in enumerate(add.inputs) if self.graph.is_constant(tensor)), None)

    def _wants_bias(self, node: Node) -> bool:
        """Whether the user wants biases quantized that the target's rules leave float."""
        wish = self.choices.controls.everywhere.get("bias")
        return (wish is not None and not wish.skip) or bool(
            formats(self.choices.of_constant(node.inputs[2].name, node.name, "bias"))
        )

    def _ask_bias(self, node: Node, rule: OpRule, adder: Node, port: int) -> None:
        assert rule.weight is not None
        bias, weight, data = adder.inputs[port], node.inputs[rule.weight], node.inputs[0]
        picks = self.choices.of_constant(bias.name, node.name, "bias")
        if len(bias.shape) != 1 or len(self.graph.consumers(bias)) > 1:
            self._note_float_bias(bias.name, picks, "it is no list of channels, or several nodes read it")
            return
        base = self.backend.scheme.bias or (QuantSpec("int32") if formats(picks) else None)
        if base is None:
            return
        spec = self.wanted(bias.name, base, picks)
        why = f"bias of {node.op} '{node.name}'"
        if spec.dtype != "int32":
            request = self._ask(bias, spec, "bias", why, Edge(adder.name, port), picks)
            if "observer" not in picks:
                request.observer = self.backend.weight_observer
            return
        of_data, of_weight = self.requests.get(data.name), self.requests[weight.name]
        if of_data is None or of_weight.observe_only or self._only_observed(data):
            self._note_float_bias(bias.name, picks, "its scale derives from input and weight, one of which is float")
            return
        if of_weight.across:
            self.remarks.append(
                f"bias '{bias.name}' stays float: its weight has no scale for each output channel, so there is none to "
                "derive. Give it a dtype under [bias]"
            )
            return
        per_channel = isinstance(of_weight.spec.granularity, PerChannel)
        spec = spec.replace(granularity=PerChannel(0)) if per_channel else per_tensor(spec)
        request = self._ask(bias, spec, "bias", why, Edge(adder.name, port), self._of_derived(bias.name, picks))
        request.derive = BiasOf(data.name, weight.name)

    def _note_float_bias(self, bias: str, picks: Picks, reason: str) -> None:
        """Say so where somebody wants something of a bias that gets no quantizer."""
        said = ", ".join(dict.fromkeys(pick.source for key, pick in picks.items() if key != "observe_only"))
        if said:
            self.remarks.append(f"no effect: bias '{bias}' stays float, because {reason} ({said})")

    def _of_derived(self, bias: str, picks: Picks) -> Picks:
        """What is left to choose for a bias whose scale derives from those of its input and weight."""
        for key in ("observer", "minimum_scale", "per_channel", "channel_axis", "share"):
            if key in picks:
                self.remarks.append(
                    f"no effect: {key} of bias '{bias}', whose scale is that of its input times that of its weight "
                    f"({picks[key].source})"
                )
        return {key: pick for key, pick in picks.items() if key in ("dtype", "bits", "fake_quantizer", "observe_only")}

    def _only_observed(self, tensor: Any) -> bool:
        picks = self.activation_picks([tensor.name])
        return "observe_only" in picks and bool(picks["observe_only"].value)

    def _ask(
        self, tensor: Any, spec: QuantSpec, role: str, why: str, edge: Edge | None, picks: Picks | None = None
    ) -> Request:
        """Note down that somebody needs a quantizer on a tensor."""
        name = tensor.name
        request = self.requests.get(name)
        if request is None:
            request = self.requests[name] = Request(spec, role, why, picks=picks or {})
            request.observer = self._observer(tensor, role, request.picks)
        elif request.spec != spec and role == "weight":
            remedy = "run the pass split_shared_weights first"
            if picks or request.picks:
                remedy = f'it has one quantizer for all: say what you want under [tensor."{name}"]'
            raise UnsupportedError(
                f"constant '{name}' is needed as {request.spec} ({request.why}) and as {spec} ({why}); {remedy}"
            )
        else:
            request.spec = wider(request.spec, spec)
        if edge is None:
            request.everywhere = True
        else:
            request.edges[edge] = None
        return request

    def _observer(self, tensor: Any, role: str, picks: Picks) -> str:
        if "observer" in picks:
            return str(picks["observer"].value)
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
            wanted = kind is not None and kind.name in self.backend.limits.float_types
            if wanted and not self._stays_float(tensor, None, "activation"):
                spec = self.formats.activation(tensor, None, at_end=False)
                self._ask(tensor, spec, "activation", "input of the graph", None)

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
                if self._stays_float(made, node, "output"):
                    continue
                self._ask(made, moved, "activation", f"{node.op} '{node.name}' keeps the scale of its input", None)
                for name in data:
                    self.ties.join(name, made.name)
            self.carried[node.name] = f"moves the quantized values of '{data[0]}'"

    def _quantized_for(self, tensor: str) -> bool:
        request = self.requests.get(tensor)
        return request is not None and request.everywhere

    # ---- what the user wants --------------------------------------------------------------------------------------

    def _says(self, tensor: str) -> Iterator[tuple[str, str]]:
        """Who has a say in the quantizer of a tensor: (node, part) of its readers and of its makers.

        A Conv makes the result of the Relu inside it too.
        """
        for maker in self._makers.get(tensor, ()):
            yield maker, "output"
        for use in self.graph.consumers(tensor):
            yield use.node.name, "activation"

    def activation_picks(self, members: Sequence[str]) -> Picks:
        if self.choices.silent:
            return {}
        says = [say for name in members for say in self._says(name)]
        return self.choices.of_activation(members, says, is_output=any(self.graph.is_output(n) for n in members))
