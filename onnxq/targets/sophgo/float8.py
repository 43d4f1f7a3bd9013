"""Which operators tpu-mlir has in float8, found by compiling each of them: the others end its run, so they stay float.

Sums, differences, products, averages and whatever moves values are there. Functions that an integer chip takes from a
table are not, nor are Max, Min, ConvTranspose, Tile, and a Clip with a lower end other than 0. The product of two
computed matrices ends the compiler or comes out wrong, with one head as with several; so does a constant matrix behind
a tensor with four dimensions.
"""

from __future__ import annotations

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph
from onnxq.targets.sophgo.modes import mode_of, operators
from onnxq.targets.sophgo.names import LOOKED_UP
from onnxq.types import NodeFacts, OpRule, QuantPlan, SameScaleRule

_CONVOLUTIONS = ("ConvTranspose",)
_EXTREMES = ("Max", "Min")
_REPEATING = ("Tile", "Expand")
_LARGEST_RANK = 3


def without_kernels() -> tuple[OpRule, ...]:
    """Rules that decline what tpu-mlir does not compute in float8."""
    return (OpRule((*_CONVOLUTIONS, *_EXTREMES, *LOOKED_UP), decline=_no_kernel),)


def moving(operators: tuple[str, ...]) -> tuple[SameScaleRule, ...]:
    """The rules for `operators` and activations, which keep the scale of what they read."""
    return (
        SameScaleRule(tuple(op for op in operators if op not in _REPEATING)),
        SameScaleRule(_REPEATING, decline=_no_kernel),
        SameScaleRule(("Relu",)),
        SameScaleRule(("Clip",), decline=_declines_clip),
    )


def declines_matrices(node: NodeFacts) -> str | None:
    """A reason against float8 for a product of matrices."""
    if not node.is_constant(1):
        return "multiplies two computed matrices, which tpu-mlir does not compile in float8, or compiles wrongly"
    rank = len(node.shape(0) or ())
    if rank > _LARGEST_RANK:
        return f"multiplies a tensor with {rank} dimensions, which tpu-mlir does not compile in float8 everywhere"
    return None


def refuse_float8(graph: Graph, plan: QuantPlan) -> None:
    """An error for nodes in float8 that tpu-mlir has no kernel for: the user has forced them, or edited the plan."""
    missing = (*_CONVOLUTIONS, *_EXTREMES, *_REPEATING, *LOOKED_UP)
    for operator in operators(graph, plan):
        node = operator.node
        if node.op in missing and mode_of(graph, plan, operator, "F32").startswith("F8"):
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}) would run in float8, and tpu-mlir has no such kernel. Leave it float: "
                "take it out of `force`, or set skip = true for it"
            )


def _no_kernel(node: NodeFacts) -> str:
    return f"tpu-mlir has no float8 kernel for {node.op}"


def _declines_clip(node: NodeFacts) -> str | None:
    low = node.scalar(1) if node.has(1) else node.attrs.get("min")
    return None if low == 0 else "tpu-mlir has no float8 kernel for a Clip that does not begin at 0"
