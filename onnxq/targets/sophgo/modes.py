"""In which of tpu-mlir's modes each operator runs: the word that stands behind its name in a quantize table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from onnxq.graph import Graph, Node
from onnxq.targets.sophgo.names import LAYERS, is_float, operator_names, result_of
from onnxq.types import Backend, Edge, QuantPlan, QuantSpec

_SAME = {"fp8_e4m3": "F8E4M3", "fp8_e5m2": "F8E5M2", "fp16": "F16", "bf16": "BF16"}
FLOAT8_MODES = ("F8E4M3", "F8E5M2")
_LOOKED_UP_UNITS = ("SiLU", "Gelu", "HardSwish")
"""Units that a chip takes from a table as one function, where its input and result are quantized."""

_WITHOUT_ARITHMETIC = ("Constant", "Identity", "Dropout", "If", "Loop", "Scan")


class Operator(NamedTuple):
    """One operator as tpu-mlir sees it: all names it may have, and its weight where that is quantized."""

    node: Node
    names: tuple[str, ...]
    weight: str | None


def float_mode(backend: Backend) -> str:
    """What the operators run in that stay float: the chosen `float`, unless the precision has a float format itself."""
    activation = backend.scheme.activation
    if activation is not None and activation.dtype in ("fp16", "bf16"):
        return _word(activation)
    mode = backend.option("float")
    return "F16" if activation is None and mode == "F32" else mode  # weights alone: W8F16 exists, W8F32 does not


def operators(graph: Graph, plan: QuantPlan) -> Iterator[Operator]:
    """Every operator with a float result, in the order of the graph."""
    for node in graph.nodes():
        if node.op in _WITHOUT_ARITHMETIC or node.name in plan.fused or not node.outputs:
            continue
        if any(tensor.name and is_float(graph, tensor) for tensor in node.outputs):
            yield Operator(node, operator_names(graph, node, plan.fused), _weight_of(graph, plan, node))


def mode_of(graph: Graph, plan: QuantPlan, operator: Operator, in_float: str) -> str:
    """The word of an operator; `in_float` is what those run in that are not quantized."""
    node, weight = operator.node, operator.weight
    unit = mode_of_unit(graph, plan, node)
    if unit is not None or node.name not in plan.quantized:
        return unit or in_float
    read = [plan[t.name].spec for t in node.inputs if t.name in plan and not graph.is_constant(t)]
    stored = plan[weight].spec if weight is not None else None
    if not read and stored is not None:
        return f"W{stored.bits}{in_float}" if stored.evenly_spaced else _word(stored)
    if float_result(graph, plan, node) is not None:
        return in_float
    made = [plan[t.name].spec for t in node.outputs if t.name in plan]
    spec = min(read or made, key=lambda spec: spec.bits, default=None)
    if spec is None:
        return in_float
    if stored is not None and stored.bits == 4 and spec.bits == 8 and stored.evenly_spaced:
        return "W4INT8"
    return _word(spec) if spec.bits != 4 or node.op in LAYERS else "INT8"  # what moves values does so in 8 bits


def float_result(graph: Graph, plan: QuantPlan, node: Node) -> str | None:
    """A result of a quantized node that somebody reads as float, if there is one.

    What computes in integers writes integers, for all who read them: such a node has to run in float, and those who
    read its result quantized convert it.
    """
    made = [tensor for tensor in node.outputs[1:] if tensor.name and is_float(graph, tensor)]
    for tensor in (result_of(graph, node, plan.fused), *made):
        uses = graph.consumers(tensor)
        if tensor.name not in plan:
            if uses or graph.is_output(tensor):
                return str(tensor.name)
            continue
        edges = plan[tensor.name].edges
        if edges is not None and any(Edge(use.node.name, use.port) not in edges for use in uses):
            return str(tensor.name)
    return None


def four_bit_operators(graph: Graph, plan: QuantPlan) -> list[Operator]:
    """The operators that read 4 bits."""
    return [operator for operator in operators(graph, plan) if mode_of(graph, plan, operator, "F32") == "INT4"]


def _weight_of(graph: Graph, plan: QuantPlan, node: Node) -> str | None:
    """The quantized constant at the weight port of a layer."""
    if node.op not in LAYERS or len(node.inputs) < 2:
        return None
    name = str(node.inputs[1].name)
    return name if graph.is_constant(name) and name in plan else None


def mode_of_unit(graph: Graph, plan: QuantPlan, node: Node) -> str | None:
    """INT8 for the last node of a function that a chip takes from a table as a whole."""
    unit = graph.units.of(node.name)
    if unit is None or unit.last != node.name or unit.kind not in _LOOKED_UP_UNITS:
        return None
    inside = {t.name for name in unit.nodes for t in graph.node(name).outputs}
    read = {t.name for name in unit.nodes for t in graph.node(name).inputs if not graph.is_constant(t)} - inside
    around = [*read, node.outputs[0].name]
    specs = [plan[name].spec for name in around if name in plan and plan[name].spec.dtype in ("int8", "uint8")]
    reads_float = any(_reads_float(graph, plan, graph.node(name)) for name in unit.nodes)
    return "INT8" if len(specs) == len(around) and not reads_float else None


def _reads_float(graph: Graph, plan: QuantPlan, node: Node) -> bool:
    """Whether a node reads a quantized tensor as float."""
    placed = [(plan[t.name], Edge(node.name, port)) for port, t in enumerate(node.inputs) if t.name in plan]
    return any(item.edges is not None and edge not in item.edges for item, edge in placed)


def _word(spec: QuantSpec) -> str:
    return _SAME.get(spec.dtype) or f"INT{spec.bits}"
