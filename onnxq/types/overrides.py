"""QuantizerOverride, Override, OverrideSet: what a user wants of quantizers, level by level, and where it was said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from onnxq.errors import SpecError
from onnxq.types.granularity import PerBlock, PerChannel, PerTensor
from onnxq.types.spec import BLOCK_DTYPES, DEFAULT_BLOCKS, INT_DTYPES, QuantSpec

Level = Literal["op", "node", "tensor"]
LEVELS: tuple[Level, ...] = ("op", "node", "tensor")
"""From general to specific; what holds everywhere is part of the backend already."""

PARTS = ("activation", "weight", "bias", "output")
"""What a node has: the computed tensors that it reads, its weight, its bias, its result."""


@dataclass(frozen=True)
class QuantizerOverride:
    """Field by field what somebody wants of a quantizer; None leaves the field as it is."""

    dtype: str | None = None
    bits: int | None = None
    symmetric: bool | None = None
    per_channel: bool | None = None
    channel_axis: int | None = None
    narrow_range: bool | None = None
    power_of_two: bool | None = None
    rounding: str | None = None
    observer: str | None = None
    fake_quantizer: str | None = None
    minimum_scale: float | None = None
    skip: bool | None = None
    observe_only: bool | None = None
    share: str | None = None

    def given(self) -> dict[str, Any]:
        """The fields that are set."""
        return {item.name: getattr(self, item.name) for item in fields(self) if getattr(self, item.name) is not None}


FORMAT_FIELDS = (
    "dtype",
    "bits",
    "symmetric",
    "per_channel",
    "channel_axis",
    "narrow_range",
    "power_of_two",
    "rounding",
)
"""The fields of a wish that a QuantSpec holds."""


@dataclass(frozen=True)
class Override:
    """What is wanted of the nodes or tensors that `pattern` names.

    wishes   part of a node -> wish; of a tensor under the key "tensor"
    flags    skip, force, observe_only of whole nodes
    where    ("weight", "bits") or ("skip",) -> the place where it was said
    """

    level: Level
    pattern: str
    wishes: Mapping[str, QuantizerOverride] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)
    where: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    @classmethod
    def of_nodes(
        cls,
        pattern: str,
        flags: Mapping[str, bool],
        where: Mapping[tuple[str, ...], str],
        wishes: Mapping[str, QuantizerOverride] | None = None,
    ) -> Override:
        """About nodes, whose pattern tells the level: op:Conv is about an operator."""
        return cls("op" if pattern.startswith("op:") else "node", pattern, wishes or {}, flags, where)

    def source(self, *path: str) -> str:
        """Where a field of a part, or a flag, was set."""
        return self.where.get(path, f"[{self.level}.{self.pattern}] {'.'.join(path)}")


@dataclass(frozen=True)
class OverrideSet:
    """Everything that a user wants beyond the backend.

    everywhere   role (activation, weight, bias, input, output) -> wish; its format is part of the backend already
    where        (role, field) -> the place where it was said
    fuse         chains of operators that run as one
    """

    overrides: tuple[Override, ...] = ()
    everywhere: Mapping[str, QuantizerOverride] = field(default_factory=dict)
    where: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    fuse: tuple[tuple[str, ...], ...] = ()


def changed(spec: QuantSpec, wanted: Mapping[str, Any]) -> QuantSpec:
    """`spec` with the wanted fields of FORMAT_FIELDS; another type brings its own bounds and restrictions.

    Channels are marked as axis 0 where no axis is given: the caller knows which axis a tensor's channels are on.
    """
    changes = {key: wanted[key] for key in ("symmetric", "narrow_range", "power_of_two", "rounding") if key in wanted}
    dtype = wanted.get("dtype", spec.dtype)
    if "bits" in wanted:
        dtype = with_bits(dtype, wanted["bits"])
    if dtype != spec.dtype:
        changes = {**_implied_by(dtype, spec), **changes, "dtype": dtype, "quant_min": None, "quant_max": None}
    axis, per_channel = wanted.get("channel_axis"), wanted.get("per_channel")
    if dtype in BLOCK_DTYPES:
        blocks = spec.granularity if isinstance(spec.granularity, PerBlock) else DEFAULT_BLOCKS
        changes["granularity"] = PerBlock(blocks.axis if axis is None else axis, DEFAULT_BLOCKS.size)
    elif per_channel is False:
        changes["granularity"] = PerTensor()
    elif per_channel or (axis is not None and isinstance(spec.granularity, PerChannel)):
        changes["granularity"] = PerChannel(0 if axis is None else axis)
    return spec.replace(**changes)


def with_bits(dtype: str, bits: int) -> str:
    """The integer type of the same sign with other bits: ("uint8", 4) -> "uint4"."""
    found = re.fullmatch(r"(u?int)\d+", dtype)
    if found is None:
        raise SpecError(f"bits is for integer formats, {dtype} has its own: give a dtype such as int{bits}")
    return f"{found[1]}{bits}"


def _implied_by(dtype: str, spec: QuantSpec) -> dict[str, Any]:
    if dtype not in INT_DTYPES:  # no zero point, no integers
        implied: dict[str, Any] = {"symmetric": True, "narrow_range": False, "rounding": "half_even"}
        if not dtype.startswith("fp8"):  # no scale that could have channels or be a power of two
            implied |= {"granularity": PerTensor(), "power_of_two": False}
        return implied
    implied = {"granularity": PerTensor()} if isinstance(spec.granularity, PerBlock) and spec.grid != "affine" else {}
    if dtype.startswith("u") or dtype == "int1":
        implied["narrow_range"] = False
    if dtype == "int32":
        implied |= {"symmetric": True, "power_of_two": False, "rounding": "half_even"}
    return implied
