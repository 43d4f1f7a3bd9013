"""onnxq quantizes ONNX models for real chips, and checks what it writes.

    result = onnxq.quantize("model.onnx", backend="tensorrt", data="calib.npz", out="out/")
    result.model, result.plan, result.qparams, result.report

    graph = onnxq.load("model.onnx")        # the graph API on its own

onnxruntime is loaded when a model is run, torch never by this package's core.
"""

import importlib

from onnxq.errors import (
    CheckFailed,
    ConfigError,
    DataError,
    MachineError,
    ModelError,
    OnnxqError,
    SpecError,
    UnsupportedError,
)
from onnxq.graph import Graph, load
from onnxq.moved import MOVED, find_moved_modules
from onnxq.types import (
    Backend,
    PerBlock,
    PerChannel,
    PerTensor,
    Placement,
    QParams,
    QParamsTable,
    QuantPlan,
    QuantSpec,
)
from onnxq.version import __version__

from onnxq.targets import BACKENDS, get_backend  # isort: skip
from onnxq.config import Config, read_config  # isort: skip
from onnxq.passes import PASSES, PassResult, run_passes  # isort: skip

# The stages share their names with the packages they live in; binding them last makes `onnxq.place` the function.
from onnxq.calibrate import calibrate  # isort: skip
from onnxq.refine import refine  # isort: skip
from onnxq.emit import emit  # isort: skip
from onnxq.emit.simulate import simulate  # isort: skip
from onnxq.pipeline.artifacts import Result  # isort: skip
from onnxq.quantize import quantize  # isort: skip
import onnxq.prepare  # noqa: F401 - before the function takes its name  # isort: skip
from onnxq.session.prepare import Prepared, prepare  # isort: skip
from onnxq.place import place  # isort: skip
from onnxq.verify import compare_layers as compare  # isort: skip
from onnxq.lint import lint  # isort: skip

find_moved_modules()

__all__ = [
    "BACKENDS",
    "PASSES",
    "Backend",
    "CheckFailed",
    "Config",
    "ConfigError",
    "DataError",
    "Graph",
    "MachineError",
    "ModelError",
    "OnnxqError",
    "PassResult",
    "PerBlock",
    "PerChannel",
    "PerTensor",
    "Placement",
    "Prepared",
    "QParams",
    "QParamsTable",
    "QuantPlan",
    "QuantSpec",
    "Result",
    "SpecError",
    "UnsupportedError",
    "__version__",
    "calibrate",
    "compare",
    "emit",
    "get_backend",
    "lint",
    "load",
    "place",
    "prepare",
    "quantize",
    "read_config",
    "refine",
    "run_passes",
    "simulate",
]


def __getattr__(name: str) -> object:
    if f"onnxq.{name}" in MOVED:
        return importlib.import_module(f"onnxq.{name}")
    raise AttributeError(f"module 'onnxq' has no attribute {name!r}")
