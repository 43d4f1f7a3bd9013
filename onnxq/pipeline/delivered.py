"""What a finished run has left in its folder."""

from __future__ import annotations

from pathlib import Path

from pydantic import StrictStr

from onnxq.config.settings import is_plain_name
from onnxq.errors import ConfigError
from onnxq.json_file import Stored, read_object, validated


def model_in(folder: Path) -> Path:
    """The model of a run: model.onnx, or the name that its configuration gave it."""
    settings = folder / "config.json"
    if not settings.is_file():
        return folder / "model.onnx"
    # Not by read_config: it would look for observers and improvements of plugins, which play no part here.
    name = validated(_Named, read_object(settings, "configuration"), str(settings)).name
    if not is_plain_name(name):
        raise ConfigError(f"{settings}: name: the model lies in the folder, so {name!r} must be a plain name")
    return folder / f"{name}.onnx"


class _Named(Stored):
    name: StrictStr = "model"
