"""The scale of each cell of a weight that makes an error smallest, tried out on a grid of ranges.

    weights   sum of (W - Q)^2 over the cell
    outputs   (W - Q) E[x xT] (W - Q)T of the rows that have values in the cell (see `onnxq.ptq.weights.moments`)

A candidate is the range of the cell's values times a factor: clipping the few largest values makes the steps of all
others finer. Banner, Nahshan, Soudry: "Post training 4-bit quantization of convolutional networks for
rapid-deployment", 2019, choose ranges by the squared error; Lin et al.: "AWQ", 2023, by the error of outputs. The
parameters that were there before are a candidate too, so the error never grows.

Cells that lie side by side in a row (blocks along the inputs) share the error of that row; they are searched one after
the other, twice, each with the others as they are. Wide rows are searched with a matrix of low rank in the place of
E[x xT], plus what it leaves of the diagonal (Nystrom's method); the whole one then decides whether a cell gains.
Nothing here knows a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from onnxq.numerics import fake_quantize
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells, reduce_cells, round_to_grid, spread
from onnxq.ptq.weights.matrices import MatrixView
from onnxq.types import PerBlock, PerChannel, QParams
from onnxq.types.granularity import Granularity, resolve_axis

COARSE = tuple(float(factor) for factor in np.arange(40, 10, -1) * 0.03)
"""Factors 1.2 .. 0.33 of the range of a cell's values, tried first."""

MANY_BITS = 7
COARSE_OF_MANY_BITS = (*COARSE[:13], 0.75, 0.66, 0.54)
"""With many bits cutting off costs more than fine steps gain: on a detector, MobileNetV2 and a transformer 99 % of the
best factors lie between these."""

FINE = (-0.015, 0.015, -0.0075, 0.0075)
"""What is then added to the best factor of each cell."""

PART = 2**22
"""Values of a table of embeddings that are tried at a time: it may have more of them than all layers together."""

WIDE, RANK = 512, 256
"""Rows with more columns than WIDE are tried with a matrix of rank RANK: 30 products with the whole one take time."""

Candidates = Callable[[np.ndarray], QParams]
"""Parameters for a factor of each cell's range."""


def candidates(values: np.ndarray, held: QParams, minimum_scale: float, float16: bool) -> Candidates:
    """The parameters that a factor for each cell's range means, in the format of `held`."""
    low, high = cell_ranges(values, held.spec.granularity)

    def of(factors: np.ndarray) -> QParams:
        return qparams_of_cells(low * factors, high * factors, held.spec, minimum_scale=minimum_scale, float16=float16)

    return of


class _Best:
    """The best parameters of each cell so far, beginning with those that were there."""

    def __init__(self, held: QParams) -> None:
        self.qparams = held
        self.factors = np.ones(held.scale.shape)

    def tried(self, of: Candidates) -> Iterator[list[tuple[QParams, np.ndarray]]]:
        """Candidates for all cells with their factors, coarse ones first, then fine ones around what was best."""
        spec = self.qparams.spec
        many = spec.evenly_spaced and spec.qmax - spec.qmin >= 2**MANY_BITS - 2
        coarse = [np.full(self.factors.shape, factor) for factor in (COARSE_OF_MANY_BITS if many else COARSE)]
        yield [(of(factors), factors) for factors in coarse]
        fine = [self.factors + step for step in FINE]
        yield [(of(factors), factors) for factors in fine]

    def take(self, found: QParams, factors: np.ndarray, better: np.ndarray) -> None:
        """Give the cells that are `better` other parameters."""
        self.factors = np.where(better, factors, self.factors)
        scale = np.where(better, found.scale, self.qparams.scale)
        self.qparams = QParams(found.spec, scale, np.where(better, found.zero_point, self.qparams.zero_point))


def search_by_weights(
    values: np.ndarray, held: QParams, of: Candidates, factors: Sequence[float] | None = None
) -> QParams:
    """The parameters whose numbers are nearest to the weight, cell by cell; `factors` are tried, or the usual ones."""

    def errors(qparams: QParams) -> np.ndarray:
        return np.asarray(sum(squares(part, qparams) for part in parts))

    def squares(part: np.ndarray, qparams: QParams) -> np.ndarray:
        change = part - fake_quantize(part, qparams)
        # The few values of a block add up exactly enough in float32, and such weights are large.
        each = np.square(change, out=change) if blocks else np.square(change, dtype=np.float64)
        return reduce_cells(each, held.spec.granularity, np.add)

    blocks = isinstance(held.spec.granularity, PerBlock)
    parts = _parts(values, held.spec.granularity)
    best = _Best(held)
    least = errors(held)
    if factors is not None:
        shape = best.factors.shape
        rounds: Iterable[Iterable[tuple[QParams, np.ndarray]]] = [
            ((of(given), given) for given in (np.full(shape, factor) for factor in factors))
        ]
    else:
        rounds = best.tried(of)
    for tried in rounds:
        for found, given in tried:
            here = errors(found)
            best.take(found, given, here < least)
            least = np.minimum(least, here)
    return best.qparams


