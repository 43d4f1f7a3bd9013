"""The scale of each cell of a weight that makes an error smallest, tried out on a grid of ranges.

    weights   sum of (W - Q)^2 over the cell
    outputs   (W - Q) E[x xT] (W - Q)T of the rows that have values in the cell (see `onnxq.ptq.weights.moments`)

A candidate is the range of the cell's values times a factor: clipping the few largest values makes the steps of all
others finer. Banner, Nahshan, Soudry: "Post training 4-bit quantization of convolutional networks for
rapid-deployment", 2019, choose ranges by the squared error; Lin et al.: "AWQ", 2023, by the error of outputs. The
parameters that were there before are a candidate too, so the error never grows.

Cells that lie side by side in a row (blocks along the inputs) share the error of that row; they are searched one after
the other, twice, each with the others as they are. For wide rows some inputs x take the place of E[x xT]
(`ThinMoments`). Nothing here knows a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from onnxq.numerics import fake_quantize
from onnxq.ptq.weights.block_squares import BlockSquares
from onnxq.ptq.weights.cells import cell_ranges, qparams_of_cells, reduce_cells, round_to_grid, spread
from onnxq.ptq.weights.matrices import MatrixView
from onnxq.ptq.weights.moments import ThinMoments
from onnxq.ptq.weights.output_errors import Form, ThinForm, WholeForm, form_of
from onnxq.types import PerBlock, PerChannel, PerTensor, QParams, QuantSpec
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

OF_WIDE_ROWS = (0.97, 0.94, 0.91, 0.88, 0.84, 0.79, 0.73, 0.66)
"""Factors for rows of many weights with many bits: there, only cutting off makes a difference. Narrow rows may also
round better by chance with any other scale, so that many are tried."""

WIDE_ROW = 256
"""Weights that share a scale from which on they are many."""


def has_many_bits(spec: QuantSpec) -> bool:
    """Whether a format has so many steps that little is worth cutting off."""
    return spec.evenly_spaced and spec.qmax - spec.qmin >= 2**MANY_BITS - 2


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

    def tried(self, of: Candidates, weights_of_cell: int) -> Iterator[list[tuple[QParams, np.ndarray]]]:
        """Candidates for all cells with their factors, coarse ones first, then fine ones around what was best."""
        spec = self.qparams.spec
        few = COARSE_OF_MANY_BITS if weights_of_cell < WIDE_ROW else OF_WIDE_ROWS
        coarse = [np.full(self.factors.shape, factor) for factor in (few if has_many_bits(spec) else COARSE)]
        yield [(of(factors), factors) for factors in coarse]
        fine = [self.factors + step for step in (FINE[:2] if few is OF_WIDE_ROWS and has_many_bits(spec) else FINE)]
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
        if in_place is not None:
            return reduce_cells(in_place.squares(qparams), held.spec.granularity, np.add)
        change = part - fake_quantize(part, qparams)
        # The few values of a block add up exactly enough in float32, and such weights are large.
        each = np.square(change, out=change) if blocks else np.square(change, dtype=np.float64)
        return reduce_cells(each, held.spec.granularity, np.add)

    blocks = isinstance(held.spec.granularity, PerBlock)
    parts = _parts(values, held.spec.granularity)
    in_place = BlockSquares(values, held.spec) if BlockSquares.fits(values, held.spec) else None
    best = _Best(held)
    least = errors(held)
    if factors is not None:
        shape = best.factors.shape
        rounds: Iterable[Iterable[tuple[QParams, np.ndarray]]] = [
            ((of(given), given) for given in (np.full(shape, factor) for factor in factors))
        ]
    else:
        rounds = best.tried(of, values.size // max(held.scale.size, 1))
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
    values: np.ndarray, held: QParams, of: Candidates, view: MatrixView, moments: np.ndarray | ThinMoments
) -> QParams:
    """The parameters whose outputs are nearest; `moments` are E[x xT] of each matrix, [groups, inputs, inputs].

    Thin ones are for cells of whole rows.
    """
    search = _OutputSearch(values, held, view, form_of(moments))
    for tried in search.best.tried(of, values.size // max(held.scale.size, 1)):
        search.sweep(tried)
    return search.best.qparams


def has_whole_rows(view: MatrixView, granularity: Granularity) -> bool:
    """Whether all weights of a row of the matrices share one scale."""
    if isinstance(granularity, PerBlock):
        return False
    if isinstance(granularity, PerTensor):
        return True
    numbers = np.arange(view.shape[resolve_axis(granularity.axis, len(view.shape))])
    row = view.unfold(spread(numbers, granularity, view.shape))[0, 0]
    return bool((row == row[0]).all())


class _OutputSearch:
    """Searches the cells of one set of columns after the other; no cell has values in two sets."""

    def __init__(self, values: np.ndarray, held: QParams, view: MatrixView, form: WholeForm | ThinForm) -> None:
        self.best = _Best(held)
        self._weight = np.ascontiguousarray(view.unfold(values))  # rounding in C takes rows that lie side by side
        self._form = form
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
        weight = self._weight if len(self._columns) == 1 else self._weight[:, :, columns]
        return np.asarray(weight - round_to_grid(weight, scale, zero_point, qparams.spec))

    def sweep(self, tried: list[tuple[QParams, np.ndarray]]) -> None:
        """Give every cell the best of the candidates, as the others are now."""
        for columns in self._columns:
            form: Form = self._form
            others = None
            if len(self._columns) > 1:
                assert isinstance(self._form, WholeForm)
                form, others = self._form.part(columns), self._form.cross(self._change, columns)
            self._choose(tried, columns, others, form)
            self._change[:, :, columns] = self._changed(self.best.qparams, columns)

    def _choose(
        self, tried: list[tuple[QParams, np.ndarray]], columns: np.ndarray, others: np.ndarray | None, form: Form
    ) -> None:
        cells = self._cells[:, :, columns[0]].ravel()
        shape, size = self.best.factors.shape, self.best.factors.size

        def errors(change: np.ndarray) -> np.ndarray:
            """Of each cell, up to what the other columns add, which is the same for all candidates."""
            of_rows = form.errors(change)
            if others is not None:
                of_rows += (2 * change * others).sum(2, dtype=np.float64)
            return np.bincount(cells, of_rows.ravel(), minlength=size).reshape(shape)

        least = errors(self._change[:, :, columns] if others is not None else self._change)
        for found, factors in tried:
            here = errors(self._changed(found, columns))  # zero, and so never less, for cells in other columns
            self.best.take(found, factors, here < least)
            least = np.minimum(least, here)
