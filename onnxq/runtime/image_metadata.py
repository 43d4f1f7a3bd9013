"""What a model's own metadata says about its images: the size that Ultralytics' exporter leaves under `imgsz`."""

from __future__ import annotations

import json
from collections.abc import Mapping

IMAGE_SIZE = "imgsz"


def described_image_size(metadata: Mapping[str, str]) -> tuple[int, int] | None:
    """Height and width out of `[320, 416]` or `320`; None where there is no such entry, or one of another kind."""
    try:
        value = json.loads(metadata.get(IMAGE_SIZE, "null"))
    except ValueError:
        return None
    sizes = value if isinstance(value, list) else [value, value]
    if len(sizes) != 2 or not all(type(size) is int and 0 < size < 2**16 for size in sizes):
        return None
    return sizes[0], sizes[1]
