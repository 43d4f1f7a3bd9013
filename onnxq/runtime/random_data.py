"""Made-up samples, for trying things out: ranges calibrated on them mean nothing.

Free dimensions get sizes that the user has given, or that the float model runs on. The batch is 1. Sides of images are
tried with 224 pixels, everything else with 8, then all of them with LENGTHS, and all but the last dimension with 1: the
batch is not the first dimension of every input.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from onnxq.errors import ConfigError, DataError, did_you_mean
from onnxq.graph import Graph
from onnxq.graph.placeholders import placeholders_filled
from onnxq.runtime.dataset import Dataset
from onnxq.runtime.feeds import Feed, InputInfo, shape_text
from onnxq.runtime.pieces import Piece, Source
from onnxq.runtime.session import float_session, input_infos, run_session

Shapes = Mapping[str, Sequence[int | str]]
"""Input -> sizes that are wanted; a name leaves a dimension free, a placeholder such as "?" as it is."""

DIMENSION = 8
IMAGE_SIDE = 224
LENGTHS = (64, 224, 512, 640)
"""Sizes of free dimensions that are tried where a model does not run with the first ones."""

LARGEST = 2**24
"""Sizes that give inputs more values than this together are not tried, as long as there are smaller ones."""


def random_dataset(
    inputs: Sequence[InputInfo], count: int, seed: int = 0, *, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Dataset:
    """Random feeds of the given shapes, else of the first ones that would be tried.

    Floats are standard normal, integers 0 or 1 (legal as token, index and mask), bools either. A symbol has one length
    in all inputs. The same seed gives the same.
    """
    if count < 1:
        raise DataError(f"random data needs at least 1 sample, got {count}")
    sizes = _concrete(inputs, None) if shapes is None else dict(shapes)

    def pieces() -> Iterator[Piece]:
        for number in range(count):
            yield Piece(f"random sample {number}", sizes, _random_feed(inputs, sizes, (seed, number)), whole=True)

    return Dataset(Source(f"random data ({count} samples, seed {seed})", pieces, countable=True), inputs)


def random_shapes(graph: Graph, wanted: Shapes | None = None) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Input -> a shape that the model runs on, and a note for each whose sizes were chosen here.

    Only where dimensions other than the batch are free is the model run for it.
    """
    inputs = input_infos(graph)
    given = _with_wanted_sizes(inputs, wanted or {})
    free = [info for info in given if any(not isinstance(dim, int) for dim in info.shape[1:])]
    first = _concrete(given, None)
    if not free:
        return first, []
    session = float_session(graph, optimize="none")
    refusal: DataError | None = None
    tried = _candidates(given, free)
    for shapes in tried:
        feed = _random_feed(inputs, shapes, (0, 0))()
        try:
            run_session(session, graph.output_names, feed, "random samples")
        except DataError as error:
            refusal = refusal or error
            continue
        return shapes, [
            f"random samples: input '{info.name}' {shape_text(info.shape)} has free sizes, taken as "
            f"{shape_text(shapes[info.name])}; to choose: --shape '{info.name}={_listed(shapes[info.name])}'"
            for info in free
        ]
    sizes = sorted(
        {
            size
            for shapes in tried
            for info in free
            for dim, size in zip(info.shape, shapes[info.name], strict=True)
            if not isinstance(dim, int)
        }
    )
    names = ", ".join(f"'{info.name}' {shape_text(info.shape)}" for info in free)
    example = " ".join(f"--shape '{info.name}={_listed(tried[0][info.name])}'" for info in free)
    raise DataError(
        f"the model runs on no random sample with {', '.join(map(str, sizes))} as free sizes of {names}: "
        f"{refusal}. Give sizes that it takes, as in {example}, or real data with -d"
    )


