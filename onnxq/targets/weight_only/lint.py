"""Weights in blocks, as any tool writes them: sizes that runtimes know, and parameters that fit the weight.

MatMulNBits and GatherBlockQuantized have codes, scales and zero points in shapes that follow from their attributes; a
blocked DequantizeLinear has one scale for every block, the last of which may be shorter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.lint.finding import Finding
from onnxq.lint.quantizers import Quantizer
from onnxq.lint.rules import LINTS
from onnxq.types import Backend

BITS = (2, 4, 8)
SIZES = (16, 32, 64, 128, 256)
_DOMAIN = "com.microsoft"
_E2M1 = "float4_e2m1fn"


@LINTS.register("weight_blocks")
def lint_weight_blocks(graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]:
    """Blocks of 16 .. 256 numbers of 2, 4 or 8 bits, with a scale for each of them."""
    for node in graph.nodes():
        if node.op == "DequantizeLinear" and int(node.attrs.get("block_size", 0)):
            yield from _size(node, backend)
            yield from _dequantized(graph, node)
            yield from _specified_size(graph, node)
        elif node.domain == _DOMAIN and node.op in ("MatMulNBits", "GatherBlockQuantized"):
            yield from _size(node, backend)
            yield from _bits(node, backend)
            if node.op == "MatMulNBits":
                yield from _packed(graph, node)
        elif node.domain == _DOMAIN and node.op == "MatMulBnb4":
            yield from _size(node, backend)
            yield from _packed_bnb4(graph, node)


def _size(node: Node, backend: Backend) -> Iterator[Finding]:
    size = int(node.attrs.get("block_size", 128))
    if size not in SIZES:
        known = ", ".join(str(item) for item in SIZES)
        yield _finding(node, "block-size", f"has blocks of {size}, {backend.name} has blocks of {known}")


def _specified_size(graph: Graph, node: Node) -> Iterator[Finding]:
    """Blocks of formats that have one size: 32 with E8M0 scales, 16 of E2M1 with E4M3 scales."""
    size, scale = int(node.attrs["block_size"]), node.inputs[1]
    codes = graph.dtype(node.inputs[0])
    stored = _stored_type(graph, scale)
    wanted = {"float8_e8m0fnu": 32, "float8_e4m3fn": 16 if codes is not None and codes.name == _E2M1 else None}
    known = wanted.get("" if stored is None else stored.name)
    if known is not None and size != known and stored is not None:
        yield _finding(
            node, "block-size", f"has {stored.name} scales for blocks of {size}; they are for blocks of {known}"
        )


def _stored_type(graph: Graph, scale: Any) -> np.dtype[Any] | None:
    """The type in which scales lie in the file, behind a Cast or the scale of the tensor."""
    producer = graph.producer(scale)
    return graph.dtype(scale if producer is None else producer.inputs[0])


def _packed_bnb4(graph: Graph, node: Node) -> Iterator[Finding]:
    count, size = int(node.attrs["N"]) * int(node.attrs["K"]), int(node.attrs["block_size"])
    for port, (what, length) in {1: ("codes", math.ceil(count / 2)), 2: ("scales", math.ceil(count / size))}.items():
        shape = graph.shape(node.inputs[port])
        if shape is not None and math.prod(int(dim or 0) for dim in shape) != length:
            yield _finding(node, "packed-shape", f"has {what} of shape {list(shape)}; it needs {length} of them")


def _bits(node: Node, backend: Backend) -> Iterator[Finding]:
    bits = int(node.attrs.get("bits", 4))
    if bits not in BITS:
        yield _finding(node, "bits", f"has weights of {bits} bits, {backend.name} has 2, 4 or 8")


def _dequantized(graph: Graph, node: Node) -> Iterator[Finding]:
    shape, held = graph.shape(node.inputs[0]), graph.shape(node.inputs[1])
    axis, size = int(node.attrs.get("axis", 1)), int(node.attrs["block_size"])
    if shape is None or held is None or any(not isinstance(dim, int) for dim in (*shape, *held)):
        return
    if not -len(shape) <= axis < len(shape):
        yield _finding(node, "scale-shape", f"has blocks along axis {axis} of a weight with {len(shape)} axes")
        return
    along = axis % len(shape)
    wanted = tuple(math.ceil(int(dim or 0) / size) if i == along else dim for i, dim in enumerate(shape))
    if tuple(held) != wanted:
        yield _finding(
            node, "scale-shape", f"has scales {list(held)}; blocks of {size} of {list(shape)} have {list(wanted)}"
        )


def _packed(graph: Graph, node: Node) -> Iterator[Finding]:
    rows, columns = int(node.attrs["N"]), int(node.attrs["K"])
    bits, size = int(node.attrs.get("bits", 4)), int(node.attrs["block_size"])
    count = math.ceil(columns / size)
    wanted = {
        1: ("codes", rows * count * math.ceil(size * bits / 8)),
        2: ("scales", rows * count),
        3: ("zero points", rows * math.ceil(count * bits / 8)),
    }
    for port, (what, length) in wanted.items():
        tensor = node.inputs[port] if port < len(node.inputs) and node.inputs[port].name else None
        shape = None if tensor is None else graph.shape(tensor)
        if tensor is None or shape is None or any(not isinstance(dim, int) for dim in shape):
            continue
        kind = graph.dtype(tensor)
        if port == 3 and kind is not None and kind.kind == "f":
            length = rows * count  # zero points of the type of the scales are not packed
        if math.prod(int(dim or 0) for dim in shape) != length:
            yield _finding(
                node, "packed-shape", f"has {what} of shape {list(shape)}; N={rows} and K={columns} need {length}"
            )


def _finding(node: Node, rule: str, message: str) -> Finding:
    packed = node.op in ("MatMulNBits", "MatMulBnb4")
    name = str(node.inputs[1].name if packed else node.inputs[0].name)
    return Finding(
        rule,
        name,
        str(node.name),
        f"tensor '{name}' (node '{node.name}', {node.op}) {message}",
        "Quantize the weight again, with one of these blocks",
    )
