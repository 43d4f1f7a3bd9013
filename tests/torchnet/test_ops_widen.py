"""Element types that torch lacks: what `widened` makes of them, and that it costs nothing where it is not needed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from onnx import TensorProto
from torch import Tensor

from onnxq.torchnet import op
from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.widen import narrow_value, wide_tensor, widened
from onnxq.torchnet.registry import OPERATORS, Kernel
from onnxq.torchnet.values import from_numpy
from tests.torchnet.one_node import in_torch, one_node

FLIPPED: list[Kernel] = []


@op("WidenedFlip", domain="onnxq.test")
def _flip(call: Call) -> Kernel:
    """Values backwards, and where they came from."""

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.flip(0), torch.arange(x.shape[0]).flip(0)

    FLIPPED.append(widened(call, run, back=(0,)))
    FLIPPED.append(run)
    return FLIPPED[-2]


@pytest.mark.parametrize(
    "kind",
    [
        *[np.uint16, np.uint32, np.uint64, np.float32, np.int8],
        *[ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2],
        *[ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz, ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn],
    ],
)
def test_the_result_has_the_narrow_type_and_indices_stay_indices(kind: type) -> None:
    assert OPERATORS.find("onnxq.test", "WidenedFlip", 1) is not None
    values = np.array([0, 1, 1, 1], np.float32).astype(kind)
    model = one_node("WidenedFlip", [values], opset=28, domain="onnxq.test", outputs=2)
    flipped, places = in_torch(model, [values])
    assert flipped.dtype == values.dtype
    np.testing.assert_array_equal(flipped.astype(np.float32), [1, 1, 1, 0])
    assert places.tolist() == [3, 2, 1, 0]


def test_a_kernel_of_plain_types_is_not_wrapped() -> None:
    FLIPPED.clear()
    for kind, same in ((np.float32, True), (np.int64, True), (np.float16, True), (np.uint32, False)):
        in_torch(one_node("WidenedFlip", [np.ones(2, kind)], opset=18, domain="onnxq.test"), [np.ones(2, kind)])
        assert (FLIPPED[-2] is FLIPPED[-1]) is same


def test_strings_are_moved_chosen_and_compared() -> None:
    a, b = np.array(["b", "", "ä"], object), np.array(["b", "c", "a"], object)
    mask = np.array([True, False, True])
    chosen = in_torch(one_node("Where", [mask, a, b], opset=16, kind=TensorProto.STRING), [mask, a, b])[0]
    assert chosen.tolist() == ["b", "c", "ä"]
    equal = in_torch(one_node("Equal", [a, b], opset=19, kind=TensorProto.BOOL), [a, b])[0]
    assert equal.tolist() == [True, False, False]


def test_wide_and_back_is_the_same() -> None:
    for values in (np.array([-8, 7], ml_dtypes.int4), np.array([0.5, 6], ml_dtypes.float4_e2m1fn)):
        assert narrow_value(wide_tensor(values), values.dtype).tolist() == values.tolist()
    eight = from_numpy(np.array([0.5, 448], ml_dtypes.float8_e4m3fn))
    assert narrow_value(wide_tensor(eight), eight.dtype).float().tolist() == [0.5, 448]
    plain = torch.ones(3)
    assert wide_tensor(plain) is plain


@op("WidenedHalf", domain="onnxq.test")
def _squared(call: Call) -> Kernel:
    """Squares, which float16 cannot hold on the way to their root."""

    def run(x: Tensor) -> Tensor:
        assert x.dtype is torch.float32
        return x.square().sqrt()

    return widened(call, run, half=True)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_half_precision_is_computed_in_float32_if_the_kernel_wants_that(kind: type) -> None:
    values = np.array([1000, -3], np.float32).astype(kind)
    found = in_torch(one_node("WidenedHalf", [values], opset=18, domain="onnxq.test"), [values])[0]
    assert found.dtype == values.dtype
    assert found.astype(np.float32).tolist() == [1000, 3]
