"""QuantSpec: which numbers a tensor may hold after quantization."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as dataclass_replace
from typing import Any, Literal, TypedDict

from onnxq.errors import SpecError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject
from onnxq.moved import old_property
from onnxq.types.granularity import Granularity, PerBlock, PerChannel, PerTensor, granularity_from_json
from onnxq.types.number_format import NumberFormat, number_format

Rounding = Literal["half_even", "half_up", "half_away", "half_to_zero", "floor"]
ROUNDINGS: tuple[Rounding, ...] = ("half_even", "half_up", "half_away", "half_to_zero", "floor")


_OLD_GRIDS = {"floating-point": "float", "logarithmic": "nnie"}


class SpecChanges(TypedDict, total=False):
    """Fields of a QuantSpec that are to have other values."""

    symmetric: bool
    narrow_range: bool
    power_of_two: bool
    rounding: Rounding
    granularity: Granularity
    scale_rule: str | None
    signed_scale: bool


@dataclass(frozen=True)
class QuantSpec:
    """A number format with its granularity; immutable, without ranges or observers.

    `quant_min` / `quant_max` narrow an integer format further (7-bit values in an int8 container); left out, they
    follow from dtype and `narrow_range` (which drops the lowest value of a signed format: int8 -> [-127, 127]).

    dynamic     the scale of each block is computed from its values wherever the tensor is read, and not calibrated
    scale_rule  how the power-of-two scale of an MX block follows from its largest value: floor, even or ceil
    signed_scale  scales of a symmetric signed format may be negative, which turns its numbers round: the longer side,
                  that of qmin, then lies where the largest value does, on whichever side of zero that is

    The granularity of bfp16 says which values share an exponent, PerBlock(axis, size); PerTensor() stands for blocks of
    8 along axis 1.
    """

    dtype: str = "int8"
    symmetric: bool = True
    narrow_range: bool = False
    power_of_two: bool = False
    rounding: Rounding = "half_even"
    granularity: Granularity = field(default_factory=PerTensor)
    quant_min: int | None = None
    quant_max: int | None = None
    dynamic: bool = False
    scale_rule: str | None = None
    signed_scale: bool = False

    def __post_init__(self) -> None:
        form = self.format
        if self.rounding not in ROUNDINGS:
            raise SpecError(
                f"unknown rounding '{self.rounding}'.{did_you_mean(self.rounding, ROUNDINGS)} "
                f"Known: {', '.join(ROUNDINGS)}"
            )
        if not isinstance(self.granularity, PerTensor | PerChannel | PerBlock):
            raise SpecError(
                f"granularity must be PerTensor(), PerChannel(axis) or PerBlock(axis, size), got {self.granularity!r}"
            )
        if self.dynamic and not form.can_be_dynamic:
            raise SpecError(f"{self.dtype} has no scales that blocks compute at run time: dynamic does not apply")
        if self.scale_rule is not None and self.scale_rule not in form.scale_rules:
            known = ", ".join(form.scale_rules)
            raise SpecError(
                f"unknown scale_rule '{self.scale_rule}' of {self.dtype}. Known: {known}"
                if known
                else f"{self.dtype} has no rule for scales to choose: scale_rule is for the MX formats"
            )
        object.__setattr__(self, "granularity", form.usual_granularity(self.granularity))
        form.check(self)

    @functools.cached_property
    def format(self) -> NumberFormat:
        """The number format that `dtype` names."""
        return number_format(self.dtype)

    def __getstate__(self) -> JsonObject:
        """Copies and pickles hold the fields alone, and look their format up anew."""
        return {name: value for name, value in self.__dict__.items() if name != "format"}

    grid = old_property(
        "QuantSpec.grid",
        "QuantSpec.evenly_spaced or QuantSpec.format",
        lambda spec: "affine" if spec.evenly_spaced else _OLD_GRIDS.get(spec.format.grid, spec.format.grid),
    )
    shared_exponent = old_property(
        "QuantSpec.shared_exponent",
        "QuantSpec.granularity where QuantSpec.has_scale is false",
        lambda spec: spec.granularity if not spec.has_scale and isinstance(spec.granularity, PerBlock) else None,
    )

    @property
    def evenly_spaced(self) -> bool:
        """Whether the numbers are the integers from qmin to qmax, around a zero point if there is one."""
        return self.format.evenly_spaced

    @property
    def has_scale(self) -> bool:
        """Whether calibration chooses a scale; without one the parameters are a single scale of 1."""
        return self.format.scaled(self)

    @property
    def scale_granularity(self) -> Granularity:
        """How many scales calibration chooses: those of blocks that are computed at run time are none of them."""
        return self.granularity if self.has_scale and not self.dynamic else PerTensor()

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest number in units of the scale, before the zero point is taken off."""
        return self.format.ends(self)

    @property
    def steps(self) -> float:
        """What a range is divided by to give the scale: its width, or its larger side for symmetric formats."""
        low, high = self.ends
        if not self.symmetric:
            return high - low
        if self.signed_scale:
            return -low
        return high if low == 0 else min(-low, high) or -low

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the scales of a tensor of this shape; exponents that values share are no scales."""
        return self.scale_granularity.scale_shape(shape)

    @property
    def bits(self) -> int:
        return self.format.bits

    @property
    def signed(self) -> bool:
        return self.format.signed

    @property
    def qmin(self) -> int:
        """Lowest stored integer; only for integer formats."""
        if self.quant_min is not None:
            return self.quant_min
        return self.format.integers[0] + int(self.narrow_range)

    @property
    def qmax(self) -> int:
        """Highest stored integer; only for integer formats."""
        return self.format.integers[1] if self.quant_max is None else self.quant_max

    def replace(self, **changes: Any) -> QuantSpec:
        return dataclass_replace(self, **changes)

    def to_json(self) -> JsonObject:
        """Plain values; fields at their default are left out."""
        data: JsonObject = {"dtype": self.dtype}
        for name, default in _defaults():
            value = getattr(self, name)
            if name == "granularity":
                if not isinstance(value, PerTensor):
                    data["granularity"] = value.to_json()
            elif value != default:
                data[name] = value
        return data

    @classmethod
    def from_json(cls, data: JsonMapping) -> QuantSpec:
        known = {item.name for item in fields(cls)}
        values = dict(data)
        for key in values:
            if key not in known:
                raise SpecError(f"unknown key '{key}' in a quantization spec.{did_you_mean(key, known)}")
        if "granularity" in values:
            values["granularity"] = granularity_from_json(values["granularity"])
        return cls(**values)

    def __str__(self) -> str:
        words = [self.dtype, "symmetric" if self.symmetric else "asymmetric", str(self.granularity)]
        if self.narrow_range:
            words.append("narrow range")
        if self.quant_min is not None or self.quant_max is not None:
            words.append(f"[{self.qmin}, {self.qmax}]")
        if self.power_of_two:
            words.append("power-of-two scale")
        if self.rounding != "half_even":
            words.append(self.rounding)
        if self.scale_rule is not None:
            words.append(f"scales by the rule {self.scale_rule}")
        if self.dynamic:
            words.append("scales of blocks computed at run time")
        if self.signed_scale:
            words.append("scales of either sign")
        return ", ".join(words)


@functools.cache
def _defaults() -> tuple[tuple[str, object], ...]:
    """The fields of a spec behind dtype, with their defaults: asked for once, and not for each of thousands."""
    return tuple((item.name, item.default) for item in fields(QuantSpec) if item.name != "dtype")


def why_no_derived_bias(data: QuantSpec, weight: QuantSpec) -> str | None:
    """Why a bias cannot have scale(input) * scale(weight) for these two formats; None if it can."""
    for spec, what in ((data, "input"), (weight, "weight")):
        if not spec.has_scale:
            return f"the {what} is {spec.dtype}, which has no scale to derive that of an int32 bias from"
    if not isinstance(data.granularity, PerTensor):
        return f"the input is quantized {data.granularity}, and a sum over it has no single scale"
    if isinstance(weight.granularity, PerBlock):
        return f"the weight is quantized {weight.granularity}, and a sum over it has no single scale"
    return None
