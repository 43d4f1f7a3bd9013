"""The images that a data.yaml of Ultralytics names, for one of its splits.

    path: coco8           # folder of the data set, from here or from the folder of the file; without it that folder
    train: images/train   # a folder, a .txt file with one image per line, or a list of them, relative to `path`
    val: images/val

`data.yaml` stands for its `val`, which Ultralytics calibrates with, `data.yaml:train` for another split.
"""

from __future__ import annotations

from pathlib import Path

from onnxq.errors import DataError
from onnxq.json_file import JsonObject, read_text
from onnxq.runtime.images import image_files, is_image
from onnxq.yaml_text import YamlError, parse_yaml

SPLITS = ("train", "val", "test")
DEFAULT_SPLIT = "val"


def named_dataset(text: str) -> tuple[Path, str] | None:
    """The file and the split of a text such as `data.yaml:train`; None where it names no such file."""
    whole = Path(text)
    if whole.suffix in (".yaml", ".yml"):
        return whole, DEFAULT_SPLIT
    place, colon, split = text.rpartition(":")
    if colon and Path(place).suffix in (".yaml", ".yml") and not whole.exists():
        return Path(place), split
    return None


def dataset_images(file: Path, split: str) -> list[Path]:
    """The images of a split, in the order of their paths, as Ultralytics reads them."""
    table = _read(file)
    if split not in SPLITS or not table.get(split):
        found = ", ".join(name for name in SPLITS if table.get(name)) or "none"
        raise DataError(f"'{file}' names no images under '{split}'. Its splits: {found}; choose one with {file}:SPLIT")
    given = table[split] if isinstance(table[split], list) else [table[split]]
    root = _root(file, table)
    images: set[Path] = set()
    for entry in given:
        if not isinstance(entry, str):
            raise DataError(f"'{file}': '{split}' is a folder or a .txt file or a list of them, not {entry!r}")
        images.update(_listed(_found(root, entry, file, split)))
    if not images:
        raise DataError(f"'{file}': there are no images in {', '.join(map(str, given))} of '{split}', below '{root}'")
    return sorted(images, key=Path.as_posix)


def _read(file: Path) -> JsonObject:
    try:
        table = parse_yaml(read_text(file, "data set", DataError))
    except YamlError as error:
        line = "" if error.line is None else f", line {error.line}"
        raise DataError(f"'{file}'{line} cannot be read: {error}") from None
    if not isinstance(table, dict):
        raise DataError(f"'{file}' is no data set: it must hold keys such as path, train and val")
    return table


def _root(file: Path, table: JsonObject) -> Path:
    """The folder of the data set: absolute, from the current folder, or beside the file."""
    named = table.get("path")
    if named is None:
        return file.parent
    if not isinstance(named, str):
        raise DataError(f"'{file}': path is the folder of the data set, not {named!r}")
    here = Path(named)
    return here if here.exists() else file.parent / here


def _found(root: Path, entry: str, file: Path, split: str) -> Path:
    for candidate in (entry, entry.removeprefix("../")):
        if (root / candidate).exists():
            return root / candidate
    raise DataError(
        f"'{file}': '{split}' names '{entry}', and there is no '{root / entry}'. Correct the entry or `path`; onnxq "
        "downloads nothing"
    )


def _listed(place: Path) -> list[Path]:
    if place.is_dir():
        return image_files(place)
    if is_image(place):
        return [place]
    lines = (line.strip() for line in read_text(place, "list of images", DataError).splitlines())
    paths = [place.parent / line if line.startswith("./") else Path(line) for line in lines if line]
    for path in paths:
        if not path.is_file():
            raise DataError(f"'{place}' lists '{path}', which does not exist")
    return [path for path in paths if is_image(path)]
