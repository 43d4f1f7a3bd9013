"""Arithmetic, activations and logic in torch: as onnxruntime has them, in old opsets, small types, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

from onnxq.errors import UnsupportedError
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(6)
X = RNG.normal(0, 2, (2, 3, 4)).astype(np.float32)
Y = RNG.normal(0, 2, (3, 1)).astype(np.float32)
UNIT = RNG.uniform(0.1, 0.9, (2, 3)).astype(np.float32)
ABOVE_ONE = UNIT + 1
INTEGERS = np.array([[-7, 7, -8], [5, 9, -1]], np.int32)
DIVISORS = np.array([2, -2, 3], np.int32)

LIKE_ONNXRUNTIME: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    ("Relu", [X], {"opset": 13}),
    ("Relu", [INTEGERS], {"opset": 14}),
    ("LeakyRelu", [X], {"opset": 6, "alpha": 0.2}),
    ("Elu", [X], {"opset": 6, "alpha": 0.7}),
    ("Celu", [X], {"opset": 12, "alpha": 1.7}),
    ("Selu", [X], {"opset": 6}),
    ("Selu", [X], {"opset": 6, "alpha": 1.1, "gamma": 2.0}),
    ("ThresholdedRelu", [X], {"opset": 10, "alpha": 0.4}),
    ("HardSigmoid", [X], {"opset": 6}),
    ("HardSigmoid", [X], {"opset": 6, "alpha": 1 / 6, "beta": 0.5}),
    ("HardSwish", [X], {"opset": 14}),
    ("Shrink", [X], {"opset": 9, "lambd": 0.8, "bias": 0.3}),
    ("Shrink", [INTEGERS], {"opset": 9, "lambd": 5.5, "bias": 1.0}),
    ("Softplus", [X * 20], {"opset": 1 + 6}),
    ("Softsign", [X], {"opset": 7}),
    ("Mish", [X], {"opset": 18}),
    ("Gelu", [X], {"opset": 20}),
    ("Gelu", [X], {"opset": 20, "approximate": "tanh"}),
    ("Gelu", [X], {"opset": 17, "domain": "com.microsoft"}),
    ("FastGelu", [X], {"opset": 17, "domain": "com.microsoft", "tolerance": 1e-5}),
    ("FastGelu", [X, X[0, 0]], {"opset": 17, "domain": "com.microsoft", "tolerance": 1e-5}),
    ("BiasGelu", [X, X[0, 0]], {"opset": 17, "domain": "com.microsoft"}),
    ("QuickGelu", [X], {"opset": 17, "domain": "com.microsoft"}),
    ("QuickGelu", [X], {"opset": 17, "domain": "com.microsoft", "alpha": 1.0}),
    ("PRelu", [X, Y], {"opset": 7}),
    ("PRelu", [X, Y[:1, 0]], {"opset": 9}),
    ("PRelu", [X, X[:, :, :1]], {"opset": 9}),
    ("PRelu", [X, X[0, 0]], {"opset": 16}),
    ("Erf", [X], {"opset": 9}),
    ("Round", [np.array([0.5, 1.5, -2.5, 2.4], np.float32)], {"opset": 11}),
    ("Sign", [X], {"opset": 9}),
    ("Acosh", [ABOVE_ONE], {"opset": 9}),
    ("Add", [X, Y], {"opset": 7}),
    ("Div", [INTEGERS, DIVISORS], {"opset": 7}),
    ("Mod", [INTEGERS, DIVISORS], {"opset": 10}),
    ("Mod", [INTEGERS, DIVISORS], {"opset": 10, "fmod": 1}),
    ("Mod", [X, Y], {"opset": 10, "fmod": 1}),
    ("Pow", [np.abs(X), Y], {"opset": 7}),
    ("Pow", [np.abs(X), np.array(2, np.int64)], {"opset": 12}),
    ("Pow", [INTEGERS, np.array(2, np.float32)], {"opset": 12}),
    ("Pow", [INTEGERS, np.array(3, np.int32)], {"opset": 13}),
    ("Max", [X, Y, X[1]], {"opset": 8}),
    ("Min", [X, Y], {"opset": 12}),
    ("Max", [np.array([1, 2**64 - 1], np.uint64), np.array([2, 5], np.uint64)], {"opset": 13}),
    ("Sum", [X, Y, X[1]], {"opset": 8}),
    ("Mean", [X, Y, X[1]], {"opset": 8}),
    ("Mean", [X], {"opset": 8}),
    ("Clip", [X], {"opset": 7, "min": -0.5, "max": 0.7}),
    ("Clip", [X], {"opset": 7, "min": -0.5}),
    ("Clip", [X], {"opset": 7}),
    ("Clip", [X, np.array(-0.5, np.float32), np.array(0.7, np.float32)], {"opset": 11}),
    ("Clip", [X, None, np.array(0.7, np.float32)], {"opset": 12}),
    ("Clip", [X, np.array(1, np.float32), np.array(-1, np.float32)], {"opset": 13}),
    ("Clip", [X], {"opset": 13}),
    ("Clip", [INTEGERS.astype(np.int8), np.array(-3, np.int8), np.array(3, np.int8)], {"opset": 12}),
    ("Where", [X > 0, X, Y], {"opset": 9}),
    ("IsInf", [np.array([np.inf, -np.inf, 1], np.float32)], {"opset": 10, "detect_negative": 0}),
    ("IsInf", [np.array([np.inf, -np.inf, 1], np.float32)], {"opset": 10, "detect_positive": 0}),
    ("IsNaN", [np.array([np.nan, 1], np.float32)], {"opset": 9}),
    ("Greater", [X, Y], {"opset": 7}),
    ("LessOrEqual", [INTEGERS, DIVISORS], {"opset": 12}),
    ("Equal", [X > 0, X > 1], {"opset": 7}),
    ("And", [X > 0, Y > 0], {"opset": 7}),
    (
        "BitShift",
        [np.array([1, 2**63, 7], np.uint64), np.array([1, 3, 0], np.uint64)],
        {"opset": 11, "direction": "RIGHT"},
    ),
    (
        "BitShift",
        [np.array([1, 2**63, 7], np.uint64), np.array([1, 1, 62], np.uint64)],
        {"opset": 11, "direction": "LEFT"},
    ),
    ("BitwiseNot", [np.array([0, 65535, 7], np.uint16)], {"opset": 18}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), LIKE_ONNXRUNTIME)
def test_values_are_those_of_onnxruntime(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_like_onnxruntime(op, inputs, **how)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("limits", [(1, 2), (1,), (2,)])
def test_limits_of_clip_in_the_model_are_those_at_run_time(opset: int, limits: tuple[int, ...]) -> None:
    inputs = [X, np.array(-0.5, np.float32), np.array(0.7, np.float32)]
    assert_like_onnxruntime("Clip", inputs, opset=opset, constants=limits)


@pytest.mark.parametrize("exponent", [np.array(2, np.float32), np.array(0.5, np.float32), np.array(3, np.int64)])
def test_exponents_in_the_model_are_those_at_run_time(exponent: np.ndarray) -> None:
    assert_like_onnxruntime("Pow", [np.abs(X), exponent], opset=13, constants=[1])


@pytest.mark.parametrize(
    ("op", "first", "second", "attributes", "expected"),
    [
        ("Add", X, X[0, :, 0], {"axis": 1}, X + X[0, :, :1]),
        ("Mul", X, X[:, 0, 0], {"axis": 0}, X * X[:, :1, :1]),
        ("Sub", X, X[0, 0], {}, X - X[0, 0]),
        ("Div", X, X[0, :, 0], {"axis": -2}, X / X[0, :, :1]),
        ("Pow", np.abs(X), np.array(2, np.float32), {"axis": 0}, X**2),
        ("Greater", X, X[0, :, 0], {"axis": 1}, X[0, :, :1] < X),
        ("And", X > 0, X[0, :, 0] > 0, {"axis": 1}, (X > 0) & (X[0, :, :1] > 0)),
    ],
)
def test_the_second_tensor_lies_at_the_axis_before_opset_7(
    op: str, first: np.ndarray, second: np.ndarray, attributes: dict[str, int], expected: np.ndarray
) -> None:
    model = one_node(op, [first, second], opset=6, broadcast=1, **attributes)
    np.testing.assert_allclose(in_torch(model, [first, second])[0], expected, rtol=1e-6)


def test_a_vector_of_slopes_is_per_channel_before_opset_7() -> None:
    slopes = np.array([0.1, 0.2, 0.3], np.float32)
    model = one_node("PRelu", [X, slopes], opset=6)
    np.testing.assert_allclose(in_torch(model, [X, slopes])[0], np.where(X < 0, X * slopes[:, None], X), rtol=1e-6)


def test_selu_of_opset_1_has_constants_of_five_digits() -> None:
    found = in_torch(one_node("Selu", [X], opset=1), [X])[0]
    np.testing.assert_allclose(found, np.where(X > 0, X, 1.6732 * np.expm1(X)) * 1.0507, rtol=1e-5)


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize(
    ("op", "function"),
    [
        *[("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.floor_divide)],
        *[("Mod", np.remainder), ("Max", np.maximum), ("Min", np.minimum)],
        *[("Less", np.less), ("GreaterOrEqual", np.greater_equal), ("BitwiseXor", np.bitwise_xor)],
    ],
)
def test_unsigned_integers_have_their_whole_range(op: str, function: Any, kind: type[np.unsignedinteger[Any]]) -> None:
    top = np.iinfo(kind).max
    a, b = np.array([top, 5, top - 1, 7], kind), np.array([3, top, 2, 7], kind)
    found = in_torch(one_node(op, [a, b], opset=18, kind=TensorProto.UINT64), [a, b])[0]
    expected = function(a, b)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_right_shifts_keep_the_sign_and_long_ones_leave_only_it() -> None:
    values, amounts = np.array([-8, -8, 8, -1, 5], np.int8), np.array([1, 8, 9, 7, -1], np.int8)
    model = one_node("BitShift", [values, amounts], opset=28, kind=TensorProto.INT8, direction="RIGHT")
    np.testing.assert_array_equal(in_torch(model, [values, amounts])[0], np.array([-4, -1, 0, -1, 0], np.int8))


def test_an_unknown_variant_is_refused_with_the_name_of_the_node() -> None:
    with pytest.raises(UnsupportedError, match=r"node 'n' \(Gelu, opset 20\).*'sigmoid'"):
        net_of(one_node("Gelu", [X], opset=20, approximate="sigmoid"))


POINTS = np.array([[-1.7, -0.35, 0.45], [1.3, 2.1, -2.6]])
"""Away from the kinks of all the functions below."""

ACTIVATIONS = (
    *("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "Mish", "HardSwish", "LeakyRelu", "Elu", "Celu", "Selu"),
    *("ThresholdedRelu", "HardSigmoid", "Gelu"),
)
FUNCTIONS = ("Abs", "Atan", "Asinh", "Cos", "Cosh", "Erf", "Exp", "Neg", "Reciprocal", "Sin", "Sinh", "Tan")
OF_SEVERAL = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum")

GRADIENTS: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    *[(op, [POINTS], {"opset": 22}) for op in ACTIVATIONS + FUNCTIONS],
    *[(op, [UNIT.astype(np.float64)], {"opset": 22}) for op in ("Acos", "Asin", "Atanh", "Log", "Sqrt")],
    ("Acosh", [UNIT.astype(np.float64) + 1], {"opset": 22}),
    *[(op, [POINTS, POINTS[1] * 0.7], {"opset": 14}) for op in OF_SEVERAL],
    ("Pow", [np.abs(POINTS), POINTS[0]], {"opset": 15}),
    ("Pow", [POINTS, np.array(3.0)], {"opset": 15, "constants": [1]}),
    ("Mod", [POINTS, np.array(0.8)], {"opset": 13, "fmod": 1}),
    ("Clip", [POINTS, np.array(-1.0), np.array(1.5)], {"opset": 13}),
    ("Where", [POINTS > 0, POINTS, POINTS[0]], {"opset": 16}),
    ("Shrink", [POINTS], {"opset": 9, "lambd": 0.5, "bias": 0.2}),
    ("PRelu", [POINTS, np.array([0.1, 0.2, 0.3])], {"opset": 16}),
    ("PRelu", [POINTS, np.array([0.1])], {"opset": 16}),
    ("Swish", [POINTS], {"opset": 24, "alpha": 1.3}),
    ("SwiGLU", [POINTS, POINTS * 0.3], {"opset": 28}),
    ("QuickGelu", [POINTS], {"opset": 17, "domain": "com.microsoft"}),
]


@pytest.mark.parametrize(("op", "inputs", "how"), GRADIENTS)
def test_gradients_are_those_of_the_differences(op: str, inputs: list[np.ndarray | None], how: dict[str, Any]) -> None:
    assert_gradients(op, inputs, **how)


def test_operators_do_not_write_into_their_inputs() -> None:
    for op, inputs, how in LIKE_ONNXRUNTIME:
        before = [None if value is None else value.copy() for value in inputs]
        how = {key: value for key, value in how.items() if key != "tolerance"}
        tensors = [torch.from_numpy(np.array(value)) for value in inputs if value is not None]
        net_of(one_node(op, inputs, **how))(*tensors)
        for tensor, value in zip(tensors, [value for value in before if value is not None], strict=True):
            np.testing.assert_array_equal(tensor.numpy(), value)
