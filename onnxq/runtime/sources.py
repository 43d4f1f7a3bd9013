"""Where calibration data comes from: files, folders, arrays, feeds in Python, data readers, functions.

Every source gives the same pieces each time it is asked. What can only be read once (a generator, a data reader
without `rewind`) is kept in memory from the first pass on.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxq.errors import DataError, did_you_mean
from onnxq.runtime.feeds import InputInfo

FORMS = (
    "a .npz file (input names -> samples stacked along axis 0), a .npy file (one input), a folder of such files, "
    "module:function, or from Python: an array, a dict of arrays, {input: array} feeds, a CalibrationDataReader"
)


@dataclass(frozen=True)
class Piece:
    """Arrays that belong together; shapes are known before anything is loaded.

    whole     the arrays are a ready feed rather than a stack of samples
    any_name  a single array may stand under any name when the model has a single input
    """

    where: str
    shapes: Mapping[str, tuple[int, ...]]
    load: Callable[[], Mapping[str, np.ndarray]]
    whole: bool = False
    any_name: bool = False

    def renamed(self, inputs: Sequence[InputInfo]) -> Piece:
        """The piece under the name of the only input, where that is meant."""
        names = [info.name for info in inputs]
        if not self.any_name or len(self.shapes) != 1 or next(iter(self.shapes)) in names:
            return self
        if len(names) != 1:
            wanted = ", ".join(f"'{name}'" for name in names)
            raise DataError(
                f"{self.where} holds one array, but the model has the inputs {wanted}: give one array for each under "
                "its name, as a .npz file or a dict"
            )
        (old,), new, load = self.shapes, inputs[0].name, self.load
        return replace(self, shapes={new: self.shapes[old]}, load=lambda: {new: load()[old]})


@dataclass(frozen=True)
class Source:
    """Pieces, again and again. `countable` says that their shapes can be had without running anything."""

    description: str
    pieces: Callable[[], Iterator[Piece]]
    countable: bool


def open_source(source: Any, inputs: Sequence[InputInfo]) -> Source:
    """Recognise what the user gave."""
    if source is None:
        raise DataError(
            f"there is no calibration data. Give it with -d, such as -d calib.npz: {FORMS}. "
            "To try things out without data, ask for random numbers with --random N"
        )
    if isinstance(source, str | os.PathLike):
        return _from_text(os.fspath(source), inputs)
    if isinstance(source, np.ndarray):
        piece = Piece("the given array", {"": source.shape}, lambda: {"": source}, any_name=True)
        return Source("an array", lambda: iter([piece]), countable=True)
    if isinstance(source, Mapping):
        arrays = {str(key): as_array(value) for key, value in source.items()}
        piece = Piece("the given arrays", _shapes(arrays), lambda: arrays)
        return Source("a dict of arrays", lambda: iter([piece]), countable=True)
    if callable(getattr(source, "get_next", None)):
        return _from_reader(source, inputs)
    if isinstance(source, Iterable):
        if isinstance(source, Iterator):
            return Source("an iterator of feeds", _kept(_feeds(source, inputs)), countable=False)
        return Source("feeds", lambda: _feeds(source, inputs), countable=isinstance(source, list | tuple))
    if callable(source):
        return _from_function(source, inputs)
    raise DataError(f"calibration data of type {type(source).__name__} is not known. Give {FORMS}")


def _from_text(text: str, inputs: Sequence[InputInfo]) -> Source:
    path = Path(text)
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        piece = _from_file(path, whole=False)
        return Source(f"file {text}", lambda: iter([piece]), countable=True)
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        return _from_function(_import_function(text), inputs)
    raise DataError(f"calibration data '{text}' does not exist. Give {FORMS}")


def _from_folder(folder: Path) -> Source:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".npz", ".npy"))
    if not files:
        raise DataError(f"folder '{folder}' holds no .npz or .npy file. Give {FORMS}")
    return Source(
        f"folder {folder} ({len(files)} files)",
        lambda: (_from_file(path, whole=True) for path in files),
        countable=True,
    )


def _from_file(path: Path, *, whole: bool) -> Piece:
    try:
        if path.suffix == ".npy":
            array = np.load(path, mmap_mode="r")
            return Piece(f"'{path}'", {path.stem: array.shape}, lambda: {path.stem: array}, whole, any_name=True)
        if path.suffix == ".npz":
            return Piece(f"'{path}'", _npz_shapes(path), lambda: _load_npz(path), whole, any_name=True)
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"cannot read '{path}': {error}. Write it with numpy.save or numpy.savez") from error
    raise DataError(f"'{path}' is no .npz or .npy file. Give {FORMS}")


def _npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes from the headers inside the archive, without unpacking the arrays."""
    shapes = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shapes[member.removesuffix(".npy")] = read(stream)[0]
    return shapes


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path) as archive:
            return {key: archive[key] for key in archive.files}
    except ValueError as error:
        raise DataError(f"cannot read '{path}': {error}. Save plain arrays, not Python objects") from error


