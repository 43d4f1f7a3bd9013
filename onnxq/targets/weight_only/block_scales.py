"""Blocks of few bits: the scale with the least squared error of the block's own weights, found without data.

A block of few bits that covers its largest value gives all others coarser steps for the sake of one. A few narrower
ranges are tried for each block, and the best is taken (Banner, Nahshan, Soudry, "Post training 4-bit quantization of
convolutional networks for rapid-deployment", 2019). One weight is in memory at a time, and its new parameters take the
place of the old ones: those of a model of several gigabytes are hundreds of megabytes.
"""

from __future__ import annotations

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.weights.scale_search import candidates, search_by_weights
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import Backend, PerBlock, Placement, QParamsTable, QuantPlan

MOST_BITS = 4
"""With more bits the largest value is worth its range."""

FACTORS = (0.93, 0.86, 0.78, 0.65)
"""Of the range of a block's values; few, because models with block weights are large."""

NAME = "block_scales"


@REFINEMENTS.register(NAME)
def block_scales(graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend) -> Refined:
    """Give blocks of weights that calibration covered whole, with 4 bits or fewer, the range of the least error."""
    tied = {placement.tie for placement in plan if placement.tie is not None}
    for placement in plan:
        name = placement.tensor
        if name in tied or not _is_open(graph, placement) or qparams.origins.get(name) != (placement.observer,):
            continue  # somebody, or an improvement, has chosen these scales
        values, held = graph.values(name).astype(np.float32), qparams[name]
        of = candidates(values, held, placement.minimum_scale, graph.dtype(name) == np.float16)
        qparams.put(name, search_by_weights(values, held, of, FACTORS), NAME)
    return Refined(qparams)


def _is_open(graph: Graph, placement: Placement) -> bool:
    spec = placement.spec
    chosen = any(field == "observer" for field, _ in placement.set_by)
    blocks = isinstance(spec.granularity, PerBlock) and spec.evenly_spaced and spec.bits <= MOST_BITS
    return blocks and not chosen and placement.tie is None and graph.is_constant(placement.tensor)
