"""Where calibration data comes from: files, folders, arrays, feeds in Python, data readers and loaders, functions.

Every source gives the same pieces each time it is asked. What can only be read once (a generator, a data reader
without `rewind`) is kept in memory from the first pass on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import DataError
from onnxq.runtime.archive import StoredArray, open_arrays
from onnxq.runtime.dataset_yaml import dataset_images, named_dataset
from onnxq.runtime.feeds import InputInfo
from onnxq.runtime.images import image_files, is_image, open_images
from onnxq.runtime.loaders import is_loader, open_loader
from onnxq.runtime.pieces import Piece, Source, as_array, ready_feed, shapes_of
from onnxq.runtime.preprocessing import Preprocessing
from onnxq.user_code import current_folder_importable, find_function, users_errors

ARRAY_SUFFIXES = (".npz", ".npy")

FORMS = (
    "a .npz file (input names -> samples stacked along axis 0), a .npy file (one input), a folder of such files, "
    "an image or a folder of images, a data.yaml of Ultralytics, module:function, or from Python: an array, a dict of "
    "arrays, {input: array} feeds, a torch DataLoader, a CalibrationDataReader"
)


_END = object()
"""What stands for the end of an iterator."""


def open_source(source: Any, inputs: Sequence[InputInfo], preprocess: Preprocessing | None = None) -> Source:
    """Recognise what the user gave; `preprocess` says how images become arrays and fits nothing else."""
    found = _open(source, inputs, preprocess)
    if preprocess is not None and not found.preprocessed:
        raise DataError(
            f"preprocess is for images, but the data is {found.description}, which is taken as it is: leave preprocess "
            "out, or give a folder of images"
        )
    return found


def _open(source: Any, inputs: Sequence[InputInfo], preprocess: Preprocessing | None) -> Source:
    if source is None:
        raise DataError(
            f"there is no calibration data. Give it with -d, such as -d calib.npz: {FORMS}. "
            "To try things out without data, ask for random numbers with --random N"
        )
    if isinstance(source, str | os.PathLike):
        return _from_text(os.fspath(source), inputs, preprocess)
    if isinstance(source, np.ndarray):
        piece = Piece("the given array", {"": source.shape}, lambda: {"": source}, any_name=True)
        return Source("an array", lambda: iter([piece]), countable=True)
    if isinstance(source, Mapping):
        arrays = {str(key): as_array(value, f"'{key}' of the given arrays") for key, value in source.items()}
        piece = Piece("the given arrays", shapes_of(arrays), lambda: arrays)
        return Source("a dict of arrays", lambda: iter([piece]), countable=True)
    if callable(getattr(source, "get_next", None)):
        return _from_reader(source, inputs)
    if is_loader(source):
        return open_loader(source, inputs)
    if isinstance(source, Iterable):
        if isinstance(source, Iterator):
            return Source("an iterator of feeds", _kept(_feeds(source, inputs)), countable=False)
        return Source("feeds", lambda: _feeds(source, inputs), countable=isinstance(source, list | tuple))
    if callable(source):
        return _from_function(source, inputs, preprocess)
    raise DataError(f"calibration data of type {type(source).__name__} is not known. Give {FORMS}")


def _from_text(text: str, inputs: Sequence[InputInfo], preprocess: Preprocessing | None) -> Source:
    path = Path(text)
    if path.is_dir():
        return _from_folder(path, inputs, preprocess)
    dataset = named_dataset(text)
    if dataset is not None and dataset[0].is_file():
        images = dataset_images(*dataset)
        return open_images(images, f"split {dataset[1]} of {dataset[0]} ({len(images)} images)", inputs, preprocess)
    if path.is_file():
        if is_image(path):
            return open_images([path], f"image {text}", inputs, preprocess)
        if path.suffix not in ARRAY_SUFFIXES:
            raise DataError(f"'{path}' is no .npz or .npy file and no image. Give {FORMS}")
        piece = _from_file(path, whole=False)
        return Source(f"file {text}", lambda: iter([piece]), countable=True)
    if names_function(text):
        return _from_function(find_function(text, "calibration data", DataError), inputs, preprocess)
    raise DataError(f"calibration data '{text}' does not exist. Give {FORMS}")


def names_function(text: str) -> bool:
    """Whether a text is taken as module:function: it looks like one, and there is no file or folder of that name."""
    function = re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text) is not None
    return function and not Path(text).exists() and named_dataset(text) is None


def _from_folder(folder: Path, inputs: Sequence[InputInfo], preprocess: Preprocessing | None) -> Source:
    files = _array_files(folder)
    images = image_files(folder)
    if not files and not images:
        raise DataError(f"folder '{folder}' holds no .npz or .npy file and no image. Give {FORMS}")
    if not files:
        return open_images(images, f"folder {folder} ({len(images)} images)", inputs, preprocess)
    left_out = f"folder {folder}: its {len(images)} images are left out, because it holds .npz or .npy files"
    return Source(
        f"folder {folder} ({len(files)} files)",
        lambda: (_from_file(path, whole=True) for path in files),
        countable=True,
        noted={left_out: None} if images else {},
    )


def _array_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in ARRAY_SUFFIXES)


def holds_images(path: Path) -> bool:
    """Whether a path is taken as images, for which there is something to preprocess."""
    dataset = named_dataset(str(path))
    if dataset is not None:
        return dataset[0].is_file()
    if path.is_dir():
        return not _array_files(path) and bool(image_files(path))
    return path.is_file() and is_image(path)


def _from_file(path: Path, *, whole: bool) -> Piece:
    arrays = open_arrays(path)

    def load() -> dict[str, StoredArray]:
        # Made anew for each pass, so that streams and what was unpacked are gone when the piece has been read.
        return {name: replace(array) for name, array in arrays.items()}

    return Piece(f"'{path}'", shapes_of(arrays), load, whole, any_name=True, named=path.suffix == ".npz")


def _from_reader(reader: Any, inputs: Sequence[InputInfo]) -> Source:
    """onnxruntime's CalibrationDataReader: get_next() until None, and rewind() where it exists."""
    description = f"data reader {type(reader).__name__}"
    if not callable(getattr(reader, "rewind", None)):
        return Source(description, _kept(_feeds(iter(reader.get_next, None), inputs)), countable=False)

    def again() -> Iterator[Piece]:
        reader.rewind()
        return _feeds(iter(reader.get_next, None), inputs)

    return Source(description, again, countable=False)


