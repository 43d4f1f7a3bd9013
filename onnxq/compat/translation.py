"""What another tool's configuration becomes: a target, settings of onnxq, and one row for every key that was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxq.compat.torch_lookup import torch_name
from onnxq.errors import ConfigError, did_you_mean

NOT_YET = "no effect: onnxq does not"
"""How a row begins whose key asked for something that onnxq cannot do."""


@dataclass(frozen=True)
class Row:
    """One key of the other tool's configuration: its full name, its value, and what it has become."""

    key: str
    value: str
    became: str

    def to_json(self) -> dict[str, str]:
        return {"key": self.key, "value": self.value, "became": self.became}


@dataclass(frozen=True)
class Translation:
    """`config` is what `onnxq.config.read_config` takes; `sources` says which foreign key set which of its values.

    A path in `sources` is the way to a value in `config`: ("node", "/layer1/Conv", "weight", "bits").
    """

    tool: str
    backend: str
    config: Mapping[str, Any]
    sources: Mapping[tuple[str, ...], str]
    rows: tuple[Row, ...]

    @property
    def unfulfilled(self) -> tuple[str, ...]:
        """A sentence for each key that asked for a step which onnxq does not have: warnings of the report."""
        return tuple(f"{row.key} = {row.value}: {row.became}" for row in self.rows if row.became.startswith(NOT_YET))


class Translator:
    """Collects settings and rows while a configuration is read."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.config: dict[str, Any] = {}
        self.sources: dict[tuple[str, ...], str] = {}
        self.rows: list[Row] = []

    def set(self, path: tuple[str, ...], value: Any, key: str) -> None:
        """Put a value of onnxq's configuration at `path`; a later one replaces an earlier one. `key` asked for it."""
        table = self.config
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = value
        self.sources[path] = f"{self.tool}: {key}"

    def append(self, name: str, values: Iterable[Any], key: str) -> None:
        """Add to a list of onnxq's configuration, such as `skip`; what is there already is not repeated."""
        held = self.config.setdefault(name, [])
        for value in values:
            path = (name, str(value))
            if path not in self.sources:
                held.append(value)
                self.sources[path] = f"{self.tool}: {key}"

    def row(self, key: str, value: Any, became: str) -> None:
        """Say what a key has become, also where that is nothing, with the reason."""
        self.rows.append(Row(key, shown(value), became))

    def done(self, backend: str) -> Translation:
        return Translation(self.tool, backend, self.config, dict(self.sources), tuple(self.rows))


def table_at(given: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The dictionary under a key; empty where there is none."""
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} must hold keys and values, it holds {shown(value)}")
    return value


def check_keys(given: Any, known: Iterable[str], where: str) -> Mapping[str, Any]:
    """`given` as a mapping whose keys are all known; otherwise a ConfigError with the nearest key."""
    names = list(known)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold keys and values, it holds {shown(given)}")
    for key in given:
        if key not in names:
            near = did_you_mean(str(key), names)
            raise ConfigError(f"{where}: unknown key {shown(key)}.{near} Known: {', '.join(names)}")
    return given


def shown(value: Any) -> str:
    """A value as a person would write it: functions and classes by their name, the rest as Python prints it."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if isinstance(getattr(value, "__qualname__", None) or getattr(value, "__name__", None), str):
        return torch_name(value)
    return repr(value)
