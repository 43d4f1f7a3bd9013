"""What the members of a block are: small floating-point numbers, fixed-point numbers, or the entries of a table.

Each is rounded from x / scale, in numpy, in torch and with float operators of ONNX, to the same bits.

    element  bits  largest  emax  smallest normal  numbers
    e4m3     8     448      8     2^-6             OCP FP8
    e5m2     8     57344    15    2^-14            OCP FP8
    e3m2     6     28       4     2^-2             OCP FP6
    e2m3     6     7.5      2     1                OCP FP6
    e2m1     4     6        2     1                OCP FP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6
    int8     8     127/64   0                      n / 64 for n from -127 to 127
    nf4      4     1                               16 quantiles of a normal distribution

`emax` is the exponent of the largest number. Halves are rounded to even, magnitudes beyond the largest saturate,
infinities too. A zero of a floating-point element keeps its sign, any other has none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from onnxq.numerics.formats.blocks import narrowed, power_below
from onnxq.types.number_format import Operators

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Element(ABC):
    """The numbers that a member of a block can be, in units of the scale.

    largest   the largest of them
    emax      the exponent of the largest
    fraction  bits behind the leading one, as rules for scales count them
    """

    bits: int
    largest: float
    emax: int
    fraction: int

    @property
    @abstractmethod
    def storage(self) -> np.dtype[Any]:
        """The numpy dtype that holds a number."""

    @abstractmethod
    def encode(self, ratio: np.ndarray) -> np.ndarray:
        """The numbers nearest to float32 values without NaN, in the storage dtype."""

    @abstractmethod
    def decode(self, stored: np.ndarray) -> np.ndarray:
        """The float32 values of stored numbers, in units of the scale."""

    @abstractmethod
    def rounded(self, ratio: Tensor) -> Tensor:
        """`decode(encode(ratio))` in torch; NaN stays NaN."""

    @abstractmethod
    def operators(self, to: Operators, ratio: Any) -> Any:
        """`decode(encode(ratio))` as operators of ONNX, for a float32 tensor."""

    @property
    @abstractmethod
    def saturated(self) -> float:
        """Magnitudes from here on saturate instead of being rounded to the largest."""

    @cached_property
    def numbers(self) -> np.ndarray:
        """Every number, float64, in ascending order."""
        bits = np.arange(1 << self.bits, dtype=np.uint8)
        values = self.decode(bits.view(self.storage)).astype(np.float64)
        return np.unique(values[np.isfinite(values)])


@dataclass(frozen=True)
class FloatElement(Element):
    """A sign, an exponent and `fraction` bits.

    stored_type  its name in ml_dtypes
    lowest       the exponent of the smallest normal number
    """

    stored_type: str
    lowest: int

    @property
    def storage(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = np.dtype(getattr(ml_dtypes, self.stored_type))
        return kind

    @property
    def saturated(self) -> float:
        return self.largest + 2.0 ** (self.emax - self.fraction - 1)

    def encode(self, ratio: np.ndarray) -> np.ndarray:
        largest = np.float32(self.largest)
        return np.asarray(np.clip(ratio, -largest, largest).astype(self.storage))

    def decode(self, stored: np.ndarray) -> np.ndarray:
        return np.asarray(stored.astype(np.float32))

    def rounded(self, ratio: Tensor) -> Tensor:
        import torch

        from onnxq.numerics.in_torch import power_of_two

        limited = ratio.clamp(-self.largest, self.largest)
        exponent = (torch.frexp(limited.abs())[1] - 1).clamp_(min=self.lowest)
        step = power_of_two(exponent.masked_fill_(limited == 0, self.lowest) - self.fraction)
        return limited.div_(step).round_().mul_(step)

    def operators(self, to: Operators, ratio: Any) -> Any:
        """Steps that follow the magnitude: max(power, smallest normal) * 2^-fraction, exact in float32."""
        bounds = [to.constant(side, np.float32(v)) for side, v in (("low", -self.largest), ("high", self.largest))]
        limited = to.add("Clip", [ratio, *bounds], shaped=False)
        half_power = power_below(to, to.add("Abs", [limited], shaped=False))
        lowest = to.constant("lowest", np.float64(2.0 ** (self.lowest - 1)))
        half_power = to.add("Max", [half_power, lowest], shaped=False)
        step = to.add("Mul", [half_power, to.constant("bits", np.float64(2.0 ** (1 - self.fraction)))], shaped=False)
        step = narrowed(to, step)
        steps = to.add("Round", [to.add("Div", [limited, step], shaped=False)], shaped=False)
        return to.add("Mul", [steps, step], shaped=False)


@dataclass(frozen=True)
class FixedElement(Element):
    """Whole numbers from -`most` to `most`, divided by 2^`fraction`."""

    most: int
    places: int

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(np.int8)

    @property
    def saturated(self) -> float:
        return float((self.most + 0.5) / 2**self.places)

    def encode(self, ratio: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            steps = np.clip(np.asarray(ratio) * np.float32(2**self.places), -self.most, self.most)
        return np.asarray(np.rint(steps).astype(np.int8))

    def decode(self, stored: np.ndarray) -> np.ndarray:
        return np.asarray(stored.astype(np.float32) * np.float32(2.0**-self.places))

    @cached_property
    def numbers(self) -> np.ndarray:
        return np.arange(-self.most, self.most + 1) / 2.0**self.places

    def rounded(self, ratio: Tensor) -> Tensor:
        steps = ratio.mul(float(2**self.places)).clamp_(-self.most, self.most).round_()
        return steps.add_(0.0).mul_(2.0**-self.places)

    def operators(self, to: Operators, ratio: Any) -> Any:
        steps = to.add("Mul", [ratio, to.constant("places", np.float32(2**self.places))], shaped=False)
        bounds = [to.constant(side, np.float32(v)) for side, v in (("low", -self.most), ("high", self.most))]
        rounded = to.add("Round", [to.add("Clip", [steps, *bounds], shaped=False)], shaped=False)
        # Adding zero turns -0 into +0, which is what integers have.
        whole = to.add("Add", [rounded, to.constant("zero", np.float32(0.0))], shaped=False)
        return to.add("Mul", [whole, to.constant("unit", np.float32(2.0**-self.places))], shaped=False)


@dataclass(frozen=True)
class TableElement(Element):
    """The entries of an ascending table; a value above the middle between two neighbours becomes the upper one."""

    table: tuple[float, ...]
    borders: tuple[float, ...]

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def saturated(self) -> float:
        return self.largest

    @cached_property
    def values(self) -> np.ndarray:
        return np.array(self.table, np.float32)

    @cached_property
    def _borders(self) -> np.ndarray:
        return np.array(self.borders, np.float32)

    def encode(self, ratio: np.ndarray) -> np.ndarray:
        found = np.searchsorted(self._borders, np.asarray(ratio, np.float32), side="left")
        return np.asarray(found).astype(np.uint8)

    def decode(self, stored: np.ndarray) -> np.ndarray:
        return np.asarray(self.values[np.asarray(stored, np.int64) % len(self.table)])

    @cached_property
    def numbers(self) -> np.ndarray:
        return np.unique(self.values.astype(np.float64))

    def rounded(self, ratio: Tensor) -> Tensor:
        import torch

        index = torch.searchsorted(torch.from_numpy(self._borders).to(ratio.device), ratio.contiguous(), right=False)
        found = torch.from_numpy(self.values).to(ratio.device)[index]
        return torch.where(ratio.isnan(), ratio, found)

    def operators(self, to: Operators, ratio: Any) -> Any:
        """One comparison for each border: a Where keeps the upper entry of those that lie below the value."""
        found = to.constant("entry", self.values[0])
        for border, value in zip(self._borders, self.values[1:], strict=True):
            above = to.add("Greater", [ratio, to.constant("border", border)], np.dtype(bool), shaped=False)
            upper = to.constant("entry", value)
            found = to.add("Where", [above, upper, found], np.dtype(np.float32), shaped=False)
        return found


E4M3 = FloatElement(8, 448.0, 8, 3, "float8_e4m3fn", -6)
E5M2 = FloatElement(8, 57344.0, 15, 2, "float8_e5m2", -14)
E3M2 = FloatElement(6, 28.0, 4, 2, "float6_e3m2fn", -2)
E2M3 = FloatElement(6, 7.5, 2, 3, "float6_e2m3fn", 0)
E2M1 = FloatElement(4, 6.0, 2, 1, "float4_e2m1fn", 0)
FIXED8 = FixedElement(8, 127 / 64, 0, 8, 127, 6)
