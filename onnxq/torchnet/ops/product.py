"""Matrix products: MatMul, Gemm, Einsum, Det."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import widened
from onnxq.torchnet.registry import Kernel, op


@op("MatMul", since=1)
def matmul(call: Call) -> Kernel:
    return widened(call, torch.matmul)


@op("Gemm", since=1)
def gemm(call: Call) -> Kernel:
    """alpha * A B + beta * C. The usual fully connected layer is one call of `linear`, all others one of `addmm`."""
    alpha, beta = call.attribute("alpha", 1.0), call.attribute("beta", 1.0)
    turns_a, turns_b = bool(call.attribute("transA", 0)), bool(call.attribute("transB", 0))
    is_linear = turns_b and not turns_a and alpha == 1.0 and (beta == 1.0 or not call.has_input(2))
    if is_linear and (not call.has_input(2) or call.rank(2) == 1):
        return widened(call, functional.linear)

    def run(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        left, right = a.t() if turns_a else a, b.t() if turns_b else b
        if not a.is_floating_point():
            return _integer_gemm(left, right, c, alpha, beta)
        if c is None:
            return torch.mm(left, right) if alpha == 1.0 else torch.mm(left, right) * alpha
        return torch.addmm(c, left, right, beta=beta, alpha=alpha)

    return widened(call, run)


def _integer_gemm(left: Tensor, right: Tensor, c: Tensor | None, alpha: float, beta: float) -> Tensor:
    """Whole factors are exact; others are applied in float64, and the result is cut off."""
    if alpha == int(alpha) and beta == int(beta):
        product = torch.mm(left, right) * int(alpha)
        return product if c is None else product + c * int(beta)
    exact = torch.mm(left, right).double() * alpha
    return (exact if c is None else exact + c.double() * beta).to(left.dtype)


@op("Einsum", since=12)
def einsum(call: Call) -> Kernel:
    equation = call.attribute("equation")
    return widened(call, lambda *operands: torch.einsum(equation, *operands))


@op("Det", since=11)
def determinant(call: Call) -> Kernel:
    return widened(call, torch.linalg.det, half=True)
