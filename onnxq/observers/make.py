"""Observers from what a user writes: "percentile:99.99", or {"name": "ema_minmax", "decay": 0.95}."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping
from onnxq.observers.aliases import ALIASES, Alias
from onnxq.observers.base import OBSERVERS, Observer
from onnxq.registry import read_arguments


def make_observer(description: str | JsonMapping | Observer) -> Observer:
    """An observer from "percentile", "percentile:99.99", "percentile:percentile=99.99" or {"name": ..., parameters}.

    The names and parameters that other tools use (aliases.py) are understood as well.
    """
    if isinstance(description, Observer):
        return description
    if isinstance(description, str):
        name, _, text = description.partition(":")
        kind, alias = _find(name.strip())
        names = [item.name for item in fields(kind)]
        return _build(kind, alias, read_arguments(text, names, f"observer '{kind.name}'", "parameter"))
    parameters = dict(description)
    if "name" not in parameters:
        raise ConfigError(f'an observer needs a "name", one of {", ".join(OBSERVERS.names())}; got {parameters}')
    kind, alias = _find(str(parameters.pop("name")))
    return _build(kind, alias, parameters)


def _find(name: str) -> tuple[type[Observer], Alias]:
    if name in OBSERVERS:
        return OBSERVERS.get(name), Alias(name)
    if name in ALIASES:
        alias = ALIASES.get(name)
        return OBSERVERS.get(alias.observer), alias
    near = did_you_mean(name, [*OBSERVERS.names(), *ALIASES])
    raise ConfigError(
        f"unknown observer '{name}'.{near} Known: {', '.join(OBSERVERS.names())}. Names of other tools: "
        f"{', '.join(ALIASES)}"
    )


def _build(kind: type[Observer], alias: Alias, parameters: JsonMapping) -> Observer:
    defaults = {item.name: item.default for item in fields(kind)}
    values: dict[str, float] = {}
    for key, value in parameters.items():
        own = alias.renamed.get(key, key)
        if key not in alias.fixed and own not in defaults:
            known = ", ".join([*defaults, *alias.renamed]) or "none"
            near = did_you_mean(key, [*defaults, *alias.renamed])
            raise ConfigError(f"observer '{kind.name}' has no parameter '{key}'.{near} Its parameters: {known}")
        number = _number(kind, key, value)
        if key in alias.fixed:
            if number != alias.fixed[key]:
                raise ConfigError(
                    f"parameter '{key}' of observer '{kind.name}' is always {alias.fixed[key]:g}, got {number:g}: "
                    "leave it out"
                )
            continue
        if own in values:
            raise ConfigError(f"parameter '{own}' of observer '{kind.name}' is given twice, once as '{key}'")
        if isinstance(defaults[own], int):
            if not number.is_integer():
                raise ConfigError(f"parameter '{key}' of observer '{kind.name}' must be a whole number, got {value!r}")
            number = int(number)
        values[own] = number
    return kind(**{**alias.defaults, **values})


def _number(kind: type[Observer], key: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"parameter '{key}' of observer '{kind.name}' must be a number, got {value!r}") from None
