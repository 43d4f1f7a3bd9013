"""Backend: everything onnxq knows about a target, as data.

A backend says which operators run quantized (`OpRule`), which merely carry values (`same_scale`, `commuting`), which
run inside another one (`fused_activations`), in which formats, and what it writes. `place`, `calibrate`, `emit` and
`verify` read it; none of them knows a target by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from onnxq.errors import ConfigError
from onnxq.types.attributes import AttributeValues
from onnxq.types.granularity import PerTensor
from onnxq.types.known_as import KnownAs
from onnxq.types.plan import QuantPlan
from onnxq.types.rest import HalfRest
from onnxq.types.spec import QuantSpec, Rounding
from onnxq.types.vendor_step import VendorStep

if TYPE_CHECKING:
    from onnxq.types.overrides import QuantizerOverride


class NodeFacts(Protocol):
    """What a rule's predicate may ask about a node; shapes hold None for unknown dimensions."""

    @property
    def op(self) -> str: ...
    @property
    def attrs(self) -> AttributeValues: ...
    @property
    def input_count(self) -> int: ...
    def has(self, port: int) -> bool: ...
    def shape(self, port: int) -> tuple[int | None, ...] | None: ...
    def output_shape(self) -> tuple[int | None, ...] | None: ...
    def is_constant(self, port: int) -> bool: ...
    def scalar(self, port: int) -> float | None: ...
    def dtype(self, port: int) -> str | None: ...
    def made_by(self, port: int) -> str | None: ...
    def made_of_constants(self, port: int) -> bool: ...
    def read_by(self) -> tuple[str, ...]: ...
    def is_normalized(self) -> bool: ...


Decline = Callable[[NodeFacts], str | None]
"""Return the reason why a node stays float (a text, or a `Reason` with a code of its own), or None to quantize it."""

WeightAxis = Callable[[NodeFacts], int | None] | int | None
"""Channel axis of a weight: a number, a function of the node, or None for per tensor."""


@dataclass(frozen=True)
class OpRule:
    """How one family of operators is quantized.

    inputs    activation ports; None means every input that is not the weight or the bias
    weight    port of the weight, when it is a constant (otherwise the port counts as an activation)
    bias      port of the bias, quantized to int32 when the backend's scheme has a bias spec
    added_bias  whether the constant that an Add behind it adds is quantized too: a kernel without a bias gains nothing
    output    quantize the output too (after a fused activation)
    decline   reason to leave a node of this family float
    joins     quantize only where all neighbours are quantized anyway (element-wise ops between integer kernels)
    activation_spec, weight_spec   formats of this family instead of the scheme's (mixed precision); where a tensor is
              asked for in two formats, the one with more bits is taken
    state_weight  port of the weight that the state of a recurrent layer is multiplied with: in the weight's format
    """

    ops: tuple[str, ...]
    inputs: tuple[int, ...] | None = (0,)
    weight: int | None = None
    weight_axis: WeightAxis = None
    bias: int | None = None
    added_bias: Callable[[NodeFacts], bool] | None = None
    output: bool = False
    decline: Decline | None = None
    joins: bool = False
    activation_spec: QuantSpec | None = None
    weight_spec: QuantSpec | None = None
    state_weight: int | None = None


@dataclass(frozen=True)
class Scheme:
    """Number formats by role; None leaves the role in float.

    bias        int32 derives its scale from input and weight; any other format gets a range of its own
    unsigned    format of activations that cannot be negative (behind Relu, Sigmoid ...); None: like the others
    ends        formats (activation, weight) of the first and the last layer, where they differ from the rest
    """

    activation: QuantSpec | None
    weight: QuantSpec | None
    bias: QuantSpec | None = None
    unsigned: QuantSpec | None = None
    ends: tuple[QuantSpec, QuantSpec] | None = None


@dataclass(frozen=True)
class SameScaleRule:
    """Operators whose output has the scale of their input(s): they move values without computing.

    inputs    the ports that share the scale; None means all of them (Concat)
    decline   reason to leave a node float
    """

    ops: tuple[str, ...]
    inputs: tuple[int, ...] | None = (0,)
    decline: Decline | None = None


