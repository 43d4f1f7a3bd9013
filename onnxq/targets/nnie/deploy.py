"""The float model for the NNIE mapper: Resize written as Upsample with inputs [x, scales], which the mapper reads.

ONNX has Upsample up to opset 9 only. Where every operator can be said in opset 9, the model is written in it, and the
ONNX checker accepts it. Otherwise Upsample stays in a model of a newer opset: the mapper does not mind, the checker
and onnxruntime do, and a note says which node is the reason.
"""

from __future__ import annotations

import numpy as np

from onnxq.emit import EMITTERS, EmitRequest, Emitted, Emitter
from onnxq.emit.deploy import deploy_model
from onnxq.emit.tables import MODEL_SUFFIX
from onnxq.graph import Graph, Node
from onnxq.targets.nnie.upsample_opset import UPSAMPLE_OPSET, lower_to_upsample_opset
from onnxq.types import QParamsTable, QuantPlan

_ROUND = ("round_prefer_floor", "round_prefer_ceil")


def write_mapper_model(request: EmitRequest) -> Emitted:
    """Write `<name>_deploy_model.onnx`: the float model for the NNIE mapper, with Upsample instead of Resize."""
    result, notes = mapper_model(*request.quantized)
    return Emitted(tuple(result.save(request.path(MODEL_SUFFIX))), tuple(notes))


def mapper_model(graph: Graph, plan: QuantPlan, qparams: QParamsTable) -> tuple[Graph, list[str]]:
    """The model, and a line for each thing that the mapper or the checker will not take."""
    result = deploy_model(graph, plan, qparams)
    notes = []
    for node in result.nodes("Resize"):
        reason = _become_upsample(result, node)
        if reason:
            notes.append(f"Resize '{node.name}' stays what it is, and the mapper has no such operator: {reason}")
    if result.nodes("Upsample") and result.opset > UPSAMPLE_OPSET:
        reason = lower_to_upsample_opset(result)
        if reason:
            notes.append(
                f"the deploy model has Upsample nodes in opset {result.opset}, which ONNX dropped after opset "
                f"{UPSAMPLE_OPSET}; it cannot be written in that opset: {reason}. The mapper reads it all the same, "
                "onnxruntime and the ONNX checker do not"
            )
    result.remove_unused_constants()
    return result, notes


def no_upsample(graph: Graph, node: Node) -> str | None:
    """Why an Upsample would not compute what a Resize computes, or None."""
    mode = node.attrs.get("mode", "nearest")
    if mode != "nearest":
        return f"mode '{mode}'"
    scales = resize_scales(graph, node)
    if scales is None:
        return "its scales are not constants"
    if np.any(scales < 1) or np.any(scales != np.rint(scales)):
        return f"scales {scales.tolist()} are not whole numbers"
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
    same = (coordinates == "asymmetric" and rounding == "floor") or (
        coordinates in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and rounding in _ROUND
    )
    if graph.opset > 10 and not same:
        return f"coordinates '{coordinates}' rounded '{rounding}' take other pixels"
    return None


def _become_upsample(graph: Graph, node: Node) -> str | None:
    """Change the node, or say why it must stay."""
    reason = no_upsample(graph, node)
    scales = resize_scales(graph, node)
    if reason is not None or scales is None:
        return reason
    constant = graph.add_constant(f"{node.name}_scales", scales.astype(np.float32), scope=graph.scope_of(node))
    node.op = "Upsample"
    node.attrs.clear()
    node.attrs["mode"] = "nearest"
    node.inputs = [node.inputs[0], constant]
    return None


def resize_scales(graph: Graph, node: Node) -> np.ndarray | None:
    """The factor along each axis: from the scales, or from the sizes and the shape of the input; None if unknown."""
    port = 2 if graph.opset > 10 and node.op == "Resize" else 1
    shape, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if "axes" not in node.attrs and len(node.inputs) > port and node.inputs[port].name:
        if not graph.is_constant(node.inputs[port]):
            return None
        scales = graph.values(node.inputs[port]).astype(np.float64)
        if scales.size:
            return np.asarray(scales)
    if "scales" in node.attrs:
        return np.asarray(node.attrs["scales"], np.float64)
    if shape is None or after is None or len(shape) != len(after):
        return None
    factors = []
    for axis, (before, size) in enumerate(zip(shape, after, strict=True)):
        if before == size or axis < 2:
            factors.append(1.0)  # the batch may be any number, and channels are never enlarged
        elif isinstance(before, int) and isinstance(size, int) and before > 0:
            factors.append(size / before)
        else:
            return None
    return np.array(factors)


EMITTERS.add("nnie_deploy", Emitter(write_mapper_model, files=(MODEL_SUFFIX,)))
