"""Times as people write them."""

from __future__ import annotations

import math
import re

from onnxq.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600}
_PART = r"(\d+(?:\.\d+)?)\s*(h|m|s)"


def read_duration(value: str | float) -> float:
    """Seconds from 90, "90", "90s", "2m", "1h30m", "1.5h"."""
    text = str(value).strip().lower()
    parts = re.findall(_PART, text)
    if isinstance(value, bool):
        seconds = 0.0
    elif re.fullmatch(rf"(?:{_PART}\s*)+", text) and len({unit for _, unit in parts}) == len(parts):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    elif re.fullmatch(r"\d+(?:\.\d+)?", text):
        seconds = float(text)
    else:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"a time is a number with a unit, such as 90s, 2m or 1h30m, got '{value}'")
    return seconds


def clock_text(seconds: float) -> str:
    """A time for a bar: 0:07, 12:30, 1:02:03."""
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration_text(seconds: float) -> str:
    """A time for a sentence: 0.4 s, 35 s, 2 min 5 s, 1 h 20 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
