"""Softmax, LogSoftmax and Hardmax, before and after opset 13."""

from __future__ import annotations

import numpy as np
import pytest

from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime

X = np.random.default_rng(3).normal(0, 3, (2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("opset", [7, 11, 13])
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_values_are_those_of_onnxruntime_along_each_axis(op: str, opset: int, axis: int | None) -> None:
    how = {} if axis is None else {"axis": axis}
    assert_like_onnxruntime(op, [X], opset=opset, **how)


@pytest.mark.parametrize("opset", [11, 13])
def test_negative_axes_count_from_the_end(opset: int) -> None:
    assert_like_onnxruntime("Softmax", [X], opset=opset, axis=-2)


def test_hardmax_takes_the_first_of_equal_values() -> None:
    assert_like_onnxruntime("Hardmax", [np.array([[1, 3, 3], [2, 2, 1]], np.float32)], opset=13)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("opset", [11, 13])
def test_gradients_are_those_of_the_differences(op: str, opset: int) -> None:
    assert_gradients(op, [X.astype(np.float64)], opset=opset, axis=1)
