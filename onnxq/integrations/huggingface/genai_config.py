"""genai_config.json: which file is the decoder, and what its inputs and outputs are called (ONNX Runtime GenAI)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError
from onnxq.json_file import JsonMapping, read_object

GENAI_CONFIG = "genai_config.json"

_INPUTS = {"input_ids": "input_ids", "attention_mask": "attention_mask", "position_ids": "position_ids"}
_PAST = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
_PRESENT = {"present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}


@dataclass(frozen=True)
class GenaiConfig:
    """What the file says of the decoder.

    inputs  what it is (input_ids, attention_mask, position_ids) -> the name of the input
    cached  past input -> present output, keys and values of every layer
    """

    path: Path
    filename: str
    inputs: JsonMapping
    cached: dict[str, str]
    logits: str
    heads: int | None
    head_size: int | None
    context: int | None

    @property
    def folder(self) -> Path:
        return self.path.parent


def read_genai_config(folder: Path) -> GenaiConfig | None:
    """The configuration of a folder; None where it has none."""
    path = folder / GENAI_CONFIG
    if not path.is_file():
        return None
    model = _table(read_object(path, "configuration of ONNX Runtime GenAI", ConfigError), "model", path, "")
    decoder = _table(model, "decoder", path, "model.")
    inputs, outputs = (_table(decoder, key, path, "model.decoder.") for key in ("inputs", "outputs"))
    filename = decoder.get("filename")
    if not isinstance(filename, str) or not filename:
        raise ConfigError(f"{path}: model.decoder.filename names no file, got {filename!r}")
    if not (folder / filename).is_file():
        raise ConfigError(f"{path}: model.decoder.filename is '{filename}', and {folder} has no such file")
    layers = _number(decoder, "num_hidden_layers", path)
    cached: dict[str, str] = {}
    for kind, default in _PAST.items():
        given = _pattern(inputs, kind, default, path)
        made = kind.replace("past", "present")
        returned = _pattern(outputs, made, _PRESENT[made], path)
        cached |= {given % number: returned % number for number in range(layers or 0)}
    return GenaiConfig(
        path,
        filename,
        {key: str(inputs.get(key, default)) for key, default in _INPUTS.items()},
        cached,
        str(outputs.get("logits", "logits")),
        _number(decoder, "num_key_value_heads", path),
        _number(decoder, "head_size", path),
        _number(model, "context_length", path),
    )


def _table(values: JsonMapping, key: str, path: Path, inside: str) -> JsonMapping:
    found = values.get(key, {})
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: {inside}{key} is no table, got {found!r}")
    return found


def _pattern(values: JsonMapping, key: str, default: str, path: Path) -> str:
    found: Any = values.get(key, default)
    if not isinstance(found, str) or found.count("%d") != 1 or found.count("%") != 1:
        raise ConfigError(f"{path}: {key} is a name with one %d for the number of the layer, got {found!r}")
    return found


def _number(values: JsonMapping, key: str, path: Path) -> int | None:
    found: Any = values.get(key)
    if found is None:
        return None
    if type(found) is not int or found < 1:
        raise ConfigError(f"{path}: {key} is a whole number above 0, got {found!r}")
    return found
