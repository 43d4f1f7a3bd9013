"""A number format of one's own, "apot6", and a chip that computes with it: -b apot6.py.

"Additive Powers-of-Two Quantization" (Li, Dong and Wang 2020): every number is a sum of two powers of two, so that a
product is two shifts and an addition. A sign and 5 bits: 2 of them choose the coarse power, 3 the fine one.
"""

import json

import numpy as np

from onnxq.emit import EMITTERS, Emitted, Emitter
from onnxq.emit.tables import plain, rows_of
from onnxq.numerics import quantize, quotient
from onnxq.targets import BACKENDS
from onnxq.types import Backend, Limits, OpRule, PerChannel, QuantSpec, Scheme
from onnxq.types.number_format import NumberFormat, add_format
from onnxq.types.presets import STANDARD_PASSES, declines_computed_weight, gemm_weight_axis

COARSE = (0, 2**0, 2**-3, 2**-6)
FINE = (0, 2**-1, 2**-2, 2**-4, 2**-5, 2**-7, 2**-8, 2**-9)
LEVELS = np.unique(np.add.outer(COARSE, FINE)).astype(np.float32)
"""The 32 magnitudes, 0 .. 1.5, each exact in float32."""
MIDDLES = (LEVELS[1:] + LEVELS[:-1]) / 2
NEGATIVE = 32
NUMBERS = np.concatenate([LEVELS, 0 - LEVELS])
"""The number of each code; a zero has no sign."""


class AdditivePowersOfTwo(NumberFormat):
    """x / scale is rounded to the nearest sum of two powers; a value in the middle goes towards zero."""

    grid = "logarithmic"
    summary = "sums of two powers of two"

    def ends(self, spec, *, rounded=False):
        return -float(LEVELS[-1]), float(LEVELS[-1])

    def encode(self, x, scale, zero_point, spec):
        ratio = quotient(x, scale)
        return (np.searchsorted(MIDDLES, np.abs(ratio)) + np.where(ratio < 0, NEGATIVE, 0)).astype(np.uint8)

    def decode(self, q, scale, zero_point, spec):
        return NUMBERS[q] * scale

    def operators(self, ops, parameters):
        float32, int64 = np.dtype(np.float32), np.dtype(np.int64)
        scale = ops.constant("scale", ops.spread(parameters.scale, parameters))
        ratio = ops.add("Div", [ops.cast(ops.source, float32), scale])
        last = ops.constant("last", np.array([-1], np.int64))
        column = ops.add("Unsqueeze", [ops.add("Abs", [ratio]), last], shaped=False)
        above = ops.add("Greater", [column, ops.constant("middles", MIDDLES)], np.dtype(bool), shaped=False)
        ones = ops.add("Cast", [above], int64, {"to": int64}, shaped=False)
        magnitude = ops.add("ReduceSum", [ones, last], attrs={"keepdims": 0})
        below = ops.add("Less", [ratio, ops.constant("zero", np.float32(0))], np.dtype(bool))
        sign = ops.add("Mul", [ops.cast(below, int64), ops.constant("sign", np.int64(NEGATIVE))])
        numbers = ops.constant("numbers", NUMBERS)
        number = ops.add("Gather", [numbers, ops.add("Add", [magnitude, sign])], float32)
        return ops.cast(ops.add("Mul", [number, scale]), ops.kind)

    def torch_values(self, x, scale, zero_point, spec):
        import torch

        ratio = x / scale
        codes = torch.bucketize(ratio.abs(), torch.from_numpy(MIDDLES)) + NEGATIVE * (ratio < 0)
        return torch.where(ratio.isnan(), ratio, torch.from_numpy(NUMBERS)[codes] * scale)


add_format(AdditivePowersOfTwo("apot6", bits=6))


def _table(graph, plan, qparams):
    found = {}
    for row in rows_of(graph, plan, qparams, "activation", "weight"):
        found[row.tensor] = {"scale": plain(row.qparams.scale)}
        if row.role == "weight":
            codes = quantize(graph.values(row.tensor).astype(np.float32), row.qparams)
            found[row.tensor]["codes"] = codes.tobytes().hex()
    return found


def write_table(request):
    """Write `<name>_apot.json`: the scales of all tensors and the codes of the weights."""
    path = request.path("_apot.json")
    path.write_text(json.dumps(_table(*request.quantized), indent=1), encoding="utf-8")
    return Emitted((path,))


def read_table(request):
    """The table on disk says what the parameters say."""
    path = request.path("_apot.json")
    if json.loads(path.read_text(encoding="utf-8")) != _table(*request.quantized):
        yield f"{path.name} differs from the parameters"


EMITTERS.add("apot_table", Emitter(write_table, files=("_apot.json",), read_back=read_table))


BACKENDS.add(
    "shift_adder",
    Backend(
        name="shift_adder",
        summary="a toy chip that multiplies by shifting and adding",
        scheme=Scheme(QuantSpec("apot6"), QuantSpec("apot6", granularity=PerChannel(0))),
        rules=(
            OpRule(("Conv",), weight=1, weight_axis=0, decline=declines_computed_weight),
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, decline=declines_computed_weight),
        ),
        limits=Limits(dtypes=("apot6",), bias_quantized=False),
        passes=STANDARD_PASSES,
        emitters=("qdq", "apot_table"),
        activation_fake_quantizer="lsq",
        weight_fake_quantizer="lsq",
    ),
)
