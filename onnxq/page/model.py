"""The model as the page shows it: nodes, tensors, edges, decisions, in columns and with each text written once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from onnxq.costs import weight_bytes
from onnxq.graph import Graph
from onnxq.json_file import JsonObject
from onnxq.page.layers import clip_lines
from onnxq.page.numbers import short
from onnxq.page.weights import weights_json
from onnxq.place.explanation import Decisions
from onnxq.types import QParams, QParamsTable, QuantPlan

STATES = ("quantized", "fused", "float")


@dataclass
class Texts:
    """Every text once, by its number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def all(self) -> list[str]:
        return list(self.numbers)


def model_json(graph: Graph, plan: QuantPlan, qparams: QParamsTable, *, weights: bool = True) -> JsonObject:
    """Columns of nodes and tensors; tensors are named by their numbers. Only with `weights` are constants read.

    `graph` is the float graph that the plan was made for, or one whose constants have other names: uses of these are
    found by the edges that the plan has of them.
    """
    texts = Texts()
    with graph.unchanging():
        nodes, tensors = _nodes(graph, plan, texts)
        aliases = _planned_constants(graph, plan)
        decisions = Decisions(plan, qparams, graph)
        quantizers = [_tensor(name, plan, qparams, texts) for name in tensors]
        return {
            "inputs": [tensors[name] for name in graph.input_names if name in tensors],
            "outputs": [tensors[name] for name in graph.output_names if name in tensors],
            "nodes": {
                **nodes,
                "facts": [_facts(decisions.node(name).facts, texts) for name in nodes["name"]],
                "params": _parameters(graph, nodes["name"]),
            },
            "tensors": {
                "name": list(tensors),
                "quantizer": quantizers,
                "constant": _constants(graph, plan, tensors),
                "facts": [_facts(decisions.tensor(name).facts if name in plan else (), texts) for name in tensors],
            },
            "weights": weights_json(graph, plan, qparams, aliases) if weights else {},
            "bytes": constant_bytes(graph, plan, aliases),
            "texts": texts.all(),
        }


def _nodes(graph: Graph, plan: QuantPlan, texts: Texts) -> tuple[JsonObject, dict[str, int]]:
    """The nodes in the order of the graph, then those that only the plan has; and the number of every tensor."""
    by_edge = {tuple(edge): one.tensor for one in plan for edge in one.edges or ()}
    number: dict[str, int] = {}
    columns: JsonObject = {"name": [], "op": [], "state": [], "reason": [], "in": [], "out": []}

    def numbered(names: Iterable[str]) -> list[int]:
        return [number.setdefault(name, len(number)) for name in names]

    def add(name: str, op: str, reads: list[int], makes: list[int]) -> None:
        state, reason = _state(name, plan)
        columns["name"].append(name)
        columns["op"].append(texts(op))
        columns["state"].append(state)
        columns["reason"].append(texts(reason))
        columns["in"].append(reads)
        columns["out"].append(makes)

    numbered(graph.input_names)
    listed = set()
    for node in graph.nodes():
        if node.op == "Constant" and node.name not in plan.left_float:
            continue
        reads = []
        for port, tensor in enumerate(node.inputs):
            planned = by_edge.get((node.name, port))
            if tensor.name and graph.is_constant(tensor):
                name = planned or str(tensor.name)
                if name in plan:
                    reads.append(name)
            elif tensor.name:
                reads.append(str(tensor.name))
        add(node.name, node.op, numbered(reads), numbered(str(one.name) for one in node.outputs if one.name))
        listed.add(node.name)
    for name in (*plan.quantized, *plan.fused, *plan.left_float):
        if name not in listed:
            listed.add(name)
            add(name, "", [], [])
    numbered(one.tensor for one in plan)
    return columns, number


def _state(name: str, plan: QuantPlan) -> tuple[int, str]:
    if name in plan.quantized:
        return 0, plan.quantized[name]
    if name in plan.fused:
        return 1, f"runs inside '{plan.fused[name]}'"
    if name in plan.left_float:
        return 2, str(plan.left_float[name])
    return 2, ""


def _tensor(name: str, plan: QuantPlan, qparams: QParamsTable, texts: Texts) -> list[object] | None:
    """Role, format, why, range of the format, step, number of scales, leader of a tie; None where it is float."""
    if name not in plan:
        return None
    placement = plan[name]
    head: list[object] = [texts(placement.role), texts(str(placement.spec)), texts(placement.why)]
    held = qparams.entries.get(name)
    head += _numbers(held)
    head.append(placement.tie)
    head.append(texts(qparams.origin(name)))
    head.append(placement.spec.bits)
    return head


def _numbers(held: QParams | None) -> list[object]:
    if held is None:
        return [None, None, None, 0]
    low, high = clip_lines(held) if held.scale.size == 1 and held.spec.has_scale else (None, None)
    step = float(held.scale.max()) if held.spec.evenly_spaced and held.spec.has_scale else None
    return [short(low), short(high), short(step), int(held.scale.size)]


def _facts(facts: Iterable[tuple[str, str]], texts: Texts) -> list[int]:
    """Label and value in turn."""
    return [texts(part) for fact in facts for part in fact]


def _planned_constants(graph: Graph, plan: QuantPlan) -> dict[str, str]:
    """Tensor of the plan -> what a constant is called in the graph, where that is another name."""
    found = {}
    for placement in plan:
        for edge in placement.edges or ():
            if not graph.has_tensor(placement.tensor) and graph.has_node(edge.node):
                inputs = graph.node(edge.node).inputs
                if edge.port < len(inputs) and graph.is_constant(inputs[edge.port]):
                    found[placement.tensor] = str(inputs[edge.port].name)
    return found


def _constants(graph: Graph, plan: QuantPlan, tensors: Mapping[str, int]) -> list[int]:
    """The numbers of tensors whose values are known."""
    found = []
    for name, number in tensors.items():
        known = graph.is_constant(name) if graph.has_tensor(name) else plan[name].role in ("weight", "bias")
        if known:
            found.append(number)
    return found


def _parameters(graph: Graph, names: Iterable[str]) -> list[int]:
    """Numbers of the constants that each node reads."""
    found = []
    for name in names:
        node = graph.node(name) if graph.has_node(name) else None
        read = [] if node is None else [tensor for tensor in node.inputs if tensor.name and graph.is_constant(tensor)]
        found.append(sum(_count(graph, tensor) for tensor in read))
    return found


def _count(graph: Graph, tensor: object) -> int:
    total = 1
    for size in graph.shape(tensor) or ():
        total *= size if isinstance(size, int) else 0
    return total


def constant_bytes(graph: Graph, plan: QuantPlan, aliases: Mapping[str, str] = MappingProxyType({})) -> JsonObject:
    """Bytes of the constants: as float, and as the chip holds them; those of the plan in their formats."""
    planned = {aliases.get(one.tensor, one.tensor): one.spec for one in plan if one.role in ("weight", "bias")}
    whole = chip = 0
    for constant in graph.constants():
        name = str(constant.name)
        dtype = graph.dtype(name)
        if dtype is None or dtype.kind != "f":
            continue
        whole += weight_bytes(graph, name, None)
        chip += weight_bytes(graph, name, planned.get(name))
    return {"float": whole, "chip": chip}
