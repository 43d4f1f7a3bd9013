"""Requests for the quantizers of constants: weights with their channels, biases whose scale derives from others."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.errors import ConfigError
from onnxq.graph import Graph, Node
from onnxq.place.facts import Facts
from onnxq.place.override_resolver import OverrideResolver, Picks, formats, with_overrides
from onnxq.place.requests import Requests
from onnxq.place.select import Selection
from onnxq.place.tensor_overrides import TensorOverrides
from onnxq.types import Backend, BiasOf, Edge, OpRule, PerBlock, PerChannel, QuantSpec
from onnxq.types.backend import per_tensor
from onnxq.types.overrides import IN_BACKENDS, NOT_IN_BACKENDS
from onnxq.types.presets import usual_block_axis, usual_weight_axis

LAYERS_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")
OF_DERIVED = ("dtype", "bits", "fake_quantizer", "observe_only")
"""What can be chosen for a bias whose scale derives from those of its input and weight."""


@dataclass(frozen=True)
class ConstantRequests:
    """Asks for the quantizers of the weight and of the bias that a node has."""

    graph: Graph
    backend: Backend
    resolver: OverrideResolver
    selection: Selection
    overrides: TensorOverrides
    requests: Requests

    def ask_weight(self, facts: Facts, rule: OpRule, port: int, spec: QuantSpec) -> None:
        node = facts.node
        tensor = node.inputs[port]
        picks = self.resolver.of_constant(tensor.name, node.name, "weight")
        spec = with_overrides(tensor.name, spec, picks)
        if isinstance(spec.granularity, PerChannel):
            spec = self._with_axis(facts, rule, port, spec, picks)
        elif isinstance(blocks := spec.scale_granularity, PerBlock):
            along = usual_block_axis(facts)
            if along is not None:
                spec = spec.replace(granularity=PerBlock(along, blocks.size))
        why = f"weight of {node.op} '{node.name}'"
        request = self.requests.ask(tensor, spec, "weight", why, Edge(node.name, port), picks)
        if isinstance(spec.granularity, PerChannel):
            request.across = usual_weight_axis(facts) not in (None, spec.granularity.axis)

    def _with_axis(self, facts: Facts, rule: OpRule, port: int, spec: QuantSpec, picks: Picks) -> QuantSpec:
        """The format with the channels where the user, or else the rule, says they are; one scale where there are none.

        The axis that the format comes with is that of the configuration of the whole model.
        """
        assert isinstance(spec.granularity, PerChannel)
        axis = rule.weight_axis(facts) if callable(rule.weight_axis) else rule.weight_axis
        said = self.resolver.format_source("weight", "channel_axis")
        if "channel_axis" in picks:
            axis, said = int(picks["channel_axis"].value), picks["channel_axis"].source
        elif said is not None:
            axis = spec.granularity.axis
        elif axis is None and "per_channel" in picks:
            axis = usual_weight_axis(facts)
        rank = len(facts.shape(port) or ())
        if said is not None and axis is not None and not -rank <= axis < rank:
            name = facts.node.inputs[port].name
            raise ConfigError(f"channel_axis {axis}: weight '{name}' has {rank} axes ({said})")
        return per_tensor(spec) if axis is None or rank < 2 else spec.replace(granularity=PerChannel(axis % rank))

    def ask_bias(self, facts: Facts, rule: OpRule) -> None:
        """Ask for the bias of a node whose weight was asked for, if it has a constant one."""
        use = self._bias_use(facts, rule)
        if use is None or self.overrides.stays_float(use[0].inputs[use[1]], facts.node, "bias"):
            return
        assert rule.weight is not None
        node, (adder, port) = facts.node, use
        bias, weight, data = adder.inputs[port], node.inputs[rule.weight], node.inputs[0]
        picks = self.resolver.of_constant(bias.name, node.name, "bias")
        if len(bias.shape) != 1 or len(self.graph.consumers(bias)) > 1:
            self._note_float_bias(bias.name, picks, "it is no list of channels, or several nodes read it")
            return
        base = self.backend.scheme.bias or (QuantSpec("int32") if formats(picks) else None)
        if base is None:
            return
        spec = with_overrides(bias.name, base, picks)
        why = f"bias of {node.op} '{node.name}'"
        if not spec.format.bias_only:
            request = self.requests.ask(bias, spec, "bias", why, Edge(adder.name, port), picks)
            if "observer" not in picks:
                request.observer = self.backend.weight_observer
            return
        of_weight = self.requests[weight.name]
        if data.name not in self.requests or of_weight.observe_only or self.overrides.only_observed(data.name):
            self._note_float_bias(bias.name, picks, "its scale derives from input and weight, one of which is float")
            return
        if of_weight.across:
            self.requests.remarks.append(
                f"bias '{bias.name}' stays float: its weight has no scale for each output channel, so there is none to "
                "derive. Give it a dtype under [bias]"
            )
            return
        per_channel = isinstance(of_weight.spec.granularity, PerChannel)
        spec = spec.replace(granularity=PerChannel(0)) if per_channel else per_tensor(spec)
        left = self._of_derived(bias.name, picks)
        request = self.requests.ask(bias, spec, "bias", why, Edge(adder.name, port), left)
        request.derive = BiasOf(data.name, weight.name)

    def _bias_use(self, facts: Facts, rule: OpRule) -> tuple[Node, int] | None:
        """Where a constant bias is added: at the rule's own port, or by the Add of a MatMulAdd unit."""
        node = facts.node
        port = rule.bias
        if port is None and node.op in LAYERS_WITH_BIAS and facts.is_constant(2) and self._wants_bias(node):
            port = 2
        if port is not None:
            return (node, port) if facts.is_constant(port) else None
        add = self.selection.fused_ops.bias_adder(node)
        if add is None or not (rule.added_bias is None or rule.added_bias(facts) or self._wants_added_bias(add, node)):
            return None
        return next(((add, port) for port, tensor in enumerate(add.inputs) if self.graph.is_constant(tensor)), None)

    def _wants_added_bias(self, add: Node, node: Node) -> bool:
        override = self.resolver.overrides.everywhere.get("bias")
        names = [tensor.name for tensor in add.inputs if self.graph.is_constant(tensor)]
        return (override is not None and not override.skip) or any(
            formats(self.resolver.of_constant(name, node.name, "bias")) for name in names
        )

    def _wants_bias(self, node: Node) -> bool:
        """Whether the user wants biases quantized that the target's rules leave float."""
        override = self.resolver.overrides.everywhere.get("bias")
        return (override is not None and not override.skip) or bool(
            formats(self.resolver.of_constant(node.inputs[2].name, node.name, "bias"))
        )

    def _note_float_bias(self, bias: str, picks: Picks, reason: str) -> None:
        """Say so where somebody wants something of a bias that gets no quantizer."""
        said = ", ".join(dict.fromkeys(pick.source for key, pick in picks.items() if key != "observe_only"))
        if said:
            self.requests.remarks.append(f"no effect: bias '{bias}' stays float, because {reason} ({said})")

    def _of_derived(self, bias: str, picks: Picks) -> Picks:
        """What is left to choose for a bias whose scale derives from those of its input and weight."""
        for key in (*IN_BACKENDS, *NOT_IN_BACKENDS, "per_channel", "channel_axis", "share"):
            if key in picks and key not in OF_DERIVED:
                self.requests.remarks.append(
                    f"no effect: {key} of bias '{bias}', whose scale is that of its input times that of its weight "
                    f"({picks[key].source})"
                )
        return {key: pick for key, pick in picks.items() if key in OF_DERIVED}
