"""Settings of research papers: only layers with weights are quantized, with any number of bits, batch norms stay apart.

The first and the last layer have 8 bits whatever the others have, as most papers do it. There is no chip behind it: the
files are Q/DQ models for onnxruntime, in which formats narrower than their type are limited by a Clip. MX, NVFP4
and NF4, asked for by their dtype, are float operators where something is computed at run time.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, OpRule, Option, PerChannel, QuantSpec, Scheme
from onnxq.types.granularity import PerTensor
from onnxq.types.layer_rules import CONVOLUTIONS
from onnxq.types.presets import SETTLE, TO_FLOAT32, declines_computed_weight, gemm_weight_axis, matmul_weight_axis

BITS = tuple(str(bits) for bits in range(1, 17))
OPTIONS = (
    Option("w_bits", BITS, "8", "bits of weights"),
    Option("a_bits", BITS, "8", "bits of activations"),
    Option("w_symmetric", ("yes", "no"), "yes", "weights without a zero point"),
    Option("a_symmetric", ("yes", "no"), "yes", "activations without a zero point"),
    Option("w_per_channel", ("yes", "no"), "yes", "one scale for each output channel of a weight"),
)
INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 4, 2) for sign in ("", "u"))
BLOCK_FORMATS = ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8", "nvfp4", "nf4")
DTYPES = (*INTEGERS, *BLOCK_FORMATS)


def academic_scheme(values: Mapping[str, str], *, ends: bool) -> Scheme:
    """The formats that the options say; `ends` gives the first and last layer the same ones with 8 bits."""
    activation, weight = _formats(values, int(values["a_bits"]), int(values["w_bits"]))
    return Scheme(activation=activation, weight=weight, ends=_formats(values, 8, 8) if ends else None)


def _formats(values: Mapping[str, str], activation_bits: int, weight_bits: int) -> tuple[QuantSpec, QuantSpec]:
    granularity = PerChannel(0) if values["w_per_channel"] == "yes" else PerTensor()
    return (
        _integers(activation_bits, symmetric=values["a_symmetric"] == "yes"),
        _integers(weight_bits, symmetric=values["w_symmetric"] == "yes").replace(granularity=granularity),
    )


def _integers(bits: int, *, symmetric: bool) -> QuantSpec:
    return QuantSpec(f"int{bits}" if symmetric else f"uint{bits}", symmetric=symmetric)


def _configure(values: Mapping[str, str]) -> Backend:
    return Backend(
        name="academic",
        summary="research settings: Conv and Linear with any number of bits, 8 at both ends, no BN folding",
        scheme=academic_scheme(values, ends=True),
        rules=(
            *CONVOLUTIONS,
            OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, decline=declines_computed_weight),
            OpRule(("MatMul",), weight=1, weight_axis=matmul_weight_axis, decline=declines_computed_weight),
        ),
        fused_activations=(),
        limits=Limits(dtypes=DTYPES, bias_quantized=False, activations_per_tensor=False, refused_operators=()),
        passes=(*TO_FLOAT32, "canonicalize_gemm", "fuse_matmul_add", *SETTLE),
        options=OPTIONS,
        configure=_configure,
        known_as=(KnownAs("Academic", formats="given"),),
        checked_by=("onnxruntime",),
    )


BACKENDS.add("academic", _configure({option.name: option.default for option in OPTIONS}))
