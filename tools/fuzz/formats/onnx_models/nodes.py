"""Nodes: what they read and write, what they are, and in which order they stand."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import onnx
from onnx import helper

from tools.fuzz.formats.format import Change
from tools.fuzz.formats.onnx_models.parts import any_graph, any_node, tensor_names

OPERATORS = (
    *(
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "Add",
        "Mul",
        "Div",
        "Sub",
        "Relu",
        "Clip",
        "Sigmoid",
        "HardSigmoid",
        "Softmax",
    ),
    *(
        "BatchNormalization",
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "RMSNormalization",
        "LRN",
    ),
    *(
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "Concat",
        "Split",
        "Slice",
        "Gather",
        "Reshape",
        "Transpose",
        "Pad",
    ),
    *(
        "Resize",
        "Upsample",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Expand",
        "Tile",
        "Where",
        "Cast",
        "Identity",
        "Dropout",
    ),
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger"),
    *(
        "LSTM",
        "GRU",
        "RNN",
        "If",
        "Loop",
        "Scan",
        "SequenceMap",
        "SequenceConstruct",
        "SequenceAt",
        "Optional",
        "OptionalGetElement",
    ),
    *(
        "TopK",
        "NonZero",
        "NonMaxSuppression",
        "ReduceMean",
        "ReduceSum",
        "ArgMax",
        "Einsum",
        "PRelu",
        "Gelu",
        "Attention",
    ),
    *(
        "Constant",
        "ConstantOfShape",
        "Shape",
        "Range",
        "RandomNormal",
        "StringNormalizer",
        "DepthToSpace",
        "GridSample",
        "Mod",
    ),
    *("NoSuchOperator", "", "conv", "Conv "),
)
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.example", "onnxq", "ai.onnx.preview.training", "\x1b[31m")


def remove_input(model: onnx.ModelProto, rng: Random) -> None:
    if (node := any_node(model, rng)) and node.input:
        del node.input[rng.randrange(len(node.input))]


def remove_all_inputs(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        del node.input[:]


def add_input(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        names = tensor_names(model.graph) or ["x"]
        node.input.extend(rng.choice(("", rng.choice(names), "nowhere")) for _ in range(rng.choice((1, 1, 2, 20))))


def empty_input(model: onnx.ModelProto, rng: Random) -> None:
    if (node := any_node(model, rng)) and node.input:
        node.input[rng.randrange(len(node.input))] = ""


def other_input(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    nodes = [node for node in graph.node if node.input]
    if nodes:
        node = rng.choice(nodes)
        node.input[rng.randrange(len(node.input))] = rng.choice([*tensor_names(graph), "nowhere"])


def swap_inputs(model: onnx.ModelProto, rng: Random) -> None:
    if (node := any_node(model, rng)) and len(node.input) > 1:
        first, second = rng.sample(range(len(node.input)), 2)
        node.input[first], node.input[second] = node.input[second], node.input[first]


def remove_output(model: onnx.ModelProto, rng: Random) -> None:
    if (node := any_node(model, rng)) and node.output:
        del node.output[rng.randrange(len(node.output))]


def add_output(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        node.output.append(rng.choice(("", "added.output", *node.output[:1])))


def empty_output(model: onnx.ModelProto, rng: Random) -> None:
    if (node := any_node(model, rng)) and node.output:
        node.output[rng.randrange(len(node.output))] = ""


def twin_output(model: onnx.ModelProto, rng: Random) -> None:
    """A node that writes what another one writes too."""
    graph = any_graph(model, rng)
    nodes = [node for node in graph.node if node.output]
    if nodes:
        rng.choice(nodes).output[0] = rng.choice(tensor_names(graph))


def close_cycle(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    nodes = [node for node in graph.node if node.input and node.output]
    if nodes:
        first, second = sorted((rng.randrange(len(nodes)), rng.randrange(len(nodes))))
        nodes[first].input[0] = nodes[second].output[0]


def remove_node(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    if graph.node:
        del graph.node[rng.randrange(len(graph.node))]


def repeat_node(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        copy = model.graph.node.add()
        copy.CopyFrom(node)
        if rng.random() < 0.5:
            copy.output[:] = [f"{name}.again" for name in copy.output]


def reorder_nodes(model: onnx.ModelProto, rng: Random) -> None:
    graph = any_graph(model, rng)
    nodes = list(graph.node)
    rng.shuffle(nodes)
    del graph.node[:]
    graph.node.extend(nodes)


def other_operator(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        node.op_type = rng.choice(OPERATORS)


def other_domain(model: onnx.ModelProto, rng: Random) -> None:
    if node := any_node(model, rng):
        node.domain = rng.choice(DOMAINS)


def insert_node(model: onnx.ModelProto, rng: Random) -> None:
    """A node in the middle of an edge, with one input and no attributes."""
    node = any_node(model, rng)
    if node and node.input:
        port = rng.randrange(len(node.input))
        made = helper.make_node(rng.choice(OPERATORS), [node.input[port]], [f"inserted.{rng.getrandbits(16)}"])
        node.input[port] = made.output[0]
        model.graph.node.append(made)


def many_readers(model: onnx.ModelProto, rng: Random) -> None:
    names = [name for name in tensor_names(model.graph) if name]
    if names:
        source, count = rng.choice(names), rng.choice((10, 300))
        model.graph.node.extend(helper.make_node("Relu", [source], [f"reader.{index}"]) for index in range(count))


def long_chain(model: onnx.ModelProto, rng: Random) -> None:
    """More nodes in a row than a recursive walk can follow."""
    if not model.graph.output:
        return
    last = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = ["chain.0" if name == last else name for name in node.output]
        node.input[:] = ["chain.0" if name == last else name for name in node.input]
    count = rng.choice((50, 1200))
    model.graph.node.extend(
        helper.make_node("Neg", [f"chain.{index}"], [last if index == count - 1 else f"chain.{index + 1}"])
        for index in range(count)
    )


CHANGES: Mapping[str, Change] = {
    f"node.{change.__name__}": change
    for change in (
        *(remove_input, remove_all_inputs, add_input, empty_input, other_input, swap_inputs, remove_output),
        *(add_output, empty_output, twin_output, close_cycle, remove_node, repeat_node, reorder_nodes),
        *(other_operator, other_domain, insert_node, many_readers, long_chain),
    )
}
