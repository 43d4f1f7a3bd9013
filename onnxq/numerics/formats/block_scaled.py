"""What the formats have in common whose values share a scale in short blocks: MX, NVFP4, NF4.

    q    = round to an element (x / scale)            onnxq.numerics.formats.elements
    real = q * scale                                  float32

A weight has its scales calibrated, one for each block, like any format in blocks: `QParams.scale` holds them, and
steps that choose scales or round weights work as with integers. A tensor that is computed at run time has the scale of
each block computed from the largest finite magnitude in it, wherever the tensor is read: `QuantSpec.dynamic`, which
placement sets. Nothing is calibrated then, but for the scale of the tensor that NVFP4 has above those of its blocks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxq.errors import SpecError
from onnxq.numerics.formats.blocks import (
    BlockOperators,
    block_axis,
    block_chunks,
    blocks_of,
    from_blocks,
    in_blocks,
    torch_blocks,
    torch_joined,
)
from onnxq.numerics.formats.elements import E2M1, Element
from onnxq.numerics.rounding import quotient
from onnxq.types.granularity import Granularity, PerBlock
from onnxq.types.number_format import NumberFormat, Operators, Side, nearest_levels
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec, SpecChanges

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BlockScaled(NumberFormat):
    """Elements, and scales that a subclass knows: calibrated ones, and those that a block has at run time."""

    element: Element = field(default=E2M1)
    block: int = 32

    grid = "floating-point"
    summary = "elements that share a scale in blocks"
    can_be_dynamic = True

    # ---- numbers ----------------------------------------------------------------------------------------------------

    @property
    def storage(self) -> np.dtype[Any]:
        return self.element.storage

    def storage_of(self, spec: QuantSpec) -> np.dtype[Any]:
        """Scales of the run belong to the values, which are then stored whole."""
        return np.dtype(np.float32) if spec.dynamic else self.storage

    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return self._at_run_time(x, scale, spec) if spec.dynamic else self.element.encode(quotient(x, scale))

    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return np.asarray(q, np.float32) if spec.dynamic else np.asarray(self.element.decode(np.asarray(q)) * scale)

    def _at_run_time(self, x: np.ndarray, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        x = np.asarray(x, np.float32)
        if x.size == 0:
            return x.copy()
        blocks = blocks_of(spec)
        split = in_blocks(x, blocks)
        largest = np.where(np.isfinite(split), np.abs(split), np.float32(0)).max(axis=-1, keepdims=True)
        steps = self.block_scales(largest, scale, spec)
        values = self.element.decode(self.element.encode(quotient(split, steps))) * steps
        return np.asarray(from_blocks(values, x.shape, blocks), np.float32)

    @abstractmethod
    def block_scales(self, largest: np.ndarray, scale: np.ndarray, spec: QuantSpec) -> np.ndarray:
        """The scale (float32) of blocks with these largest magnitudes, float32; `scale` is that of the tensor."""

    @abstractmethod
    def torch_block_scales(self, largest: Tensor, scale: Tensor, spec: QuantSpec) -> Tensor:
        """`block_scales` in torch."""

    @abstractmethod
    def block_scale_operators(self, to: Operators, largest: Any, parameters: QParams) -> Any:
        """`block_scales` as operators of ONNX."""

    def pieces(self, shape: Sequence[int], spec: QuantSpec) -> Iterator[tuple[slice, ...]] | None:
        return block_chunks(shape, blocks_of(spec)) if spec.dynamic else None

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        end = self.element.saturated if rounded else self.element.largest
        return -end, end

    def sides(self, spec: QuantSpec) -> tuple[Side, Side]:
        numbers = self.element.numbers
        return nearest_levels(numbers[numbers > 0]), nearest_levels(-numbers[numbers < 0])

    def torch_values(self, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        if not spec.dynamic:
            return self.element.rounded(x / scale).mul_(scale)
        if x.numel() == 0:
            return x.clone()
        blocks = blocks_of(spec)
        split = torch_blocks(x, blocks)
        largest = split.abs().masked_fill_(~split.isfinite(), 0.0).amax(block_axis(blocks, x.ndim) + 1, keepdim=True)
        steps = self.torch_block_scales(largest, scale, spec)
        return torch_joined(self.element.rounded(split / steps).mul_(steps), x, blocks)

    # ---- what a spec may say ----------------------------------------------------------------------------------------

    def check(self, spec: QuantSpec) -> None:
        super().check(spec)
        if spec.dynamic and not isinstance(spec.granularity, PerBlock):
            raise SpecError(
                f"scales that {self.name} computes at run time are those of blocks, got {spec.granularity}: use "
                "PerBlock(axis, size)"
            )
        if spec.power_of_two:
            raise SpecError(f"{self.name} says itself which numbers its scales are: power_of_two does not apply")

    def check_parameters(self, spec: QuantSpec, scale: np.ndarray, zero_point: np.ndarray) -> None:
        if not spec.has_scale and scale != 1:
            raise SpecError(f"{self.name} computes its scales at run time: its parameters are a 1, got {scale}")
        if spec.has_scale and not spec.dynamic and not np.array_equal(self.legal_scale(scale), scale):
            wrong = scale[self.legal_scale(scale) != scale].reshape(-1)[0]
            raise SpecError(f"{wrong} is no scale of {self.name}, whose scales are {self.scales}")

    scales = "any numbers"
    """Which numbers its scales are, in words."""

    def wanted_granularity(self, held: Granularity, axis: int | None, per_channel: bool | None) -> Granularity:
        blocks = held if isinstance(held, PerBlock) else PerBlock(-1, self.block)
        return PerBlock(blocks.axis if axis is None else axis, self.block)

    def implied(self, held: QuantSpec) -> SpecChanges:
        return super().implied(held) | {"granularity": PerBlock(-1, self.block), "power_of_two": False}

    # ---- in files ---------------------------------------------------------------------------------------------------

    def operators(self, ops: Operators, parameters: QParams) -> Any:
        x = ops.cast(ops.source, np.dtype(np.float32))
        if not parameters.spec.dynamic:
            scale = ops.constant("scale", ops.spread(parameters.scale, parameters))
            ratio = ops.add("Div", [x, scale])
            return ops.cast(ops.add("Mul", [self.element.operators(ops, ratio), scale]), ops.kind)
        parts = BlockOperators(ops, blocks_of(parameters.spec))
        split = parts.split(x)
        _, largest = parts.magnitudes(split)
        steps = self.block_scale_operators(ops, largest, parameters)
        values = self.element.operators(ops, ops.add("Div", [split, steps], shaped=False))
        return ops.cast(parts.join(ops.add("Mul", [values, steps], shaped=False)), ops.kind)
