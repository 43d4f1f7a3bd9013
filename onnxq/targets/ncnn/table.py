"""The calibration table of ncnn2int8: scales of weights and of layer inputs, keyed by layer name.

    <layer>_param_0 s s s ...     weights: 1 / step, one for each output channel (or group, if any)
    <layer> s                     input: 1 / step

A layer without lines stays float. A key is read up to the first space, at most 255 characters of it, and one that holds
`_param_` is a weight; an empty line would end the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import MODEL_SUFFIX, differs, lines_of, missing_and_extra, without_spaces
from onnxq.errors import UnsupportedError
from onnxq.files import replace_file
from onnxq.graph import Graph, Node
from onnxq.types import QParams, QParamsTable, QuantPlan

PRECISION = 1e-6
LONGEST_KEY = 255
WEIGHT_MARK = "_param_"
LAYERS = ("Conv", "Gemm", "MatMul")


class Layer(NamedTuple):
    """One quantized layer: the step of its input, and the steps of its weight."""

    name: str
    data: np.ndarray
    weight: np.ndarray


def write_table(request: EmitRequest) -> Emitted:
    """Write `<name>.table`: the calibration table for ncnn2int8."""
    found = list(layers(*request.quantized))
    lines = [f"{_key(layer)}_param_0 {_numbers(layer.weight)}\n" for layer in found]
    lines += [f"{layer.name} {_numbers(layer.data)}\n" for layer in found]
    path = request.path(".table")
    replace_file(path, lambda stream: stream.write("".join(lines).encode("utf-8")))
    model = request.path(MODEL_SUFFIX).name
    note = f"{path.name}: layers are called after the nodes of {model}; compare them with your .param"
    return Emitted((path,), (note,))


def check_table(request: EmitRequest) -> Iterator[str]:
    """Read the table as ncnn2int8 does, and compare every scale with the parameters."""
    path = request.path(".table")
    found: dict[str, list[float]] = {}
    for line in lines_of(path):
        words = line.split()
        if not words:
            yield f"{path.name}: an empty line ends the table for ncnn2int8"
            break
        try:
            found[words[0][:LONGEST_KEY]] = [float(word) for word in words[1:]]
        except ValueError:
            yield f"{path.name}: the line of '{words[0]}' holds something else than numbers"
    wanted: dict[str, np.ndarray] = {}
    for layer in layers(*request.quantized):
        wanted[f"{layer.name}_param_0"] = 1.0 / layer.weight
        wanted[layer.name] = 1.0 / layer.data
    yield from missing_and_extra(path.name, found, wanted)
    for key in wanted.keys() & found.keys():
        if differs(found[key], wanted[key], PRECISION):
            yield f"{path.name}: '{key}' has {found[key][:4]}, the parameters say {wanted[key].reshape(-1)[:4]}"


def layers(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> Iterator[Layer]:
    """The layers that ncnn computes in int8, in the order of the graph."""
    for node in graph.nodes():
        if node.op not in LAYERS or node.name not in plan.quantized or not graph.is_constant(node.inputs[1]):
            continue
        data, weight = qparams[node.inputs[0].name], qparams[node.inputs[1].name]
        for tensor, parameters in ((node.inputs[0].name, data), (node.inputs[1].name, weight)):
            _check_symmetric(tensor, parameters)
        steps = weight.scale.astype(np.float64).reshape(-1)
        yield Layer(node.name, data.scale.astype(np.float64).reshape(-1), _spread(graph, node, steps))


def _spread(graph: Graph, node: Node, steps: np.ndarray) -> np.ndarray:
    """As many steps as the layer has output channels or groups; one that holds for all is repeated."""
    shape = graph.values(node.inputs[1]).shape
    groups = int(node.attrs.get("group", 1)) if node.op == "Conv" else 1
    if node.op == "Conv":
        wanted = groups if groups > 1 else int(shape[0])
    else:
        wanted = int(shape[0] if node.attrs.get("transB", 0) else shape[1])
    if steps.size not in (1, wanted):
        raise UnsupportedError(
            f"the weight of '{node.name}' has {steps.size} scales, ncnn takes one for each of {wanted} "
            f"{'groups' if groups > 1 else 'output channels'}: leave the weight format of ncnn as it is"
        )
    return np.broadcast_to(steps, (wanted,))


def _check_symmetric(tensor: str, parameters: QParams) -> None:
    if parameters.spec.bits > 8 or not parameters.spec.signed or np.any(parameters.zero_point != 0):
        raise UnsupportedError(
            f"tensor '{tensor}' is quantized as {parameters.spec}; ncnn's table is for symmetric int8: leave the "
            "formats of ncnn as they are"
        )


def _key(layer: Layer) -> str:
    name = without_spaces(layer.name, "node")
    if WEIGHT_MARK in name or len(f"{name}_param_0".encode()) > LONGEST_KEY:
        raise UnsupportedError(
            f"node '{name}' cannot stand in ncnn's table: a name must not hold '{WEIGHT_MARK}', which marks weights, "
            f"nor be longer than {LONGEST_KEY - len('_param_0')} bytes; rename it in the model, or --skip it"
        )
    return name


def _numbers(steps: np.ndarray) -> str:
    """1 / step with the digits of a float32: `%f` would leave few of them for large steps."""
    return " ".join(str(np.float32(1.0 / step)) for step in steps)


EMITTERS.add("ncnn_table", Emitter(write_table, files=(".table",), read_back=check_table))