def _from_function(
    function: Callable[[], Any], inputs: Sequence[InputInfo], preprocess: Preprocessing | None
) -> Source:
    """What a function returns; one that gives an iterator (a generator function) is called for every pass."""
    name = getattr(function, "__name__", type(function).__name__)
    with current_folder_importable(), users_errors(f"function '{name}'", DataError):
        result = function()
    if isinstance(result, Iterator) and not callable(getattr(result, "get_next", None)):
        first = [result]
        return Source(
            f"function {name}",
            lambda: _feeds(_guarded(first.pop() if first else function(), f"function '{name}'"), inputs),
            countable=False,
        )
    if callable(result) and not hasattr(result, "get_next") and not isinstance(result, Iterable):
        raise DataError(f"function '{name}' returned another function instead of data. Return {FORMS}")
    if result is None:
        raise DataError(f"function '{name}' returned nothing. Return {FORMS}")
    found = _open(result, inputs, preprocess)
    return replace(found, description=f"function {name}: {found.description}")


def _guarded(elements: Iterator[Any], what: str) -> Iterator[Any]:
    number = 0
    while True:
        with users_errors(f"{what}, element {number},", DataError):
            element = next(elements, _END)
        if element is _END:
            return
        yield element
        number += 1


def _kept(pieces: Iterator[Piece]) -> Callable[[], Iterator[Piece]]:
    """Remember what can be read only once; memory grows with the data that was read."""
    seen: list[Piece] = []

    def again() -> Iterator[Piece]:
        position = 0
        while True:
            if position == len(seen):
                piece = next(pieces, None)
                if piece is None:
                    return
                seen.append(piece)
            yield seen[position]
            position += 1

    return again


def _feeds(elements: Iterable[Any], inputs: Sequence[InputInfo]) -> Iterator[Piece]:
    """Ready feeds given from Python: a mapping, an array for the only input, or arrays in the order of the inputs."""
    for number, element in enumerate(elements):
        where = f"feed {number}"
        if isinstance(element, Mapping):
            arrays = {str(key): as_array(value, f"'{key}' of {where}") for key, value in element.items()}
        elif hasattr(element, "__array__") and len(inputs) == 1:
            arrays = {inputs[0].name: as_array(element, where)}
        elif isinstance(element, list | tuple) and len(element) == len(inputs):
            pairs = zip(inputs, element, strict=True)
            arrays = {info.name: as_array(value, f"'{info.name}' of {where}") for info, value in pairs}
        else:
            names = ", ".join(f"'{info.name}'" for info in inputs)
            raise DataError(f"{where} is a {type(element).__name__}: give a dict with an array for each of {names}")
        yield ready_feed(where, arrays)
