"""Numbers of a matrix changed one column after the other, as long as its output comes nearer to the wanted one.

Behdin et al.: "QuantEase: Optimization-based Quantization for Language Models", 2023. With all other columns as they
are, the error (W - Q) H (W - Q)T is a parabola in each number of column j, and its lowest point is

    Q[:, j] + ((W - Q) H)[:, j] / H[j, j]

The number of the grid next to it is taken. Each change makes the error smaller, so the order of columns and the numbers
to begin with decide where it ends, and it never ends higher than it began. Columns are taken in blocks, as in GPTQ:
what a block changes counts inside at once, elsewhere when it is done. Nothing here knows a graph.
"""

from __future__ import annotations

import numpy as np

from onnxq.ptq.weights.cells import round_column
from onnxq.ptq.weights.gptq_matrix import COLUMNS, Grid


def descend(wanted: np.ndarray, moments: np.ndarray, numbers: np.ndarray, grid: Grid, *, sweeps: int) -> np.ndarray:
    """Matrices [groups, outputs, inputs] on a grid, begun with `numbers`; each sweep goes once over all columns.

    `moments` is H of each group, [groups, inputs, inputs]. Columns whose inputs are always zero stay.
    """
    found = numbers.astype(np.float64)
    pull = (wanted - found) @ moments
    diagonal = np.einsum("gii->gi", moments)
    scale, zero_point = (np.broadcast_to(values, found.shape) for values in (grid.scale, grid.zero_point))
    for _ in range(sweeps):
        changed = False
        for start in range(0, found.shape[2], COLUMNS):
            stop = min(start + COLUMNS, found.shape[2])
            steps = np.zeros((*found.shape[:2], stop - start))
            for column in range(start, stop):
                curve = diagonal[:, column, None]
                lowest = found[:, :, column] + pull[:, :, column] / np.where(curve > 0, curve, np.inf)
                nearest = round_column(lowest, scale[:, :, column], zero_point[:, :, column], grid.spec)
                step = nearest - found[:, :, column]
                step[2 * step * pull[:, :, column] <= np.square(step) * curve] = 0.0
                found[:, :, column] += step
                pull[:, :, start:stop] -= step[:, :, None] * moments[:, None, column, start:stop]
                steps[:, :, column - start] = step
            if steps.any():
                changed = True
                for others in (slice(0, start), slice(stop, None)):
                    pull[:, :, others] -= steps @ moments[:, start:stop, others]
        if not changed:
            break
    return found.astype(np.float32)
