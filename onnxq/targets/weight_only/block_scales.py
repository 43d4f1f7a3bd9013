"""Blocks of few bits: the scale with the least squared error of the block's own weights, found without data.

A block of few bits that covers its largest value gives all others coarser steps for the sake of one. A few narrower
ranges are tried for each block, and the best is taken (Banner, Nahshan, Soudry, "Post training 4-bit quantization of
convolutional networks for rapid-deployment", 2019). One weight is in memory at a time, and its new parameters take the
place of the old ones: those of a model of several gigabytes are hundreds of megabytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics.compiled import search_block_scales_in_c
from onnxq.numerics.ranges import MAX_SCALE, MIN_SCALE
from onnxq.ptq.weights.scale_search import candidates, search_by_weights
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, PerBlock, Placement, QParams, QParamsTable, QuantPlan, QuantSpec
from onnxq.types.granularity import resolve_axis

MOST_BITS = 4
"""With more bits the largest value is worth its range."""

FACTORS = (0.93, 0.86, 0.78, 0.65)
"""Of the range of a block's values; few, because models with block weights are large."""

PIECE = 2**20
"""Values that are tried at a time: whole weights take gigabytes for each candidate, and as much time to get them."""

NAME = "block_scales"


@REFINEMENTS.register(NAME)
def block_scales(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Give blocks of weights that calibration covered whole, with 4 bits or fewer, the range of the least error."""
    tied = {placement.tie for placement in plan if placement.tie is not None}
    for placement in plan:
        name = placement.tensor
        if name in tied or not _is_open(graph, placement) or qparams.origins.get(name) != (placement.observer,):
            continue  # somebody, or an improvement, has chosen these scales
        values, held = graph.values(name), qparams[name]
        scale, zero_point = held.scale.copy(), held.zero_point.copy()
        for rows, cells in _pieces(values.shape, held.spec):
            piece = values[rows].astype(np.float32, copy=False)
            before = QParams(held.spec, held.scale[cells], held.zero_point[cells])
            found = _searched(piece, before, placement.minimum_scale, graph.dtype(name) == np.float16)
            scale[cells], zero_point[cells] = found.scale, found.zero_point
        qparams.put(name, QParams(held.spec, scale, zero_point), NAME)
    return Refined(qparams)


def _searched(values: np.ndarray, held: QParams, minimum_scale: float, float16: bool) -> QParams:
    factors = held.spec.format.range_factors or FACTORS
    limits = (max(minimum_scale, MIN_SCALE), MAX_SCALE)
    if held.spec.format.any_scale and not float16 and (held.spec.symmetric or minimum_scale <= MIN_SCALE):
        found = search_block_scales_in_c(values, held, factors, *limits)
        if found is not None:
            return found
    return search_by_weights(values, held, candidates(values, held, minimum_scale, float16), factors)


def _pieces(shape: tuple[int, ...], spec: QuantSpec) -> Iterator[tuple[slice, slice]]:
    """Rows of a weight that hold whole blocks, with the rows of scales that are theirs: what fits into caches."""
    granularity = spec.granularity
    assert isinstance(granularity, PerBlock)
    rows = max(1, PIECE // max(1, math.prod(shape[1:])))
    if resolve_axis(granularity.axis, len(shape)) != 0:
        yield from ((slice(start, start + rows),) * 2 for start in range(0, shape[0], rows))
        return
    size = granularity.size
    blocks = -(-rows // size)
    for start in range(0, -(-shape[0] // size), blocks):
        yield slice(start * size, (start + blocks) * size), slice(start, start + blocks)


def _is_open(graph: Graph, placement: Placement) -> bool:
    spec = placement.spec
    chosen = any(field == "observer" for field, _ in placement.set_by)
    coarse = spec.bits <= MOST_BITS or bool(spec.format.range_factors)  # where scales double, a step is much
    searched = spec.evenly_spaced or spec.format.at_rest is not None
    blocks = isinstance(spec.granularity, PerBlock) and searched and coarse
    return blocks and not chosen and placement.tie is None and graph.is_constant(placement.tensor)
