"""What the NNIE mapper takes of a network: Caffe's pooling, and enlarging by repeating pixels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onnxq.graph import Graph, Node
from onnxq.lint.finding import Finding
from onnxq.lint.quantizers import Quantizer
from onnxq.lint.rules import LINTS
from onnxq.types import Backend


@LINTS.register("nnie")
def check_resize(graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]:
    """Resize; that quantizers of other grids are wrong follows from the limits."""
    graph = _with_shapes(graph)
    for node in graph.nodes():
        if node.op in ("Resize", "Upsample") and not node.domain:
            yield from _enlarging(graph, node, backend)


@LINTS.register("nnie_pooling")
def check_pooling(graph: Graph, found: list[Quantizer], backend: Backend) -> Iterator[Finding]:
    """Sizes of pooling, which the chip rounds up."""
    graph = _with_shapes(graph)
    for node in graph.nodes():
        if node.op in ("MaxPool", "AveragePool") and not node.domain:
            yield from _pooling(graph, node, backend)


def _with_shapes(graph: Graph) -> Graph:
    if graph.shapes_known():
        return graph
    graph = graph.copy()
    graph.infer_shapes()
    return graph


def _pooling(graph: Graph, node: Node, backend: Backend) -> Iterator[Finding]:
    """The chip rounds the size of a result up (ceil_mode = 1); a network that rounds down gets other sizes there."""
    shape = graph.shape(node.inputs[0])
    if shape is None or node.attrs.get("ceil_mode", 0) or node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return
    sizes, kernel = shape[2:], node.attrs["kernel_shape"]
    rank = len(kernel)
    strides = node.attrs.get("strides", [1] * rank)
    dilations = node.attrs.get("dilations", [1] * rank)
    pads = node.attrs.get("pads", [0] * 2 * rank)
    for axis, size in enumerate(sizes):
        if not isinstance(size, int):
            continue
        extent = dilations[axis] * (kernel[axis] - 1) + 1
        free = size + pads[axis] + pads[axis + rank] - extent
        down, up = free // strides[axis] + 1, -(-free // strides[axis]) + 1
        if (up - 1) * strides[axis] >= size + pads[axis]:
            up -= 1  # a window that begins behind the picture is left out
        if up != down:
            yield Finding(
                "nnie-pooling",
                str(node.inputs[0].name),
                str(node.name),
                f"{node.op} '{node.name}' makes {down} of {size} along axis {axis + 2}, {backend.name} makes {up}: it "
                "rounds sizes up",
                "Build the network with ceil_mode = True, or choose an input size for which both are equal; "
                "nnie:pooling=any writes the files all the same",
            )
            return


def _enlarging(graph: Graph, node: Node, backend: Backend) -> Iterator[Finding]:
    mode = node.attrs.get("mode", "nearest")
    before, after = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    problem = None if mode == "nearest" else f"is of mode '{mode}'"
    if problem is None and before is not None and after is not None and len(before) == len(after):
        wrong = next((pair for pair in zip(before[2:], after[2:], strict=True) if not _doubled(*pair)), None)
        problem = None if wrong is None else f"makes {wrong[1]} of {wrong[0]}"
    if problem is not None:
        yield Finding(
            "nnie-resize",
            str(node.inputs[0].name),
            str(node.name),
            f"{node.op} '{node.name}' {problem}, {backend.name} enlarges by a factor of 2 and by repeating pixels only",
            "Use nearest neighbour with a factor of 2 (twice for 4), or a ConvTranspose",
        )


def _doubled(before: Any, after: Any) -> bool:
    """Whether the size is twice as large, as far as both are known."""
    return not (isinstance(before, int) and isinstance(after, int)) or after == 2 * before
