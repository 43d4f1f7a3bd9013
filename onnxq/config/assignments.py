"""`key=value` as `--set` has it: a dotted key of the configuration and a value in TOML, where a bare word is a text."""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxq.config.documents import load_toml
from onnxq.errors import ConfigError

KeyPath = tuple[str, ...]

_PART = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s."'=]+)\s*([.=])""")
"""A part of a key and what ends it; what is not in quotes is taken as it is, also /layer1/Conv and re:conv[0-9]."""


@dataclass(frozen=True)
class Assignment:
    """A value that the command line gives to a key.

    said   the option in the user's words, for errors and for whoever asks what decided
    adds   whether a list goes behind what the file has, instead of in its place
    by_key whether it was given as KEY=VALUE with --set, not with an option of the key's own
    """

    path: KeyPath
    value: Any
    said: str
    adds: bool = False
    by_key: bool = False


def read_assignment(text: str) -> Assignment:
    """The assignment of a text such as activation.observer=kl or node."/layer1/Conv".weight.bits=4."""
    said = f"--set {text}"
    path: list[str] = []
    at, end = 0, "."
    while end == ".":
        found = _PART.match(text, at)
        if found is None:
            raise ConfigError(
                f"{said}: give KEY=VALUE, such as samples=64, activation.observer=kl or 'node.\"conv1\".weight.bits=4'"
            )
        part, end = found.groups()
        path.append(_unquoted(part, said) if part[0] in "\"'" else part)
        at = found.end()
    return Assignment(tuple(path), _value(text[at:].strip(), said), said, by_key=True)


def _unquoted(part: str, said: str) -> str:
    try:
        return str(tomllib.loads(f"part = {part}")["part"])
    except ValueError as error:
        raise ConfigError(
            f"{said}: {part} is no text of TOML: {error}; in '...' a backslash stands for itself"
        ) from None


def _value(text: str, said: str) -> Any:
    try:
        found = load_toml(f"value = {text}")
    except ValueError as error:
        if text[:1] in ("[", "{", '"', "'"):
            raise ConfigError(f"{said}: the value is no TOML: {error}; texts in lists and tables have quotes") from None
        found = {}
    value = found.get("value")
    is_date = isinstance(value, datetime.date | datetime.time)
    return text if set(found) != {"value"} or is_date else value


def refuse_two_of_a_key(assignments: Sequence[Assignment]) -> None:
    """A key is given once: which of two options would win is nothing to be guessed."""
    seen: dict[KeyPath, Assignment] = {}
    for one in assignments:
        own = _LONG.get(one.path, one.path)
        for path, other in seen.items():
            shorter = min(len(path), len(own))
            if path[:shorter] == own[:shorter]:
                raise ConfigError(f"{other.said} and {one.said} both set '{'.'.join(one.path)}': give one of them")
        seen[own] = one


_LONG: Mapping[KeyPath, KeyPath] = {
    ("observer",): ("activation", "observer"),
    ("weight_observer",): ("weight", "observer"),
}
"""Short spellings of keys."""
_SHORT = {long: short for short, long in _LONG.items()}


def assign(values: dict[str, Any], sources: dict[KeyPath, str], one: Assignment) -> None:
    """Put the value of an assignment into a configuration, and its words where sources are known."""
    other_spelling = _LONG.get(one.path) or _SHORT.get(one.path)
    if other_spelling is not None:
        _take_out(values, sources, other_spelling)
    *tables, key = one.path
    for number, name in enumerate(tables):
        inner = values.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            raise ConfigError(f"{one.said}: '{'.'.join(one.path[: number + 1])}' is no table")
        values[name] = dict(inner or {})
        values = values[name]
        sources.setdefault(one.path[: number + 1], one.said)
    if one.adds:
        values[key] = (*values.get(key, ()), *one.value)
    else:
        _take_out(values, sources, (key,), *one.path[:-1])
        values[key] = one.value
    for path in ((), *inner_paths(one.value)):
        sources.setdefault((*one.path, *path), one.said)


def _take_out(values: dict[str, Any], sources: dict[KeyPath, str], path: KeyPath, *above: str) -> None:
    """Take a key out of a table, which stands `above` in the configuration, and out of the sources."""
    *tables, key = path
    for name in tables:
        if not isinstance(values.get(name), Mapping):
            return
        values[name] = dict(values[name])
        values = values[name]
    values.pop(key, None)
    for known in [known for known in sources if known[: len(above) + len(path)] == (*above, *path)]:
        del sources[known]


def inner_paths(value: Any) -> list[KeyPath]:
    """The ways to everything inside a value: keys of tables, texts of lists."""
    if isinstance(value, Mapping):
        return [
            path
            for key, inner in value.items()
            for path in ((str(key),), *((str(key), *p) for p in inner_paths(inner)))
        ]
    if isinstance(value, list | tuple):
        return [(item,) for item in value if isinstance(item, str)]
    return []
