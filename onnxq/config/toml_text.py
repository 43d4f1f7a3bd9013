"""Settings as TOML: single lines to copy into a configuration, and whole files.

A line says one value at its full path, so that lines can be put into a file in any number; a key that is no bare word
is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError
from onnxq.files import replace_file

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_line(path: tuple[str, ...], value: Any) -> str:
    """One setting: `tensor."/conv/Add".dtype = "uint16"`."""
    return f"{toml_key(path)} = {_value(value)}"


def toml_key(path: tuple[str, ...]) -> str:
    """The key of a setting: `tensor."/conv/Add".dtype`."""
    return ".".join(map(_key, path))


def toml_text(values: Mapping[str, Any]) -> str:
    """A whole configuration, one line for each value; None, which TOML has no word for, is what is not said."""
    return "".join(f"{line}\n" for line in _lines((), values))


def write_toml(path: Path, values: Mapping[str, Any]) -> None:
    """Write a configuration whole or not at all."""
    text = toml_text(values)
    replace_file(path, lambda stream: stream.write(text.encode()))


def _lines(path: tuple[str, ...], values: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key, value in values.items():
        if value is None:
            continue
        here = (*path, key)
        if isinstance(value, Mapping) and value:
            found += _lines(here, value)
        else:
            found.append(toml_line(here, value))
    return found


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's too, but for a DEL, which only TOML refuses as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{_key(str(key))} = {_value(item)}" for key, item in value.items() if item is not None)
            + "}"
        )
    raise ConfigError(f"a {type(value).__name__} cannot be written into a configuration")
