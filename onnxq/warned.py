"""Warnings of the Python API: what a report says to the caller, through Python's own `warnings`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from onnxq.errors import OnnxqWarning
from onnxq.escapes import lines


def warn_of(texts: Iterable[object], *, stacklevel: int) -> None:
    """One OnnxqWarning for each text; `stacklevel` 2 is the caller of the function that calls this one."""
    for text in texts:
        warnings.warn(lines(str(text)), OnnxqWarning, stacklevel=stacklevel + 1)
