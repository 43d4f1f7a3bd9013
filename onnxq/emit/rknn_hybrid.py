"""The parameters of rknn-toolkit2's hybrid quantization, as `hybrid_quantization_step1` writes them (YAML).

The toolkit computes in integers between borders of its own: an input `x` and an output `y` stand there twice, as
float32 without parameters and as `x_int8`, `y_int8` with them. What stands in front of a fused activation has the
parameters of what stands behind it.

Step 2 takes back the file that step 1 wrote, and refuses any change but those of `min` and `max`: these two go
from here into that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.ppl import missing_and_extra
from onnxq.emit.tables import Row, differs, rows
from onnxq.files import replace_file
from onnxq.graph import Graph
from onnxq.types import Backend, QParamsTable, QuantPlan

PRECISION = 1e-6
BORDER_SUFFIX = "_int8"


@EMITTERS.register("rknn_hybrid")
def write_hybrid(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>.quantization.cfg`: parameters of every activation for hybrid quantization."""
    path = folder / f"{name}.quantization.cfg"
    document = {"custom_quantize_layers": {}, "quantize_parameters": _entries(graph, plan, qparams)}
    text = yaml.safe_dump(document, sort_keys=False, indent=4, allow_unicode=True, width=10_000)
    replace_file(path, lambda stream: stream.write(text.encode("utf-8")))
    return Emitted((path,))


@READ_BACKS.register("rknn_hybrid")
def check_hybrid(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    """Compare ranges, scales, zero points and types with the parameters."""
    path = folder / f"{name}.quantization.cfg"
    found = yaml.safe_load(path.read_text(encoding="utf-8"))["quantize_parameters"]
    wanted = _entries(graph, plan, qparams)
    yield from missing_and_extra(path, found, wanted)
    for tensor in wanted.keys() & found.keys():
        for key, value in wanted[tensor].items():
            read = found[tensor].get(key)
            same = read == value if isinstance(value, str) else isinstance(read, list) and not _differ(read, value)
            if not same:
                yield f"{path.name}: {key} of tensor '{tensor}' is {read}, the parameters say {value}"


def _differ(read: list[Any], wanted: list[float]) -> bool:
    return any(not isinstance(number, int | float) for number in read) or differs(read, wanted, PRECISION)


def _entries(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, dict[str, Any]]:
    """Tensor -> its entry, borders and fused tensors included."""
    borders = {*graph.input_names, *graph.output_names}
    behind: dict[str, dict[str, Any]] = {}
    entries: dict[str, dict[str, Any]] = {}
    for row in rows(graph, plan, qparams):
        entry = _entry(row)
        for tensor in _fused_in_front(graph, plan, row.tensor):
            entries[tensor] = dict(entry)
        if row.tensor in borders:
            behind[f"{row.tensor}{BORDER_SUFFIX}"] = entry
            entry = {**entry, "dtype": "float32", "scale": [], "zero_point": []}
        entries[row.tensor] = entry
    return entries | behind


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


def _entry(row: Row) -> dict[str, Any]:
    spec = row.qparams.spec
    return {
        "qtype": "sym" if spec.symmetric else "asym",
        "qmethod": "layer",
        "dtype": spec.dtype,
        "min": [float(row.low)],
        "max": [float(row.high)],
        "scale": [float(str(row.qparams.scale))],
        "zero_point": [int(row.qparams.zero_point)],
    }
