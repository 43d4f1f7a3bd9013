"""How images become arrays, declared: the value, its presets, and reading it from text or a configuration.

The steps, in this order, as torchvision has them:

    color     to RGB, BGR or GRAY
    resize    to [height, width], or the shorter side to a number with the aspect ratio kept
    crop      out of the middle
    scale     pixels 0 .. 255 times `scale`
    mean, std (x - mean) / std for each channel
    layout    channels before or after height and width
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from onnxq.errors import ConfigError, did_you_mean
from onnxq.json_file import JsonMapping, JsonObject

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "opencv_linear")
COLORS = ("RGB", "BGR", "GRAY")
LAYOUTS = ("NCHW", "NHWC")
FITS = ("stretch", "letterbox")

Size = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class Preprocessing:
    """What to do with an image; what is left out (None) follows from the model's input.

    resize         a number for the shorter side, or (height, width); without it and without crop the model's size
    fit            for (height, width): `stretch` ignores the aspect ratio, `letterbox` keeps it and fills the border
    fill           the pixel value of that border, 0 .. 255
    interpolation  nearest, bilinear, bicubic or lanczos as Pillow has them, or opencv_linear as cv2.resize
    crop           a number for a square, or (height, width)
    color          RGB, BGR or GRAY; without it RGB for three channels and GRAY for one
    scale          1/255 for float inputs and 1 for integers when left out
    mean, std      one number, or one for each channel in the order of `color`, in units after `scale`
    layout         NCHW or NHWC
    """

    resize: int | Size | None = None
    fit: str = "stretch"
    fill: int = 114
    interpolation: str = "bilinear"
    crop: int | Size | None = None
    color: str | None = None
    scale: float | None = None
    mean: float | tuple[float, ...] | None = None
    std: float | tuple[float, ...] | None = None
    layout: str | None = None

    def __post_init__(self) -> None:
        for key in ("resize", "crop"):
            _check_size(key, getattr(self, key))
        choices = {"fit": FITS, "interpolation": INTERPOLATIONS, "color": (None, *COLORS), "layout": (None, *LAYOUTS)}
        for key, known in choices.items():
            value = getattr(self, key)
            if value not in known:
                raise ConfigError(f"preprocess: {key} is one of {', '.join(filter(None, known))}, not {value!r}")
        if not _is_whole(self.fill) or not 0 <= self.fill <= 255:
            raise ConfigError(f"preprocess: fill is a pixel value from 0 to 255, not {self.fill!r}")
        if self.fit == "letterbox" and isinstance(self.resize, int):
            raise ConfigError(
                f"preprocess: fit letterbox needs resize = [height, width], such as [{self.resize}, {self.resize}]. "
                "One number is the shorter side, which leaves nothing to fill"
            )
        for key in ("scale", "mean", "std"):
            _check_numbers(key, getattr(self, key))

    @property
    def values_declared(self) -> bool:
        """Whether anything was said about the values that the model wants."""
        return not (self.scale is None and self.mean is None and self.std is None)


def read_preprocessing(value: Preprocessing | JsonMapping | str | None) -> Preprocessing | None:
    """From a preset, `key=value,...`, a table, or a preset with changes: {preset: "imagenet", color: "BGR"}."""
    if value is None or isinstance(value, Preprocessing):
        return value
    if not isinstance(value, str | Mapping):
        raise ConfigError(f"preprocess is the name of a preset or a table of settings, not a {type(value).__name__}")
    settings = dict(_parse(value) if isinstance(value, str) else value)
    preset = settings.pop("preset", None)
    if preset is not None and (not isinstance(preset, str) or preset not in PRESETS):
        raise ConfigError(
            f"preprocess: there is no preset {preset!r}.{did_you_mean(str(preset), PRESETS)} "
            f"Known: {', '.join(PRESETS)}; or settings such as resize=256,crop=224,mean=0.5,std=0.5"
        )
    known = [field.name for field in fields(Preprocessing)]
    for key in settings:
        if key not in known:
            raise ConfigError(
                f"preprocess: unknown setting '{key}'.{did_you_mean(str(key), known)} Known: preset, {', '.join(known)}"
            )
    base = Preprocessing() if preset is None else PRESETS[preset]
    return replace(base, **{key: _plain(key, item) for key, item in settings.items()})


def _parse(text: str) -> JsonObject:
    """`imagenet,color=BGR` or `mean=0.5/0.5/0.5`: a preset may come first, `/` separates the numbers of a list."""
    settings: JsonObject = {}
    for number, part in enumerate(text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if number == 0 and not equals:
            key, value = "preset", key
        elif not equals or not key or not value:
            raise ConfigError(
                f"preprocess: '{part.strip()}' is not key=value. Write a preset ({', '.join(PRESETS)}) or settings, "
                "such as resize=256,crop=224,mean=0.485/0.456/0.406"
            )
        if key in settings:
            raise ConfigError(f"preprocess: '{key}' is given twice")
        numbers = [_number(item) for item in value.split("/")]
        if key in ("preset", "scale") or None in numbers:
            settings[key] = value
        else:
            settings[key] = numbers[0] if len(numbers) == 1 else numbers
    return settings


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _plain(key: str, value: Any) -> Any:
    """Lists as tuples, and a scale that is written as a fraction as its value."""
    if key == "scale" and isinstance(value, str):
        numbers = [_number(part) for part in value.split("/")]
        above, below = (*numbers, 1)[:2]
        if len(numbers) > 2 or above is None or not below:
            raise ConfigError(f"preprocess: scale is a number or a fraction such as 1/255, not {value!r}")
        return above / below
    return tuple(value) if isinstance(value, list) else value


def _check_size(key: str, value: Any) -> None:
    sizes = value if isinstance(value, tuple) else (value, value)
    if value is not None and (len(sizes) != 2 or not all(_is_whole(size) and size > 0 for size in sizes)):
        raise ConfigError(f"preprocess: {key} is a whole number or height and width, above 0, not {value!r}")


def _check_numbers(key: str, value: Any) -> None:
    if value is None:
        return
    if key == "scale" and isinstance(value, tuple):
        raise ConfigError(f"preprocess: scale is one number for all channels, not {value!r}; std divides each channel")
    numbers = value if isinstance(value, tuple) else (value,)
    if not numbers or not all(_is_number(number) for number in numbers):
        raise ConfigError(f"preprocess: {key} is a number or a list of numbers, not {value!r}")
    if key in ("scale", "std") and not all(number > 0 for number in numbers):
        raise ConfigError(f"preprocess: {key} must be above 0, not {value!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


PRESETS: dict[str, Preprocessing] = {
    "imagenet": Preprocessing(
        resize=256, crop=224, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    ),
    "unit": Preprocessing(scale=1 / 255),
    "signed": Preprocessing(scale=1 / 255, mean=0.5, std=0.5),
    "yolo": Preprocessing(fit="letterbox", interpolation="opencv_linear", fill=114, scale=1 / 255),
}
"""imagenet as torchvision's classifiers were trained; unit for values 0 .. 1; signed for values -1 .. 1; yolo as
Ultralytics' LetterBox shows images to detectors."""
