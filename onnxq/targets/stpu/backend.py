"""SenseTime STPU: int8 from -127 to 127, symmetric, one scale for each tensor, with exponents of the accumulators."""

from __future__ import annotations

from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, OpRule, QuantSpec, Scheme
from onnxq.types.layer_rules import TOTAL_INTEGER, TOTAL_INTEGER_MOVES, TOTAL_INTEGER_TIED
from onnxq.types.presets import STANDARD_PASSES

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
        same_scale=TOTAL_INTEGER_MOVES,
        tied=TOTAL_INTEGER_TIED,
        unquantized_pairs=(("Add", "Mul"),),
        fixed_ranges={"Sigmoid": (-1.0, 1.0)},
        integers_only=True,
        limits=Limits(
            dtypes=("int8", "int32"), zero_point_zero=True, weights_per_tensor=True, min_opset=11, steps=((-127, 127),)
        ),
        passes=STANDARD_PASSES,
        known_as=(KnownAs("STPU", fakequantize="FixedFakeQuantize"),),
        emitters=("qdq", "stpu_ranges", "stpu_model"),
    ),
)
