"""Blocks of few bits: the scale with the least squared error of the block's own weights, found without data.

A block of few bits that covers its largest value gives all others coarser steps for the sake of one. A few other
ranges are tried for each block, and the best is taken (Banner, Nahshan, Soudry, "Post training 4-bit quantization of
convolutional networks for rapid-deployment", 2019). One weight is in memory at a time, and its new parameters take the
place of the old ones: those of a model of several gigabytes are hundreds of megabytes.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph
from onnxq.numerics import let_go, row_pieces
from onnxq.numerics.compiled import search_block_scales_in_c
from onnxq.numerics.ranges import MAX_SCALE, MIN_SCALE
from onnxq.ptq.weights.scale_search import candidates, search_by_weights
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, PerBlock, Placement, QParams, QParamsTable, QuantPlan, QuantSpec

MOST_BITS = 4
"""With more bits the largest value is worth its range."""

TO_BOTH_SIDES, NARROWER = (1.08, 1.04, 0.96, 0.92), (0.93, 0.86, 0.78, 0.65)
"""Of the range of a block's values; few, because models with block weights are large. Ranges that are only narrower
make all weights of a model a bit smaller at once, which its outputs show: with four such factors a decoder in 4 bits
predicted worse than without a search, although its weights were nearer. With fewer bits that is the smaller evil, and
symmetric numbers with positive scales have a step to spare on one side of zero only."""

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
        spec, minimum, float16 = held.spec, placement.minimum_scale, graph.dtype(name) == np.float16
        scale, zero_point = np.array(held.scale), np.array(held.zero_point, order="C")
        factors, limits = _factors(spec), (max(minimum, MIN_SCALE), MAX_SCALE)
        # A zero point that moves with a raised scale, and scales of the format's own, are left to numpy.
        plain = spec.format.any_scale and not float16 and (spec.symmetric or minimum <= MIN_SCALE)
        for rows, cells in row_pieces(values.shape, spec.granularity):
            piece = values[rows].astype(np.float32, copy=False)
            if not (plain and search_block_scales_in_c(piece, spec, scale[cells], zero_point[cells], factors, limits)):
                before = QParams(spec, held.scale[cells], held.zero_point[cells])
                of = candidates(piece, before, minimum, float16)
                found = search_by_weights(piece, before, of, factors)
                scale[cells], zero_point[cells] = found.scale, found.zero_point
            let_go(values)
        qparams.put(name, QParams(spec, scale, zero_point), NAME)
    return Refined(qparams)


def _factors(spec: QuantSpec) -> tuple[float, ...]:
    even = spec.signed_scale or not spec.symmetric
    return spec.format.range_factors or (TO_BOTH_SIDES if even and spec.bits == MOST_BITS else NARROWER)


def _is_open(graph: Graph, placement: Placement) -> bool:
    spec = placement.spec
    chosen = any(field == "observer" for field, _ in placement.set_by)
    coarse = spec.bits <= MOST_BITS or bool(spec.format.range_factors)  # where scales double, a step is much
    searched = spec.evenly_spaced or spec.format.at_rest is not None
    blocks = isinstance(spec.granularity, PerBlock) and searched and coarse
    return blocks and not chosen and placement.tie is None and graph.is_constant(placement.tensor)
