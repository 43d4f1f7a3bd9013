"""What a plan costs, counted exactly: bytes of the weights, multiplications, bit operations.

    bytes           of a quantized weight: its numbers in the smallest ONNX type that holds them (two int4 in a byte), a
                    float32 for each scale, and a zero point for each where the format is not symmetric; float weights
                    of layers have 4 bytes a number, float16 ones 2
    mean bits       of the numbers of weights, without scales; those that are float have 32 or 16
    bit operations  MACs * bits of one operand * bits of the other, summed over Conv, ConvTranspose, Gemm and MatMul
                    (the BOPs of UNIQ and HAWQ-V3); an operand that is not quantized has 32 bits

MACs are those of one run with one sample:

    Conv            numbers of the result * input channels of a group * numbers of the kernel
    ConvTranspose   numbers of the input * output channels of a group * numbers of the kernel
    Gemm, MatMul    numbers of the result * length of the sum
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.runtime.feeds import Feed
from onnxq.runtime.session import float_session, run_session
from onnxq.types import Edge, QuantPlan, QuantSpec

FLOAT_BITS = 32
MULTIPLYING = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Product:
    """A node that multiplies: how often, and the two tensors (constants or computed) whose numbers it multiplies."""

    node: str
    op: str
    macs: int
    operands: tuple[str, str]


@dataclass(frozen=True)
class Costs:
    """The costs of a whole plan; `bits` is the sum over all numbers of weights, `numbers` how many they are."""

    bytes: int
    bits: int
    numbers: int
    bit_operations: int
    macs: int

    @property
    def mean_bits(self) -> float:
        return self.bits / self.numbers if self.numbers else 0.0


def products(graph: Graph, feed: Feed) -> list[Product]:
    """Every multiplying node of the main graph with its exact MACs for one feed, in the order of the graph."""
    nodes = [node for node in graph.gs.nodes if node.op in MULTIPLYING and not node.domain]
    sized = {sized_tensor(node) for node in nodes} | {node.inputs[0].name for node in nodes}
    shapes = _shapes(graph, sorted(sized), feed)
    return [
        Product(node.name, node.op, macs_of(graph, node, shapes), (str(node.inputs[0].name), str(node.inputs[1].name)))
        for node in nodes
    ]


def sized_tensor(node: Node) -> str:
    """The tensor whose numbers are counted for the MACs of a multiplying node."""
    return str(node.inputs[0].name if node.op == "ConvTranspose" else node.outputs[0].name)


def macs_of(graph: Graph, node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """MACs of a multiplying node, from the shapes of its sized tensor and its first input."""
    numbers = math.prod(shapes[sized_tensor(node)])
    if node.op in ("Conv", "ConvTranspose"):
        weight = graph.shape(node.inputs[1])
        if weight is None or not all(isinstance(size, int) for size in weight):
            raise UnsupportedError(f"the weight of '{node.name}' has no known shape, so its work cannot be counted")
        return numbers * math.prod(size for size in weight[1:] if isinstance(size, int))
    left = shapes[node.inputs[0].name]
    summed = left[0] if node.op == "Gemm" and node.attrs.get("transA", 0) else left[-1]
    return numbers * summed


def _shapes(graph: Graph, names: Sequence[str], feed: Feed) -> dict[str, tuple[int, ...]]:
    """Sizes of tensors: those that the model states, and for the others those of a run."""
    found: dict[str, tuple[int, ...]] = {}
    for name in names:
        if name in feed:
            found[name] = feed[name].shape
            continue
        stated = graph.shape(name)
        if stated is not None and all(isinstance(size, int) for size in stated):
            found[name] = tuple(size for size in stated if isinstance(size, int))
    missing = [name for name in names if name not in found]
    if missing:
        values = run_session(float_session(graph, missing), missing, feed, "the first sample")
        found.update((name, value.shape) for name, value in zip(missing, values, strict=True))
    return found


def weights_of(graph: Graph, plan: QuantPlan, found: Sequence[Product]) -> list[str]:
    """The weights that count: constants that are multiplied, quantized or not, and others that the plan quantizes."""
    multiplied = [name for product in found for name in product.operands if graph.is_constant(name)]
    quantized = [p.tensor for p in plan if p.role == "weight" and len(graph.shape(p.tensor) or ()) > 1]
    return list(dict.fromkeys([*multiplied, *quantized]))


def count(graph: Graph, plan: QuantPlan, found: Sequence[Product], weights: Sequence[str]) -> Costs:
    """The costs of a plan; `found` and `weights` as the functions above give them."""
    sizes = {name: tuple(int(size) for size in graph.tensor(name).shape) for name in weights}
    numbers = {name: math.prod(size) for name, size in sizes.items()}
    specs = {name: plan[name].spec if name in plan else None for name in weights}
    return Costs(
        bytes=sum(weight_bytes(graph, name, specs[name]) for name in weights),
        bits=sum(numbers[name] * _bits(graph, name, specs[name]) for name in weights),
        numbers=sum(numbers.values()),
        bit_operations=sum(
            product.macs * math.prod(operand_bits(plan, product, port) for port in (0, 1)) for product in found
        ),
        macs=sum(product.macs for product in found),
    )


def weight_bytes(graph: Graph, name: str, spec: QuantSpec | None) -> int:
    """Bytes of a constant in a format, scales and zero points included; None is float."""
    shape = tuple(int(size) for size in graph.tensor(name).shape)
    numbers = math.prod(shape)
    if spec is None or not spec.has_scale:
        return math.ceil(numbers * _bits(graph, name, spec) / 8)
    stored = spec.format.stored_bits
    scales = math.prod(spec.scale_shape(shape))
    zero_points = 0 if spec.symmetric else math.ceil(scales * stored / 8)
    return math.ceil(numbers * stored / 8) + 4 * scales + zero_points


def operand_bits(plan: QuantPlan, product: Product, port: int) -> int:
    """The bits of the numbers that a node multiplies; one that is left float computes in float, whatever it reads."""
    placement = plan.placements.get(product.operands[port])
    if placement is None or product.node in plan.left_float:
        return FLOAT_BITS
    if placement.edges is not None and Edge(product.node, port) not in placement.edges:
        return FLOAT_BITS
    return placement.spec.bits


def _bits(graph: Graph, name: str, spec: QuantSpec | None) -> int:
    if spec is not None:
        return spec.bits
    kind = graph.dtype(name)
    return FLOAT_BITS if kind is None else 8 * kind.itemsize
