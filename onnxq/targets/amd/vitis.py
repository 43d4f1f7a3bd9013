"""AMD Vitis AI DPU: int8 with power-of-two scales everywhere, biases included, and shifts that the chip has.

The DPU goes from one scale to the next by shifting, so every scale is 2^-p and `dpu_positions` moves positions that it
could not shift between. It rounds halves of activations up; weights and biases are rounded away from zero beforehand.
The strategy `fs` is for what has multipliers: float scales of any width from 2 to 16 bits, with zero points where asked
for, and the floating-point formats of AMD's NPU, bfp16, bf16 and fp16.
Quantizers stand on the inputs of the graph and on the results of operators, behind the activation that runs inside.
Sources: MQBench's Vitis backend; Vitis AI's quantizers (vai_q_pytorch, vai_q_onnx); Quark 0.13 for the shifts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from onnxq.targets import BACKENDS
from onnxq.types import Backend, KnownAs, Limits, OpRule, Option, PerChannel, QuantSpec, SameScaleRule, Scheme
from onnxq.types.layer_rules import INTEGER_CONVOLUTIONS, MOVES
from onnxq.types.presets import FOLD_LAYERS, SETTLE, TO_FLOAT32, gemm_weight_axis, matmul_weight_axis
from onnxq.types.vendor_step import VendorStep

USUAL_SIMULATIONS = ("dpu_average_pool", "dpu_leaky_relu", "dpu_hard_sigmoid", "dpu_hard_swish")
ALL_SIMULATIONS = (*USUAL_SIMULATIONS, "dpu_sigmoid", "dpu_clip")

OPTIONS = (
    Option(
        "strategy",
        ("pof2s", "fs", "tqt"),
        "pof2s",
        "pof2s: power-of-two scales for the DPU; fs: float scales, weights per channel; tqt: power-of-two scales from "
        "the thresholds that training of thresholds starts from",
    ),
    Option(
        "approximations",
        ("usual", "all"),
        "usual",
        "what `simulate` computes as the DPU does; all: also Sigmoid as HardSigmoid, whole numbers as bounds of Clip",
    ),
    Option(
        "formats",
        ("dpu", "any"),
        "dpu",
        "dpu: int8 with the chip's roundings; any: also signed integers of 2 to 16 bits and other roundings, which no "
        "DPU computes with: they are in the files with positions, and the rules on positions leave them alone",
    ),
)


def op_rules(*, sigmoid: bool) -> tuple[OpRule, ...]:
    """The operators of the DPU; with `sigmoid` Sigmoid too, which it computes as HardSigmoid."""
    gates = ("HardSigmoid", "HardSwish", *(("Sigmoid",) if sigmoid else ()))
    return (
        *INTEGER_CONVOLUTIONS,
        OpRule(("Gemm",), weight=1, weight_axis=gemm_weight_axis, bias=2, output=True),
        OpRule(("MatMul",), inputs=(0,), weight=1, weight_axis=matmul_weight_axis, output=True),
        OpRule(("Add", "Sub", "Mul"), inputs=(0, 1), output=True),
        OpRule(("Concat",), inputs=None, output=True),
        OpRule(("AveragePool", "GlobalAveragePool", "ReduceMean"), output=True),
        OpRule(gates, output=True),
        OpRule(("PRelu",), weight=1, output=True),
    )


MOVING = (*MOVES, SameScaleRule(("Relu", "Clip", "LeakyRelu")))
"""Operators that keep the position of their input; a Relu is one of them where it does not run inside another."""

AVERAGES = ("AveragePool", "GlobalAveragePool")
"""Input and result have one position on the chip, so that calibration chooses it for both together."""

POWER_OF_TWO_LIMITS = Limits(
    dtypes=("int8",),
    zero_point_zero=True,
    weights_per_tensor=True,
    power_of_two=True,
    min_opset=10,
    steps=((-128, 127),),
    roundings=("half_up", "half_away", "half_even"),
)
ANY_POSITION_LIMITS = replace(POWER_OF_TWO_LIMITS, dtypes=("int8", "int16", "int4", "int2"), steps=(), roundings=())
"""What the files with positions can say: bits and a position."""

FLOAT_SCALE_LIMITS = Limits(
    dtypes=(
        *(f"{sign}int{bits}" for bits in (8, 16, 4, 2) for sign in ("", "u")),
        "int32",
        "float16",
        "bfloat16",
        "bfp16",
    ),
    min_opset=10,
)
"""Widths between these are stored in the next larger type."""

_RECOGNIZE = ("recognize_layernorm", "recognize_gelu", "fuse_matmul_add")
"""HardSwish stays in parts: the chip has HardSigmoid and Mul, and each of them is quantized."""

PASSES = (*TO_FLOAT32, *FOLD_LAYERS, *_RECOGNIZE, *SETTLE)

_POWER_OF_TWO = Backend(
    name="vitis",
    summary="AMD Vitis AI DPU: int8 with power-of-two scales, biases too; QDQ, FixNeuron model and tables of positions",
    scheme=Scheme(
        activation=QuantSpec("int8", power_of_two=True, rounding="half_up"),
        weight=QuantSpec("int8", power_of_two=True, rounding="half_away"),
        bias=QuantSpec("int8", power_of_two=True, rounding="half_away"),
    ),
    rules=op_rules(sigmoid=False),
    same_scale=MOVING,
    fused_activations=("Relu", "Clip", "LeakyRelu"),
    limits=POWER_OF_TWO_LIMITS,
    passes=PASSES,
    activation_observer="minmax_floor",
    weight_observer="minmax_floor",
    input_observer="no_overflow",
    known_as=(KnownAs("Vitis", "MinMaxFloorObserver", "PoTModeObserver", "TqtFakeQuantize"),),
    emitters=("qdq", "deploy", "vitis_clip_ranges", "vitis_quant_info", "fix_neuron"),
    vendor_steps=(
        VendorStep(
            "AMD's converter makes an xmodel (it needs the XIR libraries)",
            "convert_xir -Q {model} -C {deploy} -N {name}",
        ),
        VendorStep(
            "AMD's compiler makes a program for a DPU of the result; arch.json describes the DPU",
            "vai_c_xir -x RESULT.xmodel -a arch.json -o compiled -n {name}",
        ),
    ),
    quantize_inputs=True,
    outlier_format="float",
    tied=AVERAGES,
    rounding_in_files="half_even",
    refinements=("vitis_highest_position", "dpu_positions", "coarse_weights"),
    simulations=USUAL_SIMULATIONS,
    lints=("dpu_positions",),
    options=OPTIONS,
    checked_by=("amd-quark",),
)


def configure(values: Mapping[str, str]) -> Backend:
    """The backend for a strategy and a set of approximations."""
    everything = values["approximations"] == "all"
    backend = _POWER_OF_TWO.replace(
        configure=configure,
        rules=op_rules(sigmoid=everything),
        simulations=ALL_SIMULATIONS if everything else USUAL_SIMULATIONS,
    )
    if values["formats"] == "any":
        # No lint: a file does not tell int6 from int8, and the rules are for int8.
        backend = backend.replace(limits=ANY_POSITION_LIMITS, lints=(), checked_by=())
    if values["strategy"] == "tqt":
        return backend.replace(
            activation_observer="kl",
            weight_observer="clip_std:3",
            input_observer="minmax",
            activation_fake_quantizer="tqt",
            weight_fake_quantizer="tqt",
        )
    if values["strategy"] == "fs":
        return backend.replace(
            scheme=Scheme(
                activation=QuantSpec("int8"),
                weight=QuantSpec("int8", granularity=PerChannel(0)),
                bias=QuantSpec("int32"),
            ),
            limits=FLOAT_SCALE_LIMITS,
            activation_observer="minmax",
            weight_observer="minmax",
            input_observer=None,
            emitters=("qdq", "deploy"),
            refinements=(),
            simulations=(),
            lints=(),
            tied=("Concat",),
            checked_by=(),
        )
    return backend


BACKENDS.add("vitis", configure({option.name: option.default for option in OPTIONS}))
