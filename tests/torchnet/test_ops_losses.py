"""Losses, detection and steps of optimizers against onnxruntime and torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from onnxq.errors import UnsupportedError
from onnxq.torchnet.values import from_numpy
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(34)


def values(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


SCORES, TARGETS = values(4, 5), np.array([0, 4, 2, 4])
PIXELS, PIXEL_TARGETS = values(2, 5, 3, 2), RNG.integers(0, 5, (2, 3, 2))
WEIGHT = RNG.uniform(0.5, 2, 5).astype(np.float32)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("ignored", [{}, {"ignore_index": 4}, {"ignore_index": -1}])
@pytest.mark.parametrize("inputs", [[SCORES, TARGETS], [PIXELS, PIXEL_TARGETS, WEIGHT], [SCORES, TARGETS, WEIGHT]])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_loss_is_that_of_onnxruntime(
    op: str, inputs: list[np.ndarray], ignored: dict[str, int], reduction: str
) -> None:
    """The likelihood of pixels is the function that onnxruntime expands it to."""
    assert_like_onnxruntime(op, inputs, opset=13, tolerance=1e-5, reduction=reduction, **ignored)


def test_the_second_output_of_the_softmax_loss_is_the_logarithm() -> None:
    assert_like_onnxruntime("SoftmaxCrossEntropyLoss", [SCORES, TARGETS], opset=12, outputs=2, tolerance=1e-5)


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_gradients_of_losses_are_right(op: str) -> None:
    assert_gradients(op, [SCORES.astype(np.float64), TARGETS], opset=13)


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="reduction 'median'; ONNX knows none, mean, sum"):
        net_of(one_node("SoftmaxCrossEntropyLoss", [SCORES, TARGETS], opset=13, reduction="median"))


def boxes(count: int) -> np.ndarray:
    corner, size = RNG.uniform(0, 4, (2, count, 2)), RNG.uniform(0.5, 2, (2, count, 2))
    return np.concatenate((corner, corner + size), -1).astype(np.float32)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize(
    "settings",
    [
        [],
        [np.array([3], np.int64)],
        [np.array([50], np.int64), np.array([0.3], np.float32)],
        [np.array([50], np.int64), np.array([0.5], np.float32), np.array([0.4], np.float32)],
    ],
)
def test_the_boxes_that_stay_are_those_of_onnxruntime(settings: list[np.ndarray], centred: int) -> None:
    inputs = [boxes(40), RNG.random((2, 3, 40)).astype(np.float32), *settings]
    assert_like_onnxruntime("NonMaxSuppression", inputs, opset=11, center_point_box=centred)


def test_of_equal_scores_the_first_box_stays() -> None:
    inputs = [boxes(6), np.full((2, 1, 6), 0.5, np.float32), np.array([2], np.int64), np.array([0.1], np.float32)]
    assert_like_onnxruntime("NonMaxSuppression", inputs, opset=10)


RATE, DECAY = 0.1, 0.01

OPTIMIZERS: list[tuple[str, int, dict[str, Any], Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = [
    (
        "Momentum",
        1,
        {"alpha": 0.9, "beta": 1.0, "mode": "standard", "norm_coefficient": DECAY},
        lambda x: torch.optim.SGD(x, RATE, momentum=0.9, weight_decay=DECAY),
    ),
    (
        "Momentum",
        1,
        {"alpha": 0.9, "beta": 1.0, "mode": "nesterov", "norm_coefficient": DECAY},
        lambda x: torch.optim.SGD(x, RATE, momentum=0.9, weight_decay=DECAY, nesterov=True),
    ),
    (
        "Adagrad",
        1,
        {"epsilon": 1e-6, "norm_coefficient": DECAY},
        lambda x: torch.optim.Adagrad(x, RATE, weight_decay=DECAY, eps=1e-6),
    ),
]


@pytest.mark.parametrize(("op", "states", "how", "twin"), OPTIMIZERS)
def test_steps_of_an_optimizer_are_those_of_torch(
    op: str, states: int, how: dict[str, Any], twin: Callable[[list[torch.Tensor]], torch.optim.Optimizer]
) -> None:
    """Two tensors at once over four steps."""
    start = [values(3), values(2, 2)]
    ours = [from_numpy(value) for value in start]
    theirs = [torch.tensor(value, requires_grad=True) for value in start]
    optimizer = twin(theirs)
    kept = [torch.zeros_like(value) for _ in range(states) for value in ours]
    rate, count = np.array(RATE, np.float32), np.array(0, np.int64)
    given = [rate, count, *start, *start, *[item.numpy() for item in kept]]
    model = one_node(op, given, opset=17, domain="ai.onnx.preview.training", outputs=2 * (1 + states), **how)
    net = net_of(model)
    for step in range(4):
        gradients = [from_numpy(values(*value.shape)) for value in start]
        results = net(from_numpy(rate), torch.tensor(step), *ours, *gradients, *kept)
        ours, kept = list(results[:2]), list(results[2:])
        for value, gradient in zip(theirs, gradients, strict=True):
            value.grad = gradient
        optimizer.step()
    for value, twin_value in zip(ours, theirs, strict=True):
        torch.testing.assert_close(value, twin_value.detach(), rtol=1e-5, atol=1e-6)


def test_the_first_steps_of_adam_are_corrected() -> None:
    """By hand: onnx adds epsilon before the correction of the second moment, torch behind it."""
    x, gradient, zero = values(3), values(3), np.zeros(3, np.float32)
    given = [np.array(RATE, np.float32), np.array(2, np.int64), x, gradient, zero, zero]
    model = one_node("Adam", given, opset=17, domain="ai.onnx.preview.training", outputs=3, epsilon=1e-3)
    new, mean, square = in_torch(model, given)
    np.testing.assert_allclose(mean, 0.1 * gradient, rtol=1e-5)
    np.testing.assert_allclose(square, 0.001 * gradient**2, rtol=1e-4)
    rate = RATE * np.sqrt(1 - 0.999**2) / (1 - 0.9**2)
    np.testing.assert_allclose(new, x - rate * mean / (np.sqrt(square) + 1e-3), rtol=1e-5)
