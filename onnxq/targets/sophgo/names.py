"""How tpu-mlir names what it makes of an ONNX model: its tables are keyed by these names.

An operator is called `<first output>_<operator>`, an input keeps its name, every output of a Split counts. tpu-mlir
simplifies the model first: a Relu behind a layer becomes part of it and the pair has the Relu's name; a MatMul takes
the Add behind it in; decomposed LayerNorm, GELU and HardSwish become one operator. Where it is not certain which form
tpu-mlir arrives at, all names are listed: it ignores rows for names that it does not have.
"""

from __future__ import annotations

from typing import Any

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node

_UNIT_OPERATORS = {"LayerNorm": "LayerNormalization", "Gelu": "GELU", "GELU": "GELU", "HardSwish": "HardSwish"}
"""A unit of onnxq -> the operator that tpu-mlir makes of it."""

_OTHER_OPERATORS = {"Slice": ("Gather",), "Gelu": ("GELU",), "Clip": ("Relu",)}
"""Operators that tpu-mlir, or the model that is written for it, sometimes turns into others."""

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators whose second input may be a weight."""

LOOKED_UP = ("Sigmoid", "Tanh", "Elu", "HardSigmoid", "HardSwish", "Softplus", "Mish", "LeakyRelu", "PRelu")
"""Element-wise functions that chips take from a table with 256 entries."""

MATRICES = ("Gemm", "MatMul")
"""Layers whose weight has one scale, unless it alone is quantized."""

FLOATS = ("float32", "float16", "bfloat16", "float64")


def names_of(graph: Graph, tensor: str) -> tuple[str, ...]:
    """The names under which tpu-mlir may know a tensor, the likeliest first."""
    producer = graph.producer(tensor)
    if producer is None:
        return (checked(tensor),)
    unit = graph.units.of(producer.name)
    operators = [str(producer.op), *_OTHER_OPERATORS.get(producer.op, ())]
    if unit is not None and unit.last == producer.name:
        if unit.kind in _UNIT_OPERATORS:
            operators.insert(0, _UNIT_OPERATORS[unit.kind])
        elif unit.kind == "MatMulAdd":
            operators += ["Gemm", "MatMul"]
    found = [f"{checked(tensor)}_{operator}" for operator in dict.fromkeys(operators)]
    return (*found, tensor) if producer.op == "Resize" else tuple(found)


def checked(name: str) -> str:
    """A name that fits into a table whose columns are separated by blanks and whose remarks begin with '#'."""
    if any(character.isspace() for character in name) or name.startswith("#"):
        raise UnsupportedError(
            f"tensor '{name}' cannot be written to a table of tpu-mlir: its columns are separated by blanks, and '#' "
            "begins a remark. Rename it in the model"
        )
    return name


def result_of(graph: Graph, node: Node, fused: dict[str, str]) -> Any:
    """The tensor that leaves a node together with what runs inside it: the bias Add and the Relu behind it."""
    made = node.outputs[0]
    while True:
        follower = next((use.node for use in graph.consumers(made) if fused.get(use.node.name) == node.name), None)
        if follower is None:
            return made
        made = follower.outputs[0]


def operator_names(graph: Graph, node: Node, fused: dict[str, str]) -> tuple[str, ...]:
    """The names under which tpu-mlir may know an operator together with what runs inside it, the likeliest first."""
    made = [tensor for tensor in node.outputs if tensor.name and is_float(graph, tensor)]
    result = result_of(graph, node, fused)
    heads = [result, *made[1:]] if result.name else made  # an LSTM may leave its first output out
    if result.name and result is not made[0] and node.op in LAYERS:
        heads.append(made[0])  # in case that tpu-mlir leaves the two apart
    return tuple(dict.fromkeys(name for tensor in heads for name in names_of(graph, str(tensor.name))))


def float_tensors(graph: Graph) -> list[str]:
    """Inputs (those of bodies too) and computed tensors that can have a range, in the order of the graph."""
    given = [t for scope in graph.scopes() for t in scope.inputs if is_float(graph, t)]
    made = [t for node in graph.nodes() for t in node.outputs if t.name and is_float(graph, t)]
    return [str(tensor.name) for tensor in (*given, *made)]


def weight_uses(graph: Graph, tensor: str) -> list[Node]:
    """The layers that read a tensor as their weight."""
    return [use.node for use in graph.consumers(tensor) if use.port == 1 and use.node.op in LAYERS]


def scale_count(graph: Graph, node: Node, scales: int) -> int:
    """How many scales the weight of a layer needs in a table, where it has `scales` of its own.

    tpu-mlir takes one for every output channel of a convolution, and computes nonsense where the row is shorter. Of a
    matrix it takes the first.
    """
    if node.op in MATRICES:
        return scales
    shape = graph.values(node.inputs[1]).shape
    return int(shape[0] if node.op == "Conv" else shape[1] * int(node.attrs.get("group", 1)))


def is_float(graph: Graph, tensor: Any) -> bool:
    kind = graph.dtype(tensor)
    return kind is None or kind.name in FLOATS
