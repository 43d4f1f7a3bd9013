"""The parameters of rknn-toolkit2's hybrid quantization, as `hybrid_quantization_step1` writes them (YAML).

The toolkit converts inputs and outputs of the model itself: an input `x` and an output `y` stand there twice, as
float32 without parameters and as `x_int8`, `y_int8` with them. What stands in front of a fused activation has the
parameters of what stands behind it.

Step 2 takes back the file that step 1 wrote, and refuses any change but those of `min` and `max`: these two go
from here into that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import yaml

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import Row, derived_key, differs, missing_and_extra, rows
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.types import QParamsTable, QuantPlan

PRECISION = 1e-6
IO_SUFFIX = "_int8"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML in C where it was built so: a file of thousands of layers takes ten times as long without."""

_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):  # type: ignore[misc]
    """Writes equal lists each time in full: the toolkit's own files have no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_hybrid(request: EmitRequest) -> Emitted:
    """Write `<name>.quantization.cfg`: parameters of every activation for hybrid quantization."""
    path = request.path(".quantization.cfg")
    model_io = _model_io(request.graph)
    entries = {entry: _entry(row, is_io=entry in model_io) for entry, row in _listed_rows(*request.quantized).items()}
    document = {"custom_quantize_layers": {}, "quantize_parameters": entries}
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, indent=4, allow_unicode=True, width=10_000)
    replace_file(path, lambda stream: stream.write(text.encode("utf-8")))
    return Emitted((path,))


def check_hybrid(request: EmitRequest) -> Iterator[str]:
    """Compare types, scales and zero points with the parameters, and ranges with what scale and zero point say."""
    path = request.path(".quantization.cfg")
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)["quantize_parameters"]
    wanted = _listed_rows(*request.quantized)
    model_io = {entry for entry in wanted if entry in _model_io(request.graph)}
    yield from missing_and_extra(path.name, found, wanted)
    for entry in wanted.keys() & found.keys():
        held, parameters = found[entry], wanted[entry].qparams
        spec = parameters.spec
        numbers = {
            "min": (spec.qmin - parameters.zero_point.astype(np.float64)) * parameters.scale,
            "max": (spec.qmax - parameters.zero_point.astype(np.float64)) * parameters.scale,
            "scale": [] if entry in model_io else parameters.scale,
            "zero_point": [] if entry in model_io else parameters.zero_point,
        }
        words = {
            "qtype": "sym" if spec.symmetric else "asym",
            "qmethod": "layer",
            "dtype": "float32" if entry in model_io else spec.dtype,
        }
        wrong = {key: value for key, value in numbers.items() if differs(held.get(key), value, PRECISION)}
        wrong |= {key: word for key, word in words.items() if held.get(key) != word}
        for key, value in wrong.items():
            yield f"{path.name}: {key} of tensor '{entry}' is {held.get(key)}, the parameters say {value}"


def _model_io(graph: Graph) -> set[str]:
    return {*graph.input_names, *graph.output_names}


def _listed_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Row]:
    """Entry -> the parameters it is of: activations, fused tensors in front of them, inputs and outputs twice."""
    listed: dict[str, Row] = {}
    inside: dict[str, Row] = {}
    for row in rows(graph, plan, qparams):
        for tensor in _fused_in_front(graph, plan, row.tensor):
            listed[tensor] = row
        listed[row.tensor] = row
        if row.tensor in _model_io(graph):
            inside[row.tensor] = row
    for tensor, row in inside.items():
        key = f"{tensor}{IO_SUFFIX}"
        listed[derived_key(key, key in listed, tensor)] = row
    return listed


def _fused_in_front(graph: Graph, plan: QuantPlan, tensor: str) -> list[str]:
    """Results of the nodes in front of `tensor` that run together with the activation which makes it."""
    found = []
    maker = graph.producer(tensor)
    while maker is not None and maker.name in plan.fused:
        tensor = maker.inputs[0].name
        if tensor in plan or graph.is_constant(tensor):
            break
        found.append(tensor)
        maker = graph.producer(tensor)
    return found


def _entry(row: Row, *, is_io: bool) -> JsonObject:
    spec = row.qparams.spec
    return {
        "qtype": "sym" if spec.symmetric else "asym",
        "qmethod": "layer",
        "dtype": "float32" if is_io else spec.dtype,
        "min": [float(row.low)],
        "max": [float(row.high)],
        "scale": [] if is_io else [float(str(row.qparams.scale))],
        "zero_point": [] if is_io else [int(row.qparams.zero_point)],
    }


EMITTERS.add("rknn_hybrid", Emitter(write_hybrid, files=(".quantization.cfg",), read_back=check_hybrid))
