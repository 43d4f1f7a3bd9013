"""Change and Compared: what two tables do not have in common, and how much is equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onnxq.json_file import JsonMapping, JsonObject


@dataclass(frozen=True)
class Change:
    """One value that differs; None where a run does not have it."""

    name: str
    before: object
    after: object

    def to_json(self) -> JsonObject:
        return {"name": self.name, "before": self.before, "after": self.after}


@dataclass(frozen=True)
class Compared:
    """The values of a table that differ, in order, and the number of those that are equal."""

    changes: tuple[Change, ...]
    equal: int

    def to_json(self) -> JsonObject:
        return {"changed": [change.to_json() for change in self.changes], "equal": self.equal}


def compared(before: Mapping[str, object], after: Mapping[str, object]) -> Compared:
    """Two tables by their keys; what only the second has comes last."""
    names = list(dict.fromkeys([*before, *after]))
    changes = tuple(
        Change(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)
    )
    return Compared(changes, len(names) - len(changes))


def flattened(table: JsonMapping, prefix: str = "") -> Iterator[tuple[str, object]]:
    """The values of a configuration with the way to each: activation.dtype; empty tables are values too."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
