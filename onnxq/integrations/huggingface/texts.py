"""Texts as feeds of a model, made by the tokenizer that lies in its folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import ConfigError, DataError
from onnxq.json_file import JsonMapping, read_text
from onnxq.runtime.feeds import Feed, InputInfo

TOKENIZER = "tokenizer.json"
LONGEST = 128
"""Tokens of a text, where neither the tokenizer nor its configuration says fewer; more are cut off."""


class Texts:
    """The lines of a file as feeds, one for each, in their own length; iterating again gives the same feeds."""

    def __init__(self, file: Path, folder: Path, inputs: Sequence[InputInfo], limit: int | None = None) -> None:
        self.lines = read_lines(file)[:limit]
        self._tokenizer = read_tokenizer(folder, LONGEST)
        self._inputs = tuple(inputs)
        unknown = [info.name for info in inputs if info.name not in _PARTS and info.name != "position_ids"]
        if unknown or any(len(info.shape) != 2 for info in inputs):
            shown = ", ".join(f"'{info.name}' {info}" for info in inputs)
            raise DataError(
                f"texts become {', '.join(_PARTS)} and position_ids, and this model takes {shown}: give its feeds as "
                ".npz files (docs/data.md)"
            )

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[Feed]:
        for line in self.lines:
            encoded = self._tokenizer.encode(line)
            found = {name: getattr(encoded, part) for name, part in _PARTS.items()}
            found["position_ids"] = list(range(len(encoded.ids)))
            yield {info.name: np.array([found[info.name]], info.dtype) for info in self._inputs}


_PARTS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Input of a model -> what the tokenizers library calls it."""


def read_lines(file: Path) -> list[str]:
    """The texts in a file, one in each line."""
    lines = [line.strip() for line in read_text(file, "file of texts", DataError).splitlines()]
    texts = [line for line in lines if line]
    if not texts:
        raise DataError(f"'{file}' holds no text: write one text in each line")
    return texts


def read_tokenizer(folder: Path, longest: int) -> Any:
    """The tokenizer of a folder, which cuts texts to `longest` tokens, or fewer where a configuration says so."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise ConfigError(f"texts need {path}, which is not there: give feeds as .npz files instead (docs/data.md)")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(
            "texts need the tokenizers library, which is not installed: pip install tokenizers"
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for every fault of a file
        raise DataError(f"'{path}' is no tokenizer that can be read: {error}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(_longest(folder, tokenizer.truncation, longest))
    return tokenizer


def _longest(folder: Path, truncation: JsonMapping | None, most: int) -> int:
    """Tokens that a text may have: the least of what tokenizer and model say, and of `most`."""
    limits = [most]
    if truncation is not None:
        limits.append(int(truncation["max_length"]))
    for name, key in (("tokenizer_config.json", "model_max_length"), ("config.json", "max_position_embeddings")):
        try:
            value = json.loads((folder / name).read_text(encoding="utf-8")).get(key)
        except (OSError, ValueError, AttributeError):
            continue  # these files are kept as they are, and need not be there
        if isinstance(value, int | float) and value >= 1:
            limits.append(int(min(value, most)))
    return min(limits)
