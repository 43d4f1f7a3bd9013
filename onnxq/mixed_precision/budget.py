"""A budget as a user writes it: 60%, 1.2MB, 3.5bits, BOPS:60%, BOPS:1.5G."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from onnxq.costs import Costs
from onnxq.errors import ConfigError
from onnxq.runtime.memory import read_size

Measure = Literal["bytes", "bits", "bit_operations"]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

EXAMPLES = "60% (of the bytes that the most bits need), 1.2MB, 3.5bits (the mean of all weights), BOPS:60% or BOPS:1.5G"


@dataclass(frozen=True)
class Budget:
    """The most that a plan may cost.

    measure    bytes and bits of weights, or bit operations
    fraction   of what the model costs with the most bits everywhere; or
    amount     in units of the measure; bits are the mean over all numbers of weights
    """

    text: str
    measure: Measure
    fraction: float | None = None
    amount: float | None = None

    def limit(self, most: Costs) -> int:
        """The most that a plan may cost, in whole units; `most` are the costs with the most bits everywhere."""
        if self.fraction is not None:
            return int(self.fraction * cost_in(self.measure, most) + 1e-9)
        assert self.amount is not None
        return int(self.amount * most.numbers + 1e-9) if self.measure == "bits" else int(self.amount)


def cost_in(measure: Measure, costs: Costs) -> int:
    return int(getattr(costs, measure))


def cost_text(measure: Measure, cost: int, costs: Costs) -> str:
    """A cost for people."""
    if measure == "bits":
        return f"{cost / costs.numbers:.3f} bits"
    if measure == "bytes":
        return f"{cost:,} bytes"
    for unit, name in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if cost >= unit:
            return f"{cost / unit:.4g}{name} BOPS"
    return f"{cost} BOPS"


def read_budget(text: object) -> Budget:
    """A budget from its text; ConfigError says what can be written."""
    if not isinstance(text, str):
        raise ConfigError(f"budget {text!r} is no text. Write {EXAMPLES}")
    plain = text.strip().lower()
    operations = plain.startswith("bops:")
    rest = plain.removeprefix("bops:").strip()
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", rest)
    if percent is not None and 0 < float(percent[1]) <= 100:
        return Budget(text, "bit_operations" if operations else "bytes", fraction=float(percent[1]) / 100)
    if operations:
        number = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)", rest)
        if number is not None and float(number[1]) > 0:
            return Budget(text, "bit_operations", amount=float(number[1]) * UNITS[number[2]])
        raise ConfigError(f"budget '{text}' cannot be read. Write {EXAMPLES}")
    bits = re.fullmatch(r"(\d+(?:\.\d+)?)\s*bits?", rest)
    if bits is not None and float(bits[1]) > 0:
        return Budget(text, "bits", amount=float(bits[1]))
    try:
        return Budget(text, "bytes", amount=float(read_size(rest)))
    except ConfigError:
        raise ConfigError(f"budget '{text}' cannot be read. Write {EXAMPLES}") from None
