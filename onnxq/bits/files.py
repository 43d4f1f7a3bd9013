"""What a search leaves behind: a configuration for `onnxq quantize`, everything that was judged, a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxq.bits.found import Found
from onnxq.bits.hold import Held
from onnxq.bits.picture import draw_front
from onnxq.bits.study import document
from onnxq.config import Config
from onnxq.files import replace_file, write_json

CONFIG, FRONT, PICTURE, HELD = "config.json", "front.json", "front.svg", "hold.json"


def write_found(folder: Path, result: Found | Held, backend: str | None) -> list[Path]:
    """Write config.json with front.json and front.svg, or with hold.json; `backend` is the target as it was named."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CONFIG, settings(result.config, backend))
    if isinstance(result, Held):
        write_json(folder / HELD, result.to_json())
        return [folder / CONFIG, folder / HELD]
    write_json(folder / FRONT, result.to_json())
    text = draw_front(result)
    replace_file(folder / PICTURE, lambda stream: stream.write(text.encode()))
    return [folder / CONFIG, folder / FRONT, folder / PICTURE]


def settings(config: Config, backend: str | None) -> dict[str, Any]:
    """The configuration as a document that names its target."""
    values = document(config)
    return values if backend is None else {"backend": backend, **{k: v for k, v in values.items() if k != "backend"}}
