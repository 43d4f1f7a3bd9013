"""QuantSpec: which numbers a tensor may hold after quantization."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as dataclass_replace
from typing import Any, Literal

from onnxq.errors import SpecError, did_you_mean
from onnxq.types.granularity import Granularity, PerBlock, PerChannel, PerTensor, granularity_from_json

Rounding = Literal["half_even", "half_up", "half_away", "half_to_zero", "floor"]
ROUNDINGS: tuple[Rounding, ...] = ("half_even", "half_up", "half_away", "half_to_zero", "floor")
Grid = Literal["affine", "float", "nnie"]

FLOAT_DTYPES = ("fp8_e4m3", "fp8_e5m2", "fp16", "bf16")
"""Floating-point grids: x / scale is rounded to the nearest member of the format."""

BLOCK_DTYPES = ("bfp16",)
"""Block floating point: neighbours along an axis share an exponent that the values themselves decide."""

SCALE_FREE_DTYPES = ("fp16", "bf16", *BLOCK_DTYPES)
"""Formats without a scale: there is nothing to calibrate, and their parameters are one scale of 1."""

DEFAULT_BLOCKS = PerBlock(axis=1, size=8)
"""The blocks of bfp16 where nothing else is said: eight channels."""

INT_DTYPES = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 17)) + ("int32",)
NNIE_DTYPES = ("nnie8",)
"""Logarithmic grids: zero and powers of 2^(1/16); the scale is the largest value."""
DTYPES = INT_DTYPES + FLOAT_DTYPES + BLOCK_DTYPES + NNIE_DTYPES

_BITS = {name: 8 if name.startswith("fp8") else int(re.sub(r"\D", "", name)) for name in DTYPES}
_RANGES = {
    name: (0, 2 ** _BITS[name] - 1) if name.startswith("u") else (-(2 ** (_BITS[name] - 1)), 2 ** (_BITS[name] - 1) - 1)
    for name in INT_DTYPES
}


@dataclass(frozen=True)
class QuantSpec:
    """A number format with its granularity; immutable, without ranges or observers.

    `quant_min` / `quant_max` narrow an integer format further (7-bit values in an int8 container); left out, they
    follow from dtype and `narrow_range` (which drops the lowest value of a signed format: int8 -> [-127, 127]).

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

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise SpecError(
                f"unknown dtype '{self.dtype}'.{did_you_mean(self.dtype, DTYPES)} "
                "Known: int1..int16, uint1..uint16, int32, " + ", ".join(FLOAT_DTYPES + BLOCK_DTYPES + NNIE_DTYPES)
            )
        if self.rounding not in ROUNDINGS:
            raise SpecError(
                f"unknown rounding '{self.rounding}'.{did_you_mean(self.rounding, ROUNDINGS)} "
                f"Known: {', '.join(ROUNDINGS)}"
            )
        if not isinstance(self.granularity, PerTensor | PerChannel | PerBlock):
            raise SpecError(
                f"granularity must be PerTensor(), PerChannel(axis) or PerBlock(axis, size), got {self.granularity!r}"
            )
        if self.dtype in BLOCK_DTYPES and isinstance(self.granularity, PerTensor):
            object.__setattr__(self, "granularity", DEFAULT_BLOCKS)
        if self.grid != "affine":
            self._check_not_affine()
            return
        low, high = container_range(self.dtype)
        if self.narrow_range:
            if self.quant_min is not None:
                raise SpecError("give either narrow_range or an explicit quant_min, not both")
            if not self.signed or self.bits < 2:
                raise SpecError(
                    f"narrow_range drops the lowest value of a signed format of 2 bits or more, not of {self.dtype}"
                )
            low += 1
        qmin = low if self.quant_min is None else self.quant_min
        qmax = high if self.quant_max is None else self.quant_max
        if not low <= qmin < qmax <= high:
            raise SpecError(
                f"quant_min {qmin} and quant_max {qmax} must be in order and inside {self.dtype} [{low}, {high}]"
            )
        if not qmin <= 0 <= qmax:
            raise SpecError(f"the range [{qmin}, {qmax}] has no zero: real 0 could not be represented")
        if self.dtype == "int32" and not self.symmetric:
            raise SpecError("int32 is for biases, which are symmetric (zero point 0)")

    def _check_not_affine(self) -> None:
        kind = "floating-point" if self.grid == "float" else "logarithmic"
        if not self.symmetric:
            raise SpecError(f"{self.dtype} is a {kind} grid: it has no zero point, so it must be symmetric")
        if self.narrow_range or self.quant_min is not None or self.quant_max is not None:
            raise SpecError(f"{self.dtype} is a {kind} grid: narrow_range, quant_min and quant_max do not apply")
        if self.rounding != "half_even":
            raise SpecError(f"{self.dtype} rounds half_even; '{self.rounding}' is for integer formats")
        if self.dtype in ("fp16", "bf16") and not isinstance(self.granularity, PerTensor):
            raise SpecError(f"{self.dtype} needs no scale, so its granularity is per tensor")
        if self.dtype in BLOCK_DTYPES:
            self._check_blocks()
        if self.grid == "nnie" and self.power_of_two:
            raise SpecError(f"the scale of {self.dtype} is a power of 2^(1/16): power_of_two does not apply")

    def _check_blocks(self) -> None:
        if not isinstance(self.granularity, PerBlock) or self.granularity.size < 2:
            raise SpecError(
                f"values of {self.dtype} share an exponent in blocks of 2 or more along an axis, got "
                f"{self.granularity}: use PerBlock(axis, size), such as {DEFAULT_BLOCKS!r}"
            )
        if self.power_of_two:
            raise SpecError(f"{self.dtype} has no scale, and its steps are powers of two: power_of_two does not apply")

    @property
    def grid(self) -> Grid:
        if self.dtype in NNIE_DTYPES:
            return "nnie"
        return "float" if self.dtype in (*FLOAT_DTYPES, *BLOCK_DTYPES) else "affine"

    @property
    def shared_exponent(self) -> PerBlock | None:
        """The blocks whose values share an exponent; None for a format in which every value stands alone."""
        if self.dtype not in BLOCK_DTYPES:
            return None
        assert isinstance(self.granularity, PerBlock)
        return self.granularity

    @property
    def has_scale(self) -> bool:
        """Whether calibration chooses a scale; without one the parameters are a single scale of 1."""
        return self.dtype not in SCALE_FREE_DTYPES

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the scales of a tensor of this shape; exponents that values share are no scales."""
        return self.granularity.scale_shape(shape) if self.has_scale else ()

    @property
    def bits(self) -> int:
        return _BITS[self.dtype]

    @property
    def signed(self) -> bool:
        return not self.dtype.startswith("uint")

    @property
    def qmin(self) -> int:
        """Lowest stored integer; only for integer formats."""
        if self.quant_min is not None:
            return self.quant_min
        return container_range(self.dtype)[0] + int(self.narrow_range)

    @property
    def qmax(self) -> int:
        """Highest stored integer; only for integer formats."""
        return container_range(self.dtype)[1] if self.quant_max is None else self.quant_max

    def replace(self, **changes: Any) -> QuantSpec:
        return dataclass_replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Plain values; fields at their default are left out."""
        data: dict[str, Any] = {"dtype": self.dtype}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "granularity":
                if not isinstance(value, PerTensor):
                    data["granularity"] = value.to_json()
            elif item.name != "dtype" and value != item.default:
                data[item.name] = value
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> QuantSpec:
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
        return ", ".join(words)


def container_range(dtype: str) -> tuple[int, int]:
    """Full range of an integer dtype, such as (-128, 127) for int8."""
    try:
        return _RANGES[dtype]
    except KeyError:
        raise SpecError(f"{dtype} is not an integer format") from None


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
