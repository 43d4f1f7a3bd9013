"""Reductions and matrix products against onnxruntime, in old and new opsets, with their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from onnxq.torchnet.values import from_numpy
from tests.torchnet.node_case import (
    NodeCase,
    assert_gradients,
    assert_same,
    net_of,
    onnxruntime_outputs,
    settings_of,
    torch_outputs,
)

RANDOM = np.random.default_rng(7)


def values(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def axes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


X = np.abs(values(2, 3, 4)) + 0.5
REDUCTIONS = ["Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]

REDUCED = [
    NodeCase(f"Reduce{name}", opset, inputs, attributes)
    for name in REDUCTIONS
    for opset, inputs, attributes in [
        (7, [X], {"axes": [0, 2], "keepdims": 0}),
        (11, [X], {"axes": [-2]}),
        (12, [X], {}),
        (18, [X, axes(1, -1)], {"keepdims": 0}),
        (18, [X], {"keepdims": 0}),
        (18, [X, axes()], {}),
    ]
    if (name, opset) != ("Sum", 12)
]

PRODUCTS = [
    NodeCase("MatMul", 7, [values(2, 3, 4), values(4, 5)]),
    NodeCase("MatMul", 13, [values(4), values(2, 4, 3)]),
    NodeCase("Gemm", 7, [values(2, 4), values(3, 4), values(3)], {"transB": 1}),
    NodeCase("Gemm", 11, [values(2, 4), values(3, 4)], {"transB": 1}),
    NodeCase("Gemm", 13, [values(2, 4), values(3, 4), values(1)], {"transB": 1}),
    NodeCase("Gemm", 13, [values(2, 4), values(3, 4), values(2, 1)], {"transB": 1}),
    NodeCase("Gemm", 13, [values(4, 2), values(4, 3), values(2, 3)], {"transA": 1, "alpha": 0.5, "beta": 2.0}),
    NodeCase("Gemm", 13, [values(4, 2), values(3, 4)], {"transA": 1, "transB": 1, "alpha": 0.25}),
    NodeCase("Gemm", 9, [values(2, 4), values(4, 3), np.array(1.5, np.float32)]),
    NodeCase("Einsum", 12, [values(2, 3, 4), values(2, 4, 5)], {"equation": "b i j , b j k -> b i k"}),
    NodeCase("Einsum", 12, [values(2, 3, 3)], {"equation": "...ii->...i"}),
    NodeCase("Det", 11, [values(2, 3, 3)]),
]

RUNNING = [
    NodeCase("CumSum", 11, [X, np.array(1, np.int64)]),
    NodeCase("CumSum", 14, [X, np.array(-1, np.int64)], {"exclusive": 1}),
    NodeCase("CumSum", 14, [X, np.array(0, np.int32)], {"exclusive": 1, "reverse": 1}),
]


@pytest.mark.parametrize("case", REDUCED + PRODUCTS + RUNNING, ids=str)
def test_sums_are_those_of_onnxruntime(case: NodeCase) -> None:
    wanted = onnxruntime_outputs(case)
    assert_same(torch_outputs(case, settings_of(case)), wanted)
    assert_same(torch_outputs(case), wanted)


@pytest.mark.parametrize("case", [*REDUCED[::5], *PRODUCTS, *RUNNING], ids=str)
def test_gradients_pass_through_sums(case: NodeCase) -> None:
    assert_gradients(case)


def test_the_gradient_of_a_norm_is_finite_at_zero() -> None:
    net = net_of(NodeCase("ReduceL2", 18, [np.zeros((2, 3), np.float32), axes(1)]), {1})
    x = torch.zeros(2, 3, requires_grad=True)
    net(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Sum", X),
        ("Max", X),
        ("L1", np.abs(X)),
        ("L2", np.abs(X)),
        ("LogSum", np.log(X)),
        ("LogSumExp", X),
        ("SumSquare", X * X),
    ],
)
def test_without_axes_only_the_rest_of_the_operator_is_done(name: str, wanted: np.ndarray) -> None:
    case = NodeCase(f"Reduce{name}", 18, [X], {"noop_with_empty_axes": 1})
    assert_same(torch_outputs(case), [wanted])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("Sum", 0.0), ("Prod", 1.0), ("Max", -np.inf), ("Min", np.inf), ("L1", 0.0), ("LogSumExp", -np.inf)],
)
def test_empty_sets_have_neutral_results(name: str, wanted: float) -> None:
    case = NodeCase(f"Reduce{name}", 18, [np.zeros((2, 0, 3), np.float32), axes(1)])
    assert_same(torch_outputs(case), [np.full((2, 1, 3), wanted, np.float32)])


def test_the_maximum_of_no_integers_is_the_lowest_integer() -> None:
    case = NodeCase("ReduceMax", 18, [np.zeros((2, 0), np.int32), axes(1)], {"keepdims": 0})
    assert_same(torch_outputs(case), [np.full(2, np.iinfo(np.int32).min, np.int32)])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("name", ["Sum", "Max", "Min", "Prod", "Mean"])
def test_integers_stay_integers(name: str, dtype: type) -> None:
    data = np.array([[7, 2, 4], [2**31 - 1, 1, 1]]).astype(dtype)
    if name == "Max" and dtype is np.uint64:
        data[1, 1] = 2**64 - 2  # beyond int64
    wanted = {
        "Sum": lambda: data.sum(1, dtype=dtype),
        "Max": lambda: data.max(1),
        "Min": lambda: data.min(1),
        "Prod": lambda: data.prod(1, dtype=dtype),
        "Mean": lambda: (data.astype(np.int64).sum(1) // 3).astype(dtype),
    }[name]()
    found = torch_outputs(NodeCase(f"Reduce{name}", 18, [data, axes(1)], {"keepdims": 0}))[0]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, wanted)


def test_integer_products_are_exact() -> None:
    a, b, c = (RANDOM.integers(-5, 5, shape).astype(np.int32) for shape in [(2, 3), (3, 4), (4,)])
    case = NodeCase("Gemm", 13, [a, b, c], {"alpha": 2.0})
    assert_same(torch_outputs(case), [2 * (a @ b) + c], 0)
    halved = NodeCase("Gemm", 13, [a, b, c], {"alpha": 0.5})
    assert_same(torch_outputs(halved), [np.trunc(0.5 * (a @ b) + c).astype(np.int32)], 0)


def test_gemm_of_the_first_opsets_takes_its_broadcast_attribute() -> None:
    a, b, c = values(2, 3), values(3, 4), values(4)
    case = NodeCase("Gemm", 6, [a, b, c], {"broadcast": 1})
    assert_same(torch_outputs(case), [a @ b + c])


def test_a_fully_connected_layer_is_one_call_of_torch() -> None:
    case = NodeCase("Gemm", 13, [values(2, 4), values(3, 4), values(3)], {"transB": 1})
    net = net_of(case, {1, 2})
    with torch.profiler.profile() as profile, torch.no_grad():
        net(from_numpy(values(2, 4)))
    calls = [event.name for event in profile.events() if event.name == "aten::linear"]
    assert len(calls) == 1


@pytest.mark.parametrize(("reverse", "wanted"), [(0, [1, 2, 6, 24]), (1, [60, 20, 5, 1])])
def test_running_products_without_the_value_itself(reverse: int, wanted: list[int]) -> None:
    row = np.array([2, 3, 4, 5], np.float32)
    case = NodeCase("CumProd", 26, [row, np.array(0, np.int64)], {"exclusive": 1, "reverse": reverse})
    assert_same(torch_outputs(case), [np.array(wanted, np.float32)])


def test_a_long_sum_of_sizes_is_as_exact_as_a_sum() -> None:
    x = np.abs(values(1, 20000)) + 1
    (found,) = torch_outputs(NodeCase("ReduceL1", 13, [x], {"keepdims": 0}))
    np.testing.assert_allclose(found, x.astype(np.float64).sum(), rtol=1e-6)
