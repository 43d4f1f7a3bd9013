"""Segments as nets: the float one, the quantized one as it is, and the one whose numbers are fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from onnxq.graph import Graph
from onnxq.graph.extract import part_of
from onnxq.numerics import quantize
from onnxq.ptq.method import State
from onnxq.ptq.reconstruction.blocks import Segment
from onnxq.ptq.reconstruction.fitting.clipped_rounding import ClippedRounding
from onnxq.ptq.reconstruction.fitting.soft_rounding import SoftRounding
from onnxq.ptq.reconstruction.learnable import Learnable
from onnxq.ptq.reconstruction.recipe import Recipe
from onnxq.torchnet.net import TorchNet
from onnxq.torchnet.program import Quantizer
from onnxq.torchnet.quantizers import fake_quantizers, quantizer
from onnxq.torchnet.values import Value
from onnxq.types import Placement, QParamsTable, QuantPlan
from onnxq.types.fake_quantizers import FakeQuantizer


class SegmentNet:
    """Runs a segment: what it reads in, what it makes out, both before any quantizer of theirs."""

    def __init__(
        self, part: Graph, segment: Segment, quantizers: Mapping[str, Quantizer], trainable: Sequence[str] = ()
    ) -> None:
        self.net = TorchNet(part, quantizers=quantizers, trainable=trainable, keep=segment.makes, outputs=())
        self.net.eval()  # a Dropout of the model stays out; quantizers are no children of the net
        self._makes = segment.makes

    def __call__(self, inputs: Sequence[Value]) -> list[Value]:
        self.net(*inputs)
        kept, self.net.kept = self.net.kept, {}
        return [kept[name] for name in self._makes]


def float_net(graph: Graph, segment: Segment, *, points: bool = False) -> SegmentNet:
    """The segment without quantizers; with `points` a convolution makes one position of one patch."""
    return SegmentNet(_part(graph, segment, points), segment, {})


def quantized_net(graph: Graph, segment: Segment, plan: QuantPlan, qparams: QParamsTable) -> SegmentNet:
    """The segment with the constants of `graph` and the quantizers of `plan` (`applied`), nothing learnt."""
    part = _part(graph, segment)
    names = _quantized(part, plan)
    modules = fake_quantizers(plan, qparams, names, lambda placement: replace(placement, fake_quantizer="fixed"))
    for module in modules.values():
        module.eval()
    return SegmentNet(part, segment, {name: quantizer(plan[name], modules[plan.leader(name)]) for name in names})


class FitNet(SegmentNet):
    """A segment whose roundings, weights and scales are learnt, as a recipe says: of `learnable` what it wants.

    `state` has the plan that is carried out; `reference` is the float model that roundings start from.

    roundings  weight -> its learnt rounding
    clipped    weight -> its learnt rounding and range
    scales     leader -> fake-quantizer whose scale is learnt: of activations, and of weights that are learnt themselves
    values     weights and biases that are learnt themselves, by name
    """

    def __init__(
        self,
        state: State,
        reference: Graph,
        segment: Segment,
        recipe: Recipe,
        learnable: Learnable,
        *,
        points: bool = False,
    ) -> None:
        graph, plan, weights = state.graph, state.plan, learnable.weights
        part = _part(graph, segment, points)
        names = _quantized(part, plan)
        learnt = set(learnable.scales)

        def kind(placement: Placement) -> Placement:
            name = placement.tensor
            moving = placement.role in ("activation", "output") and not (
                part.has_tensor(name) and part.is_constant(name)
            )
            chosen = "lsq" if name in learnt else "fixed"
            if moving and recipe.drop and placement.spec.evenly_spaced:
                chosen = "qdrop"
            return replace(placement, fake_quantizer=chosen)

        modules = fake_quantizers(plan, state.qparams, names, kind)
        self.roundings: dict[str, SoftRounding] = {}
        if recipe.learnt == "roundings":
            for name in weights:
                held = modules[plan.leader(name)]
                self.roundings[name] = SoftRounding(held, graph.values(name), reference.values(name))
        self.clipped: dict[str, ClippedRounding] = {}
        if recipe.learnt == "clipped":
            for name in weights:
                held = modules[plan.leader(name)]
                self.clipped[name] = ClippedRounding(
                    held, graph.values(name), reference.values(name), clips=name in learnable.ranges
                )
        self.scales = {name: module for name, module in modules.items() if name in learnt}
        for name, module in modules.items():
            module.requires_grad_(name in learnt)
        self._dropping = [module for module in modules.values() if module.settings.name == "qdrop"]
        self._modules = nn.ModuleList([*modules.values(), *self.roundings.values(), *self.clipped.values()])
        own_functions = {**self.roundings, **self.clipped}
        functions = {name: own_functions.get(name) or modules[plan.leader(name)] for name in names}
        own = [*weights, *learnable.biases] if recipe.learnt == "weights" else []
        super().__init__(part, segment, {n: quantizer(plan[n], function) for n, function in functions.items()}, own)
        self.values: dict[str, nn.Parameter] = {n: self.net.get_parameter(n) for n in own if n in self.net._parameters}
        self._weight_modules = {name: modules[plan.leader(name)] for name in weights}
        self.train(False)

    def train(self, on: bool) -> None:
        """Soft roundings and dropped quantizers, or what will be written."""
        self._modules.train(on)

    def drop(self, chance: float) -> None:
        """Let each value of an activation stay float by this chance, in train mode."""
        for module in self._dropping:
            module.settings = FakeQuantizer("qdrop", (("p", 1 - chance),))

    def settle(self) -> None:
        """From now on eval mode gives what was fitted."""
        for module in self.roundings.values():
            module.fitted = True

    def unit_of(self, name: str) -> float:
        """What a weight or bias that is learnt itself is counted in: the step of its format, or its own size."""
        if name in self._weight_modules:
            return float(self._weight_modules[name].qparams()[0].detach().abs().mean())
        return float(self.values[name].detach().square().mean().sqrt())

    @torch.no_grad()
    def numbers(self) -> dict[str, np.ndarray]:
        """The integers of the weights that were fitted, with the scales of now."""
        found = {name: module.numbers() for name, module in self.roundings.items()}
        found |= {name: module.numbers() for name, module in self.clipped.items()}
        for name, value in self.values.items():
            if name in self._weight_modules:
                found[name] = quantize(value.detach().numpy(), self._weight_modules[name].to_qparams())
        return found

    def bias_values(self) -> dict[str, np.ndarray]:
        biases = [name for name in self.values if name not in self._weight_modules]
        return {name: self.values[name].detach().numpy().copy() for name in biases}


def _part(graph: Graph, segment: Segment, points: bool = False) -> Graph:
    part = part_of(graph, [graph.node(name) for name in segment.nodes], segment.reads, segment.makes)
    _free_batch(part)
    for node in part.nodes("Conv") if points else ():
        for name in ("pads", "strides", "dilations", "auto_pad"):
            node.attrs.pop(name, None)
    return part


def _free_batch(part: Graph) -> None:
    """Let Reshapes to [1, ...] keep the batch of what they read, where that is 1 in the file.

    Exporters write the batch of the example into such shapes. For one sample the result is the same; with it several
    samples can run together (`batches` finds out whether they really can).
    """
    for node in part.nodes("Reshape"):
        data, shape = node.inputs[:2]
        known = part.shape(data)
        readers = part.consumers(shape)
        if not part.is_constant(shape) or not known or known[0] != 1 or node.attrs.get("allowzero", 0):
            continue
        wanted = part.values(shape)
        if wanted.size > 1 and wanted[0] == 1 and all(use.node.op == "Reshape" and use.port == 1 for use in readers):
            freed = np.array(wanted)
            freed[0] = 0
            if all(_starts_with_one(part, use.node.inputs[0].name) for use in readers):
                part.set_values(shape, freed)


def _starts_with_one(part: Graph, tensor: str) -> bool:
    shape = part.shape(tensor)
    return bool(shape) and shape[0] == 1  # type: ignore[index]


def _quantized(part: Graph, plan: QuantPlan) -> list[str]:
    """The tensors of a part that somebody reads quantized."""
    return [name for name in part.tensor_names() if name in plan and plan[name].edges != ()]
