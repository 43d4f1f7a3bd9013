"""Names: hostile ones, collisions, and some that are no text at all, which bytes alone can say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

import onnx

from tools.fuzz import hostile
from tools.fuzz.formats.format import Change
from tools.fuzz.formats.onnx_models.parts import any_node, graphs, tensor_names

NO_TEXT = "no-text-here"
"""Replaced by bytes that are no UTF-8 when the model is written: protobuf refuses to hold them in memory."""
NO_TEXT_BYTES = b"no-\xff\xfe\xc3(-here"


def rename_everywhere(model: onnx.ModelProto, old: str, new: str) -> None:
    for graph in graphs(model):
        for node in graph.node:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
                if value.name == old:
                    value.name = new


def _rename(model: onnx.ModelProto, rng: Random, new: Callable[[list[str]], str]) -> None:
    names = [name for name in tensor_names(model.graph) if name]
    if names:
        rename_everywhere(model, rng.choice(names), new(names))


def odd_tensor_name(model: onnx.ModelProto, rng: Random) -> None:
    _rename(model, rng, lambda _: hostile.name(rng))


def colliding_tensor_names(model: onnx.ModelProto, rng: Random) -> None:
    _rename(model, rng, rng.choice)


def suffixed_tensor_name(model: onnx.ModelProto, rng: Random) -> None:
    """A name that the program itself would make up for another tensor."""
    suffixes = (
        "_quantized",
        "_scale",
        "_zero_point",
        "_DequantizeLinear_Output",
        ".quantized",
        "_fq",
        "_bias",
        "_1",
        "_float",
    )
    _rename(model, rng, lambda names: rng.choice(names) + rng.choice(suffixes))


def tensor_name_without_text(model: onnx.ModelProto, rng: Random) -> None:
    _rename(model, rng, lambda _: NO_TEXT)


def odd_node_name(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        node.name = rng.choice((hostile.name(rng), NO_TEXT))


def same_node_names(model: onnx.ModelProto, rng: Random) -> None:
    name = rng.choice(("", "twin", hostile.name(rng)))
    for node in model.graph.node:
        if rng.random() < 0.5:
            node.name = name


def odd_graph_name(model: onnx.ModelProto, rng: Random) -> None:
    model.graph.name = rng.choice((hostile.name(rng), NO_TEXT))


def serialize(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString()
    assert len(NO_TEXT) == len(NO_TEXT_BYTES)
    return data.replace(NO_TEXT.encode(), NO_TEXT_BYTES)


CHANGES: Mapping[str, Change] = {
    f"name.{change.__name__}": change
    for change in (
        *(odd_tensor_name, colliding_tensor_names, suffixed_tensor_name, tensor_name_without_text, odd_node_name),
        *(same_node_names, odd_graph_name),
    )
}
