"""One feed and the model's inputs: does it fit, and if not, what is wrong with which input of which sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.errors import DataError, did_you_mean

Feed = dict[str, np.ndarray]
"""Input name -> array, as one session run takes it."""

GivenArrays = Mapping[str, Any]
"""Input name -> what a user gives for it: an array of numpy, torch or another library, or lists of numbers."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class InputInfo:
    """What the model says about an input; a dimension is a number, a symbol, or None when it may be anything.

    `image_size` is the height and width that the model's metadata names for its images.
    """

    name: str
    dtype: np.dtype
    shape: tuple[int | str | None, ...]
    image_size: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.dtype.name} {shape_text(self.shape)}"


def shape_text(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


def array_text(array: np.ndarray) -> str:
    return f"{array.dtype.name} {shape_text(array.shape)}"


def check_names(given: Iterable[str], inputs: Sequence[InputInfo], where: str) -> None:
    """Every input of the model is there, and nothing else."""
    names = [info.name for info in inputs]
    given = list(given)
    wanted = ", ".join(f"'{info.name}' ({info})" for info in inputs)
    for name in given:
        if name not in names:
            raise DataError(
                f"{where} has '{name}', which is no input of the model.{did_you_mean(name, names)} "
                f"The model wants {wanted}"
            )
    for name in names:
        if name not in given:
            has = ", ".join(f"'{key}'" for key in given) or "nothing"
            raise DataError(f"{where} has no data for input '{name}', only {has}. The model wants {wanted}")


def fit_feed(feed: Mapping[str, np.ndarray], inputs: Sequence[InputInfo], where: str, note: Note) -> Feed:
    """The feed with the model's dtypes, contiguous; raises where names, ranks, dimensions or values cannot fit."""
    check_names(feed, inputs, where)
    fitted: Feed = {}
    for info in inputs:
        array = feed[info.name]
        _check_shape(array, info, where)
        fitted[info.name] = _convert(array, info, where, note)
        _check_finite(fitted[info.name], info, where)
    return fitted


def _check_finite(array: np.ndarray, info: InputInfo, where: str) -> None:
    """Data without a single number is a mistake; single NaN or infinite values are reported by calibration."""
    if _kind(info.dtype) == "float" and array.size and not np.isfinite(array).any():
        raise DataError(f"input '{info.name}' of {where} holds nothing but NaN or infinity: correct the data")


def _check_shape(array: np.ndarray, info: InputInfo, where: str) -> None:
    start = f"input '{info.name}' of {where}: the model wants {info}, got {array_text(array)}"
    if array.ndim != len(info.shape):
        raise DataError(f"{start}: rank {array.ndim} instead of {len(info.shape)}")
    for axis, (wanted, given) in enumerate(zip(info.shape, array.shape, strict=True)):
        if isinstance(wanted, int) and wanted != given:
            raise DataError(f"{start}: dimension {axis} is {given} instead of {wanted}")


def _convert(array: np.ndarray, info: InputInfo, where: str, note: Note) -> np.ndarray:
    """Change between sizes of one kind of number where every value survives; other changes are the user's to make."""
    if array.dtype.newbyteorder("=") == info.dtype:
        array = array.astype(info.dtype, copy=False)
        # Rows of a mapped file may lie at any address; onnxruntime's kernels want aligned values.
        return np.require(array, requirements=("C", "ALIGNED"))
    start = f"input '{info.name}' of {where}: the model wants {info}, got {array_text(array)}"
    if _kind(array.dtype) != _kind(info.dtype):
        raise DataError(f"{start}. Convert the data yourself, so that its scaling is what the model was trained with")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(info.dtype)
    if _kind(info.dtype) == "integer":
        limits = np.iinfo(info.dtype)
        kept = array.size == 0 or (int(array.min()) >= limits.min and int(array.max()) <= limits.max)
    elif _kind(info.dtype) == "float":
        kept = bool((np.isfinite(converted) == np.isfinite(array)).all())
    else:
        kept = True
    if not kept:
        raise DataError(f"{start}: some values do not fit into {info.dtype.name}")
    note(f"input '{info.name}': {array.dtype.name} data converted to {info.dtype.name}")
    return converted


def _kind(dtype: np.dtype) -> str:
    if dtype.kind == "f" or dtype.name == "bfloat16" or dtype.name.startswith("float8"):
        return "float"
    kinds = {"i": "integer", "u": "integer", "b": "bool", "O": "text", "U": "text", "S": "text", "T": "text"}
    return kinds.get(dtype.kind, dtype.name)
