"""FusedConv, FusedGemm and FusedMatMul, of onnxruntime's optimizer, as the operators that they were made of."""

from __future__ import annotations

from typing import Any

from onnxq.graph import Graph
from onnxq.passes.base import PASSES, PassResult
from onnxq.passes.rewriter import Declined
from onnxq.passes.steps import MICROSOFT, Steps, replace_each

OPERATORS = tuple((MICROSOFT, op) for op in ("FusedConv", "FusedGemm", "FusedMatMul"))
_PLAIN = ("Relu", "Sigmoid", "Tanh")
_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_GEMM = ("alpha", "beta", "transA", "transB")


@PASSES.register("decompose_fused_conv")
def decompose_fused_conv(graph: Graph) -> PassResult:
    """FusedConv -> Conv, Add and the activation; FusedGemm -> Gemm and the activation; FusedMatMul -> MatMul."""
    return replace_each(graph, OPERATORS, _rewrite)


def _rewrite(steps: Steps) -> list[Any]:
    attrs = steps.node.attrs
    if steps.node.op == "FusedMatMul":
        return [_matmul(steps)]
    if steps.node.op == "FusedGemm":
        names = ("activation_alpha", "activation_beta", "activation_gamma")
        numbers = [float(attrs[name]) for name in names if name in attrs]
        kept = {name: attrs[name] for name in _GEMM if name in attrs}
        made = steps.op("Gemm", *_given(steps, 3), role="gemm", attrs=kept)
        return [_activated(steps, steps.typed(made, steps.input(0)), numbers)]
    kept = {name: attrs[name] for name in _CONV if name in attrs}
    made = steps.typed(steps.op("Conv", *_given(steps, 3), role="conv", attrs=kept), steps.input(0))
    if steps.input(3) is not None:
        made = steps.typed(steps.op("Add", made, steps.input(3), role="sum"), made)
    return [_activated(steps, made, [float(value) for value in attrs.get("activation_params", ())])]


def _given(steps: Steps, count: int) -> list[Any]:
    inputs = [steps.input(port) for port in range(count)]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def _activated(steps: Steps, made: Any, numbers: list[float]) -> Any:
    kind = steps.node.attrs.get("activation", "")
    if not kind:
        return made
    if kind in _PLAIN or kind == "HardSwish":
        return steps.op(kind, made)
    if kind == "LeakyRelu" and numbers:
        return steps.op(kind, made, attrs={"alpha": numbers[0]})
    if kind == "HardSigmoid" and len(numbers) > 1:
        return steps.op(kind, made, attrs={"alpha": numbers[0], "beta": numbers[1]})
    if kind == "Clip" and len(numbers) > 1:
        return steps.op(kind, made, steps.number(numbers[0], made), steps.number(numbers[1], made))
    raise Declined(f"its activation '{kind}' is not known, or lacks a number")


def _matmul(steps: Steps) -> Any:
    attrs = steps.node.attrs
    if attrs.get("transBatchA", 0) or attrs.get("transBatchB", 0):
        raise Declined("its batch is turned into a matrix")
    sides = []
    for port, name in ((0, "transA"), (1, "transB")):
        side = steps.input(port)
        if attrs.get(name, 0):
            rank = steps.rank(side)
            side = side if rank < 2 else steps.transpose(side, *range(rank - 2), rank - 1, rank - 2)
        sides.append(side)
    made = steps.typed(steps.op("MatMul", *sides, role="product"), steps.input(0))
    alpha = float(attrs.get("alpha", 1.0))
    return made if alpha == 1.0 else steps.op("Mul", made, steps.number(alpha, steps.input(0)))