def _from_reader(reader: Any, inputs: Sequence[InputInfo]) -> Source:
    """onnxruntime's CalibrationDataReader: get_next() until None, and rewind() where it exists."""
    description = f"data reader {type(reader).__name__}"
    if not callable(getattr(reader, "rewind", None)):
        return Source(description, _kept(_feeds(iter(reader.get_next, None), inputs)), countable=False)

    def again() -> Iterator[Piece]:
        reader.rewind()
        return _feeds(iter(reader.get_next, None), inputs)

    return Source(description, again, countable=False)


def _from_function(function: Callable[[], Any], inputs: Sequence[InputInfo]) -> Source:
    """What a function returns; one that gives an iterator (a generator function) is called for every pass."""
    name = getattr(function, "__name__", type(function).__name__)
    with _current_folder_importable():
        result = function()
    if isinstance(result, Iterator) and not callable(getattr(result, "get_next", None)):
        first = [result]
        return Source(
            f"function {name}",
            lambda: _feeds(first.pop() if first else function(), inputs),
            countable=False,
        )
    if callable(result) and not hasattr(result, "get_next") and not isinstance(result, Iterable):
        raise DataError(f"function '{name}' returned another function instead of data. Return {FORMS}")
    if result is None:
        raise DataError(f"function '{name}' returned nothing. Return {FORMS}")
    found = open_source(result, inputs)
    return replace(found, description=f"function {name}: {found.description}")


def _import_function(text: str) -> Callable[[], Any]:
    module_name, _, function_name = text.partition(":")
    with _current_folder_importable():
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise DataError(
                f"calibration data '{text}': cannot import '{module_name}' ({error}). It is neither a file here nor "
                "a Python module that can be found from the current folder"
            ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        near = did_you_mean(function_name, [key for key in vars(module) if not key.startswith("_")])
        raise DataError(f"calibration data '{text}': module '{module_name}' has no function '{function_name}'.{near}")
    return function  # type: ignore[no-any-return]


@contextmanager
def _current_folder_importable() -> Iterator[None]:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


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
            arrays = {str(key): as_array(value) for key, value in element.items()}
        elif hasattr(element, "__array__") and len(inputs) == 1:
            arrays = {inputs[0].name: as_array(element)}
        elif isinstance(element, list | tuple) and len(element) == len(inputs):
            arrays = {info.name: as_array(value) for info, value in zip(inputs, element, strict=True)}
        else:
            names = ", ".join(f"'{info.name}'" for info in inputs)
            raise DataError(f"{where} is a {type(element).__name__}: give a dict with an array for each of {names}")
        yield _ready_feed(where, arrays)


def _ready_feed(where: str, arrays: Mapping[str, np.ndarray]) -> Piece:
    return Piece(where, _shapes(arrays), lambda: arrays, whole=True)


def _shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {key: array.shape for key, array in arrays.items()}


def as_array(value: Any) -> np.ndarray:
    """A numpy array from anything array-like; tensors that live on a device or carry gradients are fetched first."""
    if callable(getattr(value, "detach", None)):
        value = value.detach().cpu()
    return np.asarray(value)
