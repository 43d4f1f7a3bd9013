"""Groups of tensors that share one scale (union-find)."""

from __future__ import annotations


class Ties:
    """Disjoint groups of tensor names; the leader of a group is its first member in the order of joining."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._order: dict[str, int] = {}

    def join(self, first: str, second: str) -> None:
        a, b = self.leader(first), self.leader(second)
        if a == b:
            return
        if self._order[b] < self._order[a]:
            a, b = b, a
        self._parent[b] = a

    def leader(self, name: str) -> str:
        self._order.setdefault(name, len(self._order))
        root = self._parent.setdefault(name, name)
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[name] != root:
            self._parent[name], name = root, self._parent[name]
        return root

    def groups(self) -> dict[str, list[str]]:
        """Leader -> members in the order of joining, the leader among them."""
        found: dict[str, list[str]] = {}
        for name in self._order:
            found.setdefault(self.leader(name), []).append(name)
        return found
