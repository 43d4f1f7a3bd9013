"""Upsample and the early versions of Resize in the terms of Resize 13.

Neither Upsample nor Resize 10 says which pixel is the nearest. Runtimes take the source coordinate as output / scale
(asymmetric) and round it down, and up along an axis that shrinks; that is what the rewrites keep. Axes are independent
of each other, so an unknown mixture is exact as two nodes: first what shrinks, then what grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx_graphsurgeon as gs

from onnxq.graph.opset_edit import (
    Refusal,
    add_after,
    add_beside,
    constant_values,
    has_input,
    leave_out_input,
    set_attribute,
    set_constant_input,
    set_input,
    take_attribute,
)

if TYPE_CHECKING:
    from onnxq.graph.graph import Graph


def upsample_scales_to_input(graph: Graph, node: gs.Node) -> str:
    set_constant_input(graph, node, 1, "scales", take_attribute(node, "scales"), np.float32)
    return "scales became an input"


def upsample_to_resize(graph: Graph, node: gs.Node) -> str:
    node.op = "Resize"
    return "the same under its new name"


def resize_10_to_11(graph: Graph, node: gs.Node) -> str:
    """Resize 11 takes a region of interest as input 1 and says in attributes how coordinates are found."""
    scales = node.inputs[1]
    values = constant_values(graph, node, 1)
    shrinks = values is None or bool(np.any(values < 1))
    grows = values is None or bool(np.any(values > 1))
    if node.attrs.get("mode", "nearest") != "nearest" or not shrinks:
        _become_asymmetric(graph, node, scales, "floor")
        return "coordinates are asymmetric, as before"
    if not grows:
        _become_asymmetric(graph, node, scales, "ceil")
        return "coordinates are asymmetric and rounded up, as before where the size shrinks"
    one = graph.add_constant(f"{node.name}_one", np.array(1, dtype=np.float32))
    growing = add_after(graph, node, "Resize", "grow")
    growing.attrs["mode"] = "nearest"
    _become_asymmetric(graph, node, add_beside(graph, node, "Min", [scales, one], "shrinking"), "ceil")
    _become_asymmetric(graph, growing, add_beside(graph, node, "Max", [scales, one], "growing"), "floor")
    return "shrinking and growing became two nodes, as their coordinates are rounded up and down"


def _become_asymmetric(graph: Graph, node: gs.Node, scales: gs.Tensor, rounding: str) -> None:
    set_input(graph, node, 2, scales)  # before input 1, where the constant would lose its last reader
    set_constant_input(graph, node, 1, "roi", [], np.float32)
    set_attribute(node, "coordinate_transformation_mode", "asymmetric")
    if node.attrs.get("mode", "nearest") == "nearest":
        set_attribute(node, "nearest_mode", rounding)


def resize_11_to_13(graph: Graph, node: gs.Node) -> str | None:
    """Resize 13 leaves out what Resize 11 gives as an empty tensor, and has one way less to find coordinates."""
    changes = [_replace_tensorflow_coordinates(graph, node), _drop_empty_inputs(graph, node)]
    return " and ".join(change for change in changes if change) or None


def _replace_tensorflow_coordinates(graph: Graph, node: gs.Node) -> str | None:
    """Rounding down x = (output + 1/2) / scale is rounding x - 1/2, the coordinate of half_pixel, half up.

    Only whole scales keep x so far from whole numbers that floating point cannot tell the two apart.
    """
    if node.attrs.get("coordinate_transformation_mode") != "tf_half_pixel_for_nn":
        return None
    scales = constant_values(graph, node, 2) if has_input(node, 2) else None
    whole = scales is not None and scales.size > 0 and bool(np.all(scales == np.round(scales)))
    if node.attrs.get("mode", "nearest") != "nearest" or node.attrs.get("nearest_mode") != "floor" or not whole:
        raise Refusal(
            "tf_half_pixel_for_nn is gone, and has an exact equivalent only with mode=nearest, nearest_mode=floor and "
            "scales that are whole constants"
        )
    set_attribute(node, "coordinate_transformation_mode", "half_pixel")
    set_attribute(node, "nearest_mode", "round_prefer_ceil")
    return "tf_half_pixel_for_nn with floor became half_pixel with round_prefer_ceil"


def _drop_empty_inputs(graph: Graph, node: gs.Node) -> str | None:
    names = []
    for port, name in ((1, "roi"), (2, "scales")):
        if has_input(node, port):
            values = constant_values(graph, node, port)
            if values is not None and values.size == 0:
                leave_out_input(graph, node, port)
                names.append(name)
    return f"the empty {' and '.join(names)} left out" if names else None
