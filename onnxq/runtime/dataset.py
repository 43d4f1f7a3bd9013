"""Calibration and test data as feeds that can be read as often as needed, each checked against the model's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnxq.errors import DataError
from onnxq.json_file import JsonMapping
from onnxq.runtime.cut import Cut, plan_cut
from onnxq.runtime.feeds import Feed, InputInfo, check_names, fit_feed
from onnxq.runtime.pieces import Piece, Source
from onnxq.runtime.preprocessing import Preprocessing, read_preprocessing
from onnxq.runtime.sources import open_source

__all__ = ["Dataset", "Feed", "InputInfo", "open_dataset"]


class Dataset:
    """Feeds for single session runs; iterating twice gives the same feeds.

    `description` says where they come from, `notes` what was converted or left out on the way so far.
    A data loader is asked again for each pass; one that shuffles gives another order, and there is a note about it.
    """

    def __init__(
        self, source: Source, inputs: Sequence[InputInfo], *, limit: int | None = None, batch: int | None = None
    ) -> None:
        for name, value in (("limit", limit), ("batch", batch)):
            if value is not None and value < 1:
                raise DataError(f"{name} must be at least 1, got {value}")
        self.inputs = tuple(inputs)
        self.description = source.description
        self.source = source
        self.limit = limit
        self.batch = batch
        self._notes: dict[str, None] = {}
        self._length: int | None = None
        self._first_shapes: dict[str, tuple[int, ...]] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.source.noted, *self._notes)

    @property
    def length(self) -> int | None:
        """The number of feeds, or None while it can only be found by reading them all."""
        if self._length is None and self.source.countable:
            total = sum(cut.count for _, cut in self._cuts())
            self._length = total if self.limit is None else min(total, self.limit)
        return self._length

    def first_shapes(self) -> dict[str, tuple[int, ...]] | None:
        """Input -> its shape in the first feed, which is asked for once; None where there is no feed.

        Only sources whose shapes are not known otherwise are read for it, and the next pass starts with the first feed
        all the same.
        """
        if self._first_shapes is None:
            found = (cut.first_shapes(piece.shapes) for piece, cut in self._cuts() if cut.count)
            self._first_shapes = next(found, None)
        return self._first_shapes

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError(f"the number of feeds of {self.description} is not known before they are read")
        return self.length

    def __iter__(self) -> Iterator[Feed]:
        number = 0
        for piece, cut in self._cuts():
            arrays = piece.load()
            for i in range(cut.count):
                where = f"sample {number} ({piece.where})"
                yield fit_feed(cut.feed(arrays, i), self.inputs, where, self._note)
                number += 1
                if number == self.limit:
                    self._length = number
                    return
        if number == 0:
            why = "".join(f". {note}" for note in self.notes)
            raise DataError(f"the calibration data ({self.description}) holds no samples: give at least one{why}")
        self._length = number

    def _cuts(self) -> Iterator[tuple[Piece, Cut]]:
        for given in self.source.pieces():
            piece = given.renamed(self.inputs)
            if piece is not given and given.named:
                (old,), (new,) = given.shapes, piece.shapes
                self._note(f"the only array of {piece.where} is called '{old}'; it is taken for input '{new}'")
            check_names(piece.shapes, self.inputs, piece.where)
            cut = plan_cut(
                piece.shapes,
                self.inputs,
                piece.where,
                self._note,
                batch=self.batch,
                whole=piece.whole,
                leave_rest=piece.leave_rest,
            )
            yield piece, cut

    def _note(self, text: str) -> None:
        self._notes[text] = None


def open_dataset(
    source: Any,
    inputs: Sequence[InputInfo],
    *,
    limit: int | None = None,
    batch: int | None = None,
    preprocess: Preprocessing | JsonMapping | str | None = None,
) -> Dataset:
    """Feeds from whatever the user has (see `onnxq.runtime.sources.FORMS`).

    Stacked samples are cut to the model's first dimension where it is fixed (a remainder is left out, with a note), and
    to `batch` rows, 1 unless given, where it is free. Ready feeds keep their batch size where the model allows it.
    `limit` is the largest number of feeds. `preprocess` says how images become arrays (see
    `onnxq.runtime.preprocessing`); a Dataset has been opened with its own already.
    """
    if isinstance(source, Dataset):
        return Dataset(source.source, inputs, limit=limit or source.limit, batch=batch or source.batch)
    return Dataset(open_source(source, inputs, read_preprocessing(preprocess)), inputs, limit=limit, batch=batch)
