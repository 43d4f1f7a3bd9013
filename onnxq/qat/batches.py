"""Batches for training: which samples come in which step is decided by the seed and the epoch alone.

Every process of a torchrun makes the same batches and takes its part of each, so that the number of processes changes
nothing about what a step sees.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onnxq.errors import DataError
from onnxq.json_file import JsonObject
from onnxq.qat.randomness import seed_everything

SHUFFLE, STREAM = 1, 2
"""What random numbers are drawn for, as part of their seed."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Input name -> values, and the labels where there are any; all have the samples along axis 0."""

    inputs: Mapping[str, Tensor]
    labels: Tensor | None = None

    @property
    def rows(self) -> int:
        return next(iter(self.inputs.values())).shape[0]

    def part(self, start: int, stop: int) -> Batch:
        inputs = {name: values[start:stop] for name, values in self.inputs.items()}
        return Batch(inputs, None if self.labels is None else self.labels[start:stop])

    def to(self, device: torch.device) -> Batch:
        inputs = {name: values.to(device) for name, values in self.inputs.items()}
        return Batch(inputs, None if self.labels is None else self.labels.to(device))


class TrainingData(ABC):
    """Samples that can be gone through as often as needed.

    description  where they come from
    labelled     whether they have labels
    notes        what was left out or changed so far
    own_batch    samples of a batch where the data comes in batches of its own; None where training cuts them
    """

    own_batch: int | None = None

    def __init__(self, description: str, labelled: bool, notes: dict[str, None]) -> None:
        self.description = description
        self.labelled = labelled
        self._notes = notes

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def note(self, text: str) -> None:
        self._notes[text] = None

    @abstractmethod
    def steps(self, batch_size: int) -> int:
        """Batches of an epoch."""

    @abstractmethod
    def epoch(self, seed: int, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch in its own order, without the first `skip`."""

    @abstractmethod
    def ordered(self, batch_size: int) -> Iterator[Batch]:
        """Every sample once in the order of the data; the last batch may be shorter."""

    @abstractmethod
    def identity(self) -> JsonObject:
        """What tells this data from other data, without reading all of it."""

    def calibration(self, samples: int) -> dict[str, np.ndarray] | list[dict[str, np.ndarray]]:
        """Some samples without labels for calibration: stacked, or a feed for each batch where lengths differ."""
        taken: list[Mapping[str, Tensor]] = []
        count = 0
        for batch in self.ordered(min(samples, 64)):
            taken.append(batch.part(0, samples - count).inputs)
            count += min(batch.rows, samples - count)
            if count >= samples:
                break
        if any(len({inputs[name].shape[1:] for inputs in taken}) > 1 for name in taken[0]):
            return [{name: values.numpy() for name, values in inputs.items()} for inputs in taken]
        return {name: torch.cat([inputs[name] for inputs in taken]).numpy() for name in taken[0]}


class IndexedData(TrainingData):
    """Samples that can be fetched by number, such as rows of arrays."""

    def __init__(
        self,
        description: str,
        fetch: Callable[[np.ndarray], Batch],
        chosen: np.ndarray,
        *,
        labelled: bool,
        notes: dict[str, None],
    ) -> None:
        super().__init__(description, labelled, notes)
        self._fetch = fetch
        self._chosen = chosen
        if not len(chosen):
            raise DataError(f"the training data ({description}) holds no samples: give at least one")

    def __len__(self) -> int:
        return len(self._chosen)

    def steps(self, batch_size: int) -> int:
        return max(len(self) // batch_size, 1)

    def epoch(self, seed: int, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        order = self._chosen[np.random.default_rng([SHUFFLE, seed, epoch]).permutation(len(self))]
        steps = self.steps(batch_size)
        rest = len(self) - steps * batch_size
        if rest > 0:
            self.note(f"{rest} samples that do not fill a batch of {batch_size} are left out of each epoch in turn")
        for step in range(skip, steps):
            yield self._fetch(order[step * batch_size : (step + 1) * batch_size])

    def ordered(self, batch_size: int) -> Iterator[Batch]:
        for start in range(0, len(self), batch_size):
            yield self._fetch(self._chosen[start : start + batch_size])

    def calibration(self, samples: int) -> dict[str, np.ndarray]:
        """Samples spread over all of the data, because data is often sorted by class."""
        picks = np.unique(np.linspace(0, len(self) - 1, min(samples, len(self))).round().astype(np.int64))
        return {name: values.numpy() for name, values in self._fetch(self._chosen[picks]).inputs.items()}

    def identity(self) -> JsonObject:
        first = self._fetch(self._chosen[:1])
        digest = hashlib.sha256(self._chosen.tobytes())
        for name, values in (*first.inputs.items(), ("", first.labels)):
            digest.update(name.encode())
            digest.update(b"" if values is None else values.contiguous().numpy().tobytes())
        return {"samples": len(self), "first sample": digest.hexdigest()[:16]}

    def split(self, fraction: float, seed: int) -> tuple[IndexedData, IndexedData]:
        """Two parts of the samples, chosen at random: the rest, and `fraction` of them to evaluate on."""
        order = np.random.default_rng([SHUFFLE, seed]).permutation(len(self))
        held = max(round(fraction * len(self)), 1)
        if held >= len(self):
            raise DataError(f"{len(self)} samples cannot be divided: give more, or data to evaluate on")
        return self._part(np.sort(order[held:])), self._part(np.sort(order[:held]))

    def _part(self, chosen: np.ndarray) -> IndexedData:
        return IndexedData(
            self.description, self._fetch, self._chosen[chosen], labelled=self.labelled, notes=self._notes
        )


class StreamData(TrainingData):
    """Ready batches that come one after the other, such as those of a data loader; started anew for each epoch.

    Random numbers that the user's code draws while it makes a batch come from the seed and the number of the batch.
    """

    def __init__(
        self,
        description: str,
        start: Callable[[int], Iterable[Any]],
        read: Callable[[Any, str], Batch],
        *,
        labelled: bool,
        length: int | None,
        notes: dict[str, None],
        own_batch: int | None = None,
    ) -> None:
        super().__init__(description, labelled, notes)
        self.own_batch = own_batch
        self._start = start
        self._read = read
        self._length = length

    def steps(self, batch_size: int) -> int:
        if self._length is None:
            self._length = sum(1 for _ in self._start(batch_size))
            self.note(f"the data was read once to count its batches: {self._length}")
        if not self._length:
            raise DataError(f"the training data ({self.description}) holds no batches: give at least one")
        return self._length

    def epoch(self, seed: int, epoch: int, batch_size: int, skip: int = 0) -> Iterator[Batch]:
        seed_everything(STREAM, seed, epoch)
        elements = iter(self._start(batch_size))
        for number in range(self.steps(batch_size)):
            seed_everything(STREAM, seed, epoch, number)
            element = next(elements, None)
            if element is None:
                raise DataError(
                    f"the training data ({self.description}) ended after {number} batches in epoch {epoch + 1}, but "
                    f"had {self._length} before: it must give the same number in each epoch"
                )
            if number >= skip:
                yield self._read(element, f"batch {number} of epoch {epoch + 1}")

    def ordered(self, batch_size: int) -> Iterator[Batch]:
        for number, element in enumerate(self._start(batch_size)):
            yield self._read(element, f"batch {number}")

    def identity(self) -> JsonObject:
        return {"batches": self._length}
