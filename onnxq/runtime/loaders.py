"""Batches of a torch DataLoader as feeds, recognised by its attributes: torch itself is never imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxq.errors import DataError
from onnxq.runtime.feeds import InputInfo, Note
from onnxq.runtime.pieces import Piece, Source, as_array, ready_feed

LOADER_ATTRIBUTES = ("dataset", "batch_size", "sampler")


def is_loader(source: Any) -> bool:
    return isinstance(source, Iterable) and all(hasattr(source, name) for name in LOADER_ATTRIBUTES)


def open_loader(loader: Any, inputs: Sequence[InputInfo]) -> Source:
    """The batches of a loader, asked again for each pass.

    A batch is a tensor, a list or tuple, or a mapping. Datasets for training hold labels too: what goes beyond the
    model's inputs is left out with a note.
    """
    noted: dict[str, None] = {}
    sampler = type(loader.sampler).__name__
    shuffles = "Random" in sampler
    if shuffles:
        noted[
            f"the data loader shuffles ({sampler}): each pass over the data has another order, and with a limit other "
            "samples. Make it with shuffle=False to get the same numbers again"
        ] = None

    def note(text: str) -> None:
        noted[text] = None

    return Source(
        f"data loader {type(loader).__name__}",
        _batches(loader, inputs, note),
        countable=False,
        shuffles=shuffles,
        noted=noted,
    )


def _batches(loader: Iterable[Any], inputs: Sequence[InputInfo], note: Note) -> Callable[[], Iterator[Piece]]:
    def pieces() -> Iterator[Piece]:
        for number, batch in enumerate(loader):
            where = f"batch {number}"
            yield ready_feed(where, _arrays(batch, inputs, where, note), leave_rest=True)

    return pieces


def _arrays(batch: Any, inputs: Sequence[InputInfo], where: str, note: Note) -> dict[str, np.ndarray]:
    names = [info.name for info in inputs]
    if isinstance(batch, Mapping):
        left = [str(key) for key in batch if str(key) not in names]
        # Where an input is missing, nothing is left out: the error about it then names all that is there.
        if left and all(name in batch for name in names):
            note(f"further keys of each batch ({', '.join(left)}) left out: the model has no such inputs")
            batch = {name: batch[name] for name in names}
        return {str(key): as_array(value, f"'{key}' of {where}") for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        if batch and isinstance(batch[0], Mapping | list | tuple):  # ({input: tensor}, labels), ((a, b), labels)
            _note_rest(batch, 1, note)
            return _arrays(batch[0], inputs, where, note)
        if len(batch) >= len(names):
            _note_rest(batch, len(names), note)
            given = zip(names, batch, strict=False)
            return {name: as_array(value, f"'{name}' of {where}") for name, value in given}
    elif len(names) == 1:
        return {names[0]: as_array(batch, where)}
    has = f"{len(batch)} elements" if isinstance(batch, list | tuple) else f"one {type(batch).__name__}"
    wanted = ", ".join(f"'{info.name}' ({info})" for info in inputs)
    raise DataError(
        f"{where} of the data loader has {has}, but the model wants {wanted}: let the dataset give a dict with the "
        "input names as keys, or a tuple with the inputs first and in this order"
    )


def _note_rest(batch: Sequence[Any], used: int, note: Note) -> None:
    if len(batch) > used:
        note("further elements of each batch (labels) left out")