INTEGER_OPERATORS = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear")
"""ONNX's quantized operators, which only runtimes for ONNX itself compute."""


@dataclass(frozen=True)
class Limits:
    """What the target cannot take; plans and files that break a limit are refused with the tensor and the remedy.

    dtypes              ONNX names of the quantized types in files (int8, float8e4m3fn ...)
    zero_point_zero     symmetric formats only
    weights_per_tensor  one scale for a weight, too
    weights_symmetric   zero point 0 for weights, whatever activations may have
    power_of_two        every scale is a power of two
    signed_scales       scales of symmetric weights may be negative (`QuantSpec.signed_scale`)
    minimum_range       the least width of an activation's range
    steps               (lowest, highest) integers of activations and weights; empty allows any inside a type
    weight_steps        those of weights, where they differ
    roundings           of activations and weights; empty allows any
    refused_operators   quantized operators that the target's reader does not know (QLinearConv ...)
    """

    dtypes: tuple[str, ...]
    weight_only_dtypes: tuple[str, ...] = ()
    zero_point_zero: bool = False
    activations_per_tensor: bool = True
    weights_per_tensor: bool = False
    weights_symmetric: bool = False
    power_of_two: bool = False
    signed_scales: bool = False
    minimum_range: float | None = None
    min_opset: int = 10
    max_opset: int | None = None
    float_types: tuple[str, ...] = ("float32",)
    bias_quantized: bool = True
    steps: tuple[tuple[int, int], ...] = ()
    weight_steps: tuple[tuple[int, int], ...] = ()
    roundings: tuple[Rounding, ...] = ()
    refused_operators: tuple[str, ...] = INTEGER_OPERATORS


@dataclass(frozen=True)
class Option:
    """A choice that a target offers, written behind its name: `sophgo_bm1688:strategy=Transformer`."""

    name: str
    values: tuple[str, ...]
    default: str
    summary: str


Settle = Callable[[Any, QuantPlan], None]
"""Changes a finished plan for a graph (`onnxq.graph.Graph`, which types do not know), or refuses it."""


