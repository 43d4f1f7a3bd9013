"""Translator: collects settings of onnxq and a row for every key while another tool's configuration is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onnxq.compat.torch_lookup import torch_name
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.types.translation import Outcome, Row, Translation

_WRITTEN = re.compile(r"\((?P<round>.*)\)|\[(?P<square>.*)\]")
"""A tuple or list that is a text."""


EFFORT = "effort"
"""The key of onnxq's own that every configuration of another tool may have beside the tool's."""

NO_EFFORT = (
    "effort = 0 unless somebody asks for more (this key, --effort, convert_deploy(effort=...)): the configuration says "
    "how to calibrate, and weights stay as they are"
)


class Translator:
    """Collects settings and rows while a configuration is read."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.config: JsonObject = {}
        self.training: JsonObject = {}
        self.sources: dict[tuple[str, ...], str] = {}
        self.rows: list[Row] = []

    def set(self, path: tuple[str, ...], value: Any, key: str) -> None:
        """Put a value of onnxq's configuration at `path`; a later one replaces an earlier one. `key` asked for it."""
        self._put(path, value, f"{self.tool}: {key}")

    def adopt(self, path: tuple[str, ...], other: Translator) -> None:
        """Take over the value at `path` from another reading, with who asked for it."""
        value: Any = other.config
        for part in path:
            value = value[part]
        self._put(path, value, other.sources[path])

    def _put(self, path: tuple[str, ...], value: Any, source: str) -> None:
        table = self.config
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = value
        self.sources[path] = source

    def append(self, name: str, values: Iterable[Any], key: str) -> None:
        """Add to a list of onnxq's configuration, such as `skip`; what is there already is not repeated."""
        held = self.config.setdefault(name, [])
        for value in values:
            path = (name, str(value))
            if path not in self.sources:
                held.append(value)
                self.sources[path] = f"{self.tool}: {key}"

    def train(self, name: str, value: Any, key: str) -> None:
        """Set `batch_norms`, or a setting of training; `key` asked for it."""
        self.training[name] = value
        self.sources[("training", name)] = f"{self.tool}: {key}"

    def row(self, key: str, value: Any, became: str | Outcome) -> None:
        """Say what a key has become, also where that is nothing, with the reason; a text alone is a setting."""
        self.rows.append(Row(key, shown(value), Outcome(became) if isinstance(became, str) else became))

    def done(self, backend: str, effort: Any = None) -> Translation:
        """What all of it has become; `effort` is what the configuration says under the key of that name, if anything.

        Another tool's configuration says how to calibrate, so that nothing changes weights unless somebody asks for it.
        """
        if effort is None:
            self.set(("effort",), 0, "effort, left out")
            self.row(EFFORT, "left out", NO_EFFORT)
        else:
            self.set(("effort",), _effort(effort), EFFORT)
            self.row(EFFORT, effort, f"effort = {effort}")
        return Translation(self.tool, backend, self.config, dict(self.sources), tuple(self.rows), self.training)


def _effort(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 3:
        raise ConfigError(f"{EFFORT} is a whole number from 0 to 3, got {shown(value)}")
    return value


def table_at(given: JsonMapping, key: str) -> JsonMapping:
    """The dictionary under a key; empty where there is none."""
    value = given.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key} must hold keys and values, it holds {shown(value)}")
    return value


KEYS_SHOWN = 24
"""Keys that an error lists; a strategy of Vitis AI may hold four times as many."""


def check_keys(given: Any, known: Iterable[str], where: str) -> JsonMapping:
    """`given` as a mapping whose keys are all known; otherwise a ConfigError with the nearest key."""
    names = list(known)
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must hold keys and values, it holds {shown(given)}")
    for key in given:
        if key not in names:
            near = did_you_mean(str(key), names)
            more = f" and {len(names) - KEYS_SHOWN} more" if len(names) > KEYS_SHOWN else ""
            raise ConfigError(f"{where}: unknown key {shown(key)}.{near} Known: {', '.join(names[:KEYS_SHOWN])}{more}")
    return given


def yes_or_no(value: Any, where: str) -> bool:
    """A truth value, and nothing that only looks like one."""
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be True or False, got {shown(value)}")
    return value


def spelt(value: Any) -> str:
    """A value of a setting as onnxq's own configuration spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def items_of(value: Any, where: str) -> list[Any]:
    """The items of a list or tuple; a single name, class or function stands for a list of one.

    A tuple may be text, as YAML reads `(torch.nn.Upsample)`.
    """
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, str) and (match := _WRITTEN.fullmatch(value.strip())) is not None:
        items = (match["round"] or match["square"] or "").split(",")
        return [item.strip(" '\"") for item in items if item.strip()]
    if isinstance(value, str) or callable(value):
        return [value]
    raise ConfigError(f"{where} must be a list, it is {shown(value)}")


def counted(names: Sequence[str], most: int = 3) -> str:
    """The first `most` names and how many more there are."""
    first = ", ".join(names[:most])
    return first if len(names) <= most else f"{first} and {len(names) - most} more"
