"""A session that returns any tensors of a graph, inner ones and those of bodies included."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ModelError, UnsupportedError
from onnxq.graph import Graph
from onnxq.graph.write import weight_bytes
from onnxq.runtime.arranged import arranged_session
from onnxq.runtime.expose import Exposer
from onnxq.runtime.feeds import Feed
from onnxq.runtime.memory import available_memory
from onnxq.runtime.reduce import Reduction, make_reduction
from onnxq.runtime.sections import SectionedSession, sectioned_session
from onnxq.runtime.session import CPU, Model, Optimize, find_provider, float_model, look_session, run_session

if TYPE_CHECKING:
    import onnxruntime as ort

FULL_OPTIMIZATION_NODES = 2000
"""Above this many nodes the optimizer costs more than it gains: with every tensor an output, full optimization of
10,000 nodes takes 20 s where basic takes 0.7 s."""

SMALL_KERNELS_NODES = 500
SMALL_TENSOR = 4096
"""Above this many nodes, tensors of at most so many values for a sample: full optimization of 1,000 such nodes takes
0.26 s where basic takes 0.05, and a run takes twice as long."""

OPEN_BRANCHES_OPSET = 11
"""Before, the branches of an If had to agree in shape, and one that lends an empty tensor to the other does not."""


class Tap:
    """A session for `graph` that returns `tensors` (inputs, outputs, anything between, in bodies too; no constants).

    Tensors have the same bits in every session whose `tensors` and `pinned` are the same together: onnxruntime is given
    the same model each time, in which all of them are outputs, and is asked for those of `tensors` alone.

    unreachable   tensors that it cannot return -> the reason
    flat          tensors that lie inside a body: their values come in a row, from all iterations that ran
    outputs       tensor -> the session's output that carries it; graph inputs are not among them
    reductions    for tensors of `reduce` (float32, of the main graph) the numbers that come instead of values

    An `arranged` session is slower to create, faster to run, and lets go of each tensor as soon as it can; the values
    of the tensors `any_order` may come in another order within a sample. Only such a session reduces: the others return
    the tensors of `reduce` like all the rest.
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Iterable[str],
        *,
        reduce: Collection[str] = (),
        pinned: Collection[str] = (),
        arranged: bool = False,
        any_order: Collection[str] = (),
        optimize: Optimize | None = None,
        threads: int | None = None,
        provider: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.unreachable: dict[str, str] = {}
        self.flat: set[str] = set()
        self.outputs: dict[str, str] = {}
        self.reductions: dict[str, Reduction] = {}
        inputs = set(graph.input_names)
        wanted = list(dict.fromkeys(tensors))
        if optimize is None:
            optimize = optimization_of(graph)
        exposer = Exposer(graph)
        if any(exposer.is_inside(name) for name in (*wanted, *pinned)):
            graph = graph.copy()
            graph.raise_opset(OPEN_BRANCHES_OPSET)
            exposer = Exposer(graph)
        self.from_feed = [name for name in wanted if name in inputs]
        for name in wanted:
            graph.tensor(name)
            if name in inputs:
                continue
            if name in reduce:
                self.reductions[name] = make_reduction(graph, name)
                continue
            try:
                self.outputs[name] = exposer.expose(name)
            except UnsupportedError as error:
                self.unreachable[name] = str(error)
                continue
            if exposer.is_inside(name):
                self.flat.add(name)
        # Without optimizations nothing is fused, and there is nothing to keep from it.
        others = dict.fromkeys(pinned if optimize != "none" else ()).keys() - inputs - set(wanted)
        pins = [pin for name in sorted(others) if (pin := exposer.pin(name)) is not None]
        self.session: ort.InferenceSession | SectionedSession | None = None
        if self.outputs or self.reductions:
            # What is reduced is an output too, so that onnxruntime's optimizer sees the same graph either way.
            with float_model(graph, [*self.outputs.values(), *self.reductions, *pins]) as model:
                if arranged:
                    self._arrange(model, pins, any_order, optimize, threads, provider, config)
                if self.session is None:
                    self.outputs |= {name: name for name in self.reductions}
                    self.reductions = {}
                    if not isinstance(model, Path) and find_provider(provider) == CPU:
                        self.session = sectioned_session(model, threads=threads, optimize=optimize, config=config)
                    self.session = self.session or look_session(
                        model, threads=threads, optimize=optimize, provider=provider, config=config
                    )

    def _arrange(
        self,
        model: Model,
        pins: Collection[str],
        any_order: Collection[str],
        optimize: Optimize,
        threads: int | None,
        provider: str | None,
        config: Mapping[str, str] | None,
    ) -> None:
        readers = [node for reduction in self.reductions.values() for node in reduction.nodes()]
        free = [self.outputs[name] for name in any_order if name in self.outputs and name not in self.flat]
        try:
            self.session, renamed = arranged_session(
                model,
                readers,
                [*self.reductions, *pins],
                free,
                threads=threads,
                optimize=optimize,
                provider=provider,
                config=config,
            )
        except (ModelError, UnsupportedError):
            # onnxruntime cannot read every graph that it writes (some with If); an ordinary session does the same work.
            return
        self.outputs = {name: renamed.get(output, output) for name, output in self.outputs.items()}

    def run(self, feed: Feed, where: str = "this data") -> dict[str, np.ndarray]:
        """Tensor -> its values for one feed."""
        found = {name: feed[name] for name in self.from_feed}
        if self.session is not None:
            names = list(self.outputs.values())
            found.update(zip(self.outputs, run_session(self.session, names, feed, where), strict=True))
        return found