@dataclass(frozen=True)
class Backend:
    """A target. `emitters` names what is written (see `onnxq.emit`); the first one writes the model.

    residual         how an Add of two computed tensors is treated: "both" quantizes both inputs, "skip" only the one
                     that does not come straight from a convolution (TensorRT fuses that one into the convolution)
    tied             operators whose input and output quantizers, where both exist, share one scale
    commuting        operators that the target swaps with the quantizer behind them
    absorb_activations   drop a Relu / Clip whose effect the following quantizer's saturation has exactly
    integers_only    the target has no float layers at all: a tail that has to stay float is for the host
    integer_operators    the model has operators that compute in integers (QLinearConv), instead of Q/DQ pairs
    runs_in_onnxruntime  onnxruntime is the target itself: its optimizer and kernels are part of what is checked
    weight_storage   "integer": integer initializer + DequantizeLinear; "float": float initializer + Q + DQ
    float8_pairs     "guarded": float8 quantizers of activations stand between nodes that keep them from onnxruntime's
                     optimizer, which does not know the type; "plain": the target reads the pairs themselves
    quantize_inputs  every float input of the graph gets a quantizer, whatever reads it
    unquantized_pairs    (reader, producer): the reader takes this producer's result as it is, ("Add", "Mul")
    fixed_ranges     operator -> the range of its result, known without data: {"Softmax": (0.0, 1.0)}
    input_observer   observer of the graph's inputs, where it differs
    activation_fake_quantizer, weight_fake_quantizer   how training treats quantizers (`onnxq.types.fake_quantizers`)
    rounding_in_files    "half_even": QuantizeLinear stands for the chip's own rounding, which `simulate` has
    options, configure   choices behind the name, and the function that makes the backend for them
    chosen           option -> value, for those that differ from their defaults; `option` has them all
    settle           changes formats in a finished plan that the target does not have side by side, with a note for
                     each, or refuses the plan
    whole_operators  operator -> why it stays float, for those that the target computes in one kernel of its own
    outlier_format   what sums and norms with outliers are computed in where 8 bits lose too much: "float", a wider
                     format such as "uint16", or None where the target has neither
    outlier_matrices     what weights of matrices with outliers become where they have one scale and the target knows
                     better; None where it does not, or where such layers become float
    refinements      what is changed in the parameters after calibration (`onnxq.refine`), in order
    skipped_rules    refinement -> rules of it that are left out
    simulations      how operators differ on the chip (`onnxq.emit.simulations`), for `simulate`
    lints            further rules for files (`onnxq.lint`)
    known_as         the names that MQBench has for it
    checked_by       the real tools that have read the files, for the tables in the documentation
    vendor_steps     which file goes to which tool of the vendor, as lines to copy
    rest             what layers that are not quantized compute in, where that is half precision
    """

    name: str
    summary: str
    scheme: Scheme
    rules: tuple[OpRule, ...]
    limits: Limits
    same_scale: tuple[SameScaleRule, ...] = ()
    commuting: tuple[str, ...] = ()
    fused_activations: tuple[str, ...] = ("Relu", "Clip")
    tied: tuple[str, ...] = ()
    residual: Literal["both", "skip"] = "both"
    absorb_activations: bool = False
    integers_only: bool = False
    integer_operators: bool = False
    runs_in_onnxruntime: bool = False
    weight_storage: Literal["integer", "float"] = "integer"
    float8_pairs: Literal["guarded", "plain"] = "guarded"
    passes: tuple[str, ...] = ()
    activation_observer: str = "minmax"
    weight_observer: str = "minmax"
    activation_fake_quantizer: str = "fixed"
    weight_fake_quantizer: str = "fixed"
    emitters: tuple[str, ...] = ("qdq",)
    quantize_inputs: bool = False
    unquantized_pairs: tuple[tuple[str, str], ...] = ()
    fixed_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    input_observer: str | None = None
    rounding_in_files: Literal["exact", "half_even"] = "exact"
    options: tuple[Option, ...] = ()
    configure: Callable[[Mapping[str, str]], Backend] | None = None
    chosen: Mapping[str, str] = field(default_factory=dict)
    settle: Settle | None = None
    whole_operators: Mapping[str, str] = field(default_factory=dict)
    outlier_format: str | None = None
    outlier_matrices: QuantizerOverride | None = None
    refinements: tuple[str, ...] = ()
    skipped_rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    simulations: tuple[str, ...] = ()
    lints: tuple[str, ...] = ()
    known_as: tuple[KnownAs, ...] = ()
    checked_by: tuple[str, ...] = ()
    vendor_steps: tuple[VendorStep, ...] = ()
    rest: HalfRest | None = None

    def __repr__(self) -> str:
        options = "".join(f", {name}={value}" for name, value in self.chosen.items())
        return f"<Backend {self.name}{options}: {self.summary}>"

    def replace(self, **changes: Any) -> Backend:
        return dataclass_replace(self, **changes)

    def option(self, name: str) -> str:
        """The value of one of the target's options: the chosen one, or its default."""
        defaults = {option.name: option.default for option in self.options}
        return self.chosen.get(name, defaults[name])

    @property
    def needs_data(self) -> bool:
        """Whether ranges of activations have to be observed; weights alone have theirs without a sample."""
        return self.scheme.activation is not None

    def rules_for(self, op: str) -> tuple[OpRule, ...]:
        """The rules of an operator, in order: where one declines a node, the next may take it."""
        return tuple(rule for rule in self.rules if op in rule.ops)

    def same_scale_rule_for(self, op: str) -> SameScaleRule | None:
        return next((rule for rule in self.same_scale if op in rule.ops), None)


def check_backend(backend: object) -> None:
    """A clear error where a stage is given the name of a target: only the functions around all stages look names up."""
    if not isinstance(backend, Backend):
        raise ConfigError(
            f"this stage takes a target as a value, not {backend!r}: look it up with onnxq.get_backend, or take "
            "`prepared.backend` of onnxq.prepare"
        )


def per_tensor(spec: QuantSpec) -> QuantSpec:
    """The same number format with a single scale."""
    return spec.replace(granularity=PerTensor())
