"""How far values reach beyond a point, looked up in constant time: what the error of a quantization grid is made of.

For values x >= 0 (one sign of a tensor), spread evenly over their bins, and a point t >= 0

    count(t)    = how many x are not below t
    excess(t)   = sum of (x - t)     over these
    squares(t)  = sum of (x - t)^2   over these

Each is, up to a factor, the integral of the one before, hence a polynomial inside a bin. Sums run from the largest
value down, so that all terms are positive and an outlier does not swallow the digits of small values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from onnxq.observers.statistics import Bins

try:
    import onnxq.observers._gains as compiled
except ImportError:
    compiled = None

_LOWER, _COUNT, _EXCESS, _DENSITY = range(4)


class Excess:
    """Tables of one sign of many rows: `sign` 1 takes the values above zero, -1 the magnitudes of those below.

    Points have the shape (len(rows), ...) and are not negative; `rows` says which row each line of points belongs to.
    """

    def __init__(self, rows: Sequence[Bins], sign: int) -> None:
        sides = [one_sign(bins, sign) for bins in rows]
        codes = [side.code for side in sides if len(side.code)]
        self.empty = not codes
        self.total_squares = np.array([_sum_of_squares(side) for side in sides])
        # Bins are numbered by the upper half of a float32. The one before the first reaches down to zero.
        self._first = min((int(code[0]) for code in codes), default=1) - 1
        after = max((int(code[-1]) for code in codes), default=1) + 1
        edges = (np.arange(self._first, after, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
        edges[0] = 0.0
        self._size = len(edges)
        self._top = np.zeros(len(rows))
        self._cells = np.zeros((len(rows), self._size, 4))
        self._cells[..., _LOWER] = edges
        self._count = np.zeros((len(rows), self._size))
        self._width = np.zeros((len(rows), self._size))
        for row, side in enumerate(sides):
            if len(side.code):
                place = side.code - self._first
                self._count[row, place] = side.count
                self._width[row, place] = side.upper - side.lower
                # The outer bins end at the exact smallest and largest value.
                self._cells[row, place[0], _LOWER] = side.lower[0]
                self._top[row] = side.upper[-1]
        self._fill()

    def _fill(self) -> None:
        """Count, excess and density at the lower edge of every bin."""
        np.cumsum(self._count[:, ::-1], axis=1, out=self._cells[:, ::-1, _COUNT])
        added = self._count * self._width
        added *= 0.5
        added[:, :-1] += self._cells[:, 1:, _COUNT] * self._gap()
        np.cumsum(added[:, ::-1], axis=1, out=self._cells[:, ::-1, _EXCESS])
        np.divide(self._count, self._width, out=self._cells[..., _DENSITY], where=self._width > 0)

    def _gap(self) -> np.ndarray:
        return np.asarray(self._cells[:, 1:, _LOWER] - self._cells[:, :-1, _LOWER])

    @cached_property
    def _squares(self) -> np.ndarray:
        """Squares at the lower edge of every bin; only formats of very many steps ask for them."""
        added = self._count * self._width**2 / 3.0
        added[:, :-1] += (2.0 * self._cells[:, 1:, _EXCESS] + self._cells[:, 1:, _COUNT] * self._gap()) * self._gap()
        return np.cumsum(added[:, ::-1], axis=1)[:, ::-1].ravel()

    def count(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        cell, _, distance = self._locate(points, rows)
        count = cell[..., _COUNT] - cell[..., _DENSITY] * np.maximum(distance, 0.0)
        # The top bin may be a single number, without width and density.
        return np.where(points <= self._column(self._top[rows], points), count, 0.0)

    def excess(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        cell, _, distance = self._locate(points, rows)
        result = np.maximum(distance, 0.0)
        result *= result
        result *= cell[..., _DENSITY]
        result *= 0.5
        distance *= cell[..., _COUNT]
        result -= distance
        result += cell[..., _EXCESS]
        return np.asarray(result)

    def steps_in_c(
        self, scale: np.ndarray, rows: np.ndarray, boundary: np.ndarray, height: np.ndarray, *, together: bool
    ) -> np.ndarray | None:
        """excess(scale * boundary) * height, with a last axis for the steps; None where C was not built.

        `together` asks for 2 * scale times the sums of the first 0, 1, 2 ... of these. The bits are those of numpy.
        """
        if compiled is None:
            return None
        out = np.empty((*scale.shape, len(boundary) + together))
        given = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(scale, np.float64)
        compiled.gains(self._cells, self._top, *given, boundary, height, self._first, together, out)
        return out

    def squares(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        cell, index, distance = self._locate(points, rows)
        unbinned = (cell[..., _COUNT] * distance - 2.0 * cell[..., _EXCESS]) * distance
        return np.asarray(self._squares[index] + unbinned - cell[..., _DENSITY] * np.maximum(distance, 0.0) ** 3 / 3.0)

    def _locate(self, points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The table line of each point, its index, and how far the point is from the lower edge of its bin.

        The distance is negative only below the smallest value of a row, where there is nothing more to count.
        """
        distance = np.minimum(points, self._column(self._top[rows], points))
        # Rounding to float32 can end in the next bin; polynomials of neighbours agree at their common edge.
        index = (distance.astype(np.float32).view(np.int32) >> 16).astype(np.int64)
        index -= self._first
        np.maximum(index, 0, out=index)
        index += self._column(rows * self._size, points)
        cell = self._cells.reshape(-1, 4).take(index, axis=0)
        distance -= cell[..., _LOWER]
        return cell, index, distance

    @staticmethod
    def _column(of_rows: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.asarray(of_rows.reshape(-1, *(1,) * (points.ndim - 1)))


def one_sign(bins: Bins, sign: int) -> Bins:
    """The bins of |x| for the values above zero (`sign` 1) or below it (-1)."""
    if sign > 0:
        above = slice(int(np.searchsorted(bins.code, 1)), None)
        return Bins(bins.code[above], bins.lower[above], bins.upper[above], bins.count[above])
    below = slice(None, int(np.searchsorted(bins.code, 0)))
    mirror = slice(None, None, -1)
    return Bins(
        -bins.code[below][mirror], -bins.upper[below][mirror], -bins.lower[below][mirror], bins.count[below][mirror]
    )


def _sum_of_squares(bins: Bins) -> float:
    """Exact for values spread evenly over their bins."""
    edges = bins.lower * bins.lower + bins.lower * bins.upper + bins.upper * bins.upper
    return float((bins.count * edges).sum() / 3.0)
