"""One rewrite for each redefinition of an ONNX operator that concerns nodes of the version before.

A rewrite edits a node so that it means in the new version what it meant in the one before, and returns what it did in
a few words, or None if this node needed nothing. It raises `Refusal` where no exact equivalent exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import onnx_graphsurgeon as gs
from onnx import helper

from onnxq.graph.opset_edit import (
    Refusal,
    add_beside,
    compute_on_matrix,
    constant_values,
    element_type,
    has_input,
    is_read,
    set_attribute,
    set_constant_input,
    take_attribute,
)
from onnxq.graph.opset_resize import resize_10_to_11, resize_11_to_13, upsample_scales_to_input, upsample_to_resize

if TYPE_CHECKING:
    from onnxq.graph.graph import Graph

Rewrite = Callable[["Graph", gs.Node], str | None]


def _list_to_input(name: str, port: int = 1) -> Rewrite:
    """An attribute that holds integers became an input; absent or empty keeps the default of the operator."""

    def rewrite(graph: Graph, node: gs.Node) -> str | None:
        values = take_attribute(node, name)
        if not values:
            return None
        set_constant_input(graph, node, port, name, values)
        return f"{name} became an input"

    return rewrite


def _clip_bounds_to_inputs(graph: Graph, node: gs.Node) -> str | None:
    bounds = {1: ("min", take_attribute(node, "min")), 2: ("max", take_attribute(node, "max"))}
    given = {port: (name, value) for port, (name, value) in bounds.items() if value is not None}
    for port, (name, value) in given.items():
        dtype = element_type(graph, node)
        if (
            dtype != np.float16 or not float(np.finfo(dtype).max) < abs(value) < np.inf
        ):  # no bound is the limit of the type
            set_constant_input(graph, node, port, name, value, dtype)
    return f"{' and '.join(name for name, _ in given.values())} became inputs" if given else None


def _pad_to_inputs(graph: Graph, node: gs.Node) -> str:
    set_constant_input(graph, node, 1, "pads", take_attribute(node, "pads"))
    value = take_attribute(node, "value", 0.0)
    if value != 0.0 and node.attrs.get("mode", "constant") == "constant":
        set_constant_input(graph, node, 2, "value", value, element_type(graph, node))
    return "pads and value became inputs"


def _slice_to_inputs(graph: Graph, node: gs.Node) -> str:
    for port, name in enumerate(("starts", "ends", "axes"), start=1):
        values = take_attribute(node, name)
        if values:
            set_constant_input(graph, node, port, name, values)
    return "starts, ends and axes became inputs"


def _topk_count_to_input(graph: Graph, node: gs.Node) -> str:
    set_constant_input(graph, node, 1, "k", [take_attribute(node, "k")])
    return "k became an input"


def _count_split_outputs(graph: Graph, node: gs.Node) -> str | None:
    if has_input(node, 1):
        return None
    set_attribute(node, "num_outputs", len(node.outputs))
    return f"num_outputs={len(node.outputs)} says what the number of outputs said"


def _dropout_mask(graph: Graph, node: gs.Node) -> str | None:
    """The mask of Dropout 7 has the type of the data, the later ones are boolean."""
    _refuse_used_mask(graph, node)
    if len(node.outputs) < 2:
        return None
    del node.outputs[1]
    return "the unused mask is gone"


def _refuse_used_mask(graph: Graph, node: gs.Node) -> None:
    if len(node.outputs) > 1 and is_read(graph, node.outputs[1]):
        raise Refusal(f"its mask '{node.outputs[1].name}' is used; only since Dropout 12 its values are defined")


def _dropout_ratio_to_input(graph: Graph, node: gs.Node) -> str | None:
    _refuse_used_mask(graph, node)
    ratio = take_attribute(node, "ratio")
    if ratio is None:
        return None
    set_constant_input(graph, node, 1, "ratio", ratio, np.float32)
    return "ratio became an input"


def _softmax_axis(graph: Graph, node: gs.Node) -> str | None:
    """Softmax, LogSoftmax and Hardmax ran over all axes from `axis` on, as one; now they run over the axis alone."""
    axis = node.attrs.get("axis", 1)
    shape = graph.shape(node.inputs[0])
    if shape is not None:
        if not -len(shape) <= axis < len(shape):
            raise Refusal(f"its axis {axis} is outside of the rank {len(shape)} of '{node.inputs[0].name}'")
        axis %= len(shape)
        longer = [number for number in range(axis, len(shape)) if shape[number] != 1]
        if len(longer) <= 1:
            kept = (longer or [axis])[0]
            if node.attrs.get("axis") == kept:
                return None
            set_attribute(node, "axis", kept)
            return f"axis={kept} is the only one with more than one element"
    compute_on_matrix(graph, node, axis)
    set_attribute(node, "axis", -1)
    return f"computed on the input flattened at axis {axis}"


def _batchnorm_without_spatial(graph: Graph, node: gs.Node) -> str | None:
    if take_attribute(node, "spatial", 1) != 0:
        return None
    shape = graph.shape(node.inputs[0])
    if shape is None or graph.shape(node.inputs[1]) is None:
        raise Refusal("it has spatial=0, and the shapes of its inputs are unknown; declare them in the model")
    if len(graph.shape(node.inputs[1]) or ()) != len(shape) - 1:
        raise Refusal("it has spatial=0 with a scale that is not of the shape of one sample")
    if len(shape) > 2:
        compute_on_matrix(graph, node, 1)
        for port in range(1, 5):
            flat = graph.add_constant(f"{node.name}_flat", np.array([-1], dtype=np.int64))
            node.inputs[port] = add_beside(graph, node, "Reshape", [node.inputs[port], flat], f"input{port}")
    return "spatial=0 is computed on flattened samples"


def _batchnorm_outputs(graph: Graph, node: gs.Node) -> str | None:
    extra = [tensor.name for tensor in node.outputs[1:] if tensor.name]
    if extra:
        raise Refusal(
            f"its outputs {', '.join(repr(name) for name in extra)} make it a node in training mode, whose statistics "
            "are those of the batch; export the model in evaluation mode"
        )
    if len(node.outputs) < 2:
        return None
    while len(node.outputs) > 1:
        node.outputs.pop()
    return "the outputs without a name are gone"


def _scatter_to_scatter_elements(graph: Graph, node: gs.Node) -> str:
    node.op = "ScatterElements"
    return "the same under its new name"


def _roi_align_coordinates(graph: Graph, node: gs.Node) -> str:
    set_attribute(node, "coordinate_transformation_mode", "output_half_pixel")
    return "coordinate_transformation_mode=output_half_pixel is what the older version computes"


def _grid_sample_mode(graph: Graph, node: gs.Node) -> str | None:
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = node.attrs.get("mode")
    if mode not in renamed:
        return None
    set_attribute(node, "mode", renamed[mode])
    return f"mode {mode} is called {renamed[mode]}"


def _dft_axis_to_input(graph: Graph, node: gs.Node) -> str:
    set_constant_input(graph, node, 2, "axis", take_attribute(node, "axis", 1))
    return "axis became an input"


def _group_norm_per_channel(graph: Graph, node: gs.Node) -> str:
    shape = graph.shape(node.inputs[0])
    channels = shape[1] if shape is not None and len(shape) > 1 else None
    parameters = {port: constant_values(graph, node, port) for port in (1, 2)}
    if not isinstance(channels, int) or any(values is None for values in parameters.values()):
        raise Refusal("its scale and bias are given per group, and only constants can be repeated for each channel")
    repeats = channels // int(node.attrs["num_groups"])
    for (port, values), name in zip(parameters.items(), ("scale", "bias"), strict=True):
        set_constant_input(graph, node, port, name, np.repeat(np.asarray(values), repeats), np.asarray(values).dtype)
    dtype = element_type(graph, node)
    if dtype != np.float32:  # the older version computes in the type of its input
        set_attribute(node, "stash_type", int(helper.np_dtype_to_tensor_dtype(dtype)))
    return "scale and bias are repeated for each channel"


def _floating_point_only(graph: Graph, node: gs.Node) -> None:
    if element_type(graph, node).kind in "iu":
        raise Refusal(f"integers such as those of '{node.inputs[0].name}' are no longer allowed")


_axes_to_input = _list_to_input("axes")

REWRITES: dict[tuple[str, int], Rewrite] = {
    ("BatchNormalization", 9): _batchnorm_without_spatial,
    ("Upsample", 9): upsample_scales_to_input,
    ("Dropout", 10): _dropout_mask,
    ("Slice", 10): _slice_to_inputs,
    ("TopK", 10): _topk_count_to_input,
    ("Upsample", 10): upsample_to_resize,
    ("Clip", 11): _clip_bounds_to_inputs,
    ("Pad", 11): _pad_to_inputs,
    ("Resize", 11): resize_10_to_11,
    ("Scatter", 11): _scatter_to_scatter_elements,
    ("Dropout", 12): _dropout_ratio_to_input,
    ("Erf", 13): _floating_point_only,
    ("Hardmax", 13): _softmax_axis,
    ("LogSoftmax", 13): _softmax_axis,
    ("ReduceSum", 13): _axes_to_input,
    ("Resize", 13): resize_11_to_13,
    ("Softmax", 13): _softmax_axis,
    ("Split", 13): _list_to_input("split"),
    ("Squeeze", 13): _axes_to_input,
    ("Unsqueeze", 13): _axes_to_input,
    ("BatchNormalization", 14): _batchnorm_outputs,
    ("RoiAlign", 16): _roi_align_coordinates,
    ("ReduceL1", 18): _axes_to_input,
    ("ReduceL2", 18): _axes_to_input,
    ("ReduceLogSum", 18): _axes_to_input,
    ("ReduceLogSumExp", 18): _axes_to_input,
    ("ReduceMax", 18): _axes_to_input,
    ("ReduceMean", 18): _axes_to_input,
    ("ReduceMin", 18): _axes_to_input,
    ("ReduceProd", 18): _axes_to_input,
    ("ReduceSumSquare", 18): _axes_to_input,
    ("Split", 18): _count_split_outputs,
    ("DFT", 20): _dft_axis_to_input,
    ("GridSample", 20): _grid_sample_mode,
    ("GroupNormalization", 21): _group_norm_per_channel,
    ("ReduceLogSum", 28): _floating_point_only,
    ("ReduceLogSumExp", 28): _floating_point_only,
}
"""(operator, version) -> the rewrite into that version from the one before."""
