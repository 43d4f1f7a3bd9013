"""Peak memory of place and emit on a model of several gigabytes with external data (weights are a sparse file)."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from tools.bench.child import ROOT
from tools.bench.results import Row

WIDTH = 4096


def write_model(path: Path, gigabytes: float) -> int:
    """A chain of MatMul and Relu with zero weights in one external file; returns the number of layers."""
    layer_bytes = WIDTH * WIDTH * 4
    layers = max(1, round(gigabytes * 1e9 / layer_bytes))
    nodes, weights, x = [], [], "x"
    for index in range(layers):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", index * layer_bytes), ("length", layer_bytes)):
            tensor.external_data.add(key=key, value=str(value))
        weights.append(tensor)
        nodes.append(helper.make_node("MatMul", [x, f"w{index}"], [f"m{index}"], name=f"matmul{index}"))
        nodes.append(helper.make_node("Relu", [f"m{index}"], [f"r{index}"], name=f"relu{index}"))
        x = f"r{index}"
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", WIDTH])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    with open(path.parent / "weights.bin", "wb") as stream:
        stream.truncate(layers * layer_bytes)
    return layers


_CHILD = """
import json, sys, numpy as np
from pathlib import Path
import onnxq
from onnxq.numerics import qparams_from_range
from onnxq.types import QParamsTable
from tools.bench.peers.protocol import peak_megabytes
path, backend, out = sys.argv[1:]
prepared = onnxq.prepare(path, backend)
plan = onnxq.place(prepared.graph, prepared.backend)
table = QParamsTable()
for placement in plan:
    shape = placement.spec.granularity.scale_shape(prepared.graph.shape(placement.tensor) or ())
    table.put(placement.tensor, qparams_from_range(np.full(shape, -1.0), np.full(shape, 1.0), placement.spec), "fixed")
onnxq.emit(prepared.graph, plan, table, prepared.backend, Path(out), "model")
print(json.dumps({"peak": peak_megabytes()}))
"""


def measure(gigabytes: float) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        layers = write_model(folder / "large.onnx", gigabytes)
        for backend in ("tensorrt", "onnxruntime"):
            out = folder / backend
            out.mkdir()
            command = [sys.executable, "-c", _CHILD, str(folder / "large.onnx"), backend, str(out)]
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            child = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
            seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            rows.append(
                {
                    "model GB": round(layers * WIDTH * WIDTH * 4 / 1e9, 2),
                    "backend": backend,
                    "peak MB of place + emit": round(json.loads(child.stdout.splitlines()[-1])["peak"]),
                    "written GB": round(sum(p.stat().st_size for p in out.iterdir()) / 1e9, 2),
                    "user s": round(seconds, 1),
                }
            )
    return rows