def _with_wanted_sizes(inputs: Sequence[InputInfo], wanted: Shapes) -> list[InputInfo]:
    """The inputs with the sizes that are wanted, and with these wherever a name has got one of them."""
    names = [info.name for info in inputs]
    for name in wanted:
        if name not in names:
            raise ConfigError(
                f"--shape: the model has no input '{name}'.{did_you_mean(name, names)} It has: {', '.join(names)}"
            )
    symbols: dict[str, int | str] = {}
    sizes_of = {info.name: placeholders_filled(wanted.get(info.name, info.shape), info.shape) for info in inputs}
    for info in inputs:
        sizes = sizes_of[info.name]
        fits = len(sizes) == len(info.shape) and all(
            not isinstance(dim, int) or dim == size for dim, size in zip(info.shape, sizes, strict=False)
        )
        if not fits or any(isinstance(size, int) and size < 1 for size in sizes):
            raise ConfigError(
                f"--shape: input '{info.name}' is {shape_text(info.shape)} and cannot be {shape_text(sizes)}"
            )
        for dim, size in zip(info.shape, sizes, strict=True):
            if isinstance(dim, str) and isinstance(size, int):
                symbols.setdefault(dim, size)
    return [
        InputInfo(
            info.name,
            info.dtype,
            tuple(symbols.get(size, size) if isinstance(size, str) else size for size in sizes_of[info.name]),
        )
        for info in inputs
    ]


def _candidates(given: Sequence[InputInfo], free: Sequence[InputInfo]) -> list[dict[str, tuple[int, ...]]]:
    """Shapes to try, in this order: at least one, as nobody can choose the size of an input that is fixed."""
    every: list[dict[str, tuple[int, ...]]] = []
    for last_only, length in itertools.product((False, True), (None, *LENGTHS)):
        shapes = _concrete(given, length, last_only=last_only)
        if shapes not in every:
            every.append(shapes)

    def values(shapes: Mapping[str, tuple[int, ...]]) -> int:
        return sum(math.prod(shapes[info.name]) for info in free)

    return [shapes for shapes in every if values(shapes) <= LARGEST] or [min(every, key=values)]


def _concrete(
    inputs: Sequence[InputInfo], length: int | None, *, last_only: bool = False
) -> dict[str, tuple[int, ...]]:
    """A size for every dimension; `length` is that of free ones but the batch, None takes the first that is tried.

    With `last_only` it is that of the last dimension alone, and the other free ones are 1.
    """
    symbols: dict[str, int] = {}
    shapes = {}
    for info in inputs:
        shape = []
        for axis, dim in enumerate(info.shape):
            single = axis == 0 or (last_only and axis < len(info.shape) - 1)
            size = dim if isinstance(dim, int) else (1 if single else length or _first_length(info, axis))
            shape.append(symbols.setdefault(dim, size) if isinstance(dim, str) else size)
        shapes[info.name] = tuple(shape)
    return shapes


def _first_length(info: InputInfo, axis: int) -> int:
    """A side of an image is larger than other dimensions: its network halves it five times or so."""
    channels = (1, 3, 4)
    if len(info.shape) != 4 or info.dtype.kind not in "fu":
        return DIMENSION
    first, last = info.shape[1] in channels and axis > 1, info.shape[3] in channels and axis in (1, 2)
    return IMAGE_SIDE if first or last else DIMENSION


def _listed(shape: Sequence[int | str | None]) -> str:
    return ",".join("?" if size is None else str(size) for size in shape)


def _random_feed(
    inputs: Sequence[InputInfo], shapes: Mapping[str, tuple[int, ...]], seed: tuple[int, int]
) -> Callable[[], Feed]:
    def load() -> Feed:
        generator = np.random.default_rng(seed)
        return {info.name: _random_array(generator, info, shapes[info.name]) for info in inputs}

    return load


def _random_array(generator: np.random.Generator, info: InputInfo, shape: tuple[int, ...]) -> np.ndarray:
    if info.dtype.kind in "iub":
        return np.asarray(generator.integers(0, 2, shape)).astype(info.dtype)
    if info.dtype.kind in "OUST":
        raise DataError(f"input '{info.name}' holds text, for which there is no random data: give real data with -d")
    return np.asarray(generator.standard_normal(shape)).astype(info.dtype)
