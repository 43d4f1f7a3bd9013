"""What a search leaves behind: a configuration for `onnxq quantize`, everything that was evaluated, a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnxq.config import Config
from onnxq.config.changes import document
from onnxq.files import replace_file, write_json
from onnxq.json_file import JsonObject
from onnxq.mixed_precision.found import Found
from onnxq.mixed_precision.picture import draw_front
from onnxq.mixed_precision.restore_layers import Held
from onnxq.output_folder import OutputFolder, claim, staging

CONFIG, FRONT, PICTURE, HELD = "config.json", "front.json", "front.svg", "hold.json"


def write_found(
    folder: Path | OutputFolder,
    result: Found | Held,
    backend: str | None,
    draw: Callable[[Path], str] | None = None,
) -> list[Path]:
    """Write config.json with front.json and front.svg, or with hold.json; `backend` is the target as it was named.

    `draw` makes a page from the other files, and returns its name.
    """
    with claim(folder) as output, staging(output) as stage:
        write_json(stage / CONFIG, settings(result.config, backend))
        if isinstance(result, Held):
            write_json(stage / HELD, result.to_json())
            names = [CONFIG, HELD]
        else:
            write_json(stage / FRONT, result.to_json())
            text = draw_front(result)
            replace_file(stage / PICTURE, lambda stream: stream.write(text.encode()))
            names = [CONFIG, FRONT, PICTURE]
        names += [] if draw is None else [draw(stage)]
    return [output.path / name for name in names]


def settings(config: Config, backend: str | None) -> JsonObject:
    """The configuration as a document that names its target."""
    values = document(config)
    return values if backend is None else {"backend": backend, **{k: v for k, v in values.items() if k != "backend"}}
