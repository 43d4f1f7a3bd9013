"""Weights of few bits, everything else float: language models and others that are limited by the size of their weights.

A weight is stored in 8, 4 or 2 bits (or as float8) with a scale, and a zero point if wanted, for every block of
neighbours along the axis that its layer sums over; activations are not quantized, so no data is needed. MX formats,
NVFP4 and NF4 say themselves how long a block is. form=dq writes blocked DequantizeLinear nodes of ONNX (opset 21; int2
needs 25) or what stands for them in onnxruntime, form=nbits the operators MatMulNBits, MatMulBnb4 (NF4) and
GatherBlockQuantized of onnxruntime, types=yes a second file with the types that ONNX has for these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS
from onnxq.targets.weight_only.bnb4 import is_in_bnb4
from onnxq.types import Backend, Limits, NodeFacts, OpRule, Option, PerBlock, PerChannel, QuantSpec, Scheme
from onnxq.types.presets import (
    OF_ONNXRUNTIME,
    declines_computed_weight,
    declines_other_gathers,
    gemm_weight_axis,
    matmul_weight_axis,
)
from onnxq.types.vendor_step import VendorStep

FLOAT8 = ("fp8_e4m3", "fp8_e5m2")
BLOCK_FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "nvfp4", "nf4")
"""Formats that say themselves how many weights share a scale, and which numbers scales are."""
WITHOUT_ZERO_POINTS = (*FLOAT8, *BLOCK_FORMATS)
WITH_SIGNED_SCALES = ("4", "2")
"""Bits with so few steps that one more on the side of a block's largest value is worth a sign."""
OPTIONS = (
    Option("bits", ("auto", "4", "8", "2"), "auto", "bits of weights; auto: 4, or 8 for float8"),
    Option(
        "block",
        ("auto", "32", "16", "64", "128", "256", "channel"),
        "auto",
        "how many weights share a scale; auto: 32, or what the format says",
    ),
    Option("symmetric", ("auto", "yes", "no"), "auto", "no zero points; auto: none for 8 bits, one a block for fewer"),
    Option("format", ("int", *WITHOUT_ZERO_POINTS), "int", "integers, float8, or a format with blocks of its own"),
    Option("form", ("dq", "nbits"), "dq", "blocked DequantizeLinear of ONNX, or MatMulNBits of onnxruntime"),
    Option(
        "accuracy_level",
        ("auto", "0", "1", "4"),
        "auto",
        "of MatMulNBits: 1 computes in float32, 4 in int8; auto: 4 for 8 bits",
    ),
    Option("types", ("no", "yes"), "no", "also write a file with ONNX's own types for MX and NVFP4, for compilers"),
    Option("ops", ("all", "linear"), "all", "MatMul, Gemm, Gather and 1x1 Conv, or only MatMul and Gemm"),
)
INTEGERS = tuple(f"{sign}int{bits}" for bits in (4, 8, 2) for sign in ("", "u"))
FLOATS = ("float8e4m3fn", "float8e5m2")


def _declines_matmul(node: NodeFacts) -> str | None:
    if node.made_by(1) == "Transpose" and node.made_of_constants(1):
        return "its weight is another one transposed, and reads what that one is stored as"
    if node.is_constant(1) and len(node.shape(1) or ()) < 2:
        return "its weight is a vector, too small to be worth it"
    return declines_computed_weight(node)


def _declines_conv(node: NodeFacts) -> str | None:
    shape = node.shape(1) or ()
    if any(size != 1 for size in shape[2:]):
        return f"its kernel is {'x'.join(str(size) for size in shape[2:])}: blocks are for 1x1 convolutions"
    if int(node.attrs.get("group", 1)) > 1:
        return "it has groups, whose weights are too short for blocks"
    return declines_computed_weight(node)


def _declines_transpose(node: NodeFacts) -> str | None:
    """A reason against a Transpose that does not lie between a shared matrix and a MatMul."""
    if not node.is_constant(0) or len(node.shape(0) or ()) != 2 or node.attrs.get("perm", [1, 0]) != [1, 0]:
        return "it does not transpose a constant matrix"
    return None if set(node.read_by()) == {"MatMul:1"} else "its result is not the weight of a MatMul"


def _rules(ops: str) -> tuple[OpRule, ...]:
    linear = (
        OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis, decline=_declines_matmul),
        OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, decline=declines_computed_weight),
        OpRule(("Transpose",), inputs=(), weight=0, weight_axis=0, decline=_declines_transpose),
    )
    if ops == "linear":
        return linear
    return (
        *linear,
        OpRule(("Gather",), inputs=(), weight=0, weight_axis=0, decline=declines_other_gathers),
        OpRule(("Conv",), weight=1, weight_axis=0, decline=_declines_conv),
    )


