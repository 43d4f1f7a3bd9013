"""preprocessor_config.json as the setting `preprocess`: what the image processor of transformers does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxq.errors import ConfigError
from onnxq.json_file import JsonObject, read_object

PREPROCESSOR = "preprocessor_config.json"

RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of its filters."""


def image_steps(folder: Path) -> JsonObject | None:
    """The steps that the folder declares; None where it declares none."""
    path = folder / PREPROCESSOR
    if not path.is_file():
        return None
    given = read_object(path, "preprocessor configuration", ConfigError)
    steps: JsonObject = {"scale": given.get("rescale_factor", 1 / 255) if given.get("do_rescale", True) else 1}
    if given.get("do_resize", True) and given.get("size") is not None:
        steps["resize"] = _size(given["size"], path, "size")
        resample = given.get("resample", 2)
        if resample not in RESAMPLE:
            raise ConfigError(f"{path}: resample {resample!r} is not among {', '.join(map(str, RESAMPLE))}")
        steps["interpolation"] = RESAMPLE[resample]
    if given.get("do_center_crop", False) and given.get("crop_size") is not None:
        steps["crop"] = _size(given["crop_size"], path, "crop_size")
    if given.get("do_normalize", False):
        for key, name in (("image_mean", "mean"), ("image_std", "std")):
            if given.get(key) is not None:
                steps[name] = given[key]
    return steps


def _size(value: Any, path: Path, key: str) -> int | list[int]:
    """A number for the shorter side, or height and width."""
    if isinstance(value, dict):
        if set(value) == {"shortest_edge"}:
            return int(value["shortest_edge"])
        if set(value) == {"height", "width"}:
            return [int(value["height"]), int(value["width"])]
    elif type(value) is int:
        return value
    raise ConfigError(
        f"{path}: {key} {value!r} is neither a shortest_edge nor height and width: set preprocess in a configuration"
    )
