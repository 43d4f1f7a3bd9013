"""onnxruntime as an engine: kernels are those of the graph that its optimizer has made, timed by its profiler."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import onnx

from onnxq.runtime.engines import ENGINES, Computes, Engine, Kernel
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import describe_runtime, make_session, optimized_session, run_session
from onnxq.verify.kernels import FLOAT_LAYERS, QUANTIZERS, computes_in_integers, count_kernels, given_name

_KERNEL_TIME = "_kernel_time"

_LAYOUTS = ("ReorderInput", "ReorderOutput")
"""What onnxruntime puts around convolutions that want another layout."""


class _Session:
    def __init__(self, model: Path, threads: int, profile: Path | None) -> None:
        self._graph: onnx.GraphProto | None = None
        if profile is None:
            self._session = make_session(model, threads=threads, what=str(model))
        else:
            self._session, optimized = optimized_session(
                model, profile, threads=threads, profile=profile / "times", what=str(model)
            )
            self._graph = optimized.graph

    def run(self, feed: Feed) -> None:
        run_session(self._session, None, feed, "a measurement")

    def kernels(self) -> list[Kernel]:
        assert self._graph is not None
        return list(_kernels(self._graph, _times(Path(self._session.end_profiling()))))


def _times(path: Path) -> dict[tuple[str, str], list[float]]:
    """Name and operator -> seconds, one for each time that a kernel ran."""
    found: dict[tuple[str, str], list[float]] = {}
    for event in json.loads(path.read_bytes()):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL_TIME):
            name = event["name"].removesuffix(_KERNEL_TIME)
            found.setdefault((name, event["args"]["op_name"]), []).append(1e-6 * float(event["dur"]))
    return found


def _kernels(graph: onnx.GraphProto, times: dict[tuple[str, str], list[float]]) -> Iterator[Kernel]:
    """Kernels of the main graph: what those of bodies take is in the time of the node that has the body."""
    converted = count_kernels(graph).converted
    for node in graph.node:
        if computes_in_integers(node.op_type):
            computes = Computes.INTEGERS
        elif node.op_type in (*QUANTIZERS, *_LAYOUTS):
            computes = Computes.CONVERSION
        elif node.op_type in FLOAT_LAYERS or given_name(node.name) in converted:
            computes = Computes.FLOAT
        else:
            computes = Computes.OTHER
        seconds = times.get((node.name, node.op_type), ())
        tensors = tuple(given_name(name) for name in node.output if name)
        yield Kernel(given_name(node.name), node.op_type, computes, node.op_type, tensors, tuple(seconds))


def _version() -> str:
    return describe_runtime(None)["onnxruntime"]


ENGINES.add("onnxruntime", Engine(_Session, _version, time.thread_time))
