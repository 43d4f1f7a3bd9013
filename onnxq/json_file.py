"""JSON files that anybody may have written or edited: read within limits, and held against their schema at the door."""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from onnxq.errors import ConfigError, OnnxqError, SpecError

Model = TypeVar("Model", bound=BaseModel)

JsonObject = dict[str, Any]
"""An object of a JSON document, or a table of a TOML document or a configuration, as it is read or written."""

JsonMapping = Mapping[str, Any]
"""A JsonObject that its reader leaves as it is."""

DEEPEST = 64
"""Objects and lists inside of each other; no file of onnxq, and no configuration of another tool, comes near it."""

TWICE = "the key {key!r} stands twice in one table, and only the last would count: keep one of them"


class Stored(BaseModel):
    """A table of a file; keys that it does not name are for its reader to check."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)


def read_text(path: Path, what: str, kind: type[OnnxqError] = SpecError) -> str:
    """The text of a file in UTF-8, with or without the mark that some editors put in front of it."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, a {what} is a file")
    if not path.is_file():
        raise ConfigError(f"no {what} at {path}")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise kind(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from None


def read_object(path: Path, what: str, kind: type[OnnxqError] = SpecError) -> JsonObject:
    """A JSON object from a file; `what` says in errors what the file is for, `kind` is their class."""
    text = read_text(path, what, kind)
    try:
        data = parse_json(text)
    except ValueError as error:
        raise kind(f"{path} is not readable JSON: {error}") from None
    if not isinstance(data, dict):
        raise kind(f"{path} holds a JSON {type(data).__name__}, a {what} is an object")
    return data


def parse_json(text: str | bytes, *, constants: bool = False) -> Any:
    """The value of a JSON text; everything that is wrong with it is a ValueError, also a key that stands twice.

    NaN and Infinity, which JSON does not have, are taken with `constants` alone.
    """
    try:
        data = json.loads(text, object_pairs_hook=_table, parse_constant=None if constants else _refuse_constant)
    except RecursionError:
        raise ValueError(too_deep()) from None
    check_depth(data)
    return data


def check_depth(data: Any) -> None:
    """Refuse what could not be walked through by functions that call themselves."""
    level = [data] if isinstance(data, dict | list) else []
    for _ in range(DEEPEST):
        if not level:
            return
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
    raise ValueError(too_deep())


def too_deep() -> str:
    return f"it has more than {DEEPEST} levels of tables and lists inside of each other"


def validated(model: type[Model], data: Any, where: str, kind: type[OnnxqError] = SpecError) -> Model:
    """`data` as the schema has it; an error names the file or other place, the key and what belongs there."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise kind(f"{where}: {explained(error)}") from None


def explained(error: ValidationError) -> str:
    """The first faults of a document in words, each with the way to its key."""
    said = dict.fromkeys(f"{shown_path(item['loc'])}{_expected(item)}" for item in error.errors())
    return "; ".join(list(said)[:3])


def shown_path(path: tuple[int | str, ...]) -> str:
    """tensors['conv.weight'].scale[0]:"""
    shown = ""
    for part in path:
        if isinstance(part, str) and part.isidentifier():
            shown += f".{part}" if shown else part
        else:
            shown += f"[{part!r}]"
    return f"{shown}: " if shown else ""


def shortened(value: Any) -> str:
    """A value for an error message, of which a part is enough where it is long."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80

WORDS = {
    "dict_type": "must be a table of keys and values",
    "model_type": "must be a table of keys and values",
    "model_attributes_type": "must be a table of keys and values",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
}
"""Kinds of errors of pydantic in the words of somebody who edits a file."""


def in_words(item: Any) -> str:
    """What belongs in the place of an error of pydantic."""
    words = WORDS.get(item["type"])
    return str(item["msg"]).lower() if words is None else words.format(**item.get("ctx", {}))


def _expected(item: Any) -> str:
    if item["type"] == "missing":
        return "the key is missing"
    return f"{in_words(item)} (got {shortened(item['input'])})"


def _table(pairs: list[tuple[str, Any]]) -> JsonObject:
    table = dict(pairs)
    if len(table) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(TWICE.format(key=counts.most_common(1)[0][0]))
    return table


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number in JSON")
