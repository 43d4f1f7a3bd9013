"""Layers rounded one after the other, each so that it does on quantized inputs what it did on those of the float model.

Li et al.: "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric Calibration", 2025; Behdin et al.: "QuantEase:
Optimization-based Quantization for Language Models", 2023. AdaRound has the same aim and gets there with gradients;
here everything follows from second moments (`onnxq.ptq.weights.paired_moments`). With x of the float model and y of the
quantized one, in which all layers before are rounded already, the best matrix without a grid is

    W + W (C - H) H^-1            H = E[y yT], C = E[x yT]

of which the part `alpha` is taken: all of it would also make up for the noise of quantizers by making outputs smaller,
which adds up from layer to layer. GPTQ rounds the result, and coordinate descent goes on until no single number can be
changed for the better. A bias takes up what is left of the mean, so moments are taken around the means where a layer
has one.

Layers of one depth are done together. In models that are deeper than `rounds`, several depths share a run; layers
behind the first of these make up for their own rounding only, since what comes with y is going to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.emit.simulate import simulate
from onnxq.graph import Graph
from onnxq.graph.depths import depths_of, in_stages
from onnxq.json_file import JsonObject
from onnxq.ptq.bias_correction.sites import BiasSite, add_to_bias, bias_sites
from onnxq.ptq.method import Improved, Limit, State, Task, above, at_least, improvement, limits
from onnxq.ptq.weights.coordinate_descent import descend
from onnxq.ptq.weights.gptq_matrix import Grid, gptq_stack, inverse_factor, output_errors
from onnxq.ptq.weights.layers import Layers, layers_of, quantized_weights, source_of, write_chosen
from onnxq.ptq.weights.moments import Source, in_batches
from onnxq.ptq.weights.paired_moments import FloatRows, PairedMoments, collect_paired

SWEEPS = 4
"""Of the coordinate descent, at most; hardly anything changes after three."""


@improvement(
    "gptaq",
    "rounds layer after layer so that each makes up for what the layers before it do wrong",
    "Li et al., GPTAQ, 2025; Behdin et al., QuantEase, 2023",
    {"alpha": 0.5, "damp": 0.01, "rounds": 64},
    rounds=True,
    check=limits(
        "gptaq",
        alpha=Limit("lies between 0 and 1", lambda value: 0 <= value <= 1),
        damp=above(0),
        rounds=at_least(1),
    ),
    aliases=("refit",),
)
def gptaq(state: State, task: Task, *, alpha: float, damp: float, rounds: int) -> Improved:
    """Round the weights of Conv, ConvTranspose, Gemm and MatMul, and correct their biases.

    alpha   how much of the error of its inputs a layer makes up for, 0 .. 1
    damp    part of the mean of H's diagonal that is added to it
    rounds  runs of the model, at most
    """
    return _Gptaq(state, task, alpha, damp).run(rounds)


@dataclass(frozen=True)
class _Stage:
    """Weights that are fitted with one run; those in `first` lie in front of all others."""

    layers: tuple[Layers, ...]
    first: frozenset[str]


class _Gptaq:
    """A state that is being rounded, layer by layer."""

    def __init__(self, state: State, task: Task, alpha: float, damp: float) -> None:
        self._old = state
        self._state = state.copy()
        self._task = task
        self._alpha = alpha
        self._damp = damp
        sites, _ = bias_sites(self._state)
        self._sites = {site.node: site for site in sites}
        self._rows = FloatRows(state.graph, task.samples, task.seed, task.memory_limit // 2)
        self._changed: list[str] = []
        self._declined: list[str] = []
        self._details: JsonObject = {}

    def run(self, rounds: int) -> Improved:
        placements, declined = quantized_weights(self._old)
        layers, others = layers_of(self._old, placements)
        self._declined += declined + others
        done = 0
        stages = _stages(self._state.graph, layers, rounds)
        for number, stage in enumerate(stages):
            later = [layer for other in stages[number + 1 :] for layer in other.layers]
            for layer, moments in self._moments(stage, later):
                self._task.progress("gptaq", done, len(layers))
                done += 1
                if isinstance(moments, str):
                    self._declined.append(f"{layer.tensor}: {moments}")
                else:
                    self._fit(layer, moments)
        result = self._state if self._changed else self._old
        return Improved(result, tuple(self._changed), tuple(self._declined), details=self._details)

    def _moments(self, stage: _Stage, later: Sequence[Layers]) -> Iterator[tuple[Layers, PairedMoments | str]]:
        """Each weight with the moments of all layers that read it, or why they are not known."""
        state, task = self._state, self._task
        quantized, _ = simulate(state.graph, state.plan.active, state.qparams, task.backend)
        quantized.sort()
        sources = [_sources(quantized, layer) for layer in stage.layers]
        of_float = [_sources(self._old.graph, layer) for layer in stage.layers]
        for i, reason in enumerate(of_float):
            if isinstance(reason, str):
                sources[i] = reason
        needs = [list(_known(each).values()) for each in sources]
        for batch in in_batches(needs, task.memory_limit // 4):
            wanted = {name: source for i in batch for name, source in _known(sources[i]).items()}
            in_float = {name: _known(of_float[i])[name] for i in batch for name in _known(sources[i])}
            ahead = {name: s for other in later for name, s in _known(_sources(self._old.graph, other)).items()}
            rows = self._rows.take(in_float, ahead)
            found = collect_paired(quantized, wanted, rows, task.samples, task.seed) if wanted else {}
            for i in batch:
                layer, names = stage.layers[i], sources[i]
                if isinstance(names, str):
                    yield layer, names
                    continue
                total = PairedMoments()
                for name in names:
                    total = total.with_more(found[name])
                if not total.usable:
                    yield layer, "its inputs are not finite, or there are none"
                else:
                    yield layer, total if layer.tensor in stage.first else total.of_own()

    def _fit(self, layer: Layers, seen: PairedMoments) -> None:
        """Round a weight and correct its bias; rows that plain rounding serves better are rounded plainly."""
        state, name, view = self._state, layer.tensor, layer.view
        site = self._site(layer)
        own, mixed = seen.matrices(centred=site is not None)
        weight = view.unfold(self._old.graph.values(name).astype(np.float32)).astype(np.float64)
        grid = Grid.of(state.qparams[name], view)
        factor = inverse_factor(own, self._damp)
        wanted = weight + self._alpha * (weight @ (mixed - own) @ factor.swapaxes(1, 2) @ factor)
        rounded = gptq_stack(wanted.astype(np.float32), own, grid, damp=self._damp)
        rounded = descend(wanted, own, rounded, grid, sweeps=SWEEPS)
        nearest = grid.nearest(weight.astype(np.float32))
        errors = [output_errors(wanted - numbers, own) for numbers in (rounded, nearest)]
        chosen = np.where((errors[0] < errors[1])[:, :, None], rounded, nearest)
        before, after = float(errors[1].mean()), float(np.minimum(*errors).mean())
        if not write_chosen(state.graph, name, view.fold(chosen), state.qparams[name]):
            self._declined.append(f"{name}: {self._old.graph.dtype(name)} is too coarse to hold its numbers")
            return
        self._changed.append(f"{name}: output error {before:.3g} -> {after:.3g}")
        self._details[name] = {"nearest": before, "gptaq": after}
        if site is not None:
            mean_float, mean_own = seen.means()
            shift = (weight @ mean_float[:, :, None] - chosen.astype(np.float64) @ mean_own[:, :, None]).ravel()
            add_to_bias(state, site, shift * site.gain * _factor(state.graph, layer))

    def _site(self, layer: Layers) -> BiasSite | None:
        """Where the mean of the layer's outputs can be moved; None where others have the weight too, or no bias."""
        if len(layer.readers) > 1:
            return None
        site = self._sites.get(layer.readers[0].node)
        groups, outputs, _ = layer.view.matrices
        if site is None or self._old.graph.values(site.bias).size != groups * outputs:
            return None
        return site


