"""Qualcomm QNN (HTP) through onnxruntime's QNN execution provider: a QDQ model in which every operator is quantized.

The provider takes DequantizeLinear -> operator -> QuantizeLinear as one quantized operator, and the HTP runs a graph as
a whole only when all its operators are of that kind, so inputs and outputs of everything are quantized, graph outputs
included. Results of Sigmoid, Softmax and Tanh have the fixed scales that the HTP kernels are made for: 1 / 2^bits and
2 / 2^bits. Scales per channel are for convolutions, symmetric; matrices have one scale. Encodings files are written for
Qualcomm's own converters, which take the float model.
Sources: onnxruntime's quantization configuration for QNN; runs of onnxruntime-qnn with the HTP emulation.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS
from onnxq.targets.half_rest import half_rest, rest_option
from onnxq.targets.qualcomm.encodings import EMITTER_OF
from onnxq.targets.qualcomm.sdk_steps import QAIRT, RUN_ON_HTP
from onnxq.types import Backend, Limits, OpRule, Option, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.layer_rules import INTEGER_CONVOLUTIONS
from onnxq.types.overrides import QuantizerOverride
from onnxq.types.presets import FOLD_LAYERS, RECOGNIZE, SETTLE, TO_FLOAT32

ENCODINGS = Option("encodings", (*EMITTER_OF, "all"), "all", "version of the encodings files")


def encodings_emitters(version: str) -> tuple[str, ...]:
    """The emitters for a value of the option `encodings`."""
    return tuple(EMITTER_OF.values()) if version == "all" else (EMITTER_OF[version],)


_GAMMA = QuantSpec("uint8", symmetric=False)
"""The factors of a normalization: the HTP takes no signed ones."""

PER_COLUMN = QuantizerOverride(dtype="int8", symmetric=True, per_channel=True)
"""A matrix with a scale for each column, which the HTP takes for constants as FullyConnected: symmetric alone."""

RULES = (
    *INTEGER_CONVOLUTIONS,
    OpRule(("Gemm", "MatMul"), inputs=(0,), weight=1, bias=2, output=True),
    OpRule(("LayerNormalization", "InstanceNormalization"), weight=1, bias=2, output=True, weight_spec=_GAMMA),
    OpRule(("Add", "Sub", "Mul", "Div", "Min", "Max", "Pow"), inputs=None, output=True),
    OpRule(("PRelu",), weight=1, output=True),
    OpRule(("Concat", "Sum"), inputs=None, output=True),
    OpRule(("GlobalAveragePool", "GlobalMaxPool", "LpPool"), output=True),
    OpRule(("Sigmoid", "Tanh", "Softmax", "LogSoftmax", "HardSigmoid", "HardSwish", "Gelu"), output=True),
    OpRule(("LeakyRelu", "Elu", "Softplus", "Exp", "Log", "Sqrt", "Abs", "Neg", "Reciprocal"), output=True),
    OpRule(("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "LpNormalization"), output=True),
    OpRule(("Sin", "Cos", "Floor", "Ceil", "Round", "LRN"), output=True),
    OpRule(("GridSample",), inputs=(0, 1), output=True),
    OpRule(("Pad",), inputs=(0, 2), output=True),
)
"""Operators that compute. MatMul has no bias port: its bias is the Add of a MatMulAdd unit."""

SAME_SCALE = (
    SameScaleRule(("AveragePool",)),  # the HTP pools large windows in two steps and saturates in between
    SameScaleRule(("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")),
    SameScaleRule(("Slice", "Split", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth")),
    SameScaleRule(("Expand", "Tile", "Resize", "Relu", "Clip", "Identity")),
    SameScaleRule(("Where",), inputs=(1, 2)),
    SameScaleRule(("TopK",)),
)
"""Operators that move, select or average values."""


def fixed_ranges(bits: int) -> dict[str, tuple[float, float]]:
    """Ranges with the scales 1 / 2^bits, zero point 0, and 2 / 2^bits, zero point 2^(bits - 1)."""
    step = 2.0**-bits
    return {"Sigmoid": (0.0, 1 - step), "Softmax": (0.0, 1 - step), "Tanh": (-1.0, 1 - 2 * step)}


def qnn(values: Mapping[str, str]) -> Backend:
    """The backend for one choice of options."""
    activation, weight, per_channel = values["activation"], values["weight"], values["per_channel"] == "yes"
    if per_channel and weight == "uint8":
        raise ConfigError(
            "QNN takes scales per channel for symmetric weights only, and uint8 weights are asymmetric; "
            "write qnn:weight=int8,per_channel=yes"
        )
    wide = activation == "uint16"
    weights = QuantSpec(weight, symmetric=weight == "int8", granularity=PerChannel(0)) if per_channel else None
    return Backend(
        name="qnn",
        summary="Qualcomm QNN HTP: QDQ model with every operator quantized (onnxruntime-qnn), and encodings files",
        scheme=Scheme(
            activation=QuantSpec(activation, symmetric=False),
            weight=weights or QuantSpec(weight, symmetric=weight == "int8"),
            bias=QuantSpec("int32"),
        ),
        rules=RULES,
        same_scale=SAME_SCALE,
        absorb_activations=True,
        quantize_inputs=True,
        fixed_ranges=fixed_ranges(16 if wide else 8),
        limits=Limits(
            dtypes=("uint8", "int8", "uint16", "int16", "int4", "int32"),
            weight_only_dtypes=("int4",),
            min_opset=21 if wide else 13,
            minimum_range=1e-4,
            float_types=("float32",),
        ),
        outlier_format="uint16",
        outlier_matrices=PER_COLUMN,
        refinements=("minimum_range",),
        passes=(
            *(*TO_FLOAT32, *FOLD_LAYERS, "batchnorm_to_conv"),
            *(*RECOGNIZE, "gelu_as_operator", "hardswish_as_operator", *SETTLE),
        ),
        emitters=("qdq", "deploy", *encodings_emitters(values["encodings"])),
        vendor_steps=(RUN_ON_HTP, *QAIRT),
        options=_OPTIONS,
        rest=half_rest(values["rest"]),
        configure=qnn,
        checked_by=("onnxruntime-qnn (HTP emulation, .dlc)", "aimet-onnx"),
    )


_OPTIONS = (
    Option("activation", ("uint8", "uint16"), "uint8", "format of activations"),
    Option("weight", ("int8", "uint8"), "int8", "format of weights: uint8 is asymmetric, int8 symmetric"),
    Option("per_channel", ("no", "yes"), "no", "one scale for each output channel of a convolution"),
    ENCODINGS,
    rest_option("fp16"),
)

BACKENDS.add("qnn", qnn({option.name: option.default for option in _OPTIONS}))
