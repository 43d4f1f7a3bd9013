"""onnxq quantizes ONNX models for real chips, and checks what it writes.

    result = onnxq.quantize("model.onnx", backend="tensorrt", data="calib.npz", out="out/")
    result.model, result.plan, result.qparams, result.report

    graph = onnxq.load("model.onnx")        # the graph API on its own

Everything is imported when it is asked for: onnxruntime when a model is run, torch never by this package's core.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from onnxq.moved import MOVED, find_moved_modules
from onnxq.version import __version__

if TYPE_CHECKING:
    from onnxq.bench import Bench, bench
    from onnxq.calibrate import calibrate  # type: ignore[no-redef]
    from onnxq.config import Config, read_config
    from onnxq.diagnose import Diagnosis, diagnose
    from onnxq.emit import emit
    from onnxq.emit.simulate import simulate
    from onnxq.errors import (
        CheckFailed,
        ConfigError,
        DataError,
        MachineError,
        ModelError,
        OnnxqError,
        OnnxqWarning,
        SpecError,
        UnsupportedError,
    )
    from onnxq.evaluate import evaluate
    from onnxq.graph import Graph, load
    from onnxq.lint import lint
    from onnxq.mixed_precision import Found, Held, Sensitivity, Subject
    from onnxq.mixed_precision.evaluate import Evaluation
    from onnxq.mixed_precision.restore_layers import restore_layers
    from onnxq.mixed_precision.search import search
    from onnxq.mixed_precision.sensitivity import sensitivity
    from onnxq.passes import PASSES, PassResult, run_passes
    from onnxq.pipeline.artifacts import Result
    from onnxq.place import place
    from onnxq.quantize import quantize
    from onnxq.refine import refine
    from onnxq.session.prepare import Prepared, prepare
    from onnxq.targets import BACKENDS, get_backend
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
    from onnxq.verify import compare_layers as compare

_HOMES = {
    "onnxq.bench": "Bench bench",
    "onnxq.calibrate": "calibrate",
    "onnxq.config": "Config read_config",
    "onnxq.diagnose": "Diagnosis diagnose",
    "onnxq.emit": "emit",
    "onnxq.emit.simulate": "simulate",
    "onnxq.errors": "CheckFailed ConfigError DataError MachineError ModelError OnnxqError OnnxqWarning SpecError"
    " UnsupportedError",
    "onnxq.evaluate": "evaluate",
    "onnxq.graph": "Graph load",
    "onnxq.lint": "lint",
    "onnxq.mixed_precision": "Found Held Sensitivity Subject restore_layers search sensitivity",
    "onnxq.mixed_precision.evaluate": "Evaluation",
    "onnxq.passes": "PASSES PassResult run_passes",
    "onnxq.pipeline.artifacts": "Result",
    "onnxq.place": "place",
    "onnxq.quantize": "quantize",
    "onnxq.refine": "refine",
    "onnxq.session.prepare": "Prepared prepare",
    "onnxq.targets": "BACKENDS get_backend",
    "onnxq.types": "Backend PerBlock PerChannel PerTensor Placement QParams QParamsTable QuantPlan QuantSpec",
    "onnxq.verify": "compare_layers",
}
"""Module -> the names that are its own here: they are imported when somebody asks for them."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_RENAMED = {"compare": "compare_layers"}


class _Package(ModuleType):
    """Stages share their names with the packages they live in: `onnxq.place` is the function, also after its import."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    own = _RENAMED.get(name, name)
    if name in __all__:
        found = getattr(importlib.import_module(_HOME_OF[own]), own)
        setattr(sys.modules[__name__], name, found)
        return found
    if f"onnxq.{name}" in MOVED or (name.isidentifier() and importlib.util.find_spec(f"onnxq.{name}") is not None):
        return importlib.import_module(f"onnxq.{name}")
    raise AttributeError(f"module 'onnxq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Package
find_moved_modules()

__all__ = [
    "BACKENDS",
    "PASSES",
    "Backend",
    "Bench",
    "CheckFailed",
    "Config",
    "ConfigError",
    "DataError",
    "Diagnosis",
    "Evaluation",
    "Found",
    "Graph",
    "Held",
    "MachineError",
    "ModelError",
    "OnnxqError",
    "OnnxqWarning",
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
    "Sensitivity",
    "SpecError",
    "Subject",
    "UnsupportedError",
    "__version__",
    "bench",
    "calibrate",
    "compare",
    "diagnose",
    "emit",
    "evaluate",
    "get_backend",
    "lint",
    "load",
    "place",
    "prepare",
    "quantize",
    "read_config",
    "refine",
    "restore_layers",
    "run_passes",
    "search",
    "sensitivity",
    "simulate",
]
