"""Models that Ultralytics has exported: their images prepared as its predictor does, and quantized in one call.

    from onnxq.integrations.ultralytics import quantize

    for target in ("tensorrt", "openvino", "rknn"):
        quantize("yolov8n.onnx", backend=target, data="coco8.yaml", out=f"out/{target}")

What the exporter left in the model's metadata (task, imgsz, stride, names) decides what is not given. ultralytics need
not be installed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from onnxq.config import ConfigSource, read_config
from onnxq.errors import ConfigError, DataError, OnnxqWarning
from onnxq.json_file import JsonObject
from onnxq.pipeline.artifacts import Result
from onnxq.quantize import quantize as _quantize
from onnxq.runtime import Dataset, input_infos, open_dataset
from onnxq.runtime.feeds import Feed, InputInfo
from onnxq.runtime.image_metadata import described_image_size
from onnxq.session.prepare import Model, load_model
from onnxq.types import Backend
from onnxq.types.note import folded
from onnxq.warned import warn_of

CLASSIFY = "classify"
DEFAULT_STRIDE = 32

ImageSize = int | tuple[int, int] | list[int]
"""One number for a square, or height and width."""


@dataclass(frozen=True)
class Export:
    """What a model says about itself: its input, and the metadata of Ultralytics' exporter.

    task         detect, segment, pose, obb or classify; detect where the metadata names none
    image_size   height and width: those of the input where it fixes them, else `imgsz`; None where neither says any
    fixed        the input takes this size alone
    stride       sizes are multiples of it
    names        number of a class -> its name
    """

    input: InputInfo
    task: str
    image_size: tuple[int, int] | None
    fixed: bool
    stride: int
    names: Mapping[int, str]

    @classmethod
    def of(cls, model: Model) -> Export:
        graph = load_model(model)
        inputs, metadata = input_infos(graph), graph.metadata
        if len(inputs) != 1 or len(inputs[0].shape) != 4:
            found = ", ".join(f"'{info.name}' {info}" for info in inputs) or "none"
            raise ConfigError(
                f"a model that Ultralytics has exported takes images, [batch, channels, height, width]. The inputs of "
                f"this one: {found}"
            )
        height, width = inputs[0].shape[2:]
        fixed = (height, width) if isinstance(height, int) and isinstance(width, int) else None
        stride = metadata.get("stride", "")
        return cls(
            inputs[0],
            metadata.get("task", "detect"),
            fixed or described_image_size(metadata),
            fixed is not None,
            int(stride) if stride.isdecimal() and int(stride) > 0 else DEFAULT_STRIDE,
            _names(metadata.get("names", "")),
        )

    def preprocessing(self, imgsz: ImageSize | None = None) -> JsonObject:
        """The setting `preprocess` that gives this model what Ultralytics' predictor gives it."""
        height, width = self._size(imgsz)
        if self.task != CLASSIFY:
            return {"preset": "yolo", "resize": [height, width]}
        steps: JsonObject = {"preset": "unit", "interpolation": "bilinear", "resize": [height, width]}
        return {**steps, "resize": height, "crop": height} if height == width else steps

    def _size(self, imgsz: ImageSize | None) -> tuple[int, int]:
        if imgsz is None:
            if self.image_size is None:
                raise ConfigError(
                    f"input '{self.input.name}' is {self.input}: its size is free, and the metadata names no imgsz. "
                    "Give imgsz=640 or imgsz=(height, width), the size that the model was trained with"
                )
            return self.image_size
        sizes = (imgsz, imgsz) if isinstance(imgsz, int) else tuple(imgsz)
        if len(sizes) != 2 or not all(type(size) is int and size > 0 for size in sizes):
            raise ConfigError(f"imgsz is one number or (height, width), not {imgsz!r}")
        if self.fixed and self.image_size != sizes:
            raise ConfigError(
                f"the input of the model is {self.image_size} (height, width) and no other size, imgsz is {sizes}: "
                "leave imgsz out, or export with dynamic=True or another imgsz"
            )
        height, width = (-(-size // self.stride) * self.stride for size in sizes)
        if (height, width) != sizes and self.task != CLASSIFY:
            warn_of(
                [f"imgsz {sizes} is no multiple of the stride {self.stride}: {(height, width)} is taken"], stacklevel=4
            )
            return height, width
        return sizes[0], sizes[1]


def quantize(
    model: Model,
    *,
    backend: str | Backend | None = None,
    data: Any,
    out: str | Path | None = None,
    imgsz: ImageSize | None = None,
    split: str | None = None,
    config: ConfigSource = None,
    **arguments: Any,
) -> Result:
    """`onnxq.quantize` for a model of Ultralytics.

    data       a data.yaml, a folder of images, an image, or any other data of `onnxq.quantize`; only images are
               preprocessed
    imgsz      the size of images, where the model leaves it free and its metadata names another
    split      of a data.yaml: `val` unless given, as Ultralytics calibrates
    config     settings, as for `onnxq.quantize`; a `preprocess` in them wins
    arguments  what else `onnxq.quantize` takes
    """
    settings, source = read_config(config), _of_split(data, split)
    if settings.preprocess is None and _shows_images(source):
        settings = read_config(settings, preprocess=Export.of(model).preprocessing(imgsz))
    elif imgsz is not None:
        raise ConfigError(
            "imgsz decides how images are preprocessed, and here is nothing for it to decide: the data holds no "
            "images, or the configuration has a preprocess of its own. Leave imgsz out"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OnnxqWarning)  # said below, where the caller is
        result = _quantize(model, backend=backend, data=source, config=settings, out=out, **arguments)
    warn_of(folded(result.report["warnings"]), stacklevel=2)
    return result


class CalibrationReader:
    """Images for a model of Ultralytics as onnxruntime's CalibrationDataReader: get_next() until None, then rewind().

        quantize_static("yolov8n.onnx", "int8.onnx", CalibrationReader("yolov8n.onnx", "coco8.yaml"))

    It is no subclass, which onnxruntime.quantization does not ask for. onnxq takes it as `data=`, too.
    """

    def __init__(
        self,
        model: Model,
        data: str | Path,
        *,
        imgsz: ImageSize | None = None,
        split: str | None = None,
        samples: int | None = None,
    ) -> None:
        export, source = Export.of(model), _of_split(data, split)
        if not _shows_images(source):
            raise DataError(f"'{data}' is neither a data.yaml nor an image or a folder of images")
        self.dataset: Dataset = open_dataset(
            source, [export.input], limit=samples, preprocess=export.preprocessing(imgsz)
        )
        self.rewind()

    def get_next(self) -> Feed | None:
        """The next feed, or None behind the last one."""
        return next(self._feeds, None)

    def rewind(self) -> None:
        self._feeds = iter(self.dataset)

    def set_range(self, start_index: int, end_index: int) -> None:
        """Go on with the feeds from one number to before another, as calibrators of onnxruntime ask in strides."""
        self._feeds = islice(iter(self.dataset), start_index, end_index)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> CalibrationReader:
        return self

    def __next__(self) -> Feed:
        return next(self._feeds)


def _of_split(data: Any, split: str | None) -> Any:
    if split is None:
        return data
    if not isinstance(data, str | Path) or Path(data).suffix not in (".yaml", ".yml"):
        raise ConfigError(f"split={split!r} chooses a part of a data.yaml, and the data is {data!r}: leave split out")
    return f"{data}:{split}"


def _shows_images(data: Any) -> bool:
    from onnxq.runtime.sources import holds_images

    return isinstance(data, str | Path) and holds_images(Path(data))


def _names(text: str) -> dict[int, str]:
    """Names of classes as the exporter writes them, a dict of Python; nothing where it is something else."""
    try:
        value = ast.literal_eval(text) if text else {}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    return {key: str(name) for key, name in value.items() if type(key) is int} if isinstance(value, dict) else {}
