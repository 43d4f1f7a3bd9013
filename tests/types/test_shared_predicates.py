"""The reasons that several targets share for leaving a node float."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxq.graph import Graph
from onnxq.place.facts import Facts
from onnxq.types.backend import Decline
from onnxq.types.presets import (
    declines_constant_operand,
    declines_interpolation,
    declines_other_gathers,
    declines_padding_value,
)

CONSTANTS = """<float[4] c = {1,2,3,4}, float[3,4] table = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] scales = {1,1,2,2},
    int64[8] pads = {0,0,1,1,0,0,1,1}, float zero = {0}, float nine = {9}, int64[2,2] numbers = {1,2,3,4}>"""


def facts_of(node: str) -> Facts:
    """One node that may read two images, one index, a computed number and the constants."""
    signature = "(float[1,2,4,4] x, float[1,2,4,4] z, int64[2] rows, float computed) => (y)"
    text = f'<ir_version: 9, opset_import: ["" : 18]> g {signature} {CONSTANTS} {{ y = {node} }}'
    graph = Graph.from_model(onnx.parser.parse_model(text))
    graph.infer_shapes()
    return Facts(graph, next(iter(graph.nodes())))


@pytest.mark.parametrize(
    ("decline", "node", "reason"),
    [
        (declines_constant_operand, "Add (x, z)", None),
        (declines_constant_operand, "Add (x, c)", "adds a constant"),
        (declines_constant_operand, "Add (c, x)", "adds a constant"),
        (declines_interpolation, "Resize (x, , scales)", None),
        (declines_interpolation, 'Resize <mode = "nearest"> (x, , scales)', None),
        (declines_interpolation, 'Resize <mode = "linear"> (x, , scales)', "mode 'linear' computes new values"),
        (declines_interpolation, 'Resize <mode = "cubic"> (x, , scales)', "mode 'cubic' computes new values"),
        (declines_padding_value, "Pad (x, pads)", None),
        (declines_padding_value, "Pad (x, pads, zero)", None),
        (declines_padding_value, "Pad (x, pads, nine)", "another value than 0"),
        (declines_padding_value, "Pad (x, pads, computed)", "another value than 0"),
        (declines_padding_value, 'Pad <mode = "reflect"> (x, pads)', None),
        (declines_padding_value, 'Pad <mode = "edge"> (x, pads, nine)', None),
        (declines_other_gathers, "Gather (table, rows)", None),
        (declines_other_gathers, "Gather <axis = 1> (table, rows)", "does not look up rows"),
        (declines_other_gathers, "Gather (x, rows)", "does not look up rows"),
        (declines_other_gathers, "Gather (numbers, rows)", "its table holds int64 values"),
    ],
)
def test_reason_to_leave_a_node_float(decline: Decline, node: str, reason: str | None) -> None:
    said = decline(facts_of(node))
    assert said is None if reason is None else reason in str(said)
