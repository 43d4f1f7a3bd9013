"""Attributes: missing, of another type, with values that no operator expects."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change
from tools.fuzz.formats.onnx_models.parts import any_graph, graphs

NAMES = (
    *(
        "axis",
        "axes",
        "perm",
        "pads",
        "strides",
        "dilations",
        "kernel_shape",
        "group",
        "alpha",
        "beta",
        "transA",
        "transB",
        "to",
    ),
    *(
        "value",
        "value_float",
        "value_ints",
        "epsilon",
        "mode",
        "keepdims",
        "auto_pad",
        "ceil_mode",
        "output_shape",
        "block_size",
    ),
    *(
        "num_outputs",
        "hidden_size",
        "direction",
        "then_branch",
        "body",
        "num_scan_inputs",
        "equation",
        "saturate",
        "output_dtype",
    ),
    *("num_groups", "stash_type", "", "\x1b[31m", "no_such_attribute"),
)


def _node_with_attributes(model: onnx.ModelProto, rng: Random) -> onnx.NodeProto | None:
    graph = any_graph(model, rng)
    nodes = [node for node in graph.node if node.attribute] or [n for g in graphs(model) for n in g.node if n.attribute]
    return rng.choice(nodes) if nodes else None


def _attribute(model: onnx.ModelProto, rng: Random) -> AttributeProto | None:
    node = _node_with_attributes(model, rng)
    return rng.choice(node.attribute) if node else None


def _some_value(rng: Random) -> Any:
    number = hostile.integer(rng) if rng.random() < 0.5 else hostile.small_integer(rng)
    return rng.choice(
        (
            number,
            [number],
            [number] * rng.choice((2, 4, 9)),
            [],
            hostile.float_value(rng),
            [hostile.float_value(rng)] * 2,
            hostile.name(rng),
            [hostile.name(rng)],
            b"\xff\xfe not text",
            numpy_helper.from_array(np.zeros(rng.choice(((), (0,), (3,), (1, 1))), np.float32)),
            helper.make_graph([], "empty", [], []),
        )
    )


def _made(name: str, value: Any) -> AttributeProto:
    if value == []:
        return AttributeProto(name=name, type=AttributeProto.INTS)
    return helper.make_attribute(name, value)


def remove_attribute(model: onnx.ModelProto, rng: Random) -> None:
    if node := _node_with_attributes(model, rng):
        del node.attribute[rng.randrange(len(node.attribute))]


def other_value(model: onnx.ModelProto, rng: Random) -> None:
    """A value of the same type."""
    if (attribute := _attribute(model, rng)) is None:
        return
    number = hostile.integer(rng) if rng.random() < 0.4 else hostile.small_integer(rng)
    if attribute.type == AttributeProto.INT:
        attribute.i = number
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = number
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = hostile.float_value(rng)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice((hostile.name(rng).encode(), b"\xff\xfe", b"SAME_UPPER", b"NOTSET", b"linear"))


def other_length(model: onnx.ModelProto, rng: Random) -> None:
    attribute = _attribute(model, rng)
    if attribute is not None and attribute.ints:
        if rng.random() < 0.5:
            del attribute.ints[rng.randrange(len(attribute.ints)) :]
        else:
            attribute.ints.extend([hostile.small_integer(rng)] * rng.choice((1, 3, 500)))


def other_type(model: onnx.ModelProto, rng: Random) -> None:
    if attribute := _attribute(model, rng):
        attribute.CopyFrom(_made(attribute.name, _some_value(rng)))


def wrong_tag(model: onnx.ModelProto, rng: Random) -> None:
    """The type that is written is not the one that is there."""
    if attribute := _attribute(model, rng):
        attribute.type = rng.choice(list(AttributeProto.AttributeType.values()))


def add_attribute(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    if graph.node:
        rng.choice(graph.node).attribute.append(_made(rng.choice(NAMES), _some_value(rng)))


def repeat_attribute(model: onnx.ModelProto, rng: Random) -> None:
    if node := _node_with_attributes(model, rng):
        node.attribute.add().CopyFrom(rng.choice(node.attribute))


def rename_attribute(model: onnx.ModelProto, rng: Random) -> None:
    if attribute := _attribute(model, rng):
        attribute.name = rng.choice((*NAMES, hostile.name(rng)))


def refer_to_function(model: onnx.ModelProto, rng: Random) -> None:
    """A reference to an attribute of a function, also where there is no function around."""
    if attribute := _attribute(model, rng):
        attribute.ref_attr_name = rng.choice((attribute.name, "nowhere", ""))


CHANGES: Mapping[str, Change] = {
    f"attribute.{change.__name__}": change
    for change in (
        *(remove_attribute, other_value, other_length, other_type, wrong_tag, add_attribute, repeat_attribute),
        *(rename_attribute, refer_to_function),
    )
}
