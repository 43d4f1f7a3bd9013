"""The way through a model: segment by segment, in order, with a float and a quantized stream of activations.

For each segment the float model's values are computed first. A block is then fitted to them on what the quantized model
has computed up to there, so that it makes good the errors of the blocks before it. What was found is put into the
state, and the quantized stream goes on with that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice

import torch

from onnxq.errors import SpecError, UnsupportedError
from onnxq.json_file import JsonObject
from onnxq.numerics import fake_quantize, quantize
from onnxq.ptq.method import Improved, State, Task
from onnxq.ptq.reconstruction.blocks import Segment, partition
from onnxq.ptq.reconstruction.fitting.batches import BlockSamples
from onnxq.ptq.reconstruction.fitting.fingerprint import Chain
from onnxq.ptq.reconstruction.fitting.fit import fit, loss_of
from onnxq.ptq.reconstruction.fitting.outcome import Outcome, apply, found_by, load_outcome, save_outcome
from onnxq.ptq.reconstruction.fitting.positions import point_layer, positions
from onnxq.ptq.reconstruction.fitting.segment_net import FitNet, SegmentNet, float_net, quantized_net
from onnxq.ptq.reconstruction.fitting.sign_descent import descend
from onnxq.ptq.reconstruction.fitting.single_product import ProductFit, single_product
from onnxq.ptq.reconstruction.fitting.streams import ActivationStore, Stream, store
from onnxq.ptq.reconstruction.fitting.target import float_model
from onnxq.ptq.reconstruction.learnable import Learnable, Rules
from onnxq.ptq.reconstruction.recipe import Recipe
from onnxq.torchnet.values import from_numpy

FEW_PRODUCTS = 2**26
"""A step at single positions with fewer is done by one thread: others would cost more than they help, and on a machine
that does something else at the same time, several times as much."""


@dataclass
class _Report:
    """Lines and figures of a run."""

    changed: list[str] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)
    blocks: list[JsonObject] = field(default_factory=list)

    def add(self, segment: Segment, learnable: Learnable, outcome: Outcome, resumed: bool) -> None:
        figures = f"noise over signal {outcome.before:.3g} -> {outcome.after:.3g}"
        if outcome.kept:
            scales = f", {len(outcome.scales)} scales" if outcome.scales else ""
            biases = f", {len(outcome.biases)} biases" if outcome.biases else ""
            self.changed.append(f"block {segment}: {figures} ({len(outcome.weights)} weights{scales}{biases})")
        elif outcome.given_up:
            self.declined.append(f"block {segment} stays as it is: not even soft roundings make it better")
        else:
            self.declined.append(f"block {segment} was restored: {figures}")
        self.blocks.append(
            {
                "block": str(segment),
                "layers": list(segment.layers),
                "weights": list(learnable.weights),
                "before": _figure(outcome.before),
                "after": _figure(outcome.after),
                "seconds": round(outcome.seconds, 3),
                "kept": outcome.kept,
                "given_up": outcome.given_up,
                "resumed": resumed,
            }
        )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let torch use so many threads, or as many as it does."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _figure(loss: float) -> float | None:
    """A loss for a report, which is JSON and has no infinity."""
    return loss if math.isfinite(loss) else None


def reconstruct(state: State, task: Task, recipe: Recipe) -> Improved:
    """Fit every block of a model; the state that is given stays as it is."""
    try:
        return _Reconstruction(state, task, recipe).run()
    except UnsupportedError as error:
        return Improved(state, declined=(f"torch cannot run this model, so nothing was fitted: {error}",))


class _Reconstruction:
    """One run, with what all segments need."""

    def __init__(self, state: State, task: Task, recipe: Recipe) -> None:
        self._given = state
        self._task = task
        self._recipe = recipe
        self._state = state.copy()
        self._state.graph.sort()
        self._plan = state.plan.active
        self._segments = partition(self._state.graph, self._plan, recipe.block)
        self._rules = Rules(self._state.graph, self._plan, self._segments, recipe)
        self._feeds = len(task.samples) if len(task.samples) < recipe.samples else recipe.samples
        self._report = _Report()

    def run(self) -> Improved:
        blocks = sum(1 for segment in self._segments if segment.weights)
        if not blocks or not self._feeds:
            why = "the model has no quantized weights" if not blocks else "there are no samples to fit to"
            return Improved(self._given, declined=(f"nothing was fitted: {why}",))
        first = next(iter(self._task.samples))
        self._float = float_model(self._state.graph, self._task.reference, self._segments, first)
        chain = Chain([self._recipe.to_json(), self._task.seed])
        with store(self._task.folder, self._task.memory_limit) as room, torch.random.fork_rng(devices=[]):
            self._room = room
            exact, quantized = self._streams(room, chain)
            self._walk(exact, quantized, chain, blocks)
            files = room.files
        report = self._report
        details = {"blocks": report.blocks, "samples": self._feeds, "files": files, "recipe": self._recipe.to_json()}
        result = self._state if report.changed else self._given
        return Improved(result, tuple(report.changed), tuple(report.declined), details=details)

    def _streams(self, room: ActivationStore, chain: Chain) -> tuple[Stream, Stream]:
        exact, quantized = Stream(room), Stream(room)
        names = self._state.graph.input_names
        for feed in islice(self._task.samples, self._feeds):
            chain.feed(feed)
            for name in names:
                exact.append(name, from_numpy(feed[name]))
        for name in names:
            quantized.share(name, exact)
        return exact, quantized

    def _walk(self, exact: Stream, quantized: Stream, chain: Chain, blocks: int) -> None:
        last_reader = {name: number for number, segment in enumerate(self._segments) for name in segment.reads}
        done = 0
        for number, segment in enumerate(self._segments):
            net = float_net(self._float, segment)
            self._run(net, segment, exact)
            chain.segment(segment, (self._state.graph, self._float), self._plan, self._state.qparams)
            if segment.weights:
                self._block(number, segment, net, exact, quantized, chain, (done, blocks))
                done += 1
                self._progress(done, blocks, 0)
            if any(name in last_reader for name in segment.makes):
                state = self._state
                self._run(quantized_net(state.graph, segment, self._plan, state.qparams), segment, quantized)
            dead = [name for name in (*segment.reads, *segment.makes) if last_reader.get(name, -1) <= number]
            for stream in (exact, quantized):
                stream.drop(dead)

    def _run(self, net: SegmentNet, segment: Segment, stream: Stream) -> None:
        with torch.no_grad():
            for number in range(self._feeds):
                for name, value in zip(segment.makes, net(stream.row(segment.reads, number)), strict=True):
                    stream.append(name, value)

    def _block(
        self,
        number: int,
        segment: Segment,
        net: SegmentNet,
        exact: Stream,
        quantized: Stream,
        chain: Chain,
        place: tuple[int, int],
    ) -> None:
        learnable = self._rules.of(number, segment)
        self._report.declined += learnable.declined
        if not learnable.weights:
            return
        task, recipe = self._task, self._recipe
        samples = BlockSamples(segment.reads, segment.makes, quantized, exact, self._feeds)
        if not samples.same_shapes():
            self._report.declined.append(f"block {segment}: float and quantized model give it values of other shapes")
            return
        path = None if task.folder is None else task.folder / f"{recipe.method}-{place[0]:03d}-{chain.name}.npz"
        outcome = None if path is None else load_outcome(path)
        resumed = outcome is not None
        if outcome is None:
            outcome = self._fitted(segment, net, learnable, samples, place)
        try:
            if outcome.kept:
                apply(outcome, self._state.graph, self._plan, self._state.qparams, recipe.method)
        except SpecError as error:
            self._report.declined.append(f"block {segment} was restored: {error}")
            return
        if path is not None and not resumed:
            save_outcome(path, outcome)
        chain.outcome(outcome)
        self._report.add(segment, learnable, outcome, resumed)

    def _fitted(
        self, segment: Segment, float_: SegmentNet, learnable: Learnable, samples: BlockSamples, place: tuple[int, int]
    ) -> Outcome:
        """Learn what may be learnt; the generator is set, so that a block does not depend on those before it."""
        started = time.perf_counter()
        state, recipe = self._state, self._recipe
        seed = self._task.seed * 10_007 + place[0]
        product = single_product(state.graph, segment, self._plan) if recipe.learnt == "clipped" else None
        if product is not None and learnable.weights:
            return self._rounded_product(product, samples)
        layer = point_layer(state.graph, segment, self._plan)
        points = layer and positions(layer, samples, float_net(self._float, segment, points=True), seed)
        if points is None:
            samples.try_stacking(float_, self._room.left())
        data = points or samples
        carried_out = replace(state, plan=self._plan)
        net = FitNet(carried_out, self._float, segment, recipe, learnable, points=points is not None)
        torch.manual_seed(seed)
        before = loss_of(net, data)
        products = data.per_step(recipe.batch) * sum(state.graph.values(name).size for name in learnable.weights)
        with _threads(1 if points is not None and products <= FEW_PRODUCTS else None):
            learn = descend if recipe.learnt == "clipped" else fit
            finished = learn(net, data, recipe, before, seed, lambda step: self._progress(*place, step))
        if not finished:
            return Outcome(before, before, time.perf_counter() - started, False, given_up=True)
        after = loss_of(net, data)
        return found_by(net, before, after, time.perf_counter() - started)

    def _rounded_product(self, weight: str, samples: BlockSamples) -> Outcome:
        """The same for a block that is a single product, whose error is a quadratic form."""
        started = time.perf_counter()
        product, qparams = ProductFit(self._float.values(weight), samples), self._state.qparams[weight]
        before = product.loss(fake_quantize(self._state.graph.values(weight), qparams))
        values = product.rounded(qparams)
        after, seconds = product.loss(values), time.perf_counter() - started
        if not after < before:
            return Outcome(before, after, seconds, False)
        return Outcome(before, after, seconds, True, weights={weight: quantize(values, qparams)})

    def _progress(self, done: int, blocks: int, step: int) -> None:
        """Counted in steps of the optimizer: those of finished blocks, and those of the one that is fitted now."""
        each = self._recipe.iterations
        self._task.progress(f"{self._recipe.method} block", done * each + step, blocks * each)
