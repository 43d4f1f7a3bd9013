"""A case: which file is mutated, how, and which command gets it. Everything follows from a seed and a number."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from random import Random

from tools.fuzz import hostile
from tools.fuzz.commands import COMMANDS, Invocation, Scene, named
from tools.fuzz.corpus import Corpus
from tools.fuzz.formats.format import Mutation
from tools.fuzz.formats.onnx_models.tensors import DATA_BYTES, DATA_FILE
from tools.fuzz.kinds import Kind

INPUTS, OUTPUTS, TEMPORARY = "in", "out", "tmp"
"""Folders of a case: what is given, what may be written, TMPDIR."""


@dataclass(frozen=True)
class Case:
    seed: int
    number: int
    kind: Kind
    source: str
    mutations: tuple[Mutation, ...]
    command: str
    target: str
    key: int

    def shown(self) -> str:
        return (
            f"{self.source} [{', '.join(mutation.name for mutation in self.mutations)}] -> {self.command} {self.target}"
        )


def kind_of(seed: int, number: int) -> Kind:
    """The kind of a case, which does not depend on what else is fuzzed."""
    rng = Random(f"kind/{seed}/{number}")
    return rng.choices(list(Kind), [kind.share for kind in Kind])[0]


def numbers(seed: int, kinds: Sequence[Kind], inputs: int, first: int = 0) -> Iterator[int]:
    """The first so many numbers whose cases are of these kinds."""
    return islice((number for number in count(first) if kind_of(seed, number) in kinds), inputs)


def make_case(seed: int, number: int, corpus: Corpus) -> Case:
    rng = Random(f"case/{seed}/{number}")
    kind = kind_of(seed, number)
    sources = corpus.sources[kind]
    source = rng.choices(sources, [source.weight for source in sources])[0]
    commands = COMMANDS[kind]
    command = rng.choices(list(commands), list(commands.values()))[0]
    target = corpus.target(number)
    return Case(seed, number, kind, source.name, source.format.draw(rng), command.__name__, target, rng.getrandbits(32))


def write_case(case: Case, corpus: Corpus, folder: Path) -> Invocation:
    """Write the files of a case into a folder, and return the command that reads them."""
    inputs = folder / INPUTS
    inputs.mkdir(parents=True)
    (folder / TEMPORARY).mkdir()
    (inputs / hostile.CODE_FILE).write_text(hostile.CODE)
    source = corpus.named(case.kind, case.source)
    if source.beside is not None:
        shutil.copytree(source.beside, inputs / "beside")
        inputs = inputs / "beside"
    path = inputs / source.file_name
    path.write_bytes(source.format.mutate(source.content, case.mutations))
    if case.kind is Kind.MODELS:
        (inputs / DATA_FILE).write_bytes(bytes(DATA_BYTES))
    scene = Scene(path, source.run, case.target, folder / OUTPUTS, Random(case.key))
    return named(case.kind, case.command)(scene)
