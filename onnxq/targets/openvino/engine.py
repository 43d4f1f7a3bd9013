"""OpenVINO as an engine of `onnxq bench`, where it is installed; kernels by its own profile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from onnxq.errors import DataError, ModelError
from onnxq.runtime.engines import ENGINES, Computes, Engine, Kernel
from onnxq.runtime.feeds import Feed

_INTEGERS = ("_I8", "_U8")
"""How the name of an implementation ends that computes in integers, such as brgconv_avx512_I8."""

_OPERATORS = {
    **dict.fromkeys(("Convolution", "GroupConvolution"), "Conv"),
    "Deconvolution": "ConvTranspose",
    **dict.fromkeys(("MatMul", "FullyConnected", "FullyConnectedCompressed", "FullyConnectedQuantized"), "MatMul"),
}
"""Kernels of layers that multiply -> the operator of ONNX."""

_PART = "/WithoutBiases"
"""What a convolution is called whose bias is an addition behind it."""
_CONVERSIONS = ("FakeQuantize", "Reorder", "Convert", "Quantize")


class _Compiled:
    def __init__(self, model: Path, threads: int, profile: Path | None) -> None:
        openvino: Any = import_module("openvino")
        settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        if profile is not None:
            settings["PERF_COUNT"] = True
        try:
            compiled = openvino.Core().compile_model(str(model), "CPU", settings)
        except RuntimeError as error:
            raise ModelError(f"openvino cannot load {model}: {_first_line(error)}") from None
        self._request: Any = compiled.create_infer_request()
        self._made_of = {} if profile is None else dict(_origins(compiled.get_runtime_model()))
        self._profile = profile is not None
        self._times: dict[tuple[str, str, str], list[float]] = {}

    def run(self, feed: Feed) -> None:
        try:
            self._request.infer(feed)
        except RuntimeError as error:
            raise DataError(f"openvino could not run the model: {_first_line(error)}") from None
        if self._profile:
            for one in self._request.profiling_info:
                if str(one.status).endswith("EXECUTED") and not str(one.status).endswith("NOT_EXECUTED"):
                    key = one.node_name, one.node_type, one.exec_type
                    self._times.setdefault(key, []).append(one.real_time.total_seconds())

    def kernels(self) -> list[Kernel]:
        return [
            Kernel(
                name,
                _OPERATORS.get(kind, kind),
                _computes(kind, how),
                f"{kind} {how}",
                self._made_of.get(name, ()),
                tuple(seconds),
            )
            for (name, kind, how), seconds in self._times.items()
            if kind not in ("Parameter", "Result", "Input", "Output")
        ]


def _computes(kind: str, implementation: str) -> Computes:
    if kind in _CONVERSIONS:
        return Computes.CONVERSION
    if implementation.upper().endswith(_INTEGERS):
        return Computes.INTEGERS
    return Computes.FLOAT if kind in _OPERATORS else Computes.OTHER


def _origins(compiled: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Kernel -> the nodes and tensors of the file that it was made of."""
    for node in compiled.get_ordered_ops():
        said = node.get_rt_info()
        names = str(said["originalLayersNames"].value).split(",") if "originalLayersNames" in said else []
        yield node.get_friendly_name(), tuple(name.removesuffix(_PART) for name in names if name)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _version() -> str | None:
    try:
        return version("openvino")
    except PackageNotFoundError:
        return None


# Its threads are its own, so all of the process counts.
ENGINES.add("openvino", Engine(_Compiled, _version, time.process_time))
