"""The constraint: the chip holds a scale as a whole number 1 .. 65535 of 1/4096, so no other scale is possible."""

import numpy as np

from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import QParams

UNIT, LARGEST = 2.0**-12, 65535


def register_of(scale):
    """The whole numbers in the register: rounded to the nearest, at least 1."""
    return np.clip(np.rint(np.asarray(scale, np.float64) / UNIT), 1, LARGEST).astype(np.uint16)


def legal(scale):
    """The scale that the chip computes with."""
    return (register_of(scale) * np.float32(UNIT)).astype(np.float32)


@REFINEMENTS.register("quill_scale_register")
def round_scales(graph, plan, qparams, backend):
    """Every scale becomes one that the register can hold; those of training are legal already."""
    changed = []
    for tensor in plan.placements:
        held = qparams[tensor]
        wanted = legal(held.scale)
        if not np.array_equal(wanted, held.scale):
            qparams.put(tensor, QParams(held.spec, wanted, held.zero_point), f"{qparams.provenance[tensor]}, in 1/4096")
            changed.append(tensor)
    return Refined(qparams, (f"{len(changed)} scales are rounded to the chip's 1/4096",) if changed else ())
