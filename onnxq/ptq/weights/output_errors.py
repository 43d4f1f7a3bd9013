"""The squared error of a layer's outputs for any change of its weight, from moments of its inputs or from some rows.

whole   E[(d x)^2] = d H dT with H = E[x xT]
thin    the mean over rows x of (d x)^2, for matrices with many more columns than rows
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from onnxq.ptq.weights.moments import ThinMoments


class Form(Protocol):
    """A quadratic form of changes d [groups, outputs, inputs]."""

    def errors(self, change: np.ndarray) -> np.ndarray:
        """[groups, outputs] in float64: the error of each row."""


def form_of(moments: np.ndarray | ThinMoments) -> WholeForm | ThinForm:
    return ThinForm(moments.rows) if isinstance(moments, ThinMoments) else WholeForm(moments.astype(np.float32))


class WholeForm:
    """From E[x xT], float32 [groups, inputs, inputs]."""

    def __init__(self, moments: np.ndarray) -> None:
        self._moments = moments

    def errors(self, change: np.ndarray) -> np.ndarray:
        return np.asarray((change * (change @ self._moments)).sum(2, dtype=np.float64))

    def part(self, columns: np.ndarray) -> WholeForm:
        """That of some columns alone."""
        return WholeForm(self._moments[:, columns[:, None], columns])

    def cross(self, change: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """[groups, outputs, columns]: half the slope of the error along these columns due to all others."""
        own = self._moments[:, columns[:, None], columns]
        return np.asarray(change @ self._moments[:, :, columns] - change[:, :, columns] @ own)


class ThinForm:
    """From rows r, float32 [groups, rows, inputs], whose rT r stands for E[x xT]."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def errors(self, change: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(change @ self._rows.swapaxes(1, 2)).sum(2, dtype=np.float64))
