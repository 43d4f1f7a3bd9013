"""Which operators tpu-mlir has in float8, found by compiling each of them: the others end its run, so they stay float.

Sums, differences, products, averages and whatever moves values are there. Functions that an integer chip takes from a
table are not, nor are Max, Min, ConvTranspose, Tile, and a Clip with a lower end other than 0. The product of two
computed matrices ends the compiler or comes out wrong, with one head as with several; so does a constant matrix behind
a tensor with four dimensions.
"""

from __future__ import annotations

from onnxq.errors import UnsupportedError
from onnxq.graph import Graph, Node
from onnxq.numerics.formats.floats import Float8
from onnxq.targets.sophgo.modes import FLOAT8_MODES, mode_of, operators
from onnxq.targets.sophgo.names import LOOKED_UP
from onnxq.targets.sophgo.ranges import clips_at_zero
from onnxq.types import NodeFacts, OpRule, QuantPlan, QuantSpec, SameScaleRule

_CONVOLUTIONS = ("ConvTranspose",)
_EXTREMES = ("Max", "Min")
_REPEATING = ("Tile", "Expand")
_LARGEST_RANK = 3
_NO_CLIP = "tpu-mlir has no float8 kernel for a Clip that does not begin at 0"


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
    return _against_matrices(is_constant=node.is_constant(1), rank=len(node.shape(0) or ()))


UNSCALED = "fp8_e5m2"
"""The float8 that tpu-mlir computes in without scales."""


def is_float8(spec: QuantSpec) -> bool:
    """Whether a format is one of the two of 8 bits that tpu-mlir calls F8."""
    return isinstance(spec.format, Float8)


def refuse_float8(graph: Graph, plan: QuantPlan) -> None:
    """An error for nodes in float8 that tpu-mlir has no kernel for: the user has forced them, or edited the plan."""
    for operator in operators(graph, plan):
        node = operator.node
        if mode_of(graph, plan, operator, "F32") not in FLOAT8_MODES:
            continue
        reason = _against(graph, node)
        if reason is not None:
            raise UnsupportedError(
                f"node '{node.name}' ({node.op}) would run in float8, and {reason}. Leave it float: take it out of "
                "`force`, or set skip = true for it"
            )


def _against(graph: Graph, node: Node) -> str | None:
    if node.op in (*_CONVOLUTIONS, *_EXTREMES, *_REPEATING, *LOOKED_UP):
        return f"tpu-mlir has no float8 kernel for {node.op}"
    if node.op == "Clip" and not clips_at_zero(graph, node):
        return _NO_CLIP
    if node.op == "MatMul":
        weight = node.inputs[1]
        rank = len(graph.shape(node.inputs[0]) or ())
        return _against_matrices(is_constant=graph.is_constant(weight), rank=rank)
    return None


def _against_matrices(*, is_constant: bool, rank: int) -> str | None:
    if not is_constant:
        return "multiplies two computed matrices, which tpu-mlir does not compile in float8, or compiles wrongly"
    if rank > _LARGEST_RANK:
        return f"multiplies a tensor with {rank} dimensions, which tpu-mlir does not compile in float8 everywhere"
    return None


def _no_kernel(node: NodeFacts) -> str:
    return f"tpu-mlir has no float8 kernel for {node.op}"


def _declines_clip(node: NodeFacts) -> str | None:
    low = node.scalar(1) if node.has(1) else node.attrs.get("min")
    return None if low == 0 else _NO_CLIP