def optimization_of(graph: Graph) -> Optimize:
    """How far onnxruntime optimizes a graph that is looked at: of the graph alone, so that all runs have the same bits.

    Where all tensors are small, the blocked layouts of full optimization cost more than they gain, to make and to run.
    """
    count = len(graph.gs.nodes)
    if count > FULL_OPTIMIZATION_NODES or (count > SMALL_KERNELS_NODES and _has_small_tensors(graph)):
        return "basic"
    return "all"


def _has_small_tensors(graph: Graph) -> bool:
    """Whether shapes tell, for a sample, that what nodes make and what they hold is small."""
    if weight_bytes(graph.gs) > 4 * SMALL_TENSOR * len(graph.gs.nodes):
        return False
    for node in graph.gs.nodes:
        for tensor in node.outputs:
            shape = tensor.shape if tensor.name else ()
            if shape is None or not all(isinstance(size, int) for size in shape[1:]):
                return False
            if math.prod(size for size in shape if isinstance(size, int)) > SMALL_TENSOR:
                return False
    return True


def default_memory_limit() -> int:
    """A quarter of the available memory: onnxruntime and numpy may each hold a copy for a moment."""
    return available_memory() // 4


def memory_groups(graph: Graph, tensors: Sequence[str], feed: Feed, limit: int) -> list[list[str]]:
    """The tensors in groups that one run on `feed` can return within `limit` bytes, as far as shapes tell."""
    return divide(tensors, estimated_sizes(graph, tensors, feed), limit)


def divide(tensors: Sequence[str], sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Consecutive groups that stay within the limit; a tensor above it is alone."""
    groups: list[list[str]] = []
    room = 0
    for name in tensors:
        if not groups or sizes[name] > room:
            groups.append([])
            room = limit
        groups[-1].append(name)
        room -= sizes[name]
    return groups


def estimated_sizes(graph: Graph, tensors: Sequence[str], feed: Feed) -> dict[str, int]:
    """Bytes of each tensor in the run of `feed`; the first run measures what declared shapes leave open.

    Symbolic dimensions have the length they have in the feed; a tensor with other open dimensions counts as the
    largest input.
    """
    return completed_sizes(known_sizes(graph, tensors, feed), tensors, feed)


def completed_sizes(known: Mapping[str, int], tensors: Sequence[str], feed: Feed) -> dict[str, int]:
    """The same out of the sizes that are known."""
    largest = max((array.nbytes for array in feed.values()), default=0)
    return {name: known.get(name, largest) for name in tensors}


def known_sizes(graph: Graph, tensors: Sequence[str], feed: Feed) -> dict[str, int]:
    """Bytes of those tensors whose size follows from declared shapes and from symbolic dimensions that `feed` has."""
    symbols = _lengths(graph, feed)
    sizes = {}
    for name in tensors:
        tensor = graph.tensor(name)
        shape, dtype = tensor.shape, tensor.dtype
        dims = [symbols.get(dim) if isinstance(dim, str) else dim for dim in ((None,) if shape is None else shape)]
        known = [dim for dim in dims if dim is not None]
        if len(known) == len(dims):
            sizes[name] = math.prod(known) * (4 if dtype is None else np.dtype(dtype).itemsize)
    return sizes


def _lengths(graph: Graph, feed: Feed) -> dict[str, int]:
    """Symbolic dimension of an input -> its length in a feed."""
    symbols: dict[str, int] = {}
    for name, array in feed.items():
        for dim, length in zip(graph.shape(name) or (), array.shape, strict=False):
            if isinstance(dim, str):
                symbols[dim] = length
    return symbols
