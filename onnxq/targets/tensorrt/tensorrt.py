"""TensorRT, explicit quantization (QDQ): INT8, symmetric, per-channel weights, float biases.

TensorRT fuses what stands between a DequantizeLinear and the next QuantizeLinear, so quantizers go on the inputs of
weighted layers and nowhere else. Two rules are its own: of a residual Add only the skip input is quantized (the other
one is computed inside the convolution), and MaxPool, Reshape and the like get no quantizers because TensorRT swaps them
with the one behind. Implicit quantization, which versions up to 10 have, reads the same ranges from a calibration cache
or through setDynamicRange; these tables are written too. Version 11 has strongly typed networks alone, in which types
are those of the file. Version 10 is the default: its Q/DQ model is what version 11 takes as well, so that nobody misses
a file. Sources: NVIDIA's Q/DQ placement recommendations; NvInfer.h
(IQuantizeLayer, IDequantizeLayer).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from onnxq.errors import ConfigError
from onnxq.observers.aliases import ALIASES, Alias
from onnxq.targets import BACKENDS
from onnxq.targets.half_rest import half_rest, rest_option
from onnxq.targets.tensorrt.block_scheme import BLOCK_FORMATS, in_blocks
from onnxq.targets.tensorrt.engine_steps import EXPLICIT, IMPLICIT, TYPED, TYPED_IN_10
from onnxq.types import Backend, KnownAs, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.layer_rules import CONVOLUTIONS
from onnxq.types.presets import (
    CLEAN_UP,
    DECOMPOSE,
    FOLD_LAYERS,
    RECOGNIZE,
    SETTLE,
    WIDEN,
    declines_computed_weight,
    gemm_weight_axis,
    matmul_weight_axis,
)


def _matrix_vector(node: NodeFacts) -> str | None:
    shape = node.output_shape()
    if shape is not None and (shape[-1:] == (1,) or shape[-2:-1] == (1,)):
        return "multiplies a matrix by a vector: INT8 gains nothing there"
    return None


def _few_channels(node: NodeFacts) -> str | None:
    shape = node.shape(1)
    if shape is not None and any(isinstance(size, int) and size < FLOAT8_CHANNELS for size in shape[:2]):
        return f"float8 convolutions have {FLOAT8_CHANNELS} channels or more in and out of a group"
    return declines_computed_weight(node)


FLOAT8_CHANNELS = 16
FLOAT8_CONVOLUTIONS = tuple(dataclasses.replace(rule, decline=_few_channels) for rule in CONVOLUTIONS)
"""What ModelOpt quantizes to float8 as well: TensorRT has no faster kernel for fewer channels."""

LIMITS = Limits(
    dtypes=("int8", "int4", "float8e4m3fn"),
    weight_only_dtypes=("int4",),
    zero_point_zero=True,
    min_opset=10,
    float_types=("float32", "float16", "bfloat16"),
    bias_quantized=False,
)
"""What TensorRT takes, whatever the placement."""

OPTIONS = (
    Option("version", ("10", "11"), "10", "of TensorRT; 11 takes strongly typed Q/DQ models alone, no tables"),
    Option(
        "tables",
        ("auto", "yes", "no"),
        "auto",
        "the calibration cache, the clip ranges and the float model; auto: for version 10 with rest=fp32",
    ),
    rest_option("fp16", "bf16"),
    Option(
        "format",
        ("int8", "fp8", "mxfp8", "nvfp4"),
        "int8",
        "of layers; fp8 is E4M3, with attention placed for fused kernels; mxfp8 and nvfp4 have scales in blocks",
    ),
)


def _configure(values: Mapping[str, str]) -> Backend:
    rest, latest = half_rest(values["rest"], scales=True), values["version"] == "11"
    typed = latest or rest is not None
    if latest and values["tables"] == "yes":
        raise ConfigError(
            "TensorRT 11 has no calibrators and no dynamic ranges, so nothing reads the tables: tables=yes goes with "
            "version=10"
        )
    implicit = not typed and values["format"] == "int8"
    with_tables = values["tables"] == "yes" or (values["tables"] == "auto" and implicit)
    tables = ("clip_ranges", "calibration_cache", "deploy") if with_tables else ()
    steps = TYPED if latest else EXPLICIT if rest is None else (*TYPED, *TYPED_IN_10)
    float8 = values["format"] == "fp8"
    number = QuantSpec("fp8_e4m3") if float8 else QuantSpec("int8")
    weight = number if float8 else number.replace(granularity=PerChannel(0))
    queries = ("scale_queries",) if float8 else ()
    widened = ("widen_bfloat16",) if rest is None else WIDEN
    whole = Backend(
        name="tensorrt",
        summary="NVIDIA TensorRT, explicit quantization: QDQ model, INT8 symmetric, weights per channel, biases float",
        scheme=Scheme(activation=number, weight=weight),
        rules=(
            *(FLOAT8_CONVOLUTIONS if float8 else CONVOLUTIONS),
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis),
            OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=matmul_weight_axis, decline=_matrix_vector),
            OpRule(("Add",), inputs=(0, 1)),
        ),
        tied=("Concat",),
        commuting=(
            "MaxPool",
            "Reshape",
            "Flatten",
            "Transpose",
            "Squeeze",
            "Unsqueeze",
            "Concat",
            "Slice",
            "Split",
            "DepthToSpace",
            "SpaceToDepth",
            "Identity",
        ),
        residual="skip",
        outlier_format="float",
        weight_storage="float",
        float8_pairs="plain",
        limits=dataclasses.replace(LIMITS, max_opset=25) if latest else LIMITS,
        rest=rest,
        refinements=() if rest is None else ("half_scales",),
        passes=(*CLEAN_UP, *DECOMPOSE, *widened, *FOLD_LAYERS, *RECOGNIZE, "recognize_silu", *queries, *SETTLE),
        fixed_ranges={"Softmax": (0.0, 1.0)} if float8 else {},
        known_as=(KnownAs("Tensorrt"), KnownAs("QDQ", options={"tables": "no"})),
        emitters=("qdq", *tables),
        vendor_steps=(*steps, *IMPLICIT) if with_tables else steps,
        lints=("tensorrt_parser", "strongly_typed") if typed else ("tensorrt_parser",),
        options=OPTIONS,
        configure=_configure,
        checked_by=("nvidia-modelopt (calibration cache)", "openvino"),
    )
    if values["format"] not in BLOCK_FORMATS:
        return whole
    if with_tables:
        raise ConfigError(f"the tables are for int8: tables=yes does not go with format={values['format']}")
    return in_blocks(whole, values["format"])


BACKENDS.add("tensorrt", _configure({option.name: option.default for option in OPTIONS}))
ALIASES.add("entropy", Alias("kl"))
