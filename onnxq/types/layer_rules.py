"""Rules for operators that several targets treat alike, made of the predicates in `presets`."""

from __future__ import annotations

from dataclasses import replace

from onnxq.types.backend import OpRule, SameScaleRule
from onnxq.types.presets import (
    conv_transpose_weight_axis,
    declines_computed_weight,
    declines_interpolation,
    declines_other_gathers,
    declines_padding_value,
    gemm_weight_axis,
    matmul_weight_axis,
)

CONVOLUTIONS = (
    OpRule(("Conv",), weight=1, weight_axis=0, decline=declines_computed_weight),
    OpRule(("ConvTranspose",), weight=1, weight_axis=conv_transpose_weight_axis, decline=declines_computed_weight),
)
"""Inputs and weights are quantized; results are float."""

INTEGER_CONVOLUTIONS = tuple(replace(rule, bias=2, output=True) for rule in CONVOLUTIONS)
"""Results are quantized too, and biases where the target's scheme has a format for them."""

INTEGER_LAYERS = (
    *INTEGER_CONVOLUTIONS,
    OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2, output=True, decline=declines_computed_weight),
    OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis, output=True, decline=declines_computed_weight),
)
"""Layers with constant weights; inputs and results are integers."""

TRANSFORMER_LAYERS = (
    OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
    OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis),
    OpRule(("Gather",), inputs=(), weight=0, weight_axis=1, decline=declines_other_gathers),
)
"""Linear layers, products of two computed matrices, and tables of embeddings."""

RESIZE = SameScaleRule(("Resize",), decline=declines_interpolation)
PAD = SameScaleRule(("Pad",), decline=declines_padding_value)

MOVES = (
    SameScaleRule(("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")),
    SameScaleRule(("Slice", "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile")),
    RESIZE,
    PAD,
)
"""Operators that move, choose or repeat values: the scale of the input is the scale of the result."""

# Accelerators for convolutional networks that have no float layers in between (OpenPPL, Tengine, STPU).

TOTAL_INTEGER_TIED = ("MaxPool", "GlobalMaxPool", "Resize", "Upsample")
"""Operators that choose among their input's values or mix them: one scale for both sides."""

TOTAL_INTEGER = (
    *INTEGER_LAYERS,
    OpRule(("Add", "Mul"), inputs=(0, 1), output=True),
    OpRule(("AveragePool", "GlobalAveragePool"), output=True),
    OpRule(("BatchNormalization", "PRelu"), output=True),
    OpRule(TOTAL_INTEGER_TIED, output=True),
)
"""Every layer takes and gives integers. A BatchNormalization is one where none could take it in: at the beginning,
behind a Concat."""

TOTAL_INTEGER_MOVES = (
    SameScaleRule(("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze")),
    SameScaleRule(("Slice", "Split", "DepthToSpace", "SpaceToDepth", "Relu", "Clip")),
    PAD,
    SameScaleRule(("Concat",), inputs=None),
)
"""Operators that move or limit values and keep the scale. A Relu is here where no layer could take it in."""
