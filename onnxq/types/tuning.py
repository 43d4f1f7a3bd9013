"""Tuning: what was timed to find the nodes that run faster in float, and what became of each group of them."""

from __future__ import annotations

from dataclasses import dataclass

from onnxq.files import json_number
from onnxq.json_file import JsonObject


@dataclass(frozen=True)
class Timed:
    """A group of nodes that was timed in float.

    name           what the nodes have in common
    times_as_fast  the file with the group in float against the one without; above 1 float is faster
    lost_db        how much SQNR the group in float costs the output that loses most; None where it was not compared
    kept           whether the group stays float
    """

    name: str
    nodes: tuple[str, ...]
    times_as_fast: float
    lost_db: float | None
    kept: bool

    def to_json(self) -> JsonObject:
        return {
            "group": self.name,
            "nodes": list(self.nodes),
            "times_as_fast": round(self.times_as_fast, 3),
            "lost_db": None if self.lost_db is None else json_number(round(self.lost_db, 2)),
            "float": self.kept,
        }


@dataclass(frozen=True)
class Tuning:
    """All groups that were timed, in order; `left` is how many were not, because the time was over."""

    timed: tuple[Timed, ...]
    left: int
    seconds: float

    @property
    def float_nodes(self) -> dict[str, Timed]:
        """Node -> the group with which it stays float."""
        return {node: group for group in self.timed if group.kept for node in group.nodes}

    def to_json(self) -> JsonObject:
        return {
            "groups": [group.to_json() for group in self.timed],
            "not_timed": self.left,
            "seconds": round(self.seconds, 2),
        }
