"""Feeds of one first size, put together from those that come with fewer rows, such as files of one sample each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from onnxq.runtime.feeds import Feed


def in_batches(feeds: Iterable[Feed], batch: int) -> Iterator[Feed]:
    """Feeds whose inputs have `batch` rows, of inputs of equal shapes; what does not add up to it is left out."""
    waiting: dict[tuple[tuple[str, tuple[int, ...]], ...], list[Feed]] = {}
    for feed in feeds:
        rows = {len(array) for array in feed.values() if array.ndim}
        if rows == {batch}:
            yield feed
        elif len(rows) == 1 and all(array.ndim for array in feed.values()):
            alike = waiting.setdefault(tuple((name, array.shape[1:]) for name, array in feed.items()), [])
            alike.append(feed)
            held = sum(len(next(iter(one.values()))) for one in alike)
            if held >= batch:
                yield {name: np.concatenate([one[name] for one in alike])[:batch] for name in feed}
                alike.clear()
