"""Rounding a matrix column by column, where the columns that are left make up for the error of each (GPTQ).

Frantar, Ashkboos, Hoefler, Alistarh: "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022. With H = E[x xT], the error of the output is (W - Q) H (W - Q)T. When column i is rounded, the best
change of the columns behind it is

    W[:, j] -= (W[:, i] - Q[:, i]) / U[i, i] * U[i, j]        H^-1 = UT U, U upper triangular

U is the inverse of the factor M of H = M MT, M upper triangular, which is a Cholesky factor with rows and columns in
reverse order. Columns are taken in blocks: inside a block they are corrected at once, all others once for each block.
`act_order` takes the columns with the largest inputs first, while there are many left to make up for them. Nothing here
knows a graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxq.errors import SpecError
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells, round_column, round_to_grid, spread
from onnxq.ptq.weights.matrices import MatrixView, view_of_rows
from onnxq.types import PerBlock, QParams, QuantSpec

COLUMNS = 128
"""Columns of a block."""


@dataclass(frozen=True)
class Grid:
    """A format with the scale and zero point of each element of matrices [groups, outputs, inputs]."""

    spec: QuantSpec
    scale: np.ndarray
    zero_point: np.ndarray

    @classmethod
    def of(cls, qparams: QParams, view: MatrixView) -> Grid:
        """The grid of a weight, as its matrices."""
        granularity = qparams.spec.granularity
        scale = view.unfold(spread(qparams.scale, granularity, view.shape))
        return cls(qparams.spec, scale, view.unfold(spread(qparams.zero_point, granularity, view.shape)))

    def nearest(self, weight: np.ndarray) -> np.ndarray:
        return round_to_grid(weight, self.scale, self.zero_point, self.spec)


def gptq_matrix(
    weight: np.ndarray,
    moments: np.ndarray,
    qparams: QParams,
    *,
    damp: float = 0.01,
    act_order: bool = True,
    recompute: bool = False,
) -> tuple[np.ndarray, QParams]:
    """A float32 matrix [outputs, inputs] with its values on the grid of `qparams`, whose axes are those of the matrix.

    moments    E[x xT], [inputs, inputs]
    damp       is added to the diagonal, as a part of its mean, so that H has an inverse
    recompute  blocks along the inputs (PerBlock, axis 1) get a new range when their first column is reached, which
               needs act_order=False; rows that gain by it have other parameters in what is returned

    No row has a larger error than plain rounding with `qparams` gives it.
    """
    grid = Grid.of(qparams, view_of_rows(weight.shape))
    fixed = gptq_stack(weight[None], moments[None], grid, damp=damp, act_order=act_order)[0]
    if not recompute:
        return fixed, qparams
    blocks = qparams.spec.granularity
    if act_order or not isinstance(blocks, PerBlock) or blocks.axis % 2 != 1:
        raise SpecError("ranges can be found anew for blocks along the inputs only, and without act_order")
    found, ranges = _with_new_ranges(weight, moments, qparams, blocks.size, damp)
    changes = np.stack([weight - found, weight - fixed])
    better, worse = output_errors(changes, np.broadcast_to(moments, (2, *moments.shape)))
    new = (better < worse)[:, None]
    scale = np.where(new, ranges.scale, qparams.scale)
    return np.where(new, found, fixed), QParams(
        qparams.spec, scale, np.where(new, ranges.zero_point, qparams.zero_point)
    )


def gptq_stack(
    weight: np.ndarray, moments: np.ndarray, grid: Grid, *, damp: float = 0.01, act_order: bool = True
) -> np.ndarray:
    """Matrices [groups, outputs, inputs] rounded to a grid, each with its own moments [groups, inputs, inputs].

    A row that came out with a larger error than plain rounding has is rounded plainly.
    """
    order = _order(moments, act_order)
    sorted_weight = np.take_along_axis(weight.astype(np.float64), order[:, None, :], 2)
    scale = np.take_along_axis(np.broadcast_to(grid.scale, weight.shape), order[:, None, :], 2)
    zero_point = np.take_along_axis(np.broadcast_to(grid.zero_point, weight.shape), order[:, None, :], 2)
    factor = inverse_factor(_reordered(moments, order), damp)
    rounded = np.empty(weight.shape, np.float32)
    for start in range(0, weight.shape[2], COLUMNS):
        stop = min(start + COLUMNS, weight.shape[2])
        errors = np.empty((*weight.shape[:2], stop - start))
        for column in range(start, stop):
            here = sorted_weight[:, :, column]
            rounded[:, :, column] = round_column(here, scale[:, :, column], zero_point[:, :, column], grid.spec)
            errors[:, :, column - start] = _spend(sorted_weight, rounded, factor, column, stop)
        sorted_weight[:, :, stop:] -= errors @ factor[:, start:stop, stop:]
    back = np.take_along_axis(rounded, np.argsort(order, 1)[:, None, :], 2)
    nearest = grid.nearest(weight)
    better = output_errors(weight - back, moments) < output_errors(weight - nearest, moments)
    return np.where(better[:, :, None], back, nearest)


def _spend(weight: np.ndarray, rounded: np.ndarray, factor: np.ndarray, column: int, stop: int) -> np.ndarray:
    """Let the rest of the block make up for the error of a column; returns what the other blocks will have to."""
    error = (weight[:, :, column] - rounded[:, :, column]) / factor[:, column, column, None]
    weight[:, :, column:stop] -= error[:, :, None] * factor[:, None, column, column:stop]
    return np.asarray(error)


def _with_new_ranges(
    weight: np.ndarray, moments: np.ndarray, qparams: QParams, size: int, damp: float
) -> tuple[np.ndarray, QParams]:
    """Blocks of `size` columns, each with the range of its values as the blocks before it have left them."""
    work = weight.astype(np.float64)[None]
    factor = inverse_factor(moments[None], damp)
    rounded = np.empty((1, *weight.shape), np.float32)
    scales, zero_points = [], []
    for start in range(0, weight.shape[1], size):
        stop = min(start + size, weight.shape[1])
        low, high = cell_ranges(work[0, :, start:stop], PerBlock(1, size))
        found = qparams_of_cells(low, high, qparams.spec)
        scales.append(found.scale)
        zero_points.append(found.zero_point)
        errors = np.empty((1, len(weight), stop - start))
        for column in range(start, stop):
            rounded[:, :, column] = round_column(
                work[:, :, column], found.scale[None, :, 0], found.zero_point[None, :, 0], qparams.spec
            )
            errors[:, :, column - start] = _spend(work, rounded, factor, column, stop)
        work[:, :, stop:] -= errors @ factor[:, start:stop, stop:]
    return rounded[0], QParams(qparams.spec, np.concatenate(scales, 1), np.concatenate(zero_points, 1))


def inverse_factor(moments: np.ndarray, damp: float) -> np.ndarray:
    """U, upper triangular, of H^-1 = UT U for a stack of H; more is added to the diagonal until H has an inverse.

    Inputs that are always zero get a diagonal of their own: their weights do not matter and touch no others.
    """
    diagonal = np.einsum("gii->gi", moments)
    mean = np.maximum(diagonal.mean(1, keepdims=True), np.finfo(np.float32).tiny)
    dead = np.where(diagonal == 0, mean, 0.0)
    identity = np.eye(moments.shape[1])
    added = max(damp, 1e-8)
    while True:
        damped = moments + (dead + added * mean)[:, :, None] * identity
        try:
            factor = np.linalg.cholesky(damped[:, ::-1, ::-1])[:, ::-1, ::-1]
        except np.linalg.LinAlgError:  # rounding has made the smallest eigenvalues negative
            added *= 10
            continue
        return np.triu(np.linalg.inv(factor))


def output_errors(change: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """[groups, outputs]: E[(d x)^2] of each row d of [groups, outputs, inputs]."""
    change = change.astype(np.float64)
    return np.asarray(np.einsum("goi,goi->go", change @ moments, change))


def _order(moments: np.ndarray, act_order: bool) -> np.ndarray:
    """[groups, inputs]: the order in which columns are rounded."""
    diagonal = np.einsum("gii->gi", moments)
    if not act_order:
        return np.broadcast_to(np.arange(diagonal.shape[1]), diagonal.shape)
    return np.argsort(-diagonal, axis=1, kind="stable")


def _reordered(moments: np.ndarray, order: np.ndarray) -> np.ndarray:
    return np.take_along_axis(np.take_along_axis(moments, order[:, :, None], 1), order[:, None, :], 2)
