"""QatNet: the net of a prepared graph with a fake-quantizer for each quantizer of its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from onnxq.graph import Graph
from onnxq.qat.batch_norm import BatchNorms, unfold
from onnxq.qat.following import following
from onnxq.session.prepare import Prepared
from onnxq.session.session import Calibrated, Session
from onnxq.torchnet.dotted import ModuleTable
from onnxq.torchnet.fake_quantize import FakeQuantize
from onnxq.torchnet.net import TorchNet, copy_tensors
from onnxq.torchnet.quantizers import fake_quantizers, quantizer
from onnxq.torchnet.trainable import MASK, Trainable, looks_like_mask
from onnxq.torchnet.values import Value
from onnxq.types import Edge, QuantPlan

SWITCHES = ("observing", "observing_in_eval", "quantizing", "muted")
"""What a user or a schedule turns on and off at a fake-quantizer; a copy of a net has it too."""


class QatNet(TorchNet):
    """A net to be trained with plain torch: `net(x)`, a loss, `backward()`, an optimizer.

    fake_quantizers  tensor -> FakeQuantize; tied tensors have the one of their leader, which is listed once
    plan, prepared   what it was made from; `original` is the float model as it was given
    carried_out      the plan without quantizers that are only observed
    notes            what was left as it was, and why
    """

    def __init__(
        self,
        ready: Calibrated,
        *,
        batch_norms: BatchNorms = "folded",
        trainable: Trainable = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        self._ready = ready
        unfolded = unfold(self.original, self.prepared, batch_norms)
        self.carried_out = self.plan.active
        self._following = following(ready.state.graph, self.carried_out, ready.state.qparams)
        modules = fake_quantizers(self.carried_out, ready.state.qparams)
        quantizers = {
            unfolded.renamed.get(name, name): quantizer(placement, modules[self.carried_out.leader(name)])
            for name, placement in self.carried_out.placements.items()
            if placement.edges != ()
        }
        super().__init__(unfolded.graph, quantizers=quantizers, trainable=trainable, outputs=outputs)
        if trainable is None:
            # Nothing would keep the scales of a file that has quantizers already above zero.
            for node in (*self.graph.nodes("QuantizeLinear"), *self.graph.nodes("DequantizeLinear")):
                self.keep_fixed(node.inputs[1].name)
        self.unfolded = unfolded
        self.batch_norms: BatchNorms = batch_norms
        self.mode.live_statistics = batch_norms == "live"
        self.fake_quantizers = ModuleTable()
        for name, module in modules.items():
            self.fake_quantizers.put(name, module)
            module.follows = name in self._following
        leaders = [p.tie for p in self.carried_out if p.tie] + self._seen_repeatedly()
        self._shared = [modules[leader] for leader in dict.fromkeys(leaders)]
        for module in self._shared:
            module.shared = True
        self.notes: list[str] = [*unfolded.notes, *self._not_trained(), *self._without_latent_values()]
        self._move_to_latent_values()
        self.observe(True)
        self.train()

    def _move_to_latent_values(self) -> None:
        """Let the parameters hold what their fake-quantizers want to train, such as the inverse of a tanh."""
        for name in self.trained_constants():
            held = self._parameters.get(name)
            if held is not None and self._why_no_latent_values(name) is None:
                module = self.fake_quantizer(name)
                with torch.no_grad():
                    held.copy_(module.latent(self.value(name)))
                held.requires_grad_(module.trains_values)

    def _not_trained(self) -> list[str]:
        """A line for each weight that looks like a mask, though it has a quantizer."""
        if self._trainable is not None:
            return []
        weights = [name for name in self.trained_constants() if self.carried_out[name].role == "weight"]
        return [
            f"weight '{name}' is not trained: it holds infinities, NaN or numbers beyond {MASK:g}, as masks do. Name "
            "it in `trainable` if it is none"
            for name in weights
            if name in self._buffers and self.value(name).numel() > 1 and looks_like_mask(self.value(name))
        ]

    def _without_latent_values(self) -> list[str]:
        """A line for each weight that cannot hold what its kind wants to train."""
        kinds = {name: self.fake_quantizer(name).settings.name for name in self.trained_constants()}
        # Those kinds train something else than the weight itself, and need the parameter for it.
        wanting = {
            n: kind for n, kind in kinds.items() if type(self.fake_quantizer(n)).latent is not FakeQuantize.latent
        }
        reasons = {name: self._why_no_latent_values(name) for name in wanting}
        return [
            f"weight '{name}' is trained as 'fixed', not as '{wanting[name]}': {reason}"
            for name, reason in reasons.items()
            if reason is not None
        ]

    def _why_no_latent_values(self, name: str) -> str | None:
        """Why a constant has to hold its values as they are; None where it may hold others."""
        if name in self.unfolded.renamed:
            return "its batch norm is trained apart from it"
        leader, edges = self.carried_out.leader(name), self.carried_out[name].edges
        if any(placement.tie == leader for placement in self.carried_out):
            return "it shares its scale with other weights"
        graph = self.prepared.graph
        readers = {Edge(use.node.name, use.port) for use in graph.consumers(name)}
        if edges is not None and (graph.is_output(name) or not readers <= set(edges)):
            return "it is also read as it is, without a quantizer"
        return None

    def _seen_repeatedly(self) -> list[str]:
        """Leaders of the tensors inside of bodies: a loop shows their quantizers several values in one step."""
        graph = self.prepared.graph
        inside = [p for p in self.carried_out if not graph.is_constant(p.tensor) and p.derive is None]
        return [self.carried_out.leader(p.tensor) for p in inside if graph.home_of(p.tensor) is not graph.gs]

    def trained_constants(self) -> list[str]:
        """The constants of the plan that are quantized: weights, and biases."""
        graph = self.prepared.graph
        return [p.tensor for p in self.carried_out if p.edges != () and graph.is_constant(p.tensor)]

    def set_value(self, constant: str, value: Value) -> None:
        """Give a constant another value, in whatever form its fake-quantizer trains it."""
        parameter = self._parameters.get(constant)
        held = self._buffers[constant] if parameter is None else parameter
        assert held is not None
        if parameter is not None and constant in self.trained_constants() and not self._why_no_latent_values(constant):
            value = self.fake_quantizer(constant).latent(value.to(held))
        with torch.no_grad():
            held.copy_(value)

    def fake_quantizer(self, tensor: str) -> FakeQuantize:
        """The fake-quantizer of a tensor, or of the leader that it is tied to."""
        return self.fake_quantizers[self.carried_out.leader(tensor)]  # type: ignore[no-any-return]

    @property
    def session(self) -> Session:
        return self._ready.session

    @property
    def prepared(self) -> Prepared:
        return self.session.prepared

    @property
    def plan(self) -> QuantPlan:
        return self._ready.state.plan

    @property
    def original(self) -> Graph:
        return self.session.original

    @property
    def calibrated(self) -> Calibrated:
        """The model as calibration left it: the state before any training."""
        return self._ready

    def to_graph(self) -> Graph:
        """The prepared float graph with the trained weights, batch norms folded: that of `convert`."""
        from onnxq.qat.convert import trained_graph  # which needs this module

        return trained_graph(self)

    def observe(self, on: bool) -> None:
        """Let fake-quantizers follow the range of the values that they see, or stop that.

        Those that learn their scale do not follow, nor do those whose scale was chosen in another way than by the range
        of the values (`onnxq.qat.following`).
        """
        for module in self.fake_quantizers.values():
            module.catch_up()
            module.observing = on and module.observes_by_default and module.follows
            module.observing_in_eval = False

    def quantize(self, on: bool) -> None:
        """Switch all fake-quantizers on or off. What is off when files are written is off in them (`qat.switches`)."""
        for module in self.fake_quantizers.values():
            module.quantizing = on

    def mute(self, on: bool) -> None:
        """Let values pass all fake-quantizers unchanged for a while; their switches stay, and count for files."""
        for module in self.fake_quantizers.values():
            module.muted = on

    def _execute(self, inputs: Sequence[Value]) -> list[Value]:
        for module in self._shared:
            module.catch_up()
        return super()._execute(inputs)

    def recomputing(self, on: bool) -> None:
        super().recomputing(on)
        if on:
            self._observing = {name: module.observing for name, module in self.fake_quantizers.items()}
            for module in self.fake_quantizers.values():
                module.observing = False  # `observe` would move scales in the middle of a step
            return
        for name, module in self.fake_quantizers.items():
            module.observing = self._observing[name]

    def _remade(self, memo: dict[int, Any]) -> TorchNet:
        twin = QatNet(self._ready, batch_norms=self.batch_norms, trainable=self._trainable, outputs=self._outputs)
        for name, module in self.fake_quantizers.items():
            module.catch_up()
            its = twin.fake_quantizers[name]
            for mine, own in zip(module.modules(), its.modules(), strict=True):
                copy_tensors(mine, own, memo)
            for switch in SWITCHES:
                setattr(its, switch, getattr(module, switch))
        return twin
