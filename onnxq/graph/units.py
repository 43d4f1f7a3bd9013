"""Units: groups of nodes that targets treat as one operation, such as a decomposed LayerNorm.

The nodes stay as they are; a unit only says that they belong together, so that no quantizer is put inside.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """`nodes` in order; the last one makes the unit's output. `kind` is shown to users and may be named in rules."""

    kind: str
    nodes: tuple[str, ...]

    @property
    def last(self) -> str:
        return self.nodes[-1]


class Units:
    """Node name -> the unit it belongs to; a node is in one unit at most."""

    def __init__(self) -> None:
        self._of_node: dict[str, Unit] = {}

    def add(self, kind: str, nodes: tuple[str, ...]) -> bool:
        """Group nodes; False (and no change) when one of them belongs to a unit already."""
        if any(name in self._of_node for name in nodes):
            return False
        unit = Unit(kind, nodes)
        for name in nodes:
            self._of_node[name] = unit
        return True

    def of(self, node: str) -> Unit | None:
        return self._of_node.get(node)

    def all(self) -> list[Unit]:
        return list(dict.fromkeys(self._of_node.values()))

    def forget(self, node: str) -> None:
        """Dissolve the unit of a node that leaves the graph."""
        unit = self._of_node.get(node)
        if unit is not None:
            for name in unit.nodes:
                self._of_node.pop(name, None)

    def copy(self) -> Units:
        twin = Units()
        twin._of_node = dict(self._of_node)
        return twin
