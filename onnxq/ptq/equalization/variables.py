"""Scales of channels as unknowns: which of them have to be equal, and which have to be 1.

Every channel whose scale could be chosen is a variable. Operators make variables equal (both inputs of an Add), or hold
them at 1 (what a Softmax reads). What is left are classes of channels with one free scale each.
"""

from __future__ import annotations

import numpy as np

Layout = np.ndarray
"""Variables of a tensor: integers in an array that broadcasts to its shape; one number stands for the whole tensor."""


class Variables:
    """A union-find over the variables; each class has a reason when its scale must stay 1."""

    def __init__(self) -> None:
        self._parents: list[int] = []
        self._reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._parents)

    def fresh(self, *shape: int) -> Layout:
        """New free variables."""
        count = int(np.prod(shape))
        first = len(self._parents)
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count).reshape(shape)

    def fixed(self, reason: str) -> Layout:
        """A new variable that is 1."""
        made = self.fresh()
        self._reasons[int(made)] = reason
        return made

    def fix(self, variables: Layout, reason: str) -> None:
        """Hold variables at 1; those that are already keep the first reason."""
        for variable in np.unique(variables).tolist():
            self._reasons.setdefault(self._root(variable), reason)

    def unite(self, one: Layout, other: Layout) -> None:
        """Make variables equal, element by element."""
        pairs = np.broadcast_arrays(one, other)
        for first, second in zip(pairs[0].ravel().tolist(), pairs[1].ravel().tolist(), strict=True):
            keep, drop = sorted((self._root(first), self._root(second)))
            if keep == drop:
                continue
            self._parents[drop] = keep
            reason = self._reasons.pop(drop, None)
            if reason is not None:
                self._reasons.setdefault(keep, reason)

    def is_fixed(self, variables: Layout) -> bool:
        """Whether none of them is free."""
        return all(self._root(variable) in self._reasons for variable in np.unique(variables).tolist())

    def reason(self, variable: int) -> str | None:
        """Why a variable must be 1; None if it need not."""
        return self._reasons.get(self._root(variable))

    def reasons(self) -> dict[int, str]:
        """The classes, as `roots` names them, whose scale must stay 1, and why."""
        return dict(self._reasons)

    def roots(self) -> np.ndarray:
        """The class of every variable, named by one of its members."""
        found = np.array(self._parents, np.int64)
        while (further := found[found]).tobytes() != found.tobytes():
            found = further
        return found

    def _root(self, variable: int) -> int:
        parents = self._parents
        while parents[variable] != variable:
            parents[variable] = parents[parents[variable]]
            variable = parents[variable]
        return variable
