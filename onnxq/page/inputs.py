"""The data as the page shows it: range, mean and spread of each input, and what images look like."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Iterable
from itertools import islice

import numpy as np

from onnxq.json_file import JsonObject
from onnxq.page.numbers import short
from onnxq.runtime.feeds import Feed

SHOWN = 8
"""Samples that are looked at."""

SIDE = 72
"""Pixels of a thumbnail along its longer side."""


def inputs_json(feeds: Iterable[Feed], most: int = SHOWN) -> JsonObject:
    """The first samples: figures of every input in each of them, and pictures of those that are images."""
    rows: dict[str, JsonObject] = {}
    count = 0
    for feed in islice(feeds, most):
        count += 1
        for name, array in feed.items():
            row = rows.setdefault(name, {"dtype": array.dtype.name, "shapes": [], "samples": [], "pictures": []})
            if list(array.shape) not in row["shapes"]:
                row["shapes"].append(list(array.shape))
            row["samples"].append(_figures(array))
            picture = thumbnail(array)
            if picture is not None:
                row["pictures"].append(picture)
    return {"looked_at": count, "inputs": rows}


def _figures(array: np.ndarray) -> JsonObject | None:
    """Lowest, highest, mean and standard deviation; None for text and for what is empty."""
    if array.dtype.kind not in "fiub" or not array.size:
        return None
    values = array.astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    if not finite.size:
        return {"nonfinite": int(values.size)}
    figures = {"low": finite.min(), "high": finite.max(), "mean": finite.mean(), "std": finite.std()}
    found: JsonObject = {key: short(value) for key, value in figures.items()}
    if finite.size < values.size:
        found["nonfinite"] = int(values.size - finite.size)
    return found


def thumbnail(array: np.ndarray) -> str | None:
    """The first image of a batch as an address of data, stretched over its own range; None where it is no image."""
    pixels = _pixels(array)
    if pixels is None:
        return None
    height, width = pixels.shape[:2]
    step = max(1, math.ceil(max(height, width) / SIDE))
    small = pixels[: height - height % step or height : step, : width - width % step or width : step]
    small = np.nan_to_num(small.astype(np.float32), posinf=0.0, neginf=0.0)
    low, high = float(small.min()), float(small.max())
    shades = np.round((small - low) * (255.0 / (high - low)) if high > low else small * 0).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(png(shades)).decode("ascii")


def _pixels(array: np.ndarray) -> np.ndarray | None:
    """[height, width, 1 or 3] of what has the shape of an image; channels stand first or last."""
    if array.dtype.kind not in "fiu" or array.ndim not in (3, 4):
        return None
    image = array[0] if array.ndim == 4 and len(array) else array
    if image.ndim != 3 or 0 in image.shape:
        return None
    if image.shape[0] in (1, 3) and min(image.shape[1:]) >= 8:
        return np.moveaxis(image, 0, -1)
    return image if image.shape[-1] in (1, 3) and min(image.shape[:2]) >= 8 else None


def png(shades: np.ndarray) -> bytes:
    """A PNG file of [height, width, 1 or 3] bytes."""
    height, width, channels = shades.shape
    lines = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(shades))
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    body = b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body