def _stages(graph: Graph, layers: Sequence[Layers], rounds: int) -> list[_Stage]:
    """The weights in the order of the depth at which the last of their layers lies."""
    depths = depths_of(graph, {reader.node for layer in layers for reader in layer.readers})
    of_weight = {layer.tensor: max(depths[reader.node] for reader in layer.readers) for layer in layers}
    stages = []
    for together in in_stages(of_weight.values(), rounds):
        mine = tuple(layer for layer in layers if of_weight[layer.tensor] in together)
        stages.append(_Stage(mine, frozenset(n for n, depth in of_weight.items() if depth == together[0])))
    return stages


Sources = dict[str, Source]
"""Layer and input -> what it reads."""


def _known(sources: Sources | str) -> Sources:
    return {} if isinstance(sources, str) else sources


def _sources(graph: Graph, layer: Layers) -> Sources | str:
    """What the layers of a weight read in a graph; or why that is not known."""
    found: Sources = {}
    for reader in layer.readers:
        source = source_of(graph, reader)
        if isinstance(source, str):
            return source
        found[f"{reader.node}:{reader.port}"] = source
    return found


def _factor(graph: Graph, layer: Layers) -> float:
    """What a node multiplies its product with."""
    node = graph.node(layer.readers[0].node)
    return float(node.attrs.get("alpha", 1.0)) if node.op == "Gemm" else 1.0
