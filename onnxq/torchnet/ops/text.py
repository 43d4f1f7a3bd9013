"""Text: operators on tensors of strings, which are numpy arrays of objects here."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.registry import Kernel, op
from onnxq.torchnet.values import Value

CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@op("StringConcat", since=20)
def string_concat(call: Call) -> Kernel:
    def run(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(first.astype(object) + second.astype(object), dtype=object)

    return run


@op("StringSplit", since=20)
def string_split(call: Call) -> Kernel:
    delimiter = call.attribute("delimiter", "") or None
    limit = call.attribute("maxsplit", -1)

    def run(texts: np.ndarray) -> tuple[np.ndarray, Tensor]:
        pieces = [str(text).split(delimiter, limit) for text in texts.reshape(-1)]
        counts = [len(piece) for piece in pieces]
        longest = max(counts, default=0)
        rows = np.full((len(pieces), longest), "", dtype=object)
        for row, piece in zip(rows, pieces, strict=True):
            row[: len(piece)] = piece
        lengths = torch.tensor(counts, dtype=torch.int64).reshape(texts.shape)
        return rows.reshape(*texts.shape, longest), lengths

    return run


@op("RegexFullMatch", since=20)
def regex_full_match(call: Call) -> Kernel:
    pattern = re.compile(call.attribute("pattern"))

    def run(texts: np.ndarray) -> Tensor:
        found = [pattern.fullmatch(str(text)) is not None for text in texts.reshape(-1)]
        return torch.tensor(found, dtype=torch.bool).reshape(texts.shape)

    return run


@op("StringNormalizer", since=10)
def string_normalizer(call: Call) -> Kernel:
    """Words without accents and stop words, in one case; an empty result is one empty string."""
    action = call.attribute("case_change_action", "NONE")
    if action not in CASES:
        raise call.unsupported(f"case_change_action '{action}'; ONNX knows {', '.join(CASES)}")
    change = CASES[action]
    exact = bool(call.attribute("is_case_sensitive", 0))
    known = call.attribute("stopwords", [])
    stops = set(known) if exact else {word.casefold() for word in known}

    def normal(text: str) -> str:
        plain = unicodedata.normalize("NFKD", text)
        words = "".join(letter for letter in plain if not unicodedata.combining(letter)).split(" ")
        return change(" ".join(word for word in words if (word if exact else word.casefold()) not in stops))

    def run(texts: np.ndarray) -> np.ndarray:
        words = [word for text in texts.reshape(-1) if (word := normal(str(text)))] or [""]
        return np.array(words, dtype=object).reshape((1, -1) if texts.ndim == 2 else (-1,))

    return run


@op("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(call: Call) -> Kernel:
    """How often each n-gram of a pool occurs in a row, with gaps of equal length between its items allowed."""
    mode = call.attribute("mode")
    shortest, longest = call.attribute("min_gram_length"), call.attribute("max_gram_length")
    gaps = call.attribute("max_skip_count")
    columns = call.attribute("ngram_indexes")
    width = max(columns) + 1
    weights = np.ones(width, dtype=np.float32)
    if mode != "TF" and call.has_attribute("weights"):
        weights[columns] = call.attribute("weights")
    pool = call.attribute("pool_strings", None) or call.attribute("pool_int64s", [])
    column_of = dict(zip(_grams(pool, call.attribute("ngram_counts")), columns, strict=False))

    def row(items: Sequence[Any]) -> np.ndarray:
        found: Counter[int] = Counter()
        for size in range(shortest, longest + 1):
            for distance in range(1, 2 if size == 1 else gaps + 2):
                span = distance * (size - 1)
                for start in range(len(items) - span):
                    column = column_of.get(tuple(items[start : start + span + 1 : distance]))
                    if column is not None:
                        found[column] += 1
        counts = np.zeros(width, dtype=np.float32)
        counts[list(found.keys())] = list(found.values())
        return weights * (counts > 0 if mode == "IDF" else counts)

    def run(items: Value) -> Tensor:
        listed = items.tolist()
        many = items.ndim == 2
        found = np.stack([row(entry) for entry in listed]) if many else row(listed)
        return torch.from_numpy(found.astype(np.float32))

    return run


def _grams(pool: Sequence[Any], starts: Sequence[int]) -> list[tuple[Any, ...]]:
    """The n-grams of a pool, which holds all of size 1, then all of size 2 ...; each size begins at its `starts`."""
    grams: list[tuple[Any, ...]] = []
    for size, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), start=1):
        grams.extend(tuple(pool[place : place + size]) for place in range(start, end, size))
    return grams
