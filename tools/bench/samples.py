"""Inputs of the benchmark networks, made one by one from a seed; needs numpy alone, so that every peer can use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

import numpy as np

Feed = dict[str, np.ndarray]


class Samples(Sequence[Feed]):
    """`count` feeds; each is made when it is asked for and depends on the seed and its index alone.

    Nothing is kept, so the memory of a run over it is that of the tool. `list(samples)` has them all in memory.
    """

    def __init__(self, make: Callable[[np.random.Generator], Feed], count: int, seed: int = 0) -> None:
        self.make = make
        self.count = count
        self.seed = seed

    def __len__(self) -> int:
        return self.count

    @overload
    def __getitem__(self, index: int) -> Feed: ...

    @overload
    def __getitem__(self, index: slice) -> list[Feed]: ...

    def __getitem__(self, index: int | slice) -> Feed | list[Feed]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.count))]
        if not -self.count <= index < self.count:
            raise IndexError(f"sample {index} of {self.count}")
        return self.make(np.random.default_rng((self.seed, index % self.count)))


def image(random: np.random.Generator, channels: int, size: int) -> Feed:
    """A structured random image: smooth gradients, a blob and noise, normalised like photographs."""
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size)))
    slopes, centre = random.normal(0, 0.7, (channels, 2)), random.uniform(-1, 1, (channels, 2))
    smooth = np.einsum("cd,dhw->chw", slopes, grid)
    distance = ((grid[None] - centre[:, :, None, None]) ** 2).sum(axis=1)
    blob = np.exp(-4 * distance) * random.normal(0, 2, (channels, 1, 1))
    values = smooth + blob + random.normal(0, 0.3, (channels, size, size))
    return {"input": values[None].astype(np.float32)}


def tokens(random: np.random.Generator, sequence: int = 128, vocabulary: int = 30522) -> Feed:
    """Token numbers, rare ones rarer, as in text: frequencies fall with the rank."""
    ranks = random.zipf(1.3, (1, sequence)) - 1
    return {"ids": np.minimum(ranks, vocabulary - 1).astype(np.int64)}


SAMPLES: dict[str, Callable[[np.random.Generator], Feed]] = {
    "resnet50": lambda random: image(random, 3, 224),
    "mobilenetv2": lambda random: image(random, 3, 224),
    "bert_base": tokens,
    "mobilefacenet": lambda random: image(random, 3, 112),
    "wide1k": lambda random: image(random, 4, 8),
    "tiny": lambda random: image(random, 3, 8),
}
"""The inputs of each network in `tools.bench.models.MODELS`."""


def samples_for(model: str, count: int, seed: int = 0) -> Samples:
    return Samples(SAMPLES[model], count, seed)


def save_feeds(path: Path, feeds: Sequence[Feed]) -> None:
    """All feeds in one .npz file, for a process of another interpreter."""
    np.savez(path, **{f"{number}/{name}": value for number, feed in enumerate(feeds) for name, value in feed.items()})


def read_feeds(path: Path) -> list[Feed]:
    found: dict[int, Feed] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for key in arrays.files:
            number, _, name = key.partition("/")
            found.setdefault(int(number), {})[name] = arrays[key]
    return [found[number] for number in sorted(found)]
