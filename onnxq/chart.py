"""Parts of drawings in SVG that charts have in common: axes with round numbers, and text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from onnxq.escapes import one_line


@dataclass(frozen=True)
class Axis:
    """Numbers from `low` to `high` on the pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def around(cls, values: Sequence[float], start: float, end: float) -> Axis:
        """An axis with a little room above and below the values."""
        low, high = min(values), max(values)
        room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
        return cls(low - room, high + room, start, end)

    def at(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    @property
    def distance(self) -> float:
        """Between ticks: 1, 2 or 5 times a power of ten, so that there are 4 to 10 of them."""
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        return next(power * step for step in (1, 2, 5, 10) if power * step >= rough * 0.999)

    def ticks(self) -> list[float]:
        first, last = math.ceil(self.low / self.distance), math.floor(self.high / self.distance)
        return [number * self.distance for number in range(first, last + 1)]

    def label(self, value: float) -> str:
        digits = max(0, -math.floor(math.log10(self.distance) + 1e-9))
        return f"{value:,.{digits}f}" if digits <= 4 and abs(value) < 1e9 else f"{value:.3g}"


def svg_text(x: float, y: float, text: str, anchor: str, color: str = "#333333") -> str:
    """Text at a place; `anchor` is start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(one_line(text))}</text>'
