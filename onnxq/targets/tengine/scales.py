"""The scale table of Tengine's quantization tool (uint8), and the float model that it belongs to.

A line is `<tensor> <scale> <zero point>`. The tool makes every tensor uint8, and one without a line gets the scale 0;
Flatten, Reshape, Squeeze, Clip, Slice, MaxPool and ReLU take the scale of what follows them. Its converter fuses a Relu
or Relu6 into the convolution in front of it and keeps the name of the convolution's output, so that name has a line
with the same values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.deploy import deploy_model
from onnxq.emit.passed_back import operand_rows
from onnxq.emit.tables import Row, differs, lines_of, missing_and_extra, without_spaces
from onnxq.errors import UnsupportedError
from onnxq.files import replace_file
from onnxq.graph import Graph, Node
from onnxq.types import QParamsTable, QuantPlan

SCALE_PRECISION = 1e-7
"""Scales are printed with all digits of a float32."""

TAKES_THE_SCALE_BEHIND = ("Flatten", "Reshape", "Squeeze", "Clip", "Slice", "MaxPool", "Relu")


def write_scales(request: EmitRequest) -> Emitted:
    """Write `<name>_for_tengine.scale`: a line `tensor scale zero_point` for each activation."""
    entries = listed_rows(*request.quantized)
    lines = [f"{without_spaces(tensor, 'tensor')} {_numbers(row)}\n" for tensor, row in entries.items()]
    path = request.path("_for_tengine.scale")
    replace_file(path, lambda stream: stream.write("".join(lines).encode("utf-8")))
    lacking = _without_scale(request.graph, entries)
    notes = []
    if lacking:
        shown = ", ".join(f"'{tensor}'" for tensor in lacking[:5]) + (", ..." if len(lacking) > 5 else "")
        notes.append(
            f"{path.name}: {len(lacking)} tensors are float in the plan and have no line ({shown}). Tengine's uint8 "
            "mode has no float layers: cut the model there, or run those layers elsewhere"
        )
    return Emitted((path,), tuple(notes))


def write_model(request: EmitRequest) -> Emitted:
    """Write `<name>_for_tengine.onnx`: the float model for tm_convert_tool, weights within their ranges."""
    return Emitted(tuple(deploy_model(*request.quantized).save(request.path("_for_tengine.onnx"))))


def check_scales(request: EmitRequest) -> Iterator[str]:
    """Read the table as the tool does: text up to the first space, number behind it, number behind the last space."""
    path = request.path("_for_tengine.scale")
    found: dict[str, tuple[float, float]] = {}
    for line in lines_of(path):
        tensor, _, rest = line.partition(" ")
        try:
            found[tensor] = (float(rest.split(" ")[0]), float(rest.rpartition(" ")[2]))
        except ValueError:
            yield f"{path.name}: the line {line!r} has no scale and zero point"
    wanted = listed_rows(*request.quantized)
    yield from missing_and_extra(path.name, found, wanted)
    for tensor in wanted.keys() & found.keys():
        scale, zero = wanted[tensor].qparams.scale, wanted[tensor].qparams.zero_point
        if differs(found[tensor][0], scale, SCALE_PRECISION) or found[tensor][1] != zero:
            yield f"{path.name}: tensor '{tensor}' has {found[tensor]}, the parameters say ({scale}, {zero})"


def listed_rows(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, Row]:
    """Tensor -> parameters, constant operands and outputs of convolutions with a fused activation included."""
    listed = operand_rows(graph, plan, qparams)
    for tensor, row in list(listed.items()):
        convolution = fused_convolution(graph, tensor)
        if convolution is not None:
            listed.setdefault(convolution.outputs[0].name, row)
    return listed


def _numbers(row: Row) -> str:
    spec = row.qparams.spec
    if (spec.qmin, spec.qmax) != (0, 255):
        raise UnsupportedError(
            f"tensor '{row.tensor}' is quantized as {spec}; Tengine's table is for uint8 (0 to 255): leave the "
            "activation format of tengine_u8 as it is"
        )
    return f"{np.float32(row.qparams.scale)!s} {int(row.qparams.zero_point)}"


def fused_convolution(graph: Graph, tensor: str) -> Node | None:
    """The convolution into which the converter fuses the Relu or Relu6 that makes `tensor`."""
    activation = graph.producer(tensor)
    if activation is None or activation.op not in ("Relu", "Clip"):
        return None
    if activation.op == "Clip" and _bounds(graph, activation) != (0.0, 6.0):
        return None
    made = activation.inputs[0]
    source: Node | None = graph.producer(made)
    if source is None or source.op != "Conv" or len(graph.consumers(made)) != 1:
        return None
    return source


def _bounds(graph: Graph, clip: Node) -> tuple[float | None, float | None]:
    """Limits of a Clip: inputs, or attributes before opset 11; None where there is none or it is computed."""
    found: list[float | None] = []
    for port, key in ((1, "min"), (2, "max")):
        if port < len(clip.inputs) and clip.inputs[port].name:
            bound = clip.inputs[port]
            found.append(float(graph.values(bound).reshape(-1)[0]) if graph.is_constant(bound) else None)
        else:
            found.append(float(clip.attrs[key]) if key in clip.attrs else None)
    return found[0], found[1]


def _without_scale(graph: Graph, entries: dict[str, Row]) -> list[str]:
    """Float tensors that the tool would give the scale 0."""
    lacking = []
    for node in reversed(graph.nodes()):
        for tensor in node.outputs:
            kind = graph.dtype(tensor)
            if not tensor.name or tensor.name in entries or graph.is_constant(tensor):
                continue
            if kind is not None and kind.kind != "f":
                continue
            readers = [use.node for use in graph.consumers(tensor)]
            passed_on = len(readers) == 1 and readers[0].op in TAKES_THE_SCALE_BEHIND
            if not (passed_on and readers[0].outputs[0].name not in lacking):
                lacking.append(tensor.name)
    return lacking[::-1]


EMITTERS.add("tengine_scales", Emitter(write_scales, files=("_for_tengine.scale",), read_back=check_scales))
EMITTERS.add("tengine_model", Emitter(write_model, files=("_for_tengine.onnx",)))
