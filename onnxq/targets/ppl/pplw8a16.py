"""OpenPPL with 8-bit weights and 16-bit data: both asymmetric, one scale for each tensor."""

from __future__ import annotations

from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, QuantSpec, Scheme
from onnxq.types.layer_rules import TOTAL_INTEGER, TOTAL_INTEGER_MOVES, TOTAL_INTEGER_TIED
from onnxq.types.presets import STANDARD_PASSES

BACKENDS.add(
    "pplw8a16",
    Backend(
        name="pplw8a16",
        summary="OpenPPL with 8-bit weights and 16-bit data, asymmetric, with MQBench's and ppl.nn's range files",
        scheme=Scheme(
            activation=QuantSpec("uint16", symmetric=False),
            weight=QuantSpec("uint8", symmetric=False),
        ),
        rules=TOTAL_INTEGER,
        same_scale=TOTAL_INTEGER_MOVES,
        tied=TOTAL_INTEGER_TIED,
        unquantized_pairs=(("Add", "Mul"),),
        limits=Limits(dtypes=("uint8", "uint16"), weights_per_tensor=True, min_opset=21, bias_quantized=False),
        passes=STANDARD_PASSES,
        known_as=(KnownAs("PPLW8A16"),),
        emitters=("qdq", "deploy", "ppl_ranges", "ppl_nn"),
    ),
)
