"""Constants that are to be quantized hold numbers: NaN and infinity have no code in any format with a scale.

A mask of minus infinity in front of a Softmax is no such constant: placement leaves it float (`exempt`).
"""

from __future__ import annotations

import numpy as np

from onnxq.errors import ModelError
from onnxq.graph import Graph
from onnxq.numerics.by_rows import PIECE_ELEMENTS, let_go
from onnxq.numerics.compiled import all_finite
from onnxq.types import QuantPlan


def check_constants_are_finite(graph: Graph, plan: QuantPlan) -> None:
    """Raise a ModelError that names the first constant with NaN or infinity among those that the plan quantizes."""
    for placement in plan.placements.values():
        name = placement.tensor
        if not placement.spec.has_scale or not graph.is_constant(name):
            continue
        dtype = graph.dtype(name)
        if dtype is None or dtype.kind not in "fV":
            continue
        count, first = _not_finite(graph.values(name))
        if count:
            readers = ", ".join(
                f"'{node.name}' ({node.op})" for node in [use.node for use in graph.consumers(name)[:3]]
            )
            raise ModelError(
                f"constant '{name}', read by {readers}, holds {_counted(count)}, the first at index {first}: "
                f"{placement.spec.dtype} has no code for that. Repair the model (a division by zero, a variance below "
                "zero or a training that diverged are common causes), or leave the node float with --skip"
            )


def _not_finite(values: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """How many values are NaN or infinite, and where the first one is."""
    flat = values.reshape(-1)
    count, first = 0, -1
    for start in range(0, flat.size, PIECE_ELEMENTS):
        part = flat[start : start + PIECE_ELEMENTS]
        fine = part.dtype.kind == "f" and all_finite(part)
        let_go(values)
        if fine:
            continue
        wrong = ~np.isfinite(part if part.dtype.kind == "f" else part.astype(np.float32))
        found = int(np.count_nonzero(wrong))
        if found and first < 0:
            first = start + int(np.argmax(wrong))
        count += found
    return count, tuple(int(place) for place in np.unravel_index(first, values.shape)) if count else ()


def _counted(count: int) -> str:
    return "1 value that is NaN or infinite" if count == 1 else f"{count:,} values that are NaN or infinite"
