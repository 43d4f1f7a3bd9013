"""The logarithmic 8-bit grid of HiSilicon's NNIE: zero, and 128 positive and 127 negative powers of 2^(1/16).

A tensor has one parameter, the clip value c, with 16 * log2(c) = n an integer. With z = n - 127:

    code          value               values x that get it
    0x00..0x7F    2^((k + z) / 16)    x >= 2^(z / 16 - 1),       k = clamp(round(16 * log2(x)) - z, 0, 127)
    0x80          0                   between the two
    0x81..0xFF    -2^((k + z) / 16)   x < -2^((z + 1) / 16 - 1), k = clamp(round(16 * log2(-x)) - z, 1, 127)

The smallest values are reached from half of them on, so everything is rounded to the nearest power but those near zero.
Codes are computed in float64. The rounding of 16 * log2(x) has no ties: a tie would be at 2^(odd / 32), which is
irrational, and no float32 number lies closer to one than the error of a float64 logarithm (checked by the tests). Hence
every correct logarithm gives the same codes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from onnxq.errors import SpecError
from onnxq.types.number_format import NumberFormat, Operators, Side
from onnxq.types.qparams import QParams
from onnxq.types.spec import QuantSpec

if TYPE_CHECKING:
    from torch import Tensor

ZERO_CODE = 0x80
LEVELS = 127
"""The highest k, which stands for c itself."""

STEPS_PER_OCTAVE = 16
HIGHEST_STEP = 2047
"""16 * log2 of the largest clip value that float32 holds."""

_FRACTIONS = np.exp2(np.arange(STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE)


def nnie_steps(clip: npt.ArrayLike) -> np.ndarray:
    """n = round(16 * log2(c)), int64, for positive clip values of any size; at most what float32 holds."""
    exact = STEPS_PER_OCTAVE * np.log2(np.asarray(clip, np.float64))
    return np.asarray(np.minimum(np.rint(exact), HIGHEST_STEP).astype(np.int64))


def nnie_power(steps: npt.ArrayLike) -> np.ndarray:
    """2^(steps / 16) in float64, from one table of sixteen fractions: exact powers of two are exact."""
    whole, part = np.divmod(np.asarray(steps, np.int64), STEPS_PER_OCTAVE)
    return np.asarray(np.ldexp(_FRACTIONS[part], whole))


def nnie_clip(clip: npt.ArrayLike) -> np.ndarray:
    """The legal clip value nearest to each given one (on the logarithmic scale), float64."""
    return nnie_power(nnie_steps(clip))


def nnie_bounds(clip: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(a, b), float64: x >= a gets a positive code, x < -b a negative one."""
    z = nnie_steps(clip) - LEVELS
    return nnie_power(z - STEPS_PER_OCTAVE), nnie_power(z + 1 - STEPS_PER_OCTAVE)


def nnie_table(clip: npt.ArrayLike) -> np.ndarray:
    """The float32 value of each of the 256 codes of one clip value."""
    return nnie_values(np.arange(256), clip)


def nnie_codes(x: np.ndarray, clip: npt.ArrayLike) -> np.ndarray:
    """Sign-magnitude codes (uint8) of real values without NaN; `clip` is one number or broadcasts against `x`."""
    x = np.asarray(x, np.float64)
    z = nnie_steps(clip) - LEVELS
    positive_from, negative_from = nnie_bounds(clip)
    positive, negative = x >= positive_from, x < -negative_from
    with np.errstate(divide="ignore"):
        level = np.rint(STEPS_PER_OCTAVE * np.log2(np.abs(x))) - z
    level = np.clip(level, negative, LEVELS)  # the lowest k is 0 above zero and 1 below
    codes = np.where(positive, level, ZERO_CODE + np.where(negative, level, 0.0))
    return np.asarray(codes.astype(np.uint8))


def nnie_values(codes: np.ndarray, clip: npt.ArrayLike) -> np.ndarray:
    """Real float32 values of codes; `clip` is one number or broadcasts against `codes`."""
    codes = np.asarray(codes, np.int64)
    level = codes % ZERO_CODE
    with np.errstate(under="ignore"):
        magnitude = nnie_power(nnie_steps(clip) - LEVELS + level).astype(np.float32)
    signed = np.where(codes > ZERO_CODE, -magnitude, magnitude)
    return np.asarray(np.where(codes == ZERO_CODE, np.float32(0.0), signed), np.float32)


