"""Cutting stacked arrays into the feeds of single session runs.

How an array is read follows from its rank and the input's:

    rank of the input      rows of axis 0 are samples (or one ready feed), cut to the model's fixed first dimension
    one less               one sample without a batch axis, which is added
    one more               each index of axis 0 is one feed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnxq.errors import DataError
from onnxq.runtime.archive import StoredArray
from onnxq.runtime.feeds import Feed, InputInfo, Note, shape_text


@dataclass(frozen=True)
class _Way:
    """How one array becomes `count` feeds; `size` counts the rows of one feed."""

    how: Literal["rows", "index", "add_axis", "as_it_is"]
    count: int = 1
    size: int = 1

    def take(self, array: np.ndarray | StoredArray, number: int) -> np.ndarray:
        number = number if self.count > 1 else 0
        if self.how == "rows":
            return array[number * self.size : (number + 1) * self.size]
        if self.how == "index":
            return np.asarray(array[number])
        return np.asarray(array)[np.newaxis] if self.how == "add_axis" else np.asarray(array)

    def first_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of what the first feed takes from an array of `shape`."""
        if self.how == "rows":
            return (min(self.size, shape[0]), *shape[1:])
        if self.how == "index":
            return shape[1:]
        return (1, *shape) if self.how == "add_axis" else shape


@dataclass(frozen=True)
class Cut:
    """How a group of arrays, one for each input, becomes `count` feeds."""

    count: int
    ways: Mapping[str, _Way]

    def feed(self, arrays: Mapping[str, np.ndarray | StoredArray], number: int) -> Feed:
        return {name: way.take(arrays[name], number) for name, way in self.ways.items()}

    def first_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Input -> its shape in the first feed of arrays that have these shapes."""
        return {name: way.first_shape(shapes[name]) for name, way in self.ways.items()}


def plan_cut(
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Sequence[InputInfo],
    where: str,
    note: Note,
    *,
    batch: int | None,
    whole: bool,
    leave_rest: bool = False,
) -> Cut:
    """Decide from the shapes alone how arrays become feeds.

    whole       the arrays are one ready feed where the model allows their batch size; otherwise dynamic batches are
                cut into `batch` rows, or to match the other inputs, or into single rows
    leave_rest  rows of a ready feed that do not fill the model's fixed batch are left out, perhaps all of them
    """
    ways: dict[str, _Way] = {}
    dynamic: list[str] = []
    for info in inputs:
        way = _way_from_shape(shapes[info.name], info, where, note, whole, leave_rest)
        if way is None:
            dynamic.append(info.name)
        else:
            ways[info.name] = way
    others = max((way.count for way in ways.values()), default=1)
    fixed = {shapes[name][0]: way for name, way in ways.items() if way.how == "rows"}
    for name in dynamic:
        rows = shapes[name][0]
        if rows in fixed:
            ways[name] = fixed[rows]
            continue
        size = rows if whole else (batch or 1)
        if others > 1 and rows % others == 0:
            size = rows // others
        # A last, smaller batch is as good as the others where the batch size is free.
        ways[name] = _Way("rows", -(-rows // size) if rows else 0, size)
    count = max((way.count for way in ways.values()), default=0)
    for name, way in ways.items():
        if way.count == 1 < count:
            note(f"input '{name}' has one value in {where}: used for all {count} feeds")
        elif way.count != count:
            counts = ", ".join(f"'{key}' {shape_text(shapes[key])} gives {w.count}" for key, w in ways.items())
            raise DataError(f"the arrays of {where} do not have the same number of samples: {counts} feeds")
    return Cut(count, {info.name: ways[info.name] for info in inputs})


def _way_from_shape(
    shape: tuple[int, ...], info: InputInfo, where: str, note: Note, whole: bool, leave_rest: bool
) -> _Way | None:
    """The way that rank and fixed first dimension dictate, or None for a batch dimension that is free."""
    rank = len(info.shape)
    if len(shape) == rank + 1:
        return _Way("index", shape[0])
    if len(shape) == rank - 1:
        return _Way("add_axis")
    if len(shape) != rank:
        raise DataError(
            f"input '{info.name}' of {where}: the model wants {info}, got an array {shape_text(shape)}: rank "
            f"{len(shape)} instead of {rank} (or {rank + 1} for a stack of feeds)"
        )
    size = info.shape[0] if rank else 0
    if size == 0:
        return _Way("as_it_is")
    if not isinstance(size, int):
        return None
    rows = shape[0]
    left = rows % size
    if rows and not leave_rest and (rows < size or (left and whole)):
        raise DataError(
            f"input '{info.name}' of {where}: the model wants {info}, got an array {shape_text(shape)}: {rows} rows "
            f"do not fill batches of {size}"
        )
    if left:
        note(f"input '{info.name}': the last {left} of {rows} rows of {where} do not fill a batch of {size}, left out")
    return _Way("rows", rows // size, size)
