"""What the float model and the quantized model computed so far, at the boundaries of segments, sample by sample.

Values stay in memory up to a limit; what comes beyond it is written to files, and read again when it is needed. A value
that no later segment reads is dropped at once, with its file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onnxq.machine import machine_error, refusal
from onnxq.ptq.method import ACTIVATIONS
from onnxq.temporary import remove_stale, temporary_folder
from onnxq.torchnet.values import Value


class ActivationStore:
    """Room for values: memory first, files in `folder` when `limit` bytes are held."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._numbers = itertools.count()
        self.held = 0
        self.files = 0

    def left(self) -> int:
        """Bytes that still go into memory."""
        return max(0, self._limit - self.held)

    def put(self, value: Value) -> Kept:
        """Keep a value; files are for plain tensors, anything else stays in memory."""
        size = value.numel() * value.element_size() if isinstance(value, Tensor) else 0
        if not isinstance(value, Tensor) or value.dtype == torch.bfloat16 or self.held + size <= self._limit:
            self.held += size
            return Kept(self, value.detach() if isinstance(value, Tensor) else value, size)
        self.files += 1
        path = self._folder / f"{next(self._numbers)}.npy"
        try:
            np.save(path, value.detach().contiguous().numpy())
        except OSError as error:  # which numpy raises without the system's reason
            fault = refusal(self._folder, size) or OSError(error.errno, error.strerror or str(error), str(path))
            raise machine_error(fault, "values of layers could not be kept", size) from error
        return Kept(self, path, 0)


class Kept:
    """One value on a store."""

    def __init__(self, store: ActivationStore, value: Value, size: int) -> None:
        self._store = store
        self._value = value
        self._size = size

    def get(self) -> Value:
        return torch.from_numpy(np.load(self._value)) if isinstance(self._value, Path) else self._value

    def drop(self) -> None:
        """Make room; dropping twice changes nothing."""
        if isinstance(self._value, Path):
            self._value.unlink(missing_ok=True)
        self._store.held -= self._size
        self._value, self._size = None, 0


class Stream:
    """The tensors of one model that are alive now: for each the values of all samples."""

    def __init__(self, store: ActivationStore) -> None:
        self._store = store
        self._kept: dict[str, list[Kept]] = {}

    def append(self, tensor: str, value: Value) -> None:
        """The value of the next sample."""
        self._kept.setdefault(tensor, []).append(self._store.put(value))

    def share(self, tensor: str, other: Stream) -> None:
        """Take the values of a tensor that is the same in both models."""
        self._kept[tensor] = other._kept[tensor]

    def get(self, tensor: str, number: int) -> Value:
        return self._kept[tensor][number].get()

    def row(self, tensors: Sequence[str], number: int) -> list[Value]:
        """The values of several tensors in one sample."""
        return [self.get(tensor, number) for tensor in tensors]

    def drop(self, tensors: Iterable[str]) -> None:
        for tensor in tensors:
            for kept in self._kept.pop(tensor, ()):
                kept.drop()


@contextmanager
def store(folder: Path | None, limit: int) -> Iterator[ActivationStore]:
    """A store whose files are in a folder of its own below `folder`, which is gone afterwards."""
    if folder is None:
        with temporary_folder() as own:
            yield ActivationStore(own, limit)
        return
    remove_stale(folder, ACTIVATIONS)
    with temporary_folder(ACTIVATIONS, folder) as own:
        yield ActivationStore(own, limit)
