"""What a user can give to train on, and how it becomes batches: files, arrays, datasets, loaders, functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate
from torch.utils.data.distributed import DistributedSampler

from onnxq.errors import DataError
from onnxq.qat.batches import Batch, IndexedData, StreamData, TrainingData
from onnxq.runtime.archive import read_arrays
from onnxq.runtime.feeds import GivenArrays, InputInfo, fit_feed
from onnxq.runtime.labels import key_of_labels
from onnxq.runtime.loaders import is_loader
from onnxq.runtime.pieces import as_array
from onnxq.user_code import current_folder_importable, find_function, users_errors

FORMS = (
    "a .npz file with one array for each input and 'labels', a folder of such files, module:function or "
    "file.py:function, or from Python: a dict of arrays, a tuple (inputs, labels), a torch Dataset or DataLoader, a "
    "function, or batches in a list"
)


def open_training_data(
    source: Any, inputs: Sequence[InputInfo], *, labels: str | None = None, notes: dict[str, None] | None = None
) -> TrainingData:
    """Recognise what the user gave. `labels` names the array of labels (see `onnxq.runtime.labels`)."""
    return _Reader(inputs, labels, {} if notes is None else notes).open(source)


class _Reader:
    """Takes samples and batches of one model apart into inputs and labels."""

    def __init__(self, inputs: Sequence[InputInfo], labels: str | None, notes: dict[str, None]) -> None:
        # How many samples a batch has is for training to decide, whatever the model was exported with.
        self._inputs = [replace(info, shape=(None, *info.shape[1:])) for info in inputs]
        self._names = [info.name for info in inputs]
        self._label_name = labels
        self._notes = notes
        for info in inputs:
            if not info.shape:
                raise DataError(
                    f"input '{info.name}' is a single number, so there is no axis for samples to train on: make it a "
                    "constant of the model first"
                )

    def open(self, source: Any) -> TrainingData:
        if isinstance(source, TrainingData):
            return source
        if source is None:
            raise DataError(f"there is no training data. Give it with --train, such as --train train.npz: {FORMS}")
        if isinstance(source, str | os.PathLike):
            return self._from_text(os.fspath(source))
        if isinstance(source, np.ndarray | torch.Tensor | Mapping | tuple):
            return self._from_arrays(source, "the given arrays")
        if is_loader(source):
            return self._from_loader(source)
        if isinstance(source, IterableDataset):
            return self._stream(
                f"data set {type(source).__name__}", lambda batch_size: DataLoader(source, batch_size), None, own=False
            )
        if not isinstance(source, list) and hasattr(source, "__getitem__") and hasattr(source, "__len__"):
            return self._from_dataset(source)
        if isinstance(source, Iterator):
            kept = list(source)  # it can be read only once, and training reads more often
            return self._stream("an iterator of batches", lambda batch_size: kept, len(kept))
        if isinstance(source, Iterable):
            length = len(source) if isinstance(source, Sized) else None
            return self._stream(f"batches ({type(source).__name__})", lambda batch_size: source, length)
        if callable(source):
            return self._from_function(source)
        raise DataError(f"training data of type {type(source).__name__} is not known. Give {FORMS}")

    def _from_text(self, text: str) -> TrainingData:
        path = Path(text)
        if path.is_dir():
            return self._from_folder(path)
        if path.suffix == ".npz":
            if not path.is_file():
                raise DataError(f"training data '{text}' does not exist. Give {FORMS}")
            return self._from_arrays(read_arrays(path), f"'{path}'")
        if ":" in text:
            return self._from_function(find_function(text, "training data"))
        raise DataError(f"training data '{text}' is no .npz file and no module:function. Give {FORMS}")

    def _from_folder(self, folder: Path) -> IndexedData:
        """The samples of all .npz files, one behind the other in the order of the names, all in memory."""
        files = sorted(folder.glob("*.npz"))
        if not files:
            raise DataError(f"folder '{folder}' holds no .npz file. Give {FORMS}")
        parts = [self._apart(read_arrays(path), f"'{path}'") for path in files]
        bare = next((path for path, (_, labels) in zip(files, parts, strict=True) if labels is None), None)
        if bare is not None and any(labels is not None for _, labels in parts):
            raise DataError(
                f"'{bare}' has no labels, but other files of '{folder}' have: give all of them labels, or none"
            )
        joined: dict[str, np.ndarray] = {}
        for name in self._names:
            arrays = [inputs[name] for inputs, _ in parts]
            odd = next((at for at, array in enumerate(arrays) if array.shape[1:] != arrays[0].shape[1:]), None)
            if odd is not None:
                raise DataError(
                    f"samples of '{name}' have the shape {list(arrays[0].shape[1:])} in '{files[0]}' and "
                    f"{list(arrays[odd].shape[1:])} in '{files[odd]}': batches need one shape"
                )
            joined[name] = np.concatenate(arrays)
        labels = [labels for _, labels in parts if labels is not None]
        return self._from_arrays((joined, np.concatenate(labels)) if labels else joined, f"folder '{folder}'")

    def _from_arrays(self, source: Any, where: str) -> IndexedData:
        inputs, labels = self._apart(source, where)
        counts = {name: len(array) for name, array in inputs.items()}
        if labels is not None:
            counts["labels"] = len(labels)
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
            raise DataError(f"{where}: the arrays do not have the same number of samples: {text}")
        samples = next(iter(counts.values()))

        def fetch(indices: np.ndarray) -> Batch:
            return _tensors(
                {name: array[indices] for name, array in inputs.items()}, None if labels is None else labels[indices]
            )

        return self._indexed(where, fetch, samples, labels is not None)

    def _from_dataset(self, dataset: Any) -> IndexedData:
        where = f"data set {type(dataset).__name__}"

        def fetch(indices: np.ndarray) -> Batch:
            with users_errors(where, DataError):
                collated = default_collate([dataset[int(index)] for index in indices])
            return self._batch(collated, f"{where}, samples {indices[:4].tolist()}{' ...' * (len(indices) > 4)}")

        if not len(dataset):
            raise DataError(f"{where} holds no samples: give at least one")
        labelled = fetch(np.zeros(1, np.int64)).labels is not None
        return self._indexed(where, fetch, len(dataset), labelled)

    def _indexed(self, where: str, fetch: Callable[[np.ndarray], Batch], samples: int, labelled: bool) -> IndexedData:
        return IndexedData(where, fetch, np.arange(samples), labelled=labelled, notes=self._notes)

    def _from_loader(self, loader: Any) -> StreamData:
        if isinstance(loader.sampler, DistributedSampler):
            raise DataError(
                "the data loader has a DistributedSampler, but each process cuts its part out of whole batches: give a "
                "loader without one"
            )
        generator = getattr(loader, "generator", None)

        def start(batch_size: int) -> Iterable[Any]:
            if generator is not None:
                # A generator of its own would go on from one epoch to the next, which a checkpoint cannot know of.
                generator.manual_seed(torch.initial_seed())
            return loader  # type: ignore[no-any-return]

        try:
            length: int | None = len(loader)
        except TypeError:  # the loader of a data set without a length
            length = None
        return self._stream(f"data loader {type(loader).__name__}", start, length)

    def _from_function(self, function: Callable[[], Any]) -> TrainingData:
        """What a function returns; one that gives an iterator (a generator function) is called for every epoch."""
        name = getattr(function, "__name__", type(function).__name__)
        what = f"function '{name}'"

        def call() -> Any:
            with current_folder_importable(), users_errors(what, DataError):
                return function()

        result = call()
        if result is None or (callable(result) and not isinstance(result, Iterable) and not hasattr(result, "__len__")):
            raise DataError(f"{what} returned {'nothing' if result is None else 'another function'}. Return {FORMS}")
        if isinstance(result, Iterator):
            return self._stream(what, lambda batch_size: call(), None)
        return self.open(result)

    def _stream(
        self, where: str, start: Callable[[int], Iterable[Any]], length: int | None, *, own: bool = True
    ) -> StreamData:
        """Batches as they come; `own` says that nobody but the user decides how many samples they have."""

        def guarded(batch_size: int) -> Iterator[Any]:
            with users_errors(where, DataError):
                yield from start(batch_size)

        first = next(iter(guarded(1)), None)
        if first is None:
            raise DataError(f"the training data ({where}) holds no batches: give at least one")
        batch = self._batch(first, f"the first batch of {where}")
        return StreamData(
            where,
            guarded,
            self._batch,
            labelled=batch.labels is not None,
            length=length,
            notes=self._notes,
            own_batch=batch.rows if own else None,
        )

    def _batch(self, element: Any, where: str) -> Batch:
        inputs, labels = self._apart(element, where)
        return _tensors(inputs, labels)

    def _apart(self, element: Any, where: str) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
        """Inputs and labels of a batch in any of its forms, checked against the model."""
        given, labels = self._named(element, where)
        arrays = {name: as_array(value, f"'{name}' of {where}") for name, value in given.items()}
        fitted = fit_feed(arrays, self._inputs, where, lambda text: self._notes.setdefault(text, None))
        _check_finite(fitted, where)
        if labels is None:
            return fitted, None
        found = as_array(labels, f"labels of {where}")
        if found.dtype.kind not in "iufb":
            raise DataError(f"labels of {where} are {found.dtype.name}: give whole numbers (classes) or floats")
        if found.ndim == 0 or len(found) != len(next(iter(fitted.values()))):
            raise DataError(
                f"labels of {where} have the shape {list(found.shape)}: one for each of the "
                f"{len(next(iter(fitted.values())))} samples is needed"
            )
        _check_finite({"labels": found}, where)
        return fitted, found.astype(np.float32 if found.dtype.kind == "f" else np.int64, copy=False)

    def _named(self, element: Any, where: str) -> tuple[GivenArrays, Any]:
        if isinstance(element, Mapping):
            named = {str(key): value for key, value in element.items()}
            key = key_of_labels(list(named), self._names, self._label_name, where)
            labels = None if key is None else named.pop(key)
            return named, labels
        if isinstance(element, tuple | list):
            if element and isinstance(element[0], Mapping | tuple | list) and len(element) <= 2:
                arrays, inner = self._named(element[0], where)
                return arrays, element[1] if len(element) == 2 else inner
            if len(element) in (len(self._names), len(self._names) + 1):
                labels = element[-1] if len(element) > len(self._names) else None
                return dict(zip(self._names, element, strict=False)), labels
        elif len(self._names) == 1:
            return {self._names[0]: element}, None
        has = f"{len(element)} elements" if isinstance(element, tuple | list) else f"one {type(element).__name__}"
        wanted = ", ".join(f"'{info.name}' ({info})" for info in self._inputs)
        raise DataError(
            f"{where} has {has}, but the model wants {wanted}, and labels may follow: give a dict with these names and "
            "'labels', or a tuple in this order"
        )


def _tensors(inputs: Mapping[str, np.ndarray], labels: np.ndarray | None) -> Batch:
    return Batch(
        {name: torch.from_numpy(_writable(array)) for name, array in inputs.items()},
        None if labels is None else torch.from_numpy(_writable(labels)),
    )


def _writable(array: np.ndarray) -> np.ndarray:
    """torch warns about memory that it could not write to."""
    return array if array.flags.writeable else array.copy()


def _check_finite(arrays: Mapping[str, np.ndarray], where: str) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))[0])
            raise DataError(
                f"'{name}' of {where} has NaN or infinite values (first in row {bad}): one such value spoils every "
                "weight. Correct or leave out that sample"
            )
