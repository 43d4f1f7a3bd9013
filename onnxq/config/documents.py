"""TOML, YAML and JSON files read as keys and values; a key that stands twice is an error, not the last of the two."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import yaml

from onnxq.errors import ConfigError

_KINDS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_MERGE = "tag:yaml.org,2002:merge"
TWICE = "the key {key!r} stands twice in one table, and only the last would count: keep one of them"


def read_document(path: Path) -> tuple[dict[str, Any], Any]:
    """Keys and values of a TOML, YAML or JSON file, and which of the three it is."""
    kind = _KINDS.get(path.suffix)
    if not path.is_file():
        raise ConfigError(f"no configuration file at {path}")
    if kind is None:
        raise ConfigError(f"{path}: a configuration is a .toml, .yaml, .yml or .json file")
    data: Any
    try:
        data = _LOADERS[kind](path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        said = ", ".join(text for text in (error.context, error.problem) if text)
        raise ConfigError(f"{path}{line}: cannot be read: {said}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:  # a date that no calendar has is a ValueError
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if data is None:  # an empty YAML file
        return {}, kind
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values, it holds a {type(data).__name__}")
    return data, kind


class _Loader(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=TWICE.format(key=key.value), problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(TWICE.format(key=next(key for key in keys if keys.count(key) > 1)))
    return table


_LOADERS: dict[str, Callable[[str], Any]] = {
    "toml": tomllib.loads,
    "yaml": lambda text: yaml.load(text, Loader=_Loader),
    "json": lambda text: json.loads(text, object_pairs_hook=_table),
}
