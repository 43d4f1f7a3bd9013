"""Prompts as feeds of a decoder: what a prompt gives it at once, and what comes behind keys and values of a past.

Of every second prompt the first half is one feed and the second half another one, whose past the float model computes:
so ranges and second moments come from both, in the lengths that the prompts have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import ConfigError, DataError
from onnxq.graph import Graph
from onnxq.integrations.huggingface.decoder import Decoder
from onnxq.integrations.huggingface.genai_config import read_genai_config
from onnxq.integrations.huggingface.sampling import Sampled, begin_token, sample_prompts
from onnxq.integrations.huggingface.texts import read_lines, read_tokenizer
from onnxq.runtime.archive import open_arrays
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, run_session

LONGEST = 512
"""Tokens of a prompt, where neither the tokenizer nor a configuration says fewer; more are cut off."""
SPLIT = 4
"""Tokens from which a prompt can be cut in two."""
SAMPLED_NEEDS = (
    "'{data}' has the float model write its own prompts, and '{model}' is no decoder with past keys and values: give "
    "texts or feeds"
)


class Prompts:
    """Feeds of prompts, each in its own length; iterating again gives the same ones.

    halves  of every second prompt two feeds are made, the second one with a past; else each is one, without
    """

    def __init__(self, prompts: Sequence[np.ndarray], decoder: Decoder, graph: Graph, *, halves: bool = True) -> None:
        self.prompts = [np.asarray(prompt, np.int64).reshape(1, -1) for prompt in prompts]
        self._decoder, self._graph, self._halves = decoder, graph, halves
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
        return self._halves and number % 2 == 1 and self.prompts[number].shape[1] >= SPLIT

    def _past(self, feed: Feed, where: str) -> dict[str, np.ndarray]:
        if self._session is None:
            self._session = float_session(self._graph)
        names = list(self._decoder.past.values())
        return self._decoder.continued(dict(zip(names, run_session(self._session, names, feed, where), strict=True)))


def read_prompts(data: Any, folder: Path, decoder: Decoder, graph: Graph, *, halves: bool = True) -> Prompts | None:
    """The prompts in a .txt file (one in each line) or in a .npz file of numbers of tokens, or those that the model
    writes itself (`sampled`); None for other data."""
    wanted = Sampled.of(data)
    if wanted is not None:
        return Prompts(sample_prompts(graph, decoder, wanted, begin_token(folder)), decoder, graph, halves=halves)
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
    return Prompts([row[:longest] for row in rows if len(row)], decoder, graph, halves=halves)


def prompts_to_evaluate(model: Path, data: Any) -> Prompts | None:
    """Prompts, each a feed with an empty past, where a model is a decoder and the data are prompts; else None."""
    sampled = Sampled.of(data) is not None
    if not sampled and Path(str(data)).suffix not in (".txt", ".npz"):
        return None
    graph = Graph.load(model)
    try:
        decoder = Decoder.of(graph, read_genai_config(model.parent))
    except DataError:
        if sampled:
            raise
        return None  # its feeds are given, not made
    if decoder is None and sampled:
        raise ConfigError(SAMPLED_NEEDS.format(data=data, model=model))
    return None if decoder is None else read_prompts(data, model.parent, decoder, graph, halves=False)


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