def _parts(values: np.ndarray, granularity: Granularity) -> list[np.ndarray]:
    """Rows that are tried at a time, where every part has values of all cells: what is computed is in float64."""
    columns = isinstance(granularity, PerChannel) and resolve_axis(granularity.axis, values.ndim) > 0
    if not columns or values.size <= PART:
        return [values]
    return np.array_split(values, min(-(-values.size // PART), len(values)))


def search_by_outputs(
    values: np.ndarray, held: QParams, of: Candidates, view: MatrixView, moments: np.ndarray
) -> QParams:
    """The parameters whose outputs are nearest; `moments` are E[x xT] of each matrix, [groups, inputs, inputs]."""
    search = _OutputSearch(values, held, view, moments.astype(np.float32))
    for tried in search.best.tried(of):
        search.sweep(tried)
    return search.best.qparams


class _OutputSearch:
    """Searches the cells of one set of columns after the other; no cell has values in two sets."""

    def __init__(self, values: np.ndarray, held: QParams, view: MatrixView, moments: np.ndarray) -> None:
        self.best = _Best(held)
        self._weight = view.unfold(values)
        self._moments = moments
        numbers = np.arange(held.scale.size).reshape(held.scale.shape)
        self._cells = view.unfold(spread(numbers, held.spec.granularity, values.shape))
        _, kinds = np.unique(self._cells[0, 0], return_inverse=True)
        self._columns = [np.flatnonzero(kinds == kind) for kind in range(kinds.max() + 1)]
        self._change = np.concatenate([self._changed(held, columns) for columns in self._columns], 2)
        self._change = self._change[:, :, np.argsort(np.concatenate(self._columns))]

    def _changed(self, qparams: QParams, columns: np.ndarray) -> np.ndarray:
        """W - Q in one set of columns."""
        cells = self._cells[:, :, columns[:1]]
        scale, zero_point = qparams.scale.ravel()[cells], qparams.zero_point.ravel()[cells]
        weight = self._weight[:, :, columns]
        return np.asarray(weight - round_to_grid(weight, scale, zero_point, qparams.spec))

    def sweep(self, tried: list[tuple[QParams, np.ndarray]]) -> None:
        """Give every cell the best of the candidates, as the others are now."""
        for columns in self._columns:
            own = self._moments[:, columns[:, None], columns]
            others = np.zeros((1, 1, 1), np.float32)
            if len(self._columns) > 1:
                others = self._change @ self._moments[:, :, columns] - self._change[:, :, columns] @ own
            before = self.best.qparams, self.best.factors
            self._choose(tried, columns, others, _low_rank(own) if len(columns) > WIDE else _whole(own))
            if len(columns) > WIDE:
                found, self.best.qparams, self.best.factors = [(self.best.qparams, self.best.factors)], *before
                self._choose(found, columns, others, _whole(own))
            self._change[:, :, columns] = self._changed(self.best.qparams, columns)

    def _choose(
        self, tried: list[tuple[QParams, np.ndarray]], columns: np.ndarray, others: np.ndarray, form: _Form
    ) -> None:
        cells = self._cells[:, :, columns[0]].ravel()
        shape, size = self.best.factors.shape, self.best.factors.size

        def errors(qparams: QParams) -> np.ndarray:
            """Of each cell, up to what the other columns add, which is the same for all candidates."""
            d = self._changed(qparams, columns)
            of_rows = form(d) + (2 * d * others).sum(2, dtype=np.float64)
            return np.bincount(cells, of_rows.ravel(), minlength=size).reshape(shape)

        least = errors(self.best.qparams)
        for found, factors in tried:
            here = errors(found)  # zero, and so never less, for cells in other columns
            self.best.take(found, factors, here < least)
            least = np.minimum(least, here)


_Form = Callable[[np.ndarray], np.ndarray]
"""d H dT of each row d of [groups, outputs, inputs]."""


def _whole(moments: np.ndarray) -> _Form:
    return lambda d: (d * (d @ moments)).sum(2, dtype=np.float64)


def _low_rank(moments: np.ndarray) -> _Form:
    """H is nearly S ST with S = H P (PT H P)^-1/2 for a random P with few columns; its diagonal is kept exactly."""
    random = np.random.default_rng(0).standard_normal((moments.shape[1], RANK))
    seen = moments.astype(np.float64) @ random
    inner = random.T @ seen
    # Few samples have few directions: what is below float32 is noise of either sign, and is left to the diagonal.
    sizes, directions = np.linalg.eigh((inner + inner.swapaxes(1, 2)) / 2)
    least = np.finfo(np.float32).eps * RANK * np.maximum(sizes[:, -1:], np.finfo(np.float32).tiny)
    weights = np.where(sizes > least, 1 / np.sqrt(np.maximum(sizes, least)), 0.0)
    solved = seen @ (directions * weights[:, None, :])
    thin = np.ascontiguousarray(solved, np.float32)
    rest = np.maximum(np.einsum("gii->gi", moments) - np.square(thin).sum(2), 0)[:, None, :]
    return lambda d: np.square(d @ thin).sum(2, dtype=np.float64) + (d * d * rest).sum(2, dtype=np.float64)
