"""Values of a strategy checked one by one; what is wrong with one is said together with where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from onnxq.compat.translation import shown
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping


def boolean(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigError(f"{where} must be true or false, got {shown(value)}")


def whole(value: Any, low: int, high: int, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise ConfigError(f"{where} must be a whole number of {low} to {high}, got {shown(value)}")


def number(value: Any, low: float, high: float, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise ConfigError(f"{where} must be a number of {low:g} to {high:g}, got {shown(value)}")


def text(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    raise ConfigError(f"{where} must be a text, got {shown(value)}")


def texts(value: Any, where: str) -> list[str]:
    """A list of texts; a single text is refused, because its letters would be taken for names."""
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return list(value)
    raise ConfigError(f"{where} must be a list of texts, got {shown(value)}")


def entries(value: Any, where: str) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    raise ConfigError(f"{where} must be a list, got {shown(value)}")


def choice(value: Any, names: Mapping[str, str], numbers: Mapping[int, str], where: str) -> str:
    """What a name stands for, whatever its case, or a number in its place."""
    allowed = ", ".join([*(name or '""' for name in names), *(f"{key} ({name})" for key, name in numbers.items())])
    if isinstance(value, int) and not isinstance(value, bool) and value in numbers:
        return names[numbers[value]]
    if isinstance(value, str):
        by_case = {name.lower(): meaning for name, meaning in names.items()}
        if value.lower() in by_case:
            return by_case[value.lower()]
        raise ConfigError(f"{where} cannot be {shown(value)}.{did_you_mean(value, names)} Known: {allowed}")
    raise ConfigError(f"{where} cannot be {shown(value)}. Known: {allowed}")


def one_of(given: JsonMapping, spellings: Iterable[str], where: str) -> str | None:
    """The spelling of a key that is there; two of them at once contradict each other or repeat themselves."""
    found = [name for name in spellings if name in given]
    if len(found) > 1:
        raise ConfigError(f"{where} has both '{found[0]}' and '{found[1]}', which are the same key: keep one")
    return found[0] if found else None
