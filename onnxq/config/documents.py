"""TOML, YAML and JSON files read as keys and values; a key that stands twice is an error, not the last of the two.

Text that somebody else has written can be small and mean a great deal: aliases of YAML that hold aliases, tables
inside of tables. What is read has limits that no configuration comes near, and beyond them is an error.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError
from onnxq.json_file import DEEPEST, check_depth, parse_json, read_text, too_deep
from onnxq.yaml_text import YamlError, parse_yaml

_KINDS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
LONGEST = 4_000_000
"""Letters of a file; PyYAML needs a minute for as many."""


def read_document(path: Path) -> tuple[dict[str, Any], Any]:
    """Keys and values of a TOML, YAML or JSON file, and which of the three it is."""
    kind = _KINDS.get(path.suffix)
    if not path.is_file():
        raise ConfigError(f"no configuration file at {path}")
    if kind is None:
        raise ConfigError(f"{path}: a configuration is a .toml, .yaml, .yml or .json file")
    text = read_text(path, "configuration file", ConfigError)
    if len(text) > LONGEST:
        raise ConfigError(f"{path} cannot be read: it has {len(text):,} letters, a configuration at most {LONGEST:,}")
    data: Any
    try:
        data = _LOADERS[kind](text)
        check_depth(data)
    except YamlError as error:
        line = "" if error.line is None else f":{error.line}:"
        raise ConfigError(f"{path}{line} cannot be read: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} cannot be read: {too_deep()}") from None
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if data is None:  # an empty YAML file
        return {}, kind
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold keys and values, it holds a {type(data).__name__}")
    return data, kind


def load_toml(text: str) -> Any:
    """The value of a TOML text; a key of many parts is found before tomllib takes time and memory by their square."""
    if _LONG_KEY.search(text):
        raise ValueError(too_deep())
    return tomllib.loads(text)


_LONG_KEY = re.compile(
    r"(?:(?:(?<![\w-])[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+){%d}" % DEEPEST  # noqa: UP031
)


_LOADERS: dict[str, Callable[[str], Any]] = {
    "toml": load_toml,
    "yaml": parse_yaml,
    "json": lambda text: parse_json(text, constants=True),  # a value of an input may be NaN
}
