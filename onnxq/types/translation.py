"""Translation: what another tool's configuration has become, with one row for every key that was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from onnxq.json_file import JsonMapping


class Effect(StrEnum):
    """Whether a key of another tool's configuration changes anything."""

    APPLIED = "applied"
    """It became a setting of onnxq, or says what holds here anyway."""
    NO_EFFECT = "no_effect"
    """It means nothing here: a note of the report."""
    NOT_SUPPORTED = "not_supported"
    """It asks for a step that onnxq does not have: a warning of the report."""


class Setting(NamedTuple):
    """A field of onnxq's configuration that a key has set, with the words for it."""

    field: str
    value: Any
    text: str


@dataclass(frozen=True)
class Outcome:
    """What a key has become: the settings that it made, where a reader asks for them, and words for people."""

    text: str = ""
    effect: Effect = Effect.APPLIED
    settings: tuple[Setting, ...] = ()

    def __str__(self) -> str:
        return ", ".join([*(setting.text for setting in self.settings), *([self.text] if self.text else [])])

    def adding(self, words: str, joint: str = ", ") -> Outcome:
        """The same with further words behind the others."""
        return replace(self, text=f"{self.text}{joint}{words}" if self.text else words)


def no_effect(why: str, where: str = "") -> Outcome:
    """A key that means nothing here, or nothing `where` it points to."""
    return Outcome(f"no effect{where}: {why}", Effect.NO_EFFECT)


def not_supported(step: str) -> Outcome:
    """A key that asks for a step which onnxq does not have."""
    return Outcome(f"no effect: onnxq does not {step} yet", Effect.NOT_SUPPORTED)


def joined(outcomes: Iterable[Outcome]) -> Outcome:
    """What a key with several outcomes has become: it has an effect where one of them has."""
    parts = tuple(outcomes)
    applied = any(part.effect is Effect.APPLIED for part in parts)
    return Outcome("; ".join(map(str, parts)), Effect.APPLIED if applied or not parts else parts[0].effect)


@dataclass(frozen=True)
class Row:
    """One key of the other tool's configuration: its full name, its value, and what it has become."""

    key: str
    value: str
    outcome: Outcome

    @property
    def became(self) -> str:
        """What it has become, in words."""
        return str(self.outcome)

    @property
    def effect(self) -> Effect:
        return self.outcome.effect

    def to_json(self) -> dict[str, str]:
        return {"key": self.key, "value": self.value, "became": self.became, "effect": self.effect.value}


@dataclass(frozen=True)
class Translation:
    """`config` is what `onnxq.config.read_config` takes; `sources` says which foreign key set which of its values.

    A path in `sources` is the way to a value in `config`: ("node", "/layer1/Conv", "weight", "bits"). `training` are
    settings of training, and `batch_norms`: what holds there if nobody says otherwise.
    """

    tool: str
    backend: str
    config: JsonMapping
    sources: Mapping[tuple[str, ...], str]
    rows: tuple[Row, ...]
    training: JsonMapping = field(default_factory=dict)

    @property
    def unfulfilled(self) -> tuple[str, ...]:
        """A sentence for each key that asked for a step which onnxq does not have: warnings of the report."""
        rows = (row for row in self.rows if row.effect is Effect.NOT_SUPPORTED)
        return tuple(f"{row.key} = {row.value}: {row.became}" for row in rows)

    @property
    def idle(self) -> tuple[str, ...]:
        """A sentence for each key that means nothing here, with the reason: notes of the report."""
        return tuple(f"{row.key}: {row.became}" for row in self.rows if row.effect is Effect.NO_EFFECT)
