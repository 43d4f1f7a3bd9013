"""Keys of a configuration that can run code: a file may have them only where its user allows it.

A file of settings comes along with models of other people and is read without a second look. What the user writes on
the command line or in Python is the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from onnxq.errors import ConfigError
from onnxq.runtime.sources import names_function
from onnxq.targets import file_of_backend

CODE_KEYS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "backend": (lambda text: file_of_backend(text) is not None, "-b"),
    "data": (names_function, "-d"),
}
"""Key -> whether its value names code, and the option that says the same."""


def refuse_code(
    values: Mapping[str, Any], sources: Mapping[tuple[str, ...], str], where: str, unused: Collection[str] = ()
) -> None:
    """Refuse settings of a file that name code; keys in `unused` are given otherwise, and the file's play no part."""
    for key, (names_code, option) in CODE_KEYS.items():
        value = values.get(key)
        if key not in unused and isinstance(value, str) and names_code(value):
            raise ConfigError(
                f"{sources.get((key,), where)}: '{key}': {value!r} is Python code, which a configuration file does not "
                f"run by itself: give it with {option}, or say --allow-code if you trust the file (in Python: "
                "onnxq.read_config(file, allow_code=True))"
            )
