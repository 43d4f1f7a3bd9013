"""The table of clip values for HiSilicon's NNIE mapper, keyed by the name of the layer that reads the tensors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.tables import Row, derived_key, differs, missing_and_extra, rows
from onnxq.emit.uses import uses_of
from onnxq.errors import UnsupportedError
from onnxq.files import write_json
from onnxq.graph import Graph, Node
from onnxq.numerics import nnie_clip, nnie_steps
from onnxq.numerics.formats.nnie import STEPS_PER_OCTAVE
from onnxq.targets.nnie.deploy import no_upsample
from onnxq.types import Edge, QParamsTable, QuantPlan

SUFFIX = "_gfpq_param_dict.json"
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
        enlarges = _enlarges(graph, node)
        if enlarges:
            values = values[:1]
        if values:
            table[node.name] = values
        if enlarges:
            if values:
                key = f"{node.name}_permute_{upsamples}"
                table[derived_key(key, graph.has_node(key), node.name)] = values
            upsamples += 1
    return table


def _enlarges(graph: Graph, node: Node) -> bool:
    """Whether the deploy model has an Upsample for the node."""
    return node.op == "Upsample" or (node.op == "Resize" and no_upsample(graph, node) is None)


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
            if parameters.spec.dtype != "nnie8":
                raise UnsupportedError(
                    f"tensor '{tensor.name}' is {parameters.spec}, and a gfpq table holds clip values of nnie8 only. "
                    'Set dtype = "nnie8" under [activation]'
                )
            values.append(float(nnie_clip(parameters.scale)))
    return values


def write_gfpq(request: EmitRequest) -> Emitted:
    """Write `<name>_gfpq_param_dict.json`: clip values for the NNIE mapper, by the name of the layer that reads."""
    path = request.path(SUFFIX)
    write_json(path, {"nnie": {"gfpq_param_dict": gfpq_table(*request.quantized)}})
    grouped = [node.name for node in request.graph.nodes() if is_grouped(node) and node.name in request.plan.quantized]
    notes = []
    if grouped:
        more = f" and {len(grouped) - 1} more" if len(grouped) > 1 else ""
        notes.append(
            f"{path.name} has no entry for the grouped convolution '{grouped[0]}'{more}: the mapper wants values for "
            "every group and finds them itself from its calibration images. Plain convolutions avoid that"
        )
    return Emitted((path,), tuple(notes))


def check_gfpq(request: EmitRequest) -> Iterator[str]:
    """Compare the steps of every clip value with the parameters of what the layer reads at that place."""
    path = request.path(SUFFIX)
    found = json.loads(path.read_text(encoding="utf-8"))["nnie"]["gfpq_param_dict"]
    wanted = _layers_that_read(*request.quantized)
    yield from missing_and_extra(path.name, found, wanted)
    for layer in found.keys() & wanted.keys():
        with np.errstate(divide="ignore", invalid="ignore"):  # what is not positive has no steps, and is reported
            steps = STEPS_PER_OCTAVE * np.log2(np.asarray(found[layer], np.float64))
        if np.any(~(np.abs(steps - np.rint(steps)) <= STEP_TOLERANCE)):
            yield f"{path.name}: layer '{layer}' has {found[layer]}, and 16 * log2 of a clip value is an integer"
        scales = np.asarray([row.qparams.scale for row in wanted[layer]], np.float64)
        if differs(np.rint(steps), nnie_steps(scales), 0):
            yield f"{path.name}: layer '{layer}' has {found[layer]}, its inputs have {scales.tolist()}"


def _layers_that_read(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> dict[str, list[Row]]:
    """Entry -> the quantized tensors that the layer reads, found from the tensors; an Upsample has one."""
    ports: dict[str, dict[int, Row]] = {}
    for row in rows(graph, plan, qparams):
        uses = uses_of(graph, row.placement)
        for use in graph.consumers(row.tensor) if uses is None else uses:
            if not _is_left_out(use.node):
                ports.setdefault(use.node.name, {})[use.port] = row
    found = {layer: [read[port] for port in sorted(read)] for layer, read in ports.items()}
    for number, node in enumerate(node for node in graph.nodes() if _enlarges(graph, node)):
        if node.name in found:
            found[node.name] = found[f"{node.name}_permute_{number}"] = found[node.name][:1]
    return found


EMITTERS.add("gfpq", Emitter(write_gfpq, files=(SUFFIX,), read_back=check_gfpq))
