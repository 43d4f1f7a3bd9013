"""What a source of data hands over: pieces of arrays whose shapes are known before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxq.errors import DataError
from onnxq.runtime.archive import StoredArray
from onnxq.runtime.feeds import InputInfo


@dataclass(frozen=True)
class Piece:
    """Arrays that belong together; shapes are known before anything is loaded.

    whole       the arrays are a ready feed rather than a stack of samples
    any_name    a single array may stand under any name when the model has a single input
    leave_rest  rows that do not fill the model's fixed batch are left out of a ready feed instead of being an error
    """

    where: str
    shapes: Mapping[str, tuple[int, ...]]
    load: Callable[[], Mapping[str, np.ndarray | StoredArray]]
    whole: bool = False
    any_name: bool = False
    named: bool = False
    leave_rest: bool = False

    def renamed(self, inputs: Sequence[InputInfo]) -> Piece:
        """The piece under the name of the only input, where that is meant."""
        names = [info.name for info in inputs]
        if not self.any_name or len(self.shapes) != 1 or next(iter(self.shapes)) in names:
            return self
        if len(names) != 1:
            wanted = ", ".join(f"'{name}'" for name in names)
            raise DataError(
                f"{self.where} holds one array, but the model has the inputs {wanted}: give one array for each under "
                "its name, as a .npz file or a dict"
            )
        (old,), new, load = self.shapes, inputs[0].name, self.load
        return replace(self, shapes={new: self.shapes[old]}, load=lambda: {new: load()[old]})


@dataclass(frozen=True)
class Source:
    """Pieces, again and again.

    countable     the shapes of all pieces can be had without running anything
    preprocessed  the pieces are made from images as `preprocess` says
    shuffles      each time the pieces come in another order
    noted         what had to be assumed or left out so far; it grows while pieces are read
    """

    description: str
    pieces: Callable[[], Iterator[Piece]]
    countable: bool
    preprocessed: bool = False
    shuffles: bool = False
    noted: dict[str, None] = field(default_factory=dict)


def ready_feed(where: str, arrays: Mapping[str, np.ndarray], *, leave_rest: bool = False) -> Piece:
    return Piece(where, shapes_of(arrays), lambda: arrays, whole=True, leave_rest=leave_rest)


def shapes_of(arrays: Mapping[str, np.ndarray | StoredArray]) -> dict[str, tuple[int, ...]]:
    return {key: array.shape for key, array in arrays.items()}


def as_array(value: Any, where: str) -> np.ndarray:
    """A numpy array from anything array-like; tensors that live on a device or carry gradients are fetched first."""
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: a {type(value).__name__} cannot become a numpy array ({error}). Give arrays of one shape and a "
            "type that numpy has, such as float32"
        ) from error
