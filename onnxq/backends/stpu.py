"""SenseTime STPU: int8 from -127 to 127, symmetric, one scale for each tensor, with exponents of the accumulators."""

from __future__ import annotations

from onnxq.backends import BACKENDS
from onnxq.backends.pplcuda import MOVES, PASSES, TIED, TOTAL_INTEGER
from onnxq.types import Backend, Limits, OpRule, QuantSpec, Scheme

BACKENDS.add(
    "stpu",
    Backend(
        name="stpu",
        summary="SenseTime STPU: int8 symmetric from -127 to 127, per tensor, with ranges and accumulator exponents",
        scheme=Scheme(
            activation=QuantSpec("int8", narrow_range=True),
            weight=QuantSpec("int8", narrow_range=True),
            bias=QuantSpec("int32"),
        ),
        rules=(*TOTAL_INTEGER, OpRule(("Sigmoid",), output=True)),
        same_scale=MOVES,
        tied=TIED,
        unquantized_pairs=(("Add", "Mul"),),
        fixed_ranges={"Sigmoid": (-1.0, 1.0)},
        limits=Limits(
            dtypes=("int8", "int32"), zero_point_zero=True, weights_per_tensor=True, min_opset=11, steps=((-127, 127),)
        ),
        passes=PASSES,
        emitters=("qdq", "stpu_ranges", "stpu_model"),
    ),
)
