"""AMD Ryzen AI NPU: the formats of Quark, as QDQ models.

XINT8 is the NPU's format for convolutional networks: int8 with power-of-two scales, whose shifts have to exist, as on
the DPU. A8W8 and A16W8 have float scales; BF16 has none. Source: Quark 0.13, AMD's quantizer for this target.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS
from onnxq.targets.amd.vitis import (
    ALL_SIMULATIONS,
    AVERAGES,
    MOVING,
    PASSES,
    POWER_OF_TWO_LIMITS,
    USUAL_SIMULATIONS,
    op_rules,
)
from onnxq.types import Backend, Limits, Option, QuantSpec, Scheme
from onnxq.types.vendor_step import VendorStep

OPTIONS = (
    Option(
        "precision",
        ("XINT8", "A8W8", "A16W8", "BF16"),
        "XINT8",
        "XINT8: int8, power-of-two scales; A8W8: int8, float scales; A16W8: int16 activations, int8 weights; BF16",
    ),
    Option(
        "approximations",
        ("usual", "all"),
        "usual",
        "what `simulate` computes as the NPU does; all: also Sigmoid as HardSigmoid, whole numbers as bounds of Clip",
    ),
)

_BASE = Backend(
    name="ryzenai",
    summary="AMD Ryzen AI NPU: QDQ model in a format of Quark (XINT8, A8W8, A16W8, BF16), weights per tensor",
    scheme=Scheme(None, None),
    rules=op_rules(sigmoid=True),
    same_scale=MOVING,
    fused_activations=("Relu", "Clip", "LeakyRelu"),
    limits=POWER_OF_TWO_LIMITS,
    passes=PASSES,
    quantize_inputs=True,
    vendor_steps=(
        VendorStep(
            "onnxruntime with AMD's execution provider compiles it for the NPU and runs it; vaip_config.json "
            "comes with Ryzen AI",
            "session = onnxruntime.InferenceSession(\n"
            '    "{model}", providers=["VitisAIExecutionProvider"],\n'
            '    provider_options=[{"config_file": "vaip_config.json"}])',
        ),
    ),
    options=OPTIONS,
    checked_by=("amd-quark",),
)


def configure(values: Mapping[str, str]) -> Backend:
    """The backend for a precision."""
    precision, everything = values["precision"], values["approximations"] == "all"
    if everything and precision != "XINT8":
        raise ConfigError(
            f"approximations=all speaks of XINT8; with precision={precision} nothing is approximated. Leave it out"
        )
    base = _BASE.replace(configure=configure)
    if precision == "XINT8":
        spec = QuantSpec("int8", power_of_two=True)
        return base.replace(
            scheme=Scheme(spec, spec, spec),
            rules=op_rules(sigmoid=everything),
            tied=AVERAGES,
            activation_observer="min_mse",
            weight_observer="min_mse",
            refinements=("dpu_positions",),
            simulations=ALL_SIMULATIONS if everything else USUAL_SIMULATIONS,
            lints=("dpu_positions",),
        )
    if precision == "BF16":
        narrow = QuantSpec("bf16")
        return base.replace(scheme=Scheme(narrow, narrow), limits=Limits(dtypes=("bfloat16",), min_opset=13))
    activation = "int16" if precision == "A16W8" else "int8"
    return base.replace(
        scheme=Scheme(QuantSpec(activation), QuantSpec("int8"), QuantSpec("int32")),
        limits=Limits(
            dtypes=tuple(dict.fromkeys((activation, "int8", "int32"))), zero_point_zero=True, weights_per_tensor=True
        ),
        tied=("Concat",),
    )


BACKENDS.add("ryzenai", configure({option.name: option.default for option in OPTIONS}))
