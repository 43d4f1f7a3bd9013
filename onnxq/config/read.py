"""A Config from whatever the caller has: a file, a dict, another tool's configuration, options on top."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from onnxq.config.assignments import Assignment, assign, inner_paths
from onnxq.config.code import refuse_code
from onnxq.config.documents import read_document
from onnxq.config.lines import line_numbers
from onnxq.config.quantizers import REFUSED, InputSettings, NodeSettings, QuantizerSettings
from onnxq.config.settings import Config
from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import in_words, read_text, shortened
from onnxq.types.translation import Translation

ConfigSource = Config | Translation | Mapping[str, Any] | str | Path | None
"""What can be given as a configuration."""

Sources = dict[tuple[str, ...], str]


def read_config(
    source: ConfigSource,
    *,
    assignments: Sequence[Assignment] = (),
    allow_code: bool = False,
    unused: Collection[str] = (),
    **overrides: Any,
) -> Config:
    """A Config from whatever the caller has; `overrides` that are not None win over the file, and so do `assignments`,
    which are what a command line says.

    A file may name code (`onnxq.config.code`) with `allow_code` alone, or in a key that the caller leaves `unused`.
    """
    dashes = ""
    if "options" in overrides:
        warnings.warn("read_config(options=True) is now read_config(assignments=...)", DeprecationWarning, stacklevel=2)
        dashes = "--" if overrides.pop("options") else ""
    values, sources, where, translation = _given(source)
    said = {one.said: one.by_key for one in assignments}
    if isinstance(source, str | Path):
        said |= dict.fromkeys(sources.values(), False)
        if not allow_code:
            given = [key for key, value in overrides.items() if value is not None]
            refuse_code(values, sources, where, (*unused, *given))
    for key, value in overrides.items():
        if value is not None:
            values[key] = value
            sources = {path: text for path, text in sources.items() if path[0] != key}
            sources[(key,)] = f"--{key.replace('_', '-')}" if dashes else key
    for one in assignments:
        assign(values, sources, one)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        lines = [_explain(item, sources, where, said) for item in error.errors()]
        raise ConfigError("; ".join(dict.fromkeys(lines))) from None
    return config.with_sources(sources, translation)


def _given(source: ConfigSource) -> tuple[dict[str, Any], Sources, str, Translation | None]:
    if isinstance(source, Config):
        return source.model_dump(exclude_unset=True), source.sources, "configuration", source.translation
    if isinstance(source, Translation):
        values = {**source.config, "backend": source.backend}
        return values, dict(source.sources), f"what {source.tool}'s configuration became", source
    if isinstance(source, str | Path):
        values, sources = _read_file(Path(source))
        return values, sources, str(source), None
    if source is None or isinstance(source, Mapping):
        values = dict(source or {})
        return values, {path: ".".join(path) for path in inner_paths(values)}, "configuration", None
    raise ConfigError(f"a configuration is a Config, a dict or the path of a file, not a {type(source).__name__}")


def _read_file(path: Path) -> tuple[dict[str, Any], Sources]:
    data, kind = read_document(path)
    data.pop("$schema", None)  # what editors look for
    text = read_text(path, "configuration file", ConfigError)
    return data, {key: f"{path}:{line}" for key, line in line_numbers(text, kind).items()}


_SEVERAL = {
    "observer": "text or a table with a name",
    "fake_quantizer": "text or a table with a name",
    "preprocess": "text or a table of settings",
    "memory_limit": "text or a whole number",
}
"""Keys whose value may be of several kinds; sizes of a shape, which have no key, may be so too."""

_TRIED = ("str", "int", "dict[str,any]")
"""What stands at the end of the path of a value that is of none of its kinds."""


def _explain(item: Any, sources: Sources, where: str, said: Mapping[str, bool]) -> str:
    """What is wrong with a value. `said` are the lines and options that gave values, and which of them are --set."""
    path = [str(part) for part in item["loc"]]
    kinds = None
    if path and path[-1] in _TRIED and item["type"] != "extra_forbidden":
        path = path[:-1]
        kinds = _SEVERAL.get(path[-1], "a whole number or text")
    place = _place(path, sources, where, said)
    key = ".".join(path)
    if item["type"] == REFUSED:
        return f"{place}: " + (f"'{key}': " if key else "") + str(item["ctx"]["reason"])
    if item["type"] == "extra_forbidden":
        known = _table_at(path[:-1]).model_fields
        if path[0] in ("op", "node") and len(path) == 3 and path[2] in QuantizerSettings.model_fields:
            return f"{place}: unknown key '{key}': put it under activation, weight, bias or output"
        named = said.get(place, False) and path[0] in ("op", "node", "tensor", "inputs")
        dots = f'; a name that has dots stands in quotes: {path[0]}."NAME".KEY=VALUE' if named else ""
        return f"{place}: unknown key '{key}'.{did_you_mean(path[-1], known)} Known: {', '.join(known)}{dots}"
    message = in_words(item) if kinds is None else f"must be {kinds}"
    return f"{place}: '{key}': {message} (got {shortened(item['input'])})"


def _place(path: list[str], sources: Sources, where: str, said: Collection[str]) -> str:
    """The line of a key of a file, or the option that gave it; of other configurations what they are called."""
    for length in range(len(path), 0, -1):
        source = sources.get(tuple(path[:length]))
        if source is not None:
            return source if source in said else where
    return where


def _table_at(path: list[str]) -> type[BaseModel]:
    """The model whose keys stand at a path of the configuration."""
    if not path:
        return Config
    if path[0] in ("op", "node"):
        return NodeSettings if len(path) < 3 else QuantizerSettings
    return InputSettings if path[0] == "inputs" else QuantizerSettings
