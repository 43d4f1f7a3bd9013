"""slope6, the numbers of the chip: a sign and a magnitude of 5 bits on two slopes.

Codes 0 .. 16 are the numbers 0 .. 16, codes 17 .. 31 go on in steps of 4 up to 76. Small values have fine steps, and
large ones are not cut off. In the middle of two numbers the smaller one is taken.
"""

import numpy as np

from onnxq.numerics import quotient
from onnxq.types.number_format import NumberFormat, add_format

KNEE, COARSE, LAST = 16.0, 4.0, 76.0
SIGN = 32
MAGNITUDES = np.concatenate([np.arange(17), np.arange(20, 77, 4)]).astype(np.float32)
NUMBERS = np.concatenate([MAGNITUDES, 0 - MAGNITUDES])
"""The number of every code; a zero has no sign."""


class TwoSlopes(NumberFormat):
    """x / scale is rounded up from the middle on, on the slope that it lies on."""

    grid = "two-slope"
    summary = "steps of 1 up to 16, steps of 4 up to 76"

    def ends(self, spec, *, rounded=False):
        return -LAST, LAST

    def encode(self, x, scale, zero_point, spec):
        ratio = quotient(x, scale)
        size = np.abs(ratio)
        fine = np.ceil(np.maximum(size, np.float32(0.5)) - np.float32(0.5))  # no -0
        coarse = KNEE + np.ceil((size - np.float32(KNEE)) / np.float32(COARSE) - np.float32(0.5))
        code = np.minimum(np.where(size <= KNEE, fine, coarse), len(MAGNITUDES) - 1).astype(np.uint8)
        return np.where((ratio < 0) & (code > 0), code + SIGN, code).astype(np.uint8)

    def decode(self, q, scale, zero_point, spec):
        return NUMBERS[q] * scale

    def operators(self, ops, parameters):
        """The same in ONNX operators, because QuantizeLinear does not have the format."""
        float32, boolean = np.dtype(np.float32), np.dtype(bool)
        number = {name: ops.constant(name, np.float32(value)) for name, value in _CONSTANTS.items()}
        scale = ops.constant("scale", ops.spread(parameters.scale, parameters))
        ratio = ops.add("Div", [ops.cast(ops.source, float32), scale])
        size = ops.add("Abs", [ratio])
        fine = ops.add("Ceil", [ops.add("Sub", [ops.add("Max", [size, number["half"]]), number["half"]])])
        beyond = ops.add("Div", [ops.add("Sub", [size, number["knee"]]), number["coarse"]])
        steps = ops.add("Ceil", [ops.add("Sub", [beyond, number["half"]])])
        coarse = ops.add("Add", [ops.add("Mul", [steps, number["coarse"]]), number["knee"]])
        small = ops.add("LessOrEqual", [size, number["knee"]], boolean)
        magnitude = ops.add("Min", [ops.add("Where", [small, fine, coarse], float32), number["last"]])
        negative = ops.add("Less", [ratio, number["zero"]], boolean)
        signed = ops.add("Where", [negative, ops.add("Sub", [number["zero"], magnitude]), magnitude], float32)
        return ops.cast(ops.add("Mul", [signed, scale]), ops.kind)

    def torch_values(self, x, scale, zero_point, spec):
        """The same in torch, for training; left out, training would ask numpy."""
        import torch

        ratio = x / scale
        size = ratio.abs()
        fine = torch.ceil(size.clamp(min=0.5) - 0.5)
        coarse = torch.ceil((size - KNEE) / COARSE - 0.5) * COARSE + KNEE
        magnitude = torch.where(size <= KNEE, fine, coarse).clamp(max=LAST)
        return torch.where(ratio < 0, 0 - magnitude, magnitude) * scale


_CONSTANTS = {"zero": 0.0, "half": 0.5, "knee": KNEE, "coarse": COARSE, "last": LAST}

add_format(TwoSlopes("slope6", bits=6))
