"""A configuration with some of its values changed, and as the document that a file of it would be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxq.config.assignments import Assignment, assign
from onnxq.config.read import read_config
from onnxq.config.settings import Config

COUNT_WHEN_SAID = {"effort", "diagnose", "minimum_sqnr_db"}
"""Settings that mean more than their default where somebody has given them the same value."""


def merged(config: Config, changes: Mapping[tuple[str, ...], Any], said_by: str) -> Config:
    """A configuration with changes at paths such as ("node", "conv1", "weight", "bits"), said by an option.

    None takes out what stands at a path.
    """
    values = document(config)
    for path, value in changes.items():
        if path[-1] == "bits":  # those of a dtype would be others
            assign(values, {}, Assignment((*path[:-1], "dtype"), None, said_by))
        assign(values, {}, Assignment(path, value, said_by))
    sources = {**config.sources, **dict.fromkeys(changes, said_by)}
    return read_config(_without_nothing(values)).with_sources(sources, config.translation)


def _without_nothing(values: dict[str, Any]) -> dict[str, Any]:
    """Tables without the keys that were taken out, and without tables that nothing is left of."""
    inner = {key: _without_nothing(value) if isinstance(value, dict) else value for key, value in values.items()}
    return {key: value for key, value in inner.items() if value is not None and value != {}}


def document(config: Config) -> dict[str, Any]:
    """A configuration as JSON values: what differs from the defaults, and what somebody has said where that counts."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    said = config.model_dump(mode="json", include=COUNT_WHEN_SAID & config.model_fields_set)
    return {**values, **said}
