"""The table of clip values for HiSilicon's NNIE mapper, keyed by the name of the layer that reads the tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from onnxq.emit import EMITTERS, READ_BACKS, Emitted
from onnxq.emit.nnie_deploy import no_upsample
from onnxq.emit.tables import differs
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph, Node
from onnxq.numerics import nnie_clip
from onnxq.types import Backend, Edge, QParamsTable, QuantPlan

NOT_LISTED = ("Flatten", "Relu", "PRelu", "Sigmoid", "Reshape", "Softmax", "Clip", "GlobalAveragePool", "Mul")
"""Layers for which the mapper takes no clip values: it computes them together with a neighbour."""

STEP_TOLERANCE = 1e-9
"""How far 16 * log2(c) of a printed value may be from an integer: floats are printed with all their digits."""


def gfpq_table(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, list[float]]:
    """Node name -> the clip value of each quantized input, in the order of the inputs.

    The mapper turns an Upsample into two layers, and the second is called `<name>_permute_<number of the Upsample>`. A
    Resize counts where the deploy model has an Upsample for it.
    """
    table: dict[str, list[float]] = {}
    upsamples = 0
    for node in graph.nodes():
        values = [] if _is_left_out(node) else _clip_values(graph, node, plan, qparams)
        enlarges = node.op == "Upsample" or (node.op == "Resize" and no_upsample(graph, node) is None)
        if enlarges:
            values = values[:1]
        if values:
            table[node.name] = values
        if enlarges:
            if values:
                table[f"{node.name}_permute_{upsamples}"] = values
            upsamples += 1
    return table


def _is_left_out(node: Node) -> bool:
    return node.op in NOT_LISTED or is_grouped(node)


def is_grouped(node: Node) -> bool:
    """Whether a convolution has groups: the mapper would want a list of values for each group."""
    return node.op == "Conv" and int(node.attrs.get("group", 1)) != 1


def _clip_values(graph: Graph, node: Node, plan: QuantPlan, qparams: QParamsTable) -> list[float]:
    values = []
    for port, tensor in enumerate(node.inputs):
        if not tensor.name or tensor.name not in plan or graph.is_constant(tensor):
            continue
        edges = plan[tensor.name].edges
        if edges is None or Edge(node.name, port) in edges:
            parameters = qparams[tensor.name]
            if parameters.spec.grid != "nnie":
                raise UnsupportedError(
                    f"tensor '{tensor.name}' is {parameters.spec}, and a gfpq table holds clip values of nnie8 only. "
                    'Set dtype = "nnie8" under [activation]'
                )
            values.append(float(nnie_clip(parameters.scale)))
    return values


@EMITTERS.register("gfpq")
def write_gfpq(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Emitted:
    """Write `<name>_gfpq_param_dict.json`: clip values for the NNIE mapper, by the name of the layer that reads."""
    path = _path(folder, name)
    write_json(path, {"nnie": {"gfpq_param_dict": gfpq_table(graph, plan, qparams)}})
    grouped = [node.name for node in graph.nodes() if is_grouped(node) and node.name in plan.quantized]
    notes = []
    if grouped:
        more = f" and {len(grouped) - 1} more" if len(grouped) > 1 else ""
        notes.append(
            f"{path.name} has no entry for the grouped convolution '{grouped[0]}'{more}: the mapper wants values for "
            "every group and finds them itself from its calibration images. Plain convolutions avoid that"
        )
    return Emitted((path,), tuple(notes))


@READ_BACKS.register("gfpq")
def check_gfpq(
    graph: Graph, plan: QuantPlan, qparams: QParamsTable, backend: Backend, folder: Path, name: str
) -> Iterator[str]:
    path = _path(folder, name)
    read = json.loads(path.read_text(encoding="utf-8"))["nnie"]["gfpq_param_dict"]
    wanted = gfpq_table(graph, plan, qparams)
    for layer in sorted(read.keys() | wanted.keys()):
        if layer not in read or layer not in wanted:
            yield f"{path.name}: layer '{layer}' is {'missing' if layer in wanted else 'one entry too many'}"
            continue
        if differs(read[layer], wanted[layer], 1e-12):
            yield f"{path.name}: layer '{layer}' has {read[layer]}, its inputs have {wanted[layer]}"
        steps = 16.0 * np.log2(np.asarray(read[layer], np.float64))
        if np.any(np.abs(steps - np.rint(steps)) > STEP_TOLERANCE):
            yield f"{path.name}: layer '{layer}' has {read[layer]}, and 16 * log2 of a clip value is an integer"


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}_gfpq_param_dict.json"
