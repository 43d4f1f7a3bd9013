"""Quantized values and gradients of learnt scales are the same in C and in torch, with any number of threads."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onnxq.torchnet.fake_quantize import compiled, functions, grids
from onnxq.torchnet.fake_quantize.functions import learnt_scale
from onnxq.types import PerChannel, QuantSpec

UNSIGNED = QuantSpec("uint8", symmetric=False)
CASES = [
    pytest.param(UNSIGNED, (4, 64, 28, 28), (), id="one scale, several slices"),
    pytest.param(QuantSpec("int8"), (131_073,), (), id="one value more than a slice"),
    pytest.param(QuantSpec("int4", granularity=PerChannel(0)), (64, 300, 3, 3), (64, 1, 1, 1), id="rows"),
    pytest.param(QuantSpec("int8", granularity=PerChannel(1)), (600, 512), (1, 512), id="a scale for each place"),
    pytest.param(QuantSpec("int8", granularity=PerChannel(0)), (1, 8000), (1, 1), id="one channel"),
]


def _computed(spec: QuantSpec, shape: tuple[int, ...], scales: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=random).requires_grad_()
    scale = (torch.rand(scales, generator=random) * 0.02 + 0.01).requires_grad_()
    zero_point = torch.full(scales, 0 if spec.symmetric else 120, dtype=torch.int32)
    y = learnt_scale(x, scale, zero_point, spec, factor=0.1, rounded=False)
    (y * torch.randn(shape, generator=random)).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    assert scale.grad is not None
    return y.detach(), x.grad, scale.grad


@pytest.mark.skipif(not compiled.COMPILED, reason="this installation has no part in C")
@pytest.mark.parametrize(("spec", "shape", "scales"), CASES)
def test_c_computes_what_torch_computes(
    spec: QuantSpec, shape: tuple[int, ...], scales: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_c = _computed(spec, shape, scales)
    with monkeypatch.context() as patch:
        patch.setattr(grids, "rounded_in_c", lambda *_: None)
        patch.setattr(functions, "learnt_in_c", lambda *_: None)
        in_torch = _computed(spec, shape, scales)
    assert torch.equal(in_c[0], in_torch[0])
    assert torch.equal(in_c[1], in_torch[1])
    torch.testing.assert_close(in_c[2], in_torch[2], rtol=1e-3, atol=1e-3)  # sums in another order, float32 in torch


@pytest.mark.skipif(not compiled.COMPILED, reason="this installation has no part in C")
def test_the_gradients_are_the_same_with_any_number_of_threads() -> None:
    before = torch.get_num_threads()
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            found.append(_computed(UNSIGNED, (4, 64, 28, 28), ()))
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_values_that_are_not_in_rows_and_nan_are_left_to_torch() -> None:
    x, one, zero = torch.randn(64, 64, 4, 4), torch.tensor(0.1), torch.tensor(0, dtype=torch.int32)
    spec = QuantSpec("int8")
    assert compiled.rounded_in_c(x.transpose(0, 1), one, zero, spec) is None
    assert compiled.rounded_in_c(x.double(), one, zero, spec) is None
    assert compiled.rounded_in_c(x[:1, :1], one, zero, spec) is None
    channels = QuantSpec("int8", granularity=PerChannel(1))
    assert compiled.rounded_in_c(x, torch.full((1, 64, 1, 1), 0.1), zero.expand(1, 64, 1, 1), channels) is None
    x[3, 4, 0, 0] = torch.nan
    assert compiled.rounded_in_c(x, one, zero, spec) is None
    assert torch.isnan(grids.grid_values(x, one, zero, spec)).sum() == 1
