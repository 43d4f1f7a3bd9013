"""Image files as samples: read with Pillow, upright, and made into arrays as declared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onnxq.errors import ConfigError, DataError
from onnxq.machine import is_fault_of_machine
from onnxq.runtime.archive import BROKEN
from onnxq.runtime.feeds import InputInfo
from onnxq.runtime.image_input import ImageInput, image_input
from onnxq.runtime.opencv_resize import resize_linear
from onnxq.runtime.pieces import Piece, Source
from onnxq.runtime.preprocessing import Preprocessing, Size

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

EXIF_ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)
"""The EXIF tag for how a camera was held, and its values for which width and height change places."""


def is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def image_files(folder: Path) -> list[Path]:
    """The images in a folder and the folders in it, by relative path; hidden files are not looked at."""
    found = {path.relative_to(folder): path for path in folder.rglob("*") if is_image(path) and path.is_file()}
    shown = [key for key in found if not any(part.startswith(".") for part in key.parts)]
    return [found[key] for key in sorted(shown, key=Path.as_posix)]


def open_images(
    files: Sequence[Path], description: str, inputs: Sequence[InputInfo], preprocess: Preprocessing | None
) -> Source:
    """One sample for each file; as many as the model's fixed batch has make one feed."""
    _pillow()
    wanted = image_input(inputs, preprocess or Preprocessing())
    noted = dict.fromkeys(wanted.assumptions())
    size = wanted.batch
    groups = [files[start : start + size] for start in range(0, len(files), size)]
    if groups and len(groups[-1]) < size:
        left = groups.pop()
        noted[f"the last {len(left)} of {len(files)} images do not fill a batch of {size}, left out"] = None
    reader = _Reader(wanted, noted)
    return Source(description, lambda: map(reader.piece, groups), countable=True, preprocessed=True, noted=noted)


@dataclass(frozen=True)
class _Reader:
    """Makes pieces of files; `noted` takes up what was left out of an image."""

    wanted: ImageInput
    noted: dict[str, None] = field(default_factory=dict)

    def piece(self, files: Sequence[Path]) -> Piece:
        wanted = self.wanted
        sizes = {path: wanted.fixed_size or wanted.size_of(_upright_size(path)) for path in files}
        for path, size in sizes.items():
            wanted.check_size(size, f"'{path}'")
        first = sizes[files[0]]
        for path, size in sizes.items():
            if size != first:
                raise DataError(
                    f"'{files[0]}' gives {first[0]} x {first[1]} and '{path}' {size[0]} x {size[1]}, but they share a "
                    f"batch of {len(files)}: set resize = [height, width] in preprocess"
                )
        names = ", ".join(f"'{path}'" for path in files[:2]) + (", ..." if len(files) > 2 else "")
        name, shape = wanted.info.name, wanted.shape(first, len(files))
        return Piece(names, {name: shape}, lambda: {name: np.stack([self.sample(path) for path in files])}, whole=True)

    def sample(self, path: Path) -> np.ndarray:
        with _opened(path) as image:
            return self.wanted.values_of(self._pixels(image, path))

    def _pixels(self, image: PillowImage, path: Path) -> np.ndarray:
        """[height, width, channels] of uint8 after all steps that look at more than one pixel."""
        from PIL import ImageOps

        if image.mode[0] in "IF":
            raise DataError(
                f"'{path}' has pixels of mode {image.mode}, not 8 bits: convert it, or give the data as .npz"
            )
        image.load()  # some formats give the palette with the pixels
        if image.mode[0] == "P" and image.palette is None:
            raise DataError(f"'{path}' has indexed colors and no palette. Repair it, or take it out of the data")
        if image.has_transparency_data:
            self.noted["images have transparent parts: transparency is left out, colors are taken as they are"] = None
        image = ImageOps.exif_transpose(image).convert("L" if self.wanted.color == "GRAY" else "RGB")
        image = self._cropped(self._resized(image), path)
        pixels = np.asarray(image)
        if self.wanted.color == "GRAY":
            return pixels[:, :, np.newaxis]
        return pixels[:, :, ::-1] if self.wanted.color == "BGR" else pixels

    def _resized(self, image: PillowImage) -> PillowImage:
        from PIL import Image

        steps = self.wanted.steps
        height, width = self.wanted.resized((image.height, image.width))
        if steps.fit == "stretch":
            return _in_size(image, (width, height), steps.interpolation)
        ratio = min(height / image.height, width / image.width)
        inner = max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
        canvas = Image.new(image.mode, (width, height), steps.fill if image.mode == "L" else (steps.fill,) * 3)
        shrunk = _in_size(image, inner, steps.interpolation)
        canvas.paste(shrunk, ((width - inner[0]) // 2, (height - inner[1]) // 2))
        return canvas

    def _cropped(self, image: PillowImage, path: Path) -> PillowImage:
        if self.wanted.steps.crop is None:
            return image
        assert self.wanted.fixed_size is not None
        height, width = self.wanted.fixed_size
        if height > image.height or width > image.width:
            raise DataError(
                f"'{path}' is {image.height} x {image.width} before cropping, too small for a crop of {height} x "
                f"{width}: set resize in preprocess to at least that"
            )
        top, left = round((image.height - height) / 2), round((image.width - width) / 2)
        return image.crop((left, top, left + width, top + height))


def _in_size(image: PillowImage, size: tuple[int, int], interpolation: str) -> PillowImage:
    """An image with another width and height."""
    from PIL import Image

    if size == image.size:
        return image
    if interpolation != "opencv_linear":
        return image.resize(size, Image.Resampling[interpolation.upper()])
    pixels = np.asarray(image)
    width, height = size
    resized = resize_linear(pixels.reshape(image.height, image.width, -1), height, width)
    return Image.fromarray(resized.reshape(height, width, *pixels.shape[2:]))


def _upright_size(path: Path) -> Size:
    """Height and width from the header of a file, as it is meant to be looked at."""
    with _opened(path) as image:
        sideways = image.getexif().get(EXIF_ORIENTATION) in SIDEWAYS
        return (image.width, image.height) if sideways else (image.height, image.width)


@contextmanager
def _opened(path: Path) -> Iterator[PillowImage]:
    """An image; what a broken file raises, now or when its pixels are read, becomes an error that names it."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            yield image
    except (*BROKEN, TypeError, Image.DecompressionBombError) as error:
        if is_fault_of_machine(error):
            raise
        said = str(error) or type(error).__name__
        raise DataError(f"cannot read image '{path}': {said}. Repair it, or take it out of the data") from error


def _pillow() -> None:
    """Fail before anything runs where Pillow is missing."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ConfigError("reading images needs Pillow, which is not installed: pip install pillow") from error