class Nnie(NumberFormat):
    """The scale is the clip value: the largest number is 1."""

    grid = "logarithmic"
    summary = "powers of 2^(1/16)"
    any_scale = False
    scales_are_searched = False

    def encode(self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return nnie_codes(x, scale)

    def decode(self, q: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, spec: QuantSpec) -> np.ndarray:
        return nnie_values(q, scale)

    def ends(self, spec: QuantSpec, *, rounded: bool = False) -> tuple[float, float]:
        end = 2 ** (0.5 / STEPS_PER_OCTAVE) if rounded else 1.0
        return -end, end

    def sides(self, spec: QuantSpec) -> tuple[Side, Side]:
        return _side(0), _side(1)

    def legal_scale(self, scale: np.ndarray, *, up: bool = False) -> np.ndarray:
        nearest = nnie_clip(scale)
        return np.where(nearest >= scale, nearest, nnie_clip(scale * 2 ** (1 / STEPS_PER_OCTAVE))) if up else nearest

    def check(self, spec: QuantSpec) -> None:
        super().check(spec)
        if spec.power_of_two:
            raise SpecError(f"the scale of {self.name} is a power of 2^(1/16): power_of_two does not apply")

    def operators(self, ops: Operators, parameters: QParams) -> Any:
        """round(16 * log2 |x|) in float64, and a table of the float32 values of the codes."""
        clip = float(parameters.scale)
        positive_from, negative_from = (float(bound) for bound in nnie_bounds(clip))
        offset = float(nnie_steps(clip) - LEVELS)
        x = ops.cast(ops.source, np.dtype(np.float64))
        steps = ops.constant("steps", np.float64(STEPS_PER_OCTAVE / np.log(2.0)))
        level = ops.add("Mul", [ops.add("Log", [ops.add("Abs", [x])]), steps])
        level = ops.add("Sub", [ops.add("Round", [level]), ops.constant("offset", np.float64(offset))])
        level = ops.add("Min", [level, ops.constant("levels", np.float64(LEVELS))])
        zero = ops.constant("zero", np.float64(0.0))
        one = ops.constant("one", np.float64(1.0))
        code_of_zero = ops.constant("code_of_zero", np.float64(ZERO_CODE))
        above = ops.add("Max", [level, zero])
        below = ops.add("Add", [ops.add("Max", [level, one]), code_of_zero])
        is_positive = ops.add(
            "GreaterOrEqual", [x, ops.constant("positive", np.float64(positive_from))], np.dtype(bool)
        )
        is_negative = ops.add("Less", [x, ops.constant("negative", np.float64(-negative_from))], np.dtype(bool))
        double = np.dtype(np.float64)
        not_positive = ops.add("Where", [is_negative, below, code_of_zero], double)
        codes = ops.add("Where", [is_positive, above, not_positive], double)
        index = ops.cast(codes, np.dtype(np.int64))
        table = ops.constant("values", nnie_table(clip))
        return ops.cast(ops.add("Gather", [table, index], np.dtype(np.float32)), ops.kind)

    def torch_values(self, x: Tensor, scale: Tensor, zero_point: Tensor, spec: QuantSpec) -> Tensor:
        """With one clip value, the upper 16 bits of a float32 leave at most two values to choose from.

        They are sign, exponent and 7 bits of the mantissa, and codes are further apart than that: tables have both
        values, and the lower 16 bits decide.
        """
        import torch

        if scale.ndim > 0 or not bool(scale.isfinite()):
            return _computed_in_torch(x, scale)
        first, second, border = (table.to(x.device) for table in _torch_tables(float(scale)))
        bits = x.view(torch.int32)
        upper = (bits >> 16).bitwise_and_(0xFFFF).reshape(-1)
        beyond = (bits & 0xFFFF).reshape(-1) >= border.index_select(0, upper)
        found = torch.where(beyond, second.index_select(0, upper), first.index_select(0, upper))
        return found.view(x.shape)


def _side(lowest: int) -> Side:
    """Levels from the `lowest` power of the grid up to 1: boundaries are geometric means but the first."""
    levels = nnie_power(np.arange(lowest, LEVELS + 1) - LEVELS)
    return Side(levels, np.concatenate([0.5 * levels[:1], np.sqrt(levels[1:] * levels[:-1])]))


@lru_cache(maxsize=64)
def _torch_tables(clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each upper half of a float32: the value of its first numbers, of its last ones, and where those begin."""
    import torch

    start = np.arange(2**16, dtype=np.uint32) << 16
    first, second = _values_of_bits(start, clip), _values_of_bits(start + 0xFFFF, clip)
    border = np.full(2**16, 0x10000, np.int32)
    mixed = np.flatnonzero((first != second) & ~(np.isnan(first) & np.isnan(second)))
    low, high = np.zeros(mixed.size, np.uint32), np.full(mixed.size, 0xFFFF, np.uint32)
    while (high - low > 1).any():
        middle = (low + high) // 2
        same = _values_of_bits(start[mixed] + middle, clip) == first[mixed]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    border[mixed] = high
    return torch.from_numpy(first), torch.from_numpy(second), torch.from_numpy(border)


def _values_of_bits(bits: np.ndarray, clip: float) -> np.ndarray:
    x = bits.astype(np.uint32).view(np.float32)
    known = ~np.isnan(x)
    values = nnie_values(nnie_codes(np.where(known, x, np.float32(0)), clip), clip)
    return np.where(known, values, np.float32(np.nan))


def _computed_in_torch(x: Tensor, clip: Tensor) -> Tensor:
    import torch

    exact = x.double()
    steps = (STEPS_PER_OCTAVE * torch.log2(clip.double())).round().clamp(max=HIGHEST_STEP).nan_to_num(0.0)
    lowest = steps.to(torch.int64) - LEVELS
    positive = exact >= _torch_power(lowest - STEPS_PER_OCTAVE)
    negative = exact < -_torch_power(lowest + 1 - STEPS_PER_OCTAVE)
    level = (STEPS_PER_OCTAVE * torch.log2(exact.abs())).round_() - lowest
    level = torch.clamp(level.nan_to_num_(0.0), min=negative.double()).clamp_(max=LEVELS)
    magnitude = _torch_power(lowest + level.to(torch.int64)).float()
    values = torch.where(positive, magnitude, torch.where(negative, -magnitude, magnitude.new_zeros(())))
    return torch.where(x.isnan() | clip.isnan(), torch.nan, values)


def _torch_power(steps: Tensor) -> Tensor:
    """2^(steps / 16) in float64, as `nnie_power`."""
    import torch

    from onnxq.numerics.in_torch import power_of_two_double

    fractions = torch.from_numpy(nnie_power(np.arange(STEPS_PER_OCTAVE))).to(steps.device)
    whole = torch.div(steps, STEPS_PER_OCTAVE, rounding_mode="floor")
    return fractions[steps - STEPS_PER_OCTAVE * whole] * power_of_two_double(whole)


NNIE8 = Nnie("nnie8", 8)
