"""What a model's image input wants: layout, channels, size, and the value that each pixel value becomes there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.errors import DataError
from onnxq.runtime.feeds import InputInfo
from onnxq.runtime.preprocessing import LAYOUTS, Preprocessing, Size

CHANNEL_AXIS = {"NCHW": 1, "NHWC": 3}
CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1}


@dataclass(frozen=True)
class ImageInput:
    """The only input of a model and the declared steps, with everything filled in that was left open.

    wanted    height and width of the input, None where they are free
    target    (height, width) or shorter side that images are resized to, None where they keep their size
    values    [channels, 256]: pixel value -> value of the input, in its dtype
    """

    info: InputInfo
    steps: Preprocessing
    layout: str
    color: str
    wanted: tuple[int | None, int | None]
    target: int | Size | None
    values: np.ndarray

    @property
    def batch(self) -> int:
        size = self.info.shape[0]
        return size if isinstance(size, int) and size > 0 else 1

    @property
    def fixed_size(self) -> Size | None:
        """The height and width that every image gets, where they do not depend on the image."""
        crop = _pair(self.steps.crop)
        return crop or (self.target if isinstance(self.target, tuple) else None)

    def size_of(self, size: Size) -> Size:
        """Height and width that an image of this size gets."""
        return self.fixed_size or self.resized(size)

    def resized(self, size: Size) -> Size:
        """Height and width after resizing; torchvision rounds the longer side down."""
        if not isinstance(self.target, int):
            return self.target or size
        height, width = size
        if height <= width:
            return self.target, max(1, int(self.target * width / height))
        return max(1, int(self.target * height / width)), self.target

    def shape(self, size: Size, count: int) -> tuple[int, ...]:
        channels = CHANNELS[self.color]
        return (count, channels, *size) if self.layout == "NCHW" else (count, *size, channels)

    def check_size(self, size: Size, where: str) -> None:
        """Refuse a height or width that the model does not take, naming the setting that decides it."""
        if all(wanted in (None, given) for wanted, given in zip(self.wanted, size, strict=True)):
            return
        # What is free may be as it came out.
        fitting = [wanted or given for wanted, given in zip(self.wanted, size, strict=True)]
        change = f"set crop = {fitting} in preprocess"
        if self.steps.crop is None:
            change += f", or resize = {fitting}"
        raise DataError(f"{where} gives images of {size[0]} x {size[1]}, but input {_named(self.info)}: {change}")

    def values_of(self, pixels: np.ndarray) -> np.ndarray:
        """[height, width, channels] of pixels as one sample without its batch axis."""
        planes = [table[pixels[:, :, channel]] for channel, table in enumerate(self.values)]
        return np.stack(planes, axis=0 if self.layout == "NCHW" else -1)

    def assumptions(self) -> list[str]:
        """What was decided without being declared, in sentences for the report."""
        notes = []
        if not self.steps.values_declared:
            what = "scaled to 0..1" if self.info.dtype.kind not in "iu" else "fed as 0..255"
            notes.append(
                f"pixels were {what} and nothing else: declare scale, mean and std with preprocess when the model was "
                "trained with others"
            )
        if self.steps.resize is None and self.target is not None and None in self.wanted:
            notes.append(
                f"the model leaves the size of images free: they were fitted into {self.target} (height, width), which "
                "its metadata names as imgsz; resize in preprocess sets another size"
            )
        if self.steps.resize is None and self.steps.crop is None and self.steps.fit == "stretch" and self.target:
            height, width = self.wanted
            notes.append(
                f"images were stretched to {height} x {width}, the model's size: preprocess can keep their shape"
            )
        return notes


def image_input(inputs: Sequence[InputInfo], steps: Preprocessing) -> ImageInput:
    """Match the declared steps with the model, whose only input must take images."""
    if len(inputs) != 1:
        names = ", ".join(f"'{info.name}'" for info in inputs) or "none"
        raise DataError(f"images feed a model with one input, this one has {names}: give all inputs as a .npz file")
    info = inputs[0]
    if len(info.shape) != 4 or info.dtype.kind not in "fiu":
        raise DataError(f"input {_named(info)}, which is no image (rank 4 with 1 or 3 channels): give the data as .npz")
    layout = steps.layout or _layout(info)
    channels = info.shape[CHANNEL_AXIS[layout]]
    color = steps.color or ("GRAY" if channels == 1 else "RGB")
    if isinstance(channels, int) and channels != CHANNELS[color]:
        raise DataError(
            f"input {_named(info)}: with layout {layout} it has {channels} channels, {color} has {CHANNELS[color]}. "
            f"Change {'color' if channels in CHANNELS.values() else 'layout'} in preprocess"
        )
    axes = (2, 3) if layout == "NCHW" else (1, 2)
    height, width = (dim if isinstance(dim, int) else None for dim in (info.shape[axis] for axis in axes))
    target = steps.resize
    if target is None and steps.crop is None and height is not None and width is not None:
        target = (height, width)
    if steps.fit == "letterbox" and target is None and steps.crop is None:
        target = info.image_size
    if steps.fit == "letterbox" and target is None:
        raise DataError(f"fit letterbox needs a size to fill: set resize = [height, width], input {_named(info)}")
    found = ImageInput(info, steps, layout, color, (height, width), target, _values(info, steps, CHANNELS[color]))
    if found.fixed_size is not None:
        found.check_size(found.fixed_size, "preprocess")
    return found


def _layout(info: InputInfo) -> str:
    possible = [layout for layout in LAYOUTS if info.shape[CHANNEL_AXIS[layout]] in CHANNELS.values()]
    if len(possible) == 1:
        return possible[0]
    if not possible:
        raise DataError(
            f"input {_named(info)}, which is no image with 1 or 3 channels: give the data as .npz, or set layout and "
            "color in preprocess if it is one"
        )
    raise DataError(f"input {_named(info)}, which can be NCHW or NHWC: set layout in preprocess")


def _values(info: InputInfo, steps: Preprocessing, channels: int) -> np.ndarray:
    whole = info.dtype.kind in "iu"
    scale = steps.scale if steps.scale is not None else (1.0 if whole else 1 / 255)
    mean, std = _per_channel("mean", steps.mean, channels, 0.0), _per_channel("std", steps.std, channels, 1.0)
    values = (np.arange(256) * scale - mean) / std
    if whole:
        limits = np.iinfo(info.dtype)
        values = np.rint(values)
        if values.min() < limits.min or values.max() > limits.max:
            raise DataError(
                f"input {_named(info)}, but pixels become {values.min():g} .. {values.max():g}: change scale, mean or "
                "std in preprocess"
            )
    return np.asarray(values, info.dtype)


def _per_channel(key: str, value: float | tuple[float, ...] | None, channels: int, default: float) -> np.ndarray:
    numbers = np.atleast_1d(np.asarray(default if value is None else value, np.float64))
    if len(numbers) not in (1, channels):
        raise DataError(f"{key} in preprocess has {len(numbers)} numbers, but images have {channels} channels here")
    return np.broadcast_to(numbers, (channels,))[:, np.newaxis]


def _pair(size: int | Size | None) -> Size | None:
    return (size, size) if isinstance(size, int) else size


def _named(info: InputInfo) -> str:
    return f"'{info.name}' is {info}"
