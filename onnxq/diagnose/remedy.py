"""A remedy as a value: what to change in the configuration, the target or the data, and how its trial went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from onnxq.config import Config
from onnxq.config.changes import document, merged
from onnxq.diagnose.causes import Code
from onnxq.files import json_number
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.targets import BACKENDS, joined_name, split_name

Kind = Literal["setting", "target", "skip", "data", "preprocess"]
Path = tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A value at a path of the configuration; None takes out what stands there."""

    path: Path
    value: Any


@dataclass(frozen=True)
class DataChange:
    """What only the user can do to his data: leave a sample out, give more, or compute arrays in another way."""

    action: Literal["leave_out", "more", "compute"]
    samples: tuple[int, ...] = ()
    count: int = 0
    formula: str = ""

    def to_json(self) -> JsonObject:
        return {key: list(v) if isinstance(v, tuple) else v for key, v in vars(self).items() if v not in ((), 0, "")}


@dataclass(frozen=True)
class Remedy:
    """What to change; several fields together are one remedy.

    settings  of the configuration
    skip      patterns of nodes that stay float
    unforce   patterns that are taken out of `force`
    options   of the target
    data      what is to be done with the data by hand
    """

    settings: tuple[Setting, ...] = ()
    skip: tuple[str, ...] = ()
    unforce: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    data: DataChange | None = None

    @property
    def by_hand(self) -> bool:
        """Whether no configuration can say it."""
        return self.data is not None

    @property
    def changes(self) -> int:
        """How many things are to be changed."""
        named = (self.settings, self.skip, self.unforce, self.options)
        return sum(map(len, named)) + int(self.data is not None)

    def to_json(self) -> JsonObject:
        found: JsonObject = {}
        if self.settings:
            found["settings"] = [{"path": list(item.path), "value": item.value} for item in self.settings]
        if self.skip:
            found["skip"] = list(self.skip)
        if self.unforce:
            found["unforce"] = list(self.unforce)
        if self.options:
            found["options"] = dict(self.options)
        if self.data is not None:
            found["data"] = self.data.to_json()
        return found


@dataclass(frozen=True)
class Trial:
    """A remedy that was tried: the worst result with and without it, on samples that nothing was fitted to.

    cause     what it is a remedy for
    after_db  None where there is no result: the target refuses it, or it could not be tried
    refused   why the target does not take it
    """

    remedy: Remedy
    cause: Code
    before_db: float
    after_db: float | None
    pays: bool
    refused: str | None = None

    @property
    def untried(self) -> bool:
        """Whether it is an advice that nothing was measured for."""
        return self.after_db is None and self.refused is None

    @property
    def gain_db(self) -> float:
        return float("-inf") if self.after_db is None else self.after_db - self.before_db

    def to_json(self) -> JsonObject:
        return {
            "cause": self.cause,
            **self.remedy.to_json(),
            "before_db": json_number(round(self.before_db, 3)),
            "after_db": None if self.after_db is None else json_number(round(self.after_db, 3)),
            "pays": self.pays,
            **({} if self.refused is None else {"refused": self.refused}),
        }


def price(remedy: Remedy) -> int:
    """What a remedy costs on the chip: 0 nothing, 1 some tensors with more bits, 2 some in float, 3 all of them."""
    if remedy.options:
        return 3
    keys = {item.path[-1] for item in remedy.settings}
    everywhere = any(item.path[0] == "activation" and item.path[-1] == "dtype" for item in remedy.settings)
    if everywhere:
        return 3
    if remedy.skip or ("skip" in keys):
        return 2
    return 1 if "dtype" in keys else 0


ALIKE_DB = 3.0
"""Remedies that gain about the same."""

LOW_DB, GOOD_DB = 20.0, 25.0
"""Below the first every decibel counts, from the second on a few more are not worth a price."""


def nearly_best(trials: Sequence[Trial]) -> list[Trial]:
    """The trials with about as good an end as the best one has."""
    best = max(trial.gain_db for trial in trials)
    reached = max(trial.after_db for trial in trials if trial.after_db is not None and trial.gain_db == best)
    if reached < LOW_DB:
        margin = 0.0
    else:
        margin = ALIKE_DB if reached < GOOD_DB else max(ALIKE_DB, min(2 * ALIKE_DB, reached - GOOD_DB))
    return [trial for trial in trials if trial.gain_db >= best - margin]


def together(remedies: Iterable[Remedy]) -> Remedy:
    """All of them as one; where two speak about the same, the first one holds."""
    settings: dict[Path, Setting] = {}
    options: dict[str, str] = {}
    skip: dict[str, None] = {}
    unforce: dict[str, None] = {}
    for remedy in remedies:
        for item in remedy.settings:
            settings.setdefault(item.path, item)
        for key, value in remedy.options:
            options.setdefault(key, value)
        skip.update(dict.fromkeys(remedy.skip))
        unforce.update(dict.fromkeys(remedy.unforce))
    return Remedy(tuple(settings.values()), tuple(skip), tuple(unforce), tuple(options.items()))


def apply_to(config: Config, remedy: Remedy) -> Config:
    """The configuration with a remedy; the target's options are not part of it."""
    changes: dict[Path, Any] = {item.path: item.value for item in remedy.settings}
    if remedy.skip:
        changes[("skip",)] = list(dict.fromkeys((*config.skip, *remedy.skip)))
    if remedy.unforce:
        changes[("force",)] = [pattern for pattern in config.force if pattern not in remedy.unforce]
    return merged(config, changes, "diagnose") if changes else config


def target_with(name: str, options: Iterable[tuple[str, str]]) -> str:
    """The name of a registered target with further options."""
    family, held = split_name(name)
    held |= dict(options)
    known = [option.name for option in BACKENDS.get(family).options]
    return joined_name(family, {key: held[key] for key in known if key in held})


def applied_document(config: Config, target: str | None, remedy: Remedy) -> JsonObject:
    """What `onnxq quantize -c` has to read for a remedy to hold: every setting, and the target with its options."""
    values: JsonMapping = document(apply_to(config, remedy))
    named = target or config.backend
    if named is not None and remedy.options:
        named = target_with(named, remedy.options)
    rest = {key: value for key, value in values.items() if key != "backend"}
    return rest if named is None else {"backend": named, **rest}
