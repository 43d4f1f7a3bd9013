"""Sophgo BM and CV chips through tpu-mlir: a float model with a calibration table and a table of precisions.

A chip runs an operator in int8 from input to output, so both are quantized. What tpu-mlir computes in float (Softmax,
LayerNorm, Div ...) stays float here and has a row that says so. BM chips hold tensors that cannot be negative in uint8
with 255 steps; CV18x has int8 only, symmetric, with weights in [-127, 127].

strategy=Transformer quantizes Conv, Gemm and MatMul alone. mode=weight_only stores weights in 8 or 4 bits and computes
in a float format; convolutional networks have no such mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS
from onnxq.targets.sophgo.compile_steps import compile_steps
from onnxq.targets.sophgo.float8 import declines_matrices, refuse_float8, without_kernels
from onnxq.targets.sophgo.float8 import moving as float8_moving
from onnxq.targets.sophgo.four_bits import settle_four_bits
from onnxq.targets.sophgo.modes import FLOAT8_MODES
from onnxq.targets.sophgo.names import LOOKED_UP
from onnxq.types import Backend, Limits, NodeFacts, OpRule, Option, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.backend import Decline, Settle
from onnxq.types.layer_rules import INTEGER_CONVOLUTIONS, PAD, RESIZE
from onnxq.types.presets import (
    FOLD_LAYERS,
    RECOGNIZE,
    SETTLE,
    TO_FLOAT32,
    declines_computed_weight,
    gemm_weight_axis,
    matmul_weight_axis,
)

_FORMATS = {"F8E4M3": "fp8_e4m3", "F8E5M2": "fp8_e5m2", "F16": "fp16", "BF16": "bf16"}
_KEEP_SCALE = (
    *("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Tile", "Expand"),
    *("DepthToSpace", "SpaceToDepth", "GlobalMaxPool", "Abs"),
)
_IN_INTEGERS = (OpRule(("Max", "Min"), inputs=None, output=True), OpRule(LOOKED_UP, output=True))
_STEPS = ((-128, 127), (-127, 127), (0, 255), (-8, 7), (-7, 7), (0, 15))
"""Lowest and highest integers of the formats that tpu-mlir has."""

_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class _Chip:
    """What differs between chips.

    compiled_as  what model_deploy calls it; one of them for a family
    precisions   what weights and activations can be; the first is the default
    unsigned     tensors that cannot be negative are uint8
    narrow       weights in [-127, 127]
    floats       what operators can run in that are not quantized; the first is the default
    four_bits    layers can compute with activations of 4 bits
    """

    name: str
    summary: str
    precisions: tuple[str, ...]
    compiled_as: str | None = None
    unsigned: bool = True
    narrow: bool = False
    floats: tuple[str, ...] = _FLOATS
    four_bits: bool = False

    def options(self) -> tuple[Option, ...]:
        return (
            Option("mode", ("weight_activation", "weight_only"), "weight_activation", "what is quantized"),
            Option("strategy", ("CNN", "Transformer"), "CNN", "every operator that can be, or only layers and MatMul"),
            Option("precision", self.precisions, self.precisions[0], "the number format of what is quantized"),
            Option("asymmetric", ("no", "yes"), "no", "activations with a zero point (model_deploy --asymmetric)"),
            Option("float", self.floats, self.floats[0], "what the operators run in that stay float"),
        )


def _grouped(node: NodeFacts) -> str | None:
    """A reason against 4 bits: the next rule takes such a convolution in 8."""
    if int(node.attrs.get("group", 1)) > 1:
        return "a convolution with groups has no 4-bit form"
    return declines_computed_weight(node)


def _computed_in_four_bits(node: NodeFacts) -> str | None:
    """A reason against 4 bits: the next rule takes such a product in 8."""
    return (
        None if node.is_constant(1) else "multiplies two computed matrices, which tpu-mlir does not compile in 4 bits"
    )


def _two_computed(node: NodeFacts) -> str | None:
    return None if node.is_constant(1) else "multiplies two computed matrices, which CV18x does in BF16"


def _layers(
    activation: QuantSpec | None, weight: QuantSpec | None, *, per_channel_matmul: bool, matrices: Decline | None
) -> tuple[OpRule, ...]:
    """Conv, Gemm and MatMul. tpu-mlir gives a matrix one scale unless it is told otherwise."""
    return (
        OpRule(
            ("Conv",),
            weight=1,
            weight_axis=0,
            bias=2,
            output=True,
            decline=_grouped if weight is not None else declines_computed_weight,
            activation_spec=activation,
            weight_spec=weight,
        ),
        INTEGER_CONVOLUTIONS[1],
        OpRule(
            ("Gemm",),
            weight=1,
            weight_axis=gemm_weight_axis if per_channel_matmul else None,
            bias=2,
            output=True,
            activation_spec=activation,
            weight_spec=weight,
        ),
        OpRule(
            ("MatMul",),
            inputs=(0,),
            weight=1,
            weight_axis=matmul_weight_axis if per_channel_matmul else None,
            output=True,
            decline=matrices,
            activation_spec=activation,
            weight_spec=weight,
        ),
    )


def _configure(chip: _Chip, values: Mapping[str, str]) -> Backend:
    mode, strategy, precision = values["mode"], values["strategy"], values["precision"]
    asymmetric = values["asymmetric"] == "yes"
    if mode == "weight_only" and strategy == "CNN":
        raise ConfigError(
            f"{chip.name}: mode=weight_only does not exist for strategy=CNN, tpu-mlir has such modes for the MatMul of "
            "transformers only. Add strategy=Transformer, or leave out mode=weight_only"
        )
    if mode == "weight_only" and precision not in ("INT8", "INT4"):
        raise ConfigError(
            f"{chip.name}: mode=weight_only stores weights in 8 or 4 bits, precision={precision} does neither. "
            "Use precision=INT8 or precision=INT4"
        )
    if mode == "weight_activation" and precision == "INT4" and not chip.four_bits:
        raise ConfigError(
            f"{chip.name}: precision=INT4 is for weights only here, activations of 4 bits exist on BM1688. Add "
            "mode=weight_only,strategy=Transformer, or choose sophgo_bm1688"
        )
    if asymmetric and chip.narrow:
        raise ConfigError(
            f"{chip.name}: asymmetric=yes is not possible, the chip takes zero point 0 only. Leave it out, or choose a "
            "BM chip"
        )
    if asymmetric and (precision != "INT8" or mode == "weight_only"):
        raise ConfigError(f"{chip.name}: asymmetric=yes is for activations with precision=INT8 only. Leave it out")
    if precision in ("F16", "BF16") and values["float"] not in (precision, chip.floats[0]):
        raise ConfigError(
            f"{chip.name}: precision={precision} and float={values['float']} contradict each other, everything runs in "
            f"{precision} then. Leave one of them out"
        )
    return _backend(chip, mode, strategy, precision, asymmetric=asymmetric)


def _scheme(chip: _Chip, precision: str, *, weight_only: bool, asymmetric: bool) -> Scheme:
    channels = PerChannel(0)
    if precision in ("F16", "BF16"):
        spec = QuantSpec(_FORMATS[precision])
        return Scheme(activation=spec, weight=spec)
    if precision in _FORMATS:
        spec = QuantSpec(_FORMATS[precision])
        return Scheme(activation=spec, weight=spec.replace(granularity=channels))
    if weight_only:
        dtype = "int4" if precision == "INT4" else "int8"
        return Scheme(activation=None, weight=QuantSpec(dtype, narrow_range=True, granularity=channels))
    weight = QuantSpec("int8", narrow_range=chip.narrow, granularity=channels)
    unsigned = QuantSpec("uint8") if chip.unsigned and not asymmetric else None
    activation = QuantSpec("int8", symmetric=not asymmetric)
    # tpu-mlir gives a 4-bit layer at the end of the model a 4-bit result
    ends = (activation, weight) if precision == "INT4" else None
    return Scheme(activation=activation, weight=weight, bias=QuantSpec("int32"), unsigned=unsigned, ends=ends)


def _backend(chip: _Chip, mode: str, strategy: str, precision: str, *, asymmetric: bool) -> Backend:
    weight_only = mode == "weight_only"
    transformer = strategy == "Transformer"
    scheme = _scheme(chip, precision, weight_only=weight_only, asymmetric=asymmetric)
    narrow_weight = QuantSpec("int4", granularity=PerChannel(0)) if precision in ("INT4", "W4INT8") else None
    narrow_activation = QuantSpec("int4") if precision == "INT4" else None
    if weight_only:
        narrow_weight = narrow_activation = None
    in_float8 = precision in FLOAT8_MODES
    matrices = declines_computed_weight if weight_only else _two_computed if chip.narrow else None
    if in_float8 or narrow_activation is not None:
        matrices = declines_matrices if in_float8 else _computed_in_four_bits
    layers = _layers(narrow_activation, narrow_weight, per_channel_matmul=weight_only, matrices=matrices)
    if narrow_weight is not None:
        layers = (*layers, INTEGER_CONVOLUTIONS[0])
    if narrow_activation is not None:
        layers = (*layers, OpRule(("MatMul",), inputs=(0, 1), output=True))  # those that 4 bits decline
    if not scheme.weight or not scheme.activation or in_float8:
        layers = tuple(rule for rule in layers if rule.ops != ("ConvTranspose",))
    element_wise = (
        OpRule(("Add", "Sub", "Mul"), inputs=None, output=True),
        OpRule(("AveragePool", "GlobalAveragePool"), output=True),
        *(without_kernels() if in_float8 else _IN_INTEGERS),
    )
    moving = float8_moving(_KEEP_SCALE) if in_float8 else (SameScaleRule((*_KEEP_SCALE, "Relu", "Clip")),)
    same_scale = (*moving, SameScaleRule(("Concat",), inputs=None), RESIZE, PAD)
    return Backend(
        name=chip.name,
        summary=chip.summary,
        scheme=scheme,
        rules=layers if transformer else (*layers, *element_wise),
        same_scale=same_scale,
        limits=Limits(
            dtypes=_dtypes(chip, precision, weight_only=weight_only),
            zero_point_zero=not asymmetric,
            weights_symmetric=True,
            float_types=("float32",),
            steps=_STEPS if "INT" in precision else (),
            weight_steps=((-127, 127),) if chip.narrow and "INT" in precision else (),
            roundings=("half_even", "half_away"),
        ),
        passes=(*TO_FLOAT32, *FOLD_LAYERS, *RECOGNIZE, "recognize_silu", *SETTLE),
        quantize_inputs=not transformer and not weight_only,
        outlier_format="float" if "INT" in precision else None,
        fixed_ranges={"Sigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0)},
        emitters=_emitters(precision, transformer=transformer),
        vendor_steps=compile_steps(
            chip.compiled_as,
            f"W{4 if precision == 'INT4' else 8}{_HALF.get(chip.floats[0], chip.floats[0])}"
            if weight_only
            else precision,
            _emitters(precision, transformer=transformer),
            asymmetric=asymmetric,
        ),
        simulations=("sophgo_multipliers",) if chip.unsigned and not asymmetric and "INT" in precision else (),
        refinements=("sophgo_float8_scales",) if in_float8 else (),
        settle=_settle(chip, precision, weight_only=weight_only),
        options=chip.options(),
        configure=lambda values: _configure(chip, values),
        checked_by=("tpu_mlir",),
    )


def _dtypes(chip: _Chip, precision: str, *, weight_only: bool) -> tuple[str, ...]:
    """Layers of 4 bits can stand among those of 8 wherever the chip has them, one by one."""
    floats = {"F8E4M3": "float8e4m3fn", "F8E5M2": "float8e5m2", "F16": "float16", "BF16": "bfloat16"}
    if precision in floats:
        return (floats[precision],)
    if weight_only:
        return ("int4", "int8") if "INT4" in chip.precisions else ("int8",)
    narrow = ("int4", "uint4") if chip.four_bits else ()
    return ("int8", *(("uint8",) if chip.unsigned else ()), *narrow, "int32")


def _settle(chip: _Chip, precision: str, *, weight_only: bool) -> Settle | None:
    if precision in FLOAT8_MODES:
        return refuse_float8
    return settle_four_bits if chip.four_bits and not weight_only and "INT" in precision else None


def _emitters(precision: str, *, transformer: bool) -> tuple[str, ...]:
    in_float8 = precision in FLOAT8_MODES
    modes = f"sophgo_q_table{'_nlp' if transformer else ''}{'_float' if in_float8 and transformer else ''}"
    table = f"sophgo_{'float_' if in_float8 else ''}cali_table{'_nlp' if transformer else ''}"
    tables = () if precision in ("F16", "BF16") else (table,)
    model = "simulate" if precision in ("F16", "BF16") else "qdq"  # Q/DQ nodes have no scale-free float16
    return (model, "sophgo_deploy", *tables, modes, "sophgo_clip_ranges", "sophgo_weight_ids")


_HALF = {"F32": "F16"}
"""Weights alone exist with layers in 16 bits, not in 32."""

_DEFAULTS = {"mode": "weight_activation", "strategy": "CNN", "asymmetric": "no"}
_CV = "(tpu-mlir): int8 symmetric, weights per channel in [-127, 127]"
_BM = "(tpu-mlir): int8, uint8 for what cannot be negative"
_FLOAT8 = ("INT8", "INT4", "F8E4M3", "F8E5M2", "BF16", "F16")

_CHIPS = (
    _Chip(
        "sophgo_bm1688",
        f"Sophgo BM1688 {_BM}; int4 layers",
        ("INT8", "INT4", "W4INT8", "BF16", "F16"),
        "bm1688",
        four_bits=True,
    ),
    _Chip("sophgo_bm1684x", f"Sophgo BM1684X {_BM}", ("INT8", "INT4", "BF16", "F16"), "bm1684x"),
    _Chip("sophgo_bm1690", f"Sophgo BM1690 {_BM}; float8", _FLOAT8, "bm1690"),
    _Chip("sophgo_sg2260", f"Sophgo SG2260, the other name of BM1690 {_BM}; float8", _FLOAT8, "bm1690"),
    _Chip(
        "sophgo_cv18x",
        f"Sophgo CV180X, CV181X, CV182X, CV183X, CV186X {_CV}",
        ("INT8", "BF16"),
        "cv181x",
        unsigned=False,
        narrow=True,
        floats=("BF16",),
    ),
    _Chip(
        "sophgo_mars3", f"Sophgo MARS3 {_CV}", ("INT8", "BF16"), "mars3", unsigned=False, narrow=True, floats=("BF16",)
    ),
    _Chip(
        "sophgo_academic",
        "Sophgo, no chip in particular: float8 weights and activations, every format of the family",
        ("F8E4M3", "F8E5M2", "INT8", "INT4", "W4INT8", "BF16", "F16"),
        four_bits=True,
    ),
)

for _chip in _CHIPS:
    _values = {**_DEFAULTS, "precision": _chip.precisions[0], "float": _chip.floats[0]}
    BACKENDS.add(_chip.name, _configure(_chip, _values))
