"""Module paths in the node names of the TorchScript exporter: '/layer1/layer1.0/conv1/Conv' is in layer1.0.conv1.

A name has one part for every module that was being called, and these are no plain paths:
- the part of a child whose own name is a number repeats the part of its parent, or the name of the list that holds it
- from the second call of a module on, its part gets a number: 'relu_1'
- a ModuleDict leaves no part, since it is never called

Names of parameters, which are plain paths, settle what remains open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Scope = tuple[str, ...]

_CALL = re.compile(r"(?P<first>.*\w)_(?P<number>[1-9]\d*)")


def scope_of(name: str) -> Scope | None:
    """The parts of a node's name that stand for modules, () at the top; None for a name of another form."""
    return tuple(name[1:].split("/")[:-1]) if name.startswith("/") and not name.endswith("/") else None


class Scopes:
    """The scopes of one file. `parameters` holds, for every scope, the module paths of parameters that it reads."""

    def __init__(self, parameters: Mapping[Scope, Sequence[str]]) -> None:
        self._owned = {outer for paths in parameters.values() for path in paths for outer in path_and_outer(path)}
        self._children: dict[Scope, set[str]] = {}
        for scope in parameters:
            for depth, part in enumerate(scope):
                self._children.setdefault(scope[:depth], set()).add(part)
        self._settled: dict[Scope, str] = {}
        known = {self.path(scope) for scope in parameters}
        for scope, paths in parameters.items():
            for path in paths:
                if path not in known:
                    self._settle(scope, path)
        self._calls: dict[str, list[Scope]] = {}
        for scope in parameters:
            self._calls.setdefault(self.path(scope), []).append(scope)

    def path(self, scope: Scope) -> str:
        """The module path of a scope."""
        path = ""
        for depth in range(1, len(scope) + 1):
            inner = scope[:depth]
            first = (*inner[:-1], self._first_call(inner, path))
            path = self._settled.get(inner) or self._settled.get(first) or _under(path, self._relative(inner, path))
        return path

    def call(self, scope: Scope) -> int:
        """Which call of its module a scope is, from 0 on."""
        return self._calls[self.path(scope)].index(scope)

    def _relative(self, scope: Scope, outer: str) -> str:
        """What the last part of a scope adds to the path of the module around it."""
        part = self._first_call(scope, outer)
        previous = self._first_call(scope[:-1], outer.rpartition(".")[0]) if len(scope) > 1 else ""
        if not previous or not part.startswith(f"{previous}.") or not part.rpartition(".")[2].isdigit():
            return part
        short = part[len(previous) + 1 :]
        is_list = _under(outer, part) in self._owned and _under(outer, short) not in self._owned
        return part if is_list else short  # a list inside of a module that is called like the list

    def _first_call(self, scope: Scope, outer: str) -> str:
        """'relu' for 'relu_1' where there is a scope 'relu' beside, and no module with parameters is named 'relu_1'."""
        match = _CALL.fullmatch(scope[-1])
        if match is None or _under(outer, scope[-1]) in self._owned:
            return scope[-1]
        return match["first"] if match["first"] in self._children[scope[:-1]] else scope[-1]

    def _settle(self, scope: Scope, path: str) -> None:
        """Take over a parameter's path where it is that of the scope with names added in between."""
        relatives, outer = [], ""
        for depth in range(1, len(scope) + 1):
            relatives.append(self._relative(scope[:depth], outer).split("."))
            outer = _under(outer, ".".join(relatives[-1]))
        parts, found = path.split("."), {}
        for depth in range(len(scope), 0, -1):  # from the innermost part, which must be the end of the path
            end = _end_of(relatives[depth - 1], parts)
            if end is None or (depth == len(scope) and end != len(parts)):
                return
            found[scope[:depth]] = ".".join(parts[:end])
            parts = parts[: end - len(relatives[depth - 1])]
        self._settled.update(found)


def path_and_outer(path: str) -> list[str]:
    """'a', 'a.b' and 'a.b.c' for 'a.b.c'."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _end_of(some: Sequence[str], parts: Sequence[str]) -> int | None:
    """Where `some` ends at its last appearance in `parts`."""
    for end in range(len(parts), len(some) - 1, -1):
        if list(parts[end - len(some) : end]) == list(some):
            return end
    return None


def _under(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part
