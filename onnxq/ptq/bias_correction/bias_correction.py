"""Biases corrected by the shift that quantization gives the mean of each output channel.

Nagel, van Baalen, Blankevoort, Welling: "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019;
Banner, Nahshan, Soudry: "Post training 4-bit quantization of convolutional networks for rapid-deployment", 2019.
Rounded weights are off by W - Q, which is no noise: the same weights multiply every input, so that the mean of an
output is off by (W - Q) E[x] plus what came with x. A bias can take that back.

Corrected one layer after the other, each shift is measured with all layers before it corrected, and is gone afterwards.
That takes a run of the model for each layer on the longest way through it. With fewer `rounds`,

    1. one run of the float model finds E[x] of every layer, and all are corrected by (W - Q) E[x]: none of it is
       counted twice, since what comes with x is left out;
    2. a run for each round finds the whole shift of the layers at one depth, the depths evenly apart, and the last
       layers at the end: what has come together up to there is taken back too.

Only sums over samples are held: one number for each channel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np

from onnxq.graph import Graph
from onnxq.graph.extract import front_of
from onnxq.json_file import JsonObject
from onnxq.numerics import sqnr_db
from onnxq.ptq.bias_correction.analytic import expected_shift
from onnxq.ptq.bias_correction.sites import BiasSite, add_to_bias, bias_sites
from onnxq.ptq.method import Improved, State, Task, at_least, improvement, limits
from onnxq.ptq.weights.layers import Reader, reader_of
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import KEEP_PAIRS
from onnxq.runtime.tap import Tap
from onnxq.runtime.workers import in_threads

FEW = 12
"""Large samples that means take: on five models 12 and 24 of them came to the same accuracy within 0.2 dB."""

SAME_DB = 60.0
"""Two float models whose outputs are this near are the same up to rounding."""


@improvement(
    "bias_correction",
    "biases take back the shift of the mean that quantization gives each output channel",
    "Nagel et al. 2019; Banner et al. 2019",
    {"rounds": 4, "analytic": False},
    check=limits("bias_correction", rounds=at_least(1)),
    expected_db=0.5,
)
def bias_correction(state: State, task: Task, *, rounds: int, analytic: bool) -> Improved:
    """Correct the biases of all quantized layers that have one.

    rounds    depths of the model at which the whole shift is measured, each in a run of its own; as many as the model
              is deep, or more, correct layer after layer
    analytic  no samples: E[x] follows from the BatchNormalization in front of a layer, where there is one
    """
    correction = _Correction(state, task)
    if analytic:
        correction.by_expectation()
    else:
        levels = sorted({site.level for site in correction.sites})
        chosen = levels
        if rounds < len(levels):
            correction.by_weights()
            chosen = [levels[number] for number in _evenly(len(levels), rounds)]
        for done, level in enumerate(chosen):
            task.progress("bias_correction", done, len(chosen))
            correction.by_outputs([site for site in correction.sites if site.level == level])
    return correction.result()


def _evenly(count: int, rounds: int) -> list[int]:
    """`rounds` numbers below `count`, evenly apart, with the last one among them."""
    return sorted({math.ceil(count * (number + 1) / rounds) - 1 for number in range(rounds)})


class _Correction:
    """A state whose biases are being corrected; `shifts` are what has been added to the means of the outputs."""

    def __init__(self, state: State, task: Task) -> None:
        self._old = state
        self._state = state.copy()
        self._task = task
        self.sites, self._declined = bias_sites(self._state)
        self._shifts: dict[str, np.ndarray] = {}
        self._float: Graph | None = None
        self._float_means: dict[str, np.ndarray] = {}
        self._float_inputs: dict[str, np.ndarray] = {}

    def by_expectation(self) -> None:
        """Correct by (W - Q) E[x] with E[x] from the batch norm in front of each layer."""
        for site in self.sites:
            shift = expected_shift(self._state, site)
            if isinstance(shift, str):
                self._declined.append(f"{site.node}: {shift}")
            else:
                self._correct(site, shift * site.gain)

    def by_weights(self) -> None:
        """Correct every layer by (W - Q) E[x]."""
        layers = self._layers()
        self._run_float(layers)
        simulated = self._simulated()
        for site in self.sites:
            mean = self._float_inputs.get(site.node)
            if mean is None or not simulated.has_node(site.node):
                continue
            exact = self._counterpart().values(self._counterpart().node(site.node).inputs[site.weight])
            change = exact - simulated.values(simulated.node(site.node).inputs[site.weight])
            if change.any():
                # [groups, outputs, inputs] times [groups, inputs]: outputs of all groups follow one another.
                shift = (layers[site.node].view.unfold(change) @ mean[:, :, None]).ravel()
                self._correct(site, shift * site.gain)

    def by_outputs(self, sites: Sequence[BiasSite]) -> None:
        """Correct layers of which none is behind another by the difference of their means from the float model."""
        if not self._float_means:
            self._run_float({})
        computed, config = self._task.computed(self._state)
        computed.sort()
        outputs = self._outputs(computed, sites)
        # What is behind these layers need not run.
        means = self._means(front_of(computed, [tensor for tensor, _ in outputs.values()]), outputs, config)
        for site in sites:
            if site.node in means and site.node in self._float_means:
                self._correct(site, self._float_means[site.node] - means[site.node])

    def result(self) -> Improved:
        changed, details = [], JsonObject()
        for site in self.sites:
            shift = self._shifts.get(site.node)
            if shift is None or not shift.any():
                continue
            largest = float(np.abs(shift).max())
            changed.append(f"{site.node}: bias '{site.bias}' moved by up to {largest:.3g}")
            details[site.node] = {"largest": largest, "mean": float(np.abs(shift).mean())}
        state = self._state if changed else self._old
        return Improved(state, tuple(changed), tuple(dict.fromkeys(self._declined)), details=details)

    def _correct(self, site: BiasSite, shift: np.ndarray) -> None:
        """Add what is missing in the mean of each channel."""
        if not np.isfinite(shift).all():
            self._declined.append(f"{site.node}: the mean of its output is not finite")
            return
        add_to_bias(self._state, site, shift)
        self._shifts[site.node] = self._shifts.get(site.node, 0.0) + shift

    # ---- models and means ----------------------------------------------------------------------------------------

    def _simulated(self) -> Graph:
        graph = self._task.simulated(self._state)
        graph.sort()
        return graph

    def _counterpart(self) -> Graph:
        """The float model whose layers are what the state's layers should be.

        That is the reference, unless equalization has scaled channels since: then the float graph of the state itself
        computes the same as the reference, with other values in between.
        """
        if self._float is None and same_constants(self._task.reference, self._old.graph):
            self._float = self._task.reference
        if self._float is None:
            feed = next(iter(self._task.samples))
            names = self._task.reference.output_names
            expected = Tap(self._task.reference, names, threads=1).run(feed)
            found = Tap(self._old.graph, names, threads=1).run(feed)
            kept = [name for name in names if expected[name].dtype.kind == "f"]
            same = all(
                expected[name].shape == found[name].shape and sqnr_db(expected[name], found[name]) > SAME_DB
                for name in kept
            )
            self._float = self._old.graph if same else self._task.reference
        return self._float

    def _layers(self) -> dict[str, Reader]:
        """Site -> its layer, where the mean of its input says what its output is off by."""
        graph, found = self._counterpart(), {}
        for site in self.sites:
            node = graph.node(site.node)
            reader = reader_of(graph, node, site.weight)
            if not isinstance(reader, str) and not graph.is_constant(node.inputs[reader.port]):
                found[site.node] = reader
        return found

    def _run_float(self, layers: Mapping[str, Reader]) -> None:
        """The means of all sites' outputs in the float model, and of the inputs of some layers."""
        graph = self._counterpart()
        wanted: dict[tuple[str, str], tuple[str, Sums]] = {
            **{("input", name): (graph.node(name).inputs[it.port].name, it.rows.sums) for name, it in layers.items()},
            **{
                ("output", name): (tensor, partial(_channel_sums, axis=axis))
                for name, (tensor, axis) in self._outputs(graph, self.sites).items()
            },
        }
        found = self._mean_values(graph, wanted)
        self._float_inputs = {name: mean for (kind, name), mean in found.items() if kind == "input"}
        self._float_means = {name: mean for (kind, name), mean in found.items() if kind == "output"}

    def _outputs(self, graph: Graph, sites: Sequence[BiasSite]) -> dict[str, tuple[str, int]]:
        found = {}
        for site in sites:
            if graph.has_node(site.last):
                found[site.node] = (graph.node(site.last).outputs[0].name, site.axis)
            else:
                self._declined.append(f"{site.node}: the target computes it in its own way")
        return found

    def _means(
        self, graph: Graph, wanted: Mapping[str, tuple[str, int]], config: Mapping[str, str]
    ) -> dict[str, np.ndarray]:
        """Site -> mean over all samples and positions of each channel of a tensor."""
        sums = {site: (tensor, partial(_channel_sums, axis=axis)) for site, (tensor, axis) in wanted.items()}
        return self._mean_values(graph, sums, config)

    def _mean_values(
        self, graph: Graph, wanted: Mapping[Key, tuple[str, Sums]], config: Mapping[str, str] = KEEP_PAIRS
    ) -> dict[Key, np.ndarray]:
        """Means over all samples, from the sums of each tensor in a sample."""
        if not wanted:
            return {}
        tap = Tap(graph, [tensor for tensor, _ in wanted.values()], threads=1, config=config)

        def look(numbered: tuple[int, Feed]) -> list[tuple[np.ndarray, int]]:
            values = tap.run(numbered[1], f"sample {numbered[0]}")
            return [sums(values[tensor]) for tensor, sums in wanted.values()]

        totals: dict[Key, np.ndarray] = {}
        counts = dict.fromkeys(wanted, 0)
        samples = self._task.samples.few(FEW)
        for found in in_threads(look, zip(samples.numbers, samples, strict=False)):
            for key, (total, count) in zip(wanted, found, strict=True):
                totals[key] = totals.get(key, 0.0) + total
                counts[key] += count
        return {key: total / max(counts[key], 1) for key, total in totals.items()}


Key = TypeVar("Key", bound=Hashable)

Sums = Callable[[np.ndarray], tuple[np.ndarray, int]]
"""The sums of a tensor over its positions, and how many there are."""


def same_constants(one: Graph, other: Graph) -> bool:
    """Whether two graphs have the same nodes and the same numbers, so that they compute the same."""
    if [node.name for node in one.nodes()] != [node.name for node in other.nodes()]:
        return False
    pairs = zip(one.nodes(), other.nodes(), strict=True)
    for ours, theirs in pairs:
        if [tensor.name for tensor in ours.inputs] != [tensor.name for tensor in theirs.inputs]:
            return False
        for tensor, counterpart in zip(ours.inputs, theirs.inputs, strict=True):
            if one.is_constant(tensor) and not np.array_equal(one.values(tensor), other.values(counterpart)):
                return False
    return True


def _channel_sums(values: np.ndarray, axis: int) -> tuple[np.ndarray, int]:
    """The sum of each channel over all positions, in float64, and how many positions there are."""
    others = tuple(number for number in range(values.ndim) if number != axis % values.ndim)
    return values.sum(others, dtype=np.float64), values.size // max(values.shape[axis], 1)
