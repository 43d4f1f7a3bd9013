"""Which channels of a graph can be scaled without changing its outputs, and carrying such scales out.

A class is a set of channels that must have one scale: those of a tensor before and behind a Relu, of both inputs of an
Add. A group holds the classes that lie side by side in some tensor; its scales are chosen together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from onnxq.graph import Graph
from onnxq.moved import renamed_in
from onnxq.ptq.equalization import carriers, layers  # noqa: F401  (they register the rules)
from onnxq.ptq.equalization.flow import Bound, Edit, Flow, Made
from onnxq.ptq.equalization.variables import Layout

LARGEST_SCALE = 1e4
"""Scales lie between its inverse and this, so that float32 keeps all digits of what is multiplied with them."""

__getattr__ = renamed_in(
    __name__, {"Freedom": "ScalableChannels", "find_freedom": "find_scalable_channels", "carry_out": "apply_scales"}
)


@dataclass(frozen=True)
class ScalableChannels:
    """What can be scaled. All layouts hold classes; arrays of scales have one entry for each class number.

    layouts   tensor -> the class of each channel
    groups    arrays of free classes whose scales belong together, in the order of the graph
    reasons   class -> why its scale stays 1
    """

    layouts: dict[str, Layout]
    edits: tuple[Edit, ...]
    bounds: tuple[Bound, ...]
    made: tuple[Made, ...]
    groups: tuple[np.ndarray, ...]
    reasons: dict[int, str]
    classes: int

    def free(self) -> np.ndarray:
        """For each class whether its scale can be chosen."""
        found = np.zeros(self.classes, bool)
        for group in self.groups:
            found[group] = True
        return found

    def without(self, fixed: np.ndarray, reason: str) -> ScalableChannels:
        """The same with some classes held at 1."""
        lost = set(np.unique(fixed).tolist())
        groups = [np.array([item for item in group.tolist() if item not in lost], np.int64) for group in self.groups]
        reasons = {**dict.fromkeys(lost, reason), **self.reasons}
        return replace(self, groups=tuple(group for group in groups if len(group)), reasons=reasons)

    def without_bounds(self) -> ScalableChannels:
        """The same with all channels held that a Clip bounds."""
        found = self
        for bound in self.bounds:
            found = found.without(bound.layout, f"'{bound.node}' (Clip) has a bound that cannot be scaled")
        return found


def touches(layout: Layout, group: np.ndarray) -> bool:
    """Whether some channel of a layout belongs to a group, whose classes are in order."""
    if not group.size:
        return False
    places = np.minimum(np.searchsorted(group, layout), group.size - 1)
    return bool((group[places] == layout).any())


def find_scalable_channels(graph: Graph) -> ScalableChannels:
    """What can be scaled in the main graph; its nodes are brought into topological order."""
    flow = Flow(graph)
    roots = flow.variables.roots()
    layouts = {name: roots[layout] for name, layout in flow.layouts.items()}
    made = tuple(replace(item, variables=roots[item.variables]) for item in flow.made)
    numbers = np.unique(np.concatenate([item.variables for item in made])).tolist() if made else []
    reasons = flow.variables.reasons()
    free = np.zeros(len(roots), bool)
    free[[number for number in numbers if number not in reasons]] = True
    return ScalableChannels(
        layouts=layouts,
        edits=tuple(replace(edit, up=roots[edit.up], down=roots[edit.down]) for edit in flow.edits),
        bounds=tuple(replace(bound, layout=roots[bound.layout]) for bound in flow.bounds),
        made=made,
        groups=_groups(layouts.values(), free),
        reasons=dict(sorted(reasons.items())),
        classes=len(roots),
    )


def _groups(layouts: Iterable[Layout], free: np.ndarray) -> tuple[np.ndarray, ...]:
    """Free classes that meet in a layout, joined as far as that goes; `free` says of each class whether it is."""
    group_of = np.full(len(free), -1)
    parents: list[int] = []

    def root(group: int) -> int:
        while parents[group] != group:
            parents[group] = parents[parents[group]]
            group = parents[group]
        return group

    different = {(layout.shape, layout.tobytes()): layout for layout in layouts}
    for layout in different.values():
        members = layout[free[layout]]
        if not members.size:
            continue
        own = len(parents)
        parents.append(own)
        for met in np.unique(group_of[members]).tolist():
            if met >= 0:
                parents[root(met)] = own
        group_of[members] = own
    members = np.flatnonzero(group_of >= 0)
    roots = np.array([root(group) for group in range(len(parents))], np.int64)[group_of[members]]
    found: dict[int, np.ndarray] = {}
    _, firsts = np.unique(roots, return_index=True)
    for first in sorted(firsts.tolist()):
        found[first] = members[roots == roots[first]].astype(np.int64)
    return tuple(found.values())


def scaled(values: np.ndarray, edit: Edit, scales: np.ndarray) -> np.ndarray:
    """A constant with scales taken up, in float64."""
    return np.asarray(values.astype(np.float64) * scales[edit.up] / scales[edit.down])


def apply_scales(graph: Graph, scalable: ScalableChannels, scales: np.ndarray) -> list[str]:
    """Put scales into the constants of a graph; returns the names of those that have changed."""
    changed = []
    for edit in scalable.edits:
        if (scales[edit.up] == 1.0).all() and (scales[edit.down] == 1.0).all():
            continue
        values = graph.values(edit.constant)
        graph.set_values(edit.constant, scaled(values, edit, scales).astype(values.dtype))
        changed.append(edit.constant)
    return changed


def changed_lines(scalable: ScalableChannels, scales: np.ndarray) -> list[str]:
    """A line for each layer whose output has other scales now."""
    lines = []
    for item in scalable.made:
        own = 1.0 / scales[item.variables]
        if (own != 1.0).any():
            lines.append(
                f"'{item.node}' ({item.op}): {own.size} channels, values times {own.min():.3g} .. {own.max():.3g}"
            )
    return lines


def held_input_lines(graph: Graph, scalable: ScalableChannels, edits: Iterable[Edit]) -> list[str]:
    """A line for each of these layers that reads channels which keep their scale."""
    lines = []
    for edit in edits:
        kept = [number for number in np.unique(edit.up).tolist() if number in scalable.reasons]
        if kept and edit.up.size > 1:
            tensor = graph.node(edit.node).inputs[0].name
            lines.append(f"'{edit.node}' ({edit.op}) reads '{tensor}' as it is: {scalable.reasons[kept[0]]}")
    return lines


def declined_lines(scalable: ScalableChannels) -> list[str]:
    """A line for each layer of which some channels keep their scale."""
    lines = []
    for item in scalable.made:
        kept = [number for number in item.variables.tolist() if number in scalable.reasons]
        if kept:
            part = "" if len(kept) == item.variables.size else f"{len(kept)} of {item.variables.size} channels of "
            lines.append(f"{part}'{item.node}' ({item.op}) keep their scale: {scalable.reasons[kept[0]]}")
    return lines
