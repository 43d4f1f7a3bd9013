"""Translation: what another tool's configuration has become, with one row for every key that was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NO_EFFECT = "no effect"
"""How a row begins whose key means nothing here."""

NOT_YET = f"{NO_EFFECT}: onnxq does not"
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

    @property
    def idle(self) -> tuple[str, ...]:
        """A sentence for each key that means nothing here, with the reason: notes of the report."""
        rows = (row for row in self.rows if row.became.startswith(NO_EFFECT) and not row.became.startswith(NOT_YET))
        return tuple(f"{row.key}: {row.became}" for row in rows)
