"""The chip shifts by 7 places at most: scales are kept within that, and files are checked for it."""

import numpy as np

from onnxq.lint import LINTS, Finding
from onnxq.refine import REFINEMENTS, Refined
from onnxq.types import QParams

from .shifts import LONGEST, shift_of


@REFINEMENTS.register("shifty_limit")
def keep_shifts_short(graph, plan, qparams, backend):
    """Scales are at least 2^-7."""
    notes = []
    for tensor in plan.placements:
        held = qparams[tensor]
        if shift_of(held.scale) > LONGEST:
            qparams.put(tensor, QParams(held.spec, np.full_like(held.scale, 2.0**-LONGEST), held.zero_point), "limited")
            notes.append(f"'{tensor}' is shifted by {LONGEST} places, the most that the chip has")
    return Refined(qparams, tuple(notes))


@LINTS.register("shifty_limit")
def check_shifts(graph, found, backend):
    for quantizer in found:
        if quantizer.scale is not None and shift_of(quantizer.scale) > LONGEST:
            text = f"tensor '{quantizer.data_name}' is shifted by {shift_of(quantizer.scale)} places"
            yield Finding("shift", quantizer.data_name, quantizer.node, text, f"Use a scale of at least 2^-{LONGEST}")
