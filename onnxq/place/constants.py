"""Quantizers of constants: weights with their channels, biases whose scale derives from input and weight."""

from __future__ import annotations

from onnxq.errors import ConfigError
from onnxq.graph import Node
from onnxq.place.asked import Asked, Request
from onnxq.place.facts import Facts
from onnxq.place.override_resolver import Picks, formats
from onnxq.types import BiasOf, Edge, OpRule, PerBlock, PerChannel, QuantSpec
from onnxq.types.backend import per_tensor
from onnxq.types.overrides import IN_BACKENDS, NOT_IN_BACKENDS
from onnxq.types.presets import usual_block_axis, usual_weight_axis

LAYERS_WITH_BIAS = ("Conv", "ConvTranspose", "Gemm")
OF_DERIVED = ("dtype", "bits", "fake_quantizer", "observe_only")
"""What can be chosen for a bias whose scale derives from those of its input and weight."""


class Constants(Asked):
    """Asks for the quantizers of the weight and of the bias that a node has."""

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
        elif isinstance(spec.granularity, PerBlock) and spec.has_scale:
            along = usual_block_axis(facts)
            if along is not None:
                spec = spec.replace(granularity=PerBlock(along, spec.granularity.size))
        why = f"weight of {node.op} '{node.name}'"
        request = self._ask(tensor, spec, "weight", why, Edge(node.name, rule.weight), picks)
        if isinstance(spec.granularity, PerChannel):
            request.across = usual_weight_axis(facts) not in (None, spec.granularity.axis)
        return request

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
        wish = self.choices.overrides.everywhere.get("bias")
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
        for key in (*IN_BACKENDS, *NOT_IN_BACKENDS, "per_channel", "channel_axis", "share"):
            if key in picks and key not in OF_DERIVED:
                self.remarks.append(
                    f"no effect: {key} of bias '{bias}', whose scale is that of its input times that of its weight "
                    f"({picks[key].source})"
                )
        return {key: pick for key, pick in picks.items() if key in OF_DERIVED}
