"""The float model for tpu-mlir, with the attributes written out that it would read as something else when left out.

tpu-mlir takes the strides of a pooling that names none for the size of its window, where ONNX says 1, and it ends its
run on a Split without an axis or a ConvTranspose without a kernel_shape.

A layer whose result is read as float runs in float, and tpu-mlir leaves its weight as it is. Where the plan has a
quantizer on that weight, the values here are those of the quantizer, so that the chip computes what the plan says.

In F8E4M3 it compares codes with the upper end of a Clip as if they were values. A Clip from 0 on is a Relu there: what
is above ends at the largest code.
"""

from __future__ import annotations

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.deploy import deploy_model
from onnxq.emit.tables import MODEL_SUFFIX
from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.numerics import fake_quantize, float_max
from onnxq.targets.sophgo.float8 import UNSCALED, is_float8
from onnxq.targets.sophgo.modes import mode_of, operators
from onnxq.targets.sophgo.ranges import clips_at_zero
from onnxq.types import QParamsTable, QuantPlan
from onnxq.types.note import Note


def write_out_defaults(graph: Graph) -> list[str]:
    """Give nodes the attributes that ONNX would assume, and return a line for each."""
    notes: list[str] = []
    for node in graph.nodes():
        if node.op in ("MaxPool", "AveragePool") and "strides" not in node.attrs:
            node.attrs["strides"] = [1] * len(node.attrs["kernel_shape"])
            text = f"node '{node.name}' ({node.op}): strides of 1 written out, tpu-mlir would take its window"
            notes.append(Note("rewritten", text))
        elif node.op == "Split":
            node.attrs.setdefault("axis", 0)
        elif node.op in ("Conv", "ConvTranspose") and "kernel_shape" not in node.attrs:
            shape = graph.shape(node.inputs[1])
            if shape is not None:
                node.attrs["kernel_shape"] = [int(size) for size in shape[2:] if isinstance(size, int)]
    return notes


def clips_as_relus(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> list[str]:
    """Write a Relu for each Clip whose result is float8 and ends where the Clip does, and return a line for each."""
    notes: list[str] = []
    for node in graph.nodes():
        result = str(node.outputs[0].name) if node.op == "Clip" else ""
        if result not in plan or not is_float8(plan[result].spec) or not clips_at_zero(graph, node):
            continue
        if plan[result].spec.dtype == UNSCALED:
            continue  # codes are values there
        largest = float(qparams[result].scale) * float_max(plan[result].spec.dtype)
        top = _upper_end(graph, node)
        if largest > top * (1 + 1e-6):
            raise UnsupportedError(
                f"node '{node.name}' (Clip) ends at {top:g}, but the range of its float8 result ends at {largest:g}, "
                "and tpu-mlir cannot clip below that. Use the observer minmax there, or skip the node"
            )
        node.op = "Relu"
        node.attrs.clear()
        node.inputs = [node.inputs[0]]
        text = f"node '{node.name}' (Clip): written as Relu, its float8 result ends at {largest:g} anyway"
        notes.append(Note("rewritten", text))
    return notes


def _upper_end(graph: Graph, node: Node) -> float:
    if "max" in node.attrs:
        return float(node.attrs["max"])
    if len(node.inputs) < 3 or not node.inputs[2].name:
        return float("inf")
    return float(graph.values(node.inputs[2]).reshape(-1)[0]) if graph.is_constant(node.inputs[2]) else 0.0


def weights_of_float_layers(graph: Graph, request: EmitRequest) -> None:
    """Round the weights of layers that are quantized in the plan and run in float: tpu-mlir does not do it there."""
    for operator in operators(request.graph, request.plan):
        node, weight = operator.node, operator.weight
        if weight is None or node.name not in request.plan.quantized:
            continue
        parameters = request.qparams[weight]
        if mode_of(request.graph, request.plan, operator, "") == "" and parameters.spec.bits <= 8:
            values = graph.values(weight)
            graph.tensor(weight).values = fake_quantize(values.astype(np.float32), parameters).astype(values.dtype)


def write_deploy_model(request: EmitRequest) -> Emitted:
    """Write `<name>_deploy_model.onnx`: the float model for tpu-mlir's model_transform."""
    result = deploy_model(*request.quantized)
    weights_of_float_layers(result, request)
    notes = [*write_out_defaults(result), *clips_as_relus(result, request.plan, request.qparams)]
    return Emitted(tuple(result.save(request.path(MODEL_SUFFIX))), tuple(notes))


EMITTERS.add("sophgo_deploy", Emitter(write_deploy_model, files=(MODEL_SUFFIX,)))
