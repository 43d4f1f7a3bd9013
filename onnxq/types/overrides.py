"""QuantizerOverride, Override, OverrideSet: what a user wants of quantizers, level by level, and where it was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from onnxq.json_file import JsonMapping, JsonObject
from onnxq.moved import renamed_in
from onnxq.types.number_format import number_format
from onnxq.types.spec import QuantSpec

Level = Literal["op", "node", "tensor"]
LEVELS: tuple[Level, ...] = ("op", "node", "tensor")
"""From general to specific; what holds everywhere is part of the backend already."""

PARTS = ("activation", "weight", "bias", "output")
"""What a node has: the computed tensors that it reads, its weight, its bias, its result."""


FORMAT = "format"
"""Marks the fields of a QuantizerOverride that a QuantSpec holds."""

OverrideFields = JsonMapping
"""Fields of a QuantizerOverride by name, as a configuration writes them."""


class QuantizerOverride(BaseModel):
    """Field by field what somebody wants of a quantizer; None leaves the field as it is.

    This is the one list of what can be said about quantizers: `onnxq.config.QuantizerSettings` adds the checks of their
    values, FORMAT_FIELDS and the schema of a plan follow from it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dtype: Annotated[str | None, FORMAT] = Field(
        None,
        description="int1 .. int16, uint1 .. uint16, int32 (biases), fp8_e4m3, fp8_e5m2, fp16, bf16, bfp16, nnie8, "
        "mxfp8_e4m3, mxfp8_e5m2, mxfp6_e3m2, mxfp6_e2m3, mxfp4, mxint8, nvfp4, nf4",
    )
    bits: Annotated[int | None, FORMAT] = Field(
        None, ge=1, le=32, strict=True, description="1 .. 16, with the sign that the type has; 32 for biases"
    )
    symmetric: Annotated[StrictBool | None, FORMAT] = Field(
        None, description="zero point 0, or a zero point of its own"
    )
    per_channel: Annotated[StrictBool | None, FORMAT] = Field(
        None, description="one scale per channel, or one per tensor"
    )
    channel_axis: Annotated[int | None, FORMAT] = Field(
        None, strict=True, description="axis of the channels, where it is not the usual"
    )
    narrow_range: Annotated[StrictBool | None, FORMAT] = Field(
        None, description="drop the lowest value of a signed format: int8 becomes -127 .. 127"
    )
    power_of_two: Annotated[StrictBool | None, FORMAT] = Field(
        None, description="round every scale up to a power of two"
    )
    rounding: Annotated[str | None, FORMAT] = Field(
        None, description="half_even, half_up, half_away, half_to_zero or floor"
    )
    scale_rule: Annotated[str | None, FORMAT] = Field(
        None, description="how the scale of an MX block follows from its largest value: floor, even or ceil"
    )
    observer: str | JsonObject | None = Field(
        None, description="how the range is found: percentile:99.99, or a table with name and parameters"
    )
    fake_quantizer: str | JsonObject | None = Field(
        None, description="how training treats it: lsq, pact:alpha=6, or a table with name and arguments"
    )
    minimum_scale: float | None = Field(
        None, ge=0, strict=True, allow_inf_nan=False, description="no scale is below this"
    )
    skip: StrictBool | None = Field(None, description="no quantizer here")
    observe_only: StrictBool | None = Field(None, description="find and report the range, leave the values float")
    share: str | None = Field(
        None, min_length=1, description="a name: all quantizers that have it share scale and zero point"
    )

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return list(self.given().items())

    def given(self) -> OverrideFields:
        """The fields that are set."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}


FORMAT_FIELDS = tuple(name for name, item in QuantizerOverride.model_fields.items() if FORMAT in item.metadata)
"""The fields of a QuantizerOverride that a QuantSpec holds."""


@dataclass(frozen=True, kw_only=True)
class Treatment:
    """The fields of a QuantizerOverride that a Placement holds beside its format, as they are where nobody says more.

    fake_quantizer   how training treats the quantizer (`onnxq.types.fake_quantizers`), such as "lsq" or "pact:alpha=6"
    observe_only     its range is found and reported, its values stay float
    """

    observer: str = "minmax"
    fake_quantizer: str = "fixed"
    observe_only: bool = False
    minimum_scale: float = 0.0

    def changed_treatment(self) -> dict[str, str | float | bool]:
        """The fields that are not as they are where nobody says more."""
        given = {item.name: (getattr(self, item.name), item.default) for item in fields(Treatment)}
        return {name: value for name, (value, default) in given.items() if value != default}


IN_BACKENDS = ("observer", "fake_quantizer")
"""Fields of a Treatment of which a backend has its own for all quantizers of a role."""

NOT_IN_BACKENDS = tuple(item.name for item in fields(Treatment) if item.name not in IN_BACKENDS)


@dataclass(frozen=True)
class Override:
    """What is wanted of the nodes or tensors that `pattern` names.

    parts    part of a node -> what is wanted; of a tensor under the key "tensor"
    flags    skip, force, observe_only of whole nodes
    where    ("weight", "bits") or ("skip",) -> the place where it was said, in words
    listed   the line of a list that holds the pattern, "" where it has none; None for what is said in tables
    """

    level: Level
    pattern: str
    parts: Mapping[str, QuantizerOverride] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    where: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    listed: str | None = None

    @classmethod
    def of_nodes(
        cls,
        pattern: str,
        flags: Mapping[str, bool],
        where: Mapping[tuple[str, ...], str],
        parts: Mapping[str, QuantizerOverride] | None = None,
    ) -> Override:
        """About nodes, whose pattern tells the level: op:Conv is about an operator."""
        return cls("op" if pattern.startswith("op:") else "node", pattern, parts or {}, flags, where)

    @classmethod
    def of_list(cls, pattern: str, flag: str, line: str = "") -> Override:
        """About nodes that a list (`skip`, `force`) names, in a line of a file."""
        said = f"'{pattern}' ({line})" if line else f"'{pattern}'"
        return replace(cls.of_nodes(pattern, {flag: True}, {(flag,): said}), listed=line)

    @property
    def place(self) -> str:
        """Where its pattern stands, "" where nobody knows."""
        said = next((text for path, text in self.where.items() if path), "")
        return said if self.listed is None else self.listed

    def source(self, *path: str) -> str:
        """Where a field of a part, or a flag, was set."""
        return self.where.get(path, f"[{self.level}.{self.pattern}] {'.'.join(path)}")


@dataclass(frozen=True)
class OverrideSet:
    """Everything that a user wants beyond the backend.

    everywhere   role (activation, weight, bias, input, output) -> what is wanted; its format is in the backend already
    where        (role, field) -> the place where it was said
    fuse         chains of operators that run as one
    """

    overrides: tuple[Override, ...] = ()
    everywhere: Mapping[str, QuantizerOverride] = field(default_factory=dict)
    where: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    fuse: tuple[tuple[str, ...], ...] = ()


def changed(spec: QuantSpec, wanted: OverrideFields) -> QuantSpec:
    """`spec` with the wanted fields of FORMAT_FIELDS; another type brings its own bounds and restrictions.

    Channels are marked as axis 0 where no axis is given: the caller knows which axis a tensor's channels are on.
    """
    changes = {key: wanted[key] for key in FORMAT_FIELDS if key in wanted and key in _OF_SPEC}
    dtype = wanted.get("dtype", spec.dtype)
    if "bits" in wanted:
        dtype = with_bits(dtype, wanted["bits"])
    form = number_format(dtype)
    if form is not spec.format:
        changes = {"scale_rule": None, **form.implied(spec), **changes}
        changes |= {"dtype": dtype, "quant_min": None, "quant_max": None, "dynamic": False}
    if spec.signed_scale:
        changes["signed_scale"] = form.evenly_spaced and form.signed and _can_turn(changes)
    if "dtype" in wanted and not form.scale_rules:
        changes["scale_rule"] = None  # said for another format, at a wider level
    granularity = form.wanted_granularity(spec.granularity, wanted.get("channel_axis"), wanted.get("per_channel"))
    if granularity is not None:
        changes["granularity"] = granularity
    return spec.replace(**changes)


def _can_turn(changes: JsonMapping) -> bool:
    """Whether scales may still be negative: neither zero points nor powers of two have a use for that."""
    return bool(changes.get("symmetric", True)) and not changes.get("power_of_two")


_OF_SPEC = frozenset(item.name for item in fields(QuantSpec)) - {"dtype"}


def with_bits(dtype: str, bits: int) -> str:
    """The integer type of the same sign with other bits: ("uint8", 4) -> "uint4"."""
    return number_format(dtype).with_bits(bits)


__getattr__ = renamed_in(__name__, {"Wish": "QuantizerOverride", "Controls": "OverrideSet"})
