"""How many scales a tensor has: one, one per channel, or one per block along an axis.

PerTensor()            tensor (64, 3, 3, 3) -> scale ()
PerChannel(axis=0)     tensor (64, 3, 3, 3) -> scale (64,)
PerBlock(axis=0, 32)   tensor (100, 64)     -> scale (4, 64)   the last block may be shorter
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxq.errors import SpecError
from onnxq.json_file import JsonMapping, JsonObject


@dataclass(frozen=True)
class PerTensor:
    """One scale for the whole tensor."""

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return ()

    def to_json(self) -> JsonObject:
        return {"per": "tensor"}

    def __str__(self) -> str:
        return "per tensor"


@dataclass(frozen=True)
class PerChannel:
    """One scale for each index along `axis` (negative counts from the end)."""

    axis: int

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (shape[resolve_axis(self.axis, len(shape))],)

    def to_json(self) -> JsonObject:
        return {"per": "channel", "axis": self.axis}

    def __str__(self) -> str:
        return f"per channel (axis {self.axis})"


@dataclass(frozen=True)
class PerBlock:
    """One scale for each run of `size` elements along `axis`, for every index of the other axes."""

    axis: int
    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SpecError(f"block size must be at least 1, got {self.size}")

    def scale_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        axis = resolve_axis(self.axis, len(shape))
        return tuple(-(-dim // self.size) if i == axis else dim for i, dim in enumerate(shape))

    def to_json(self) -> JsonObject:
        return {"per": "block", "axis": self.axis, "size": self.size}

    def __str__(self) -> str:
        return f"per block of {self.size} (axis {self.axis})"


Granularity = PerTensor | PerChannel | PerBlock
"""Which values share a scale."""


def resolve_axis(axis: int, rank: int) -> int:
    """Turn a possibly negative axis into an index, or say which axes there are."""
    if not -rank <= axis < rank:
        raise SpecError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis % rank


def granularity_from_json(data: JsonMapping) -> Granularity:
    kind = data.get("per")
    if kind == "tensor":
        return PerTensor()
    if kind == "channel":
        return PerChannel(int(data["axis"]))
    if kind == "block":
        return PerBlock(int(data["axis"]), int(data["size"]))
    raise SpecError(f"granularity must say per: tensor, channel or block, got {kind!r}")