def _weight(values: Mapping[str, str]) -> QuantSpec:
    """The format that the options say; place finds the axis of each weight.

    MatMulNBits multiplies with scales of either sign, as the tool of onnxruntime writes them too; what reads a
    DequantizeLinear may take positive ones only (TensorRT does).
    """
    kind = values["format"]
    if kind in BLOCK_FORMATS:
        return _blocks_of_its_own(values)
    block = "32" if values["block"] == "auto" else values["block"]
    granularity = PerChannel(0) if block == "channel" else PerBlock(0, int(block))
    bits = "4" if values["bits"] == "auto" else values["bits"]
    symmetric = values["symmetric"] == "yes" or (values["symmetric"] == "auto" and bits == "8")
    if kind == "int" and symmetric:
        turns = values["form"] == "nbits" and bits in WITH_SIGNED_SCALES
        return QuantSpec(f"int{bits}", granularity=granularity, signed_scale=turns)
    if kind == "int":
        return QuantSpec(f"uint{bits}", symmetric=False, granularity=granularity)
    if values["symmetric"] == "no":
        raise ConfigError(f"weight_only: format={kind} has no zero point. Leave out symmetric=no")
    if values["bits"] not in ("auto", "8"):
        raise ConfigError(f"weight_only: format={kind} has 8 bits. Leave out bits={values['bits']} or the format")
    return QuantSpec(kind, granularity=granularity)


def _blocks_of_its_own(values: Mapping[str, str]) -> QuantSpec:
    """MX, NVFP4, NF4: only NF4, which no specification has, lets one choose how long a block is."""
    spec, kind, block = QuantSpec(values["format"]), values["format"], values["block"]
    granularity = spec.format.wanted_granularity(spec.granularity, None, None)
    assert isinstance(granularity, PerBlock)
    if values["symmetric"] == "no":
        raise ConfigError(f"weight_only: format={kind} has no zero point. Leave out symmetric=no")
    if values["bits"] not in ("auto", str(spec.bits)):
        raise ConfigError(f"weight_only: format={kind} has {spec.bits} bits. Leave out bits={values['bits']}")
    if block in ("auto", str(granularity.size)):
        return spec.replace(granularity=PerBlock(0, granularity.size))
    if spec.format.at_rest is not None and spec.format.at_rest.own_type is None and block != "channel":
        return spec.replace(granularity=PerBlock(0, int(block)))
    raise ConfigError(f"weight_only: format={kind} has blocks of {granularity.size}. Leave out block={block}")


def _configure(values: Mapping[str, str]) -> Backend:
    weight, packed = _weight(values), values["form"] == "nbits"
    if packed and not weight.evenly_spaced and not is_in_bnb4(weight):
        raise ConfigError(
            f"weight_only: MatMulNBits holds integers, and MatMulBnb4 nf4, not {values['format']}. "
            "Leave out form=nbits or the format"
        )
    own = values["types"] == "yes"
    if own and (weight.format.at_rest is None or weight.format.at_rest.own_type is None):
        raise ConfigError(f"weight_only: types=yes is for MX formats and nvfp4, not {values['format']}")
    if packed and values["block"] == "channel":
        raise ConfigError("weight_only: MatMulNBits has blocks of 16 .. 256. Leave out form=nbits or block=channel")
    level = values["accuracy_level"]
    if level != "auto" and (not packed or is_in_bnb4(weight)):
        raise ConfigError(
            f"weight_only: accuracy_level={level} is for MatMulNBits, which form=nbits writes. Leave it out"
        )
    dtypes = (*INTEGERS, *(() if packed else FLOATS), *BLOCK_FORMATS)
    return Backend(
        name="weight_only",
        summary="weights of 8, 6, 4 or 2 bits in blocks, activations float; no data needed",
        scheme=Scheme(activation=None, weight=weight),
        rules=_rules(values["ops"]),
        fused_activations=(),
        limits=Limits(dtypes=dtypes, weight_only_dtypes=dtypes, bias_quantized=False, signed_scales=packed),
        passes=(
            *("remove_dead", "constants_to_initializers", "propagate_loop_constants", "fold_unshared_constants"),
            *("remove_identity", "remove_dropout", *OF_ONNXRUNTIME),
            *("widen_bfloat16", "widen_float16", "fuse_conv_bias", "fold_batchnorm"),
            *("split_block_weights", "remove_dead"),
        ),
        emitters=("matmul_nbits" if packed else "qdq", *(("own_types",) if own else ())),
        vendor_steps=(
            VendorStep(
                "onnxruntime runs it as any other model",
                'session = onnxruntime.InferenceSession("{model}", providers=["CPUExecutionProvider"])',
            ),
        ),
        refinements=("block_scales",),
        lints=("weight_blocks",),
        options=OPTIONS,
        configure=_configure,
        checked_by=("onnxruntime",),
    )


BACKENDS.add("weight_only", _configure({option.name: option.default for option in OPTIONS}))
