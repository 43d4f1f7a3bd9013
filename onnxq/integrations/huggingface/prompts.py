"""Prompts as feeds of a decoder: what a prompt gives it at once, and what comes behind keys and values of a past.

Of every second prompt the first half is one feed and the second half another one, whose past the float model computes:
so ranges and second moments come from both, in the lengths that the prompts have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import DataError
from onnxq.graph import Graph
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.texts import read_lines, read_tokenizer
from onnxq.runtime.archive import open_arrays
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, run_session

LONGEST = 512
"""Tokens of a prompt, where neither the tokenizer nor a configuration says fewer; more are cut off."""
SPLIT = 4
"""Tokens from which a prompt can be cut in two."""


class Prompts:
    """Feeds of prompts, each in its own length; iterating again gives the same ones."""

    def __init__(self, prompts: Sequence[np.ndarray], decoder: Decoder, graph: Graph) -> None:
        self.prompts = [np.asarray(prompt, np.int64).reshape(1, -1) for prompt in prompts]
        self._decoder, self._graph = decoder, graph
        self._session: Any = None

    def __len__(self) -> int:
        return len(self.prompts) + sum(self._in_two(number) for number in range(len(self.prompts)))

    def __iter__(self) -> Iterator[Feed]:
        for number, prompt in enumerate(self.prompts):
            if not self._in_two(number):
                yield self._decoder.feed(prompt)
                continue
            cut = prompt.shape[1] // 2
            first = self._decoder.feed(prompt[:, :cut])
            yield first
            yield self._decoder.feed(prompt[:, cut:], self._past(first, f"prompt {number}"))

    def _in_two(self, number: int) -> bool:
        return number % 2 == 1 and self.prompts[number].shape[1] >= SPLIT

    def _past(self, feed: Feed, where: str) -> dict[str, np.ndarray]:
        if self._session is None:
            self._session = float_session(self._graph)
        names = list(self._decoder.past.values())
        return self._decoder.continued(dict(zip(names, run_session(self._session, names, feed, where), strict=True)))


def read_prompts(data: Any, folder: Path, decoder: Decoder, graph: Graph) -> Prompts | None:
    """The prompts in a .txt file (one in each line) or in a .npz file of numbers of tokens; None for other data."""
    if not isinstance(data, str | Path):
        return None
    path = Path(data)
    if path.suffix == ".txt":
        tokenizer = read_tokenizer(folder, LONGEST)
        rows = [np.array(tokenizer.encode(line).ids) for line in read_lines(path)]
    elif path.suffix == ".npz" and path.is_file():
        arrays = {name: np.asarray(array) for name, array in open_arrays(path).items()}
        if decoder.past.keys() & arrays.keys():
            return None  # ready feeds
        rows = _rows(arrays, path)
    else:
        return None
    longest = LONGEST if decoder.context is None else min(LONGEST, decoder.context)
    return Prompts([row[:longest] for row in rows if len(row)], decoder, graph)


def _rows(arrays: dict[str, np.ndarray], path: Path) -> list[np.ndarray]:
    """Each row of each array is a prompt; arrays of different lengths lie beside one another in the file."""
    rows: list[np.ndarray] = []
    for name, values in arrays.items():
        if values.dtype.kind not in "iu" or values.ndim not in (1, 2):
            raise DataError(
                f"'{name}' of '{path}' is {values.dtype} {list(values.shape)}: prompts are whole numbers of tokens, "
                "[tokens] or [prompts, tokens]; feeds have an array for each input of the model"
            )
        rows += list(np.atleast_2d(values))
    if not rows:
        raise DataError(f"'{path}' holds no prompt")
    return rows
