"""A configuration with some of its values changed, and as the document that a file of it would be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from onnxq.config.read import read_config
from onnxq.config.settings import Config


def merged(config: Config, changes: Mapping[tuple[str, ...], Any], said_by: str) -> Config:
    """A configuration with changes at paths such as ("node", "conv1", "weight", "bits"), said by an option.

    None takes out what stands at a path.
    """
    values = json.loads(json.dumps(document(config)))
    for path, value in changes.items():
        table = values
        for key in path[:-1]:
            table = table.setdefault(key, {})
        if path[-1] == "bits":
            table.pop("dtype", None)  # of which the bits would be others
        table[path[-1]] = value
    values = _without_nothing(values)
    said = dict.fromkeys(changes, said_by)
    return read_config(values).with_sources({**config.sources, **said}, config.translation)


def _without_nothing(values: dict[str, Any]) -> dict[str, Any]:
    """Tables without the keys that were taken out, and without tables that nothing is left of."""
    inner = {key: _without_nothing(value) if isinstance(value, dict) else value for key, value in values.items()}
    return {key: value for key, value in inner.items() if value is not None and value != {}}


def document(config: Config) -> dict[str, Any]:
    """A configuration as JSON values: what differs from the defaults, and the effort wherever somebody has said it."""
    values = config.model_dump(mode="json", exclude_defaults=True)
    return {**values, "effort": config.effort} if "effort" in config.model_fields_set else values
