"""How the cost of graph work grows: load, passes, place, one calibration sample, emit, save on long residual chains.

Then the whole run from file to checked file, with its report. Everything in CPU seconds. The baseline of each row is a
bare read and write of the same file with the onnx package.
"""

from __future__ import annotations

import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx

from onnxq import calibrate, emit, place, quantize
from onnxq.session.prepare import load_model, prepare
from tools.bench.models import residual_chain
from tools.bench.results import Row


def measure(sizes: list[int]) -> list[Row]:
    rows = []
    for size in sizes:
        for backend in ("tensorrt", "onnxruntime"):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(_one(size, backend, Path(folder)))
    return rows


def _one(size: int, backend: str, folder: Path) -> Row:
    path = folder / "chain.onnx"
    onnx.save(residual_chain(size), str(path))
    start = time.process_time()
    onnx.save(onnx.load(str(path)), str(folder / "copy.onnx"))
    floor = time.process_time() - start

    marks = [("", time.process_time())]
    graph = load_model(path)
    marks.append(("load", time.process_time()))
    prepared = prepare(graph, backend)
    marks.append(("passes", time.process_time()))
    plan = place(prepared.graph, prepared.backend)
    marks.append(("place", time.process_time()))
    sample = {"input": np.random.default_rng(0).normal(size=(1, 4, 4, 4)).astype(np.float32)}
    result = calibrate(prepared.graph, plan, [sample])
    marks.append(("calibrate", time.process_time()))
    emit(prepared.graph, result.plan, result.qparams, prepared.backend, folder, "model")
    marks.append(("emit", time.process_time()))
    stages = {name: round(now - before, 2) for (_, before), (name, now) in pairwise(marks)}
    total = marks[-1][1] - marks[0][1]
    start = time.process_time()
    quantize(path, backend=backend, data=[sample], config={"effort": 0, "minimum_sqnr_db": -100.0}, out=folder / "out")
    checked = time.process_time() - start
    return {
        "nodes": size,
        "backend": backend,
        **stages,
        "total s": round(total, 2),
        "s per 1,000 nodes": round(1000 * total / size, 3),
        "x bare read and write": round(total / floor, 1),
        "checked file s": round(checked, 2),
        "checked file s per 1,000 nodes": round(1000 * checked / size, 3),
    }
