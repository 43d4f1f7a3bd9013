"""OpenPPL on NVIDIA GPUs, 8 bits: asymmetric data, weights per channel, inputs and outputs of every layer quantized.

ppl.nn itself reads symmetric ranges only: `scheme=symmetric` makes exactly what its engine computes.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.backends import BACKENDS
from onnxq.types import Backend, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.presets import (
    CLEAN_UP,
    FOLD_LAYERS,
    RECOGNIZE,
    SETTLE,
    conv_transpose_weight_axis,
    declines_computed_weight,
    gemm_weight_axis,
    matmul_weight_axis,
)

PASSES = (*CLEAN_UP, "widen_bfloat16", "widen_float16", *FOLD_LAYERS, *RECOGNIZE, *SETTLE)

LAYERS = (
    OpRule(("Conv",), weight=1, weight_axis=0, bias=2, output=True, decline=declines_computed_weight),
    OpRule(
        ("ConvTranspose",),
        weight=1,
        weight_axis=conv_transpose_weight_axis,
        bias=2,
        output=True,
        decline=declines_computed_weight,
    ),
    OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2, output=True, decline=declines_computed_weight),
    OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis, output=True, decline=declines_computed_weight),
)
"""Layers with weights; inputs and results are integers."""

TIED = ("MaxPool", "GlobalMaxPool", "Resize", "Upsample")
"""Operators that choose among their input's values or mix them: one scale for both sides."""

TOTAL_INTEGER = (
    *LAYERS,
    OpRule(("Add", "Mul"), inputs=(0, 1), output=True),
    OpRule(("AveragePool", "GlobalAveragePool"), output=True),
    OpRule(("BatchNormalization", "PRelu"), output=True),
    OpRule(TIED, output=True),
)
"""Every layer of a convolutional network takes and gives integers. A BatchNormalization is one where none could take it
in: at the beginning, behind a Concat."""


def interpolates(node: NodeFacts) -> str | None:
    """A reason to leave a Resize float that computes new values."""
    mode = node.attrs.get("mode", "nearest")
    return None if mode == "nearest" else f"mode '{mode}' computes new values"


def pads_other_values(node: NodeFacts) -> str | None:
    """A reason to leave a Pad float: what it puts in may lie outside the range of its input, which always holds 0."""
    value = node.scalar(2) if node.has(2) else node.attrs.get("value", 0.0)
    return None if value == 0 else "it pads with another value than 0"


MOVES = (
    SameScaleRule(("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")),
    SameScaleRule(("Slice", "Split", "DepthToSpace", "SpaceToDepth", "Relu", "Clip")),
    SameScaleRule(("Pad",), decline=pads_other_values),
    SameScaleRule(("Concat",), inputs=None),
)
"""Operators that move or limit values and keep the scale. A Relu is here where no layer could take it in."""

OPTIONS = (
    Option(
        "scheme",
        ("asymmetric", "symmetric"),
        "asymmetric",
        "symmetric: int8 with zero point 0, as the engine of ppl.nn computes; asymmetric: uint8, as MQBench trains",
    ),
)


def configure(values: Mapping[str, str]) -> Backend:
    symmetric = values["scheme"] == "symmetric"
    dtype = "int8" if symmetric else "uint8"
    return Backend(
        name="pplcuda",
        summary="OpenPPL (ppl.nn) on NVIDIA GPUs: 8 bits, weights per channel, with MQBench's and ppl.nn's range files",
        scheme=Scheme(
            activation=QuantSpec(dtype, symmetric=symmetric),
            weight=QuantSpec(dtype, symmetric=symmetric, granularity=PerChannel(0)),
        ),
        rules=TOTAL_INTEGER,
        same_scale=MOVES,
        tied=TIED,
        unquantized_pairs=(("Add", "Mul"),),
        limits=Limits(dtypes=(dtype,), zero_point_zero=symmetric, min_opset=13, bias_quantized=False),
        passes=PASSES,
        emitters=("qdq", "deploy", "ppl_cuda_ranges", "ppl_nn"),
        options=OPTIONS,
        configure=configure,
    )


BACKENDS.add("pplcuda", configure({"scheme": "asymmetric"}))
