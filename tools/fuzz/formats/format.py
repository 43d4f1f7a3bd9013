"""What a format is: a file taken apart, changed in its own terms, put together, and then damaged as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.fuzz.formats.raw_bytes import BYTE_MUTATIONS

Change = Callable[[Any, Random], Any]
"""Changes the parts in place, or returns others; None stands for "in place"."""


@dataclass(frozen=True)
class Mutation:
    """A named change, and the number that its random choices follow from: it is the same without the others."""

    name: str
    key: int


@dataclass(frozen=True)
class Format:
    """`parse` and `serialize` are each other's inverse; `changes` work on what lies between them."""

    name: str
    parse: Callable[[bytes], Any]
    changes: Mapping[str, Change]
    serialize: Callable[[Any], bytes]

    def draw(self, rng: Random) -> tuple[Mutation, ...]:
        """A few mutations, mostly of the structure: damaged bytes are found by every parser's first line."""
        count = rng.choice((1, 1, 1, 2, 2, 3, 4, 6))
        structural, raw = list(self.changes), list(BYTE_MUTATIONS)
        if not structural or rng.random() < 0.12:
            return tuple(Mutation(rng.choice(raw), rng.getrandbits(32)) for _ in range(min(count, 3)))
        names = [rng.choice(structural) for _ in range(count)]
        if rng.random() < 0.05:
            names.append(rng.choice(raw))
        return tuple(Mutation(name, rng.getrandbits(32)) for name in names)

    def mutate(self, data: bytes, mutations: Sequence[Mutation]) -> bytes:
        """The file after the mutations. One that finds nothing to change in this file changes nothing."""
        structural = [mutation for mutation in mutations if mutation.name in self.changes]
        if structural:
            parts = self.parse(data)
            for mutation in structural:
                changed = self.changes[mutation.name](parts, Random(mutation.key))
                parts = parts if changed is None else changed
            data = self.serialize(parts)
        for mutation in mutations:
            if mutation.name in BYTE_MUTATIONS:
                data = BYTE_MUTATIONS[mutation.name](data, Random(mutation.key))
        return data


def plain(name: str) -> Format:
    """A format of which nothing is known but its bytes."""
    return Format(name, lambda data: data, {}, lambda data: data)
