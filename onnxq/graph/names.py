"""Fresh names that collide with nothing in the model, and the record of what passes renamed, merged and removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class Names:
    """All tensor names and all node names of a model (two separate spaces); constant time per new name.

    `reserved` holds every name of the file: the owner may claim it, but no fresh name may take it before.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._reserved = frozenset(reserved)
        self._tensors: set[str] = set()
        self._nodes: set[str] = set()
        self._counters: dict[str, int] = {}

    def claim(self, wanted: str) -> str:
        """`wanted` for the first who asks, a variation for everybody after."""
        return self._claim(wanted, self._tensors)

    def claim_node(self, wanted: str) -> str:
        return self._claim(wanted, self._nodes)

    def fresh(self, hint: str) -> str:
        """A tensor name that starts with `hint` and is new to the model."""
        return self._fresh(hint, self._tensors)

    def fresh_node(self, hint: str) -> str:
        """A node name that starts with `hint` and is new to the model."""
        return self._fresh(hint, self._nodes)

    def know(self, tensors: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        """Take note of names that came into the model without being asked for here."""
        self._tensors.update(tensors)
        self._nodes.update(nodes)

    def is_from_file(self, name: str) -> bool:
        """Whether the model's file holds a tensor or node of this name."""
        return name in self._reserved

    def copy(self) -> Names:
        twin = Names(self._reserved)
        twin._tensors, twin._nodes = set(self._tensors), set(self._nodes)
        twin._counters = dict(self._counters)
        return twin

    def _claim(self, wanted: str, taken: set[str]) -> str:
        if wanted in taken:
            return self._fresh(wanted, taken)
        taken.add(wanted)
        return wanted

    def _fresh(self, hint: str, taken: set[str]) -> str:
        name = hint = hint or "unnamed"
        count = self._counters.get(hint, 0)
        while name in taken or name in self._reserved:
            count += 1
            name = f"{hint}_{count}"
        self._counters[hint] = count
        taken.add(name)
        return name


@dataclass
class Origins:
    """What became of the names in the user's file.

    `nodes` and `tensors` map a name of the file to the name that now stands for it (a Conv that swallowed a
    BatchNormalization stands for both); `removed` says why a name is gone without a successor. `copies` maps a constant
    that was split off a shared one to the one that it was copied from.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)

    def node_became(self, old: str, new: str) -> None:
        """`new` stands for `old` from now on, and for itself."""
        self.nodes.pop(new, None)
        if old != new:
            self.nodes[old] = new

    def tensor_became(self, old: str, new: str) -> None:
        """`new` stands for `old` from now on, and for itself."""
        self.tensors.pop(new, None)
        if old != new:
            self.tensors[old] = new

    def tensor_copied(self, original: str, copy: str) -> None:
        self.copies[copy] = original

    def node_removed(self, name: str, why: str) -> None:
        self.removed[name] = why

    def current_node(self, name: str) -> str:
        return _follow(name, self.nodes)

    def current_tensor(self, name: str) -> str:
        return _follow(name, self.tensors)

    def copy(self) -> Origins:
        return Origins(dict(self.nodes), dict(self.tensors), dict(self.removed), dict(self.copies))


def _follow(name: str, successor: dict[str, str]) -> str:
    seen = {name}
    while name in successor and successor[name] not in seen:
        name = successor[name]
        seen.add(name)
    return name
