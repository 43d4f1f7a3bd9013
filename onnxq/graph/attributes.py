"""Attributes of nodes: what an AttributeProto can hold, by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnxq.types.attributes import AttributeValues as AttributeValues


class Attributes(dict[str, Any]):
    """A node's attributes, which remember whether a graph was ever among them.

    "Does this node have bodies" is asked of every node many times, and the answer is nearly always no.
    """

    __slots__ = ("may_have_graphs",)

    def __init__(self, items: AttributeValues | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(items)
        self.may_have_graphs = any(map(_may_be_graphs, self.values()))

    def __setitem__(self, key: str, value: Any) -> None:
        if _may_be_graphs(value):
            self.may_have_graphs = True
        super().__setitem__(key, value)

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value


_PLAIN = frozenset({int, float, str, bytes})


def _may_be_graphs(value: Any) -> bool:
    kind = type(value)
    return kind not in _PLAIN and not (kind is list and (not value or type(value[0]) in _PLAIN))
