"""Random numbers of the net: who decides, when values are dropped, and that they have the distribution asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

from onnxq.torchnet import TorchNet
from tests.torchnet.one_node import net_of, one_node

X = torch.ones(50, 40)
HALF = np.array(0.5, np.float32)
ON = np.array(True)


def _dropout(opset: int, inputs: list[np.ndarray | None], **how: Any) -> TorchNet:
    return net_of(one_node("Dropout", [X.numpy(), *inputs], opset=opset, **how))


@pytest.mark.parametrize("opset", [7, 10, 12, 13, 22])
def test_values_pass_without_training_mode_even_in_training(opset: int) -> None:
    net = _dropout(opset, [], outputs=2, **({"ratio": 0.5} if opset < 12 else {}))
    y, mask = net.train()(X)
    assert torch.equal(y, X)
    assert mask.dtype == (torch.float32 if opset < 10 else torch.bool)
    assert bool(mask.bool().all())


def test_a_model_that_says_training_drops_only_while_the_net_trains() -> None:
    net = _dropout(13, [HALF, ON], constants=[1, 2], outputs=2)
    assert torch.equal(net(X)[0], X)
    y, mask = net.train()(X)
    assert torch.equal(y, torch.where(mask, 2.0, 0.0))
    assert 0.4 < float(mask.float().mean()) < 0.6


def test_training_mode_at_run_time_decides_by_itself() -> None:
    net = _dropout(13, [HALF, ON])
    ratio = torch.tensor(0.25)
    assert torch.equal(net(X, ratio, torch.tensor(False)), X)
    kept = net(X, ratio, torch.tensor(True)) > 0
    assert 0.7 < float(kept.float().mean()) < 0.8


def test_the_test_flag_of_the_first_versions_lets_values_pass() -> None:
    assert torch.equal(_dropout(6, [], is_test=1).train()(X), X)
    assert not torch.equal(_dropout(6, []).train()(X), X)
    assert torch.equal(_dropout(6, [])(X), X)


def test_masks_of_seeded_nodes_differ_from_step_to_step_in_training_and_follow_the_seed_of_torch() -> None:
    net = _dropout(13, [HALF, ON], constants=[1, 2], seed=3).train()
    torch.manual_seed(5)
    first, second = net(X), net(X)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(first, net(X))


def test_dropped_values_have_no_gradient() -> None:
    net = _dropout(13, [HALF, ON], constants=[1, 2]).train()
    x = X.clone().requires_grad_()
    y = net(x)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())


def test_a_ratio_of_one_leaves_nothing_and_no_gradient() -> None:
    net = _dropout(13, [np.array([1], np.float32), ON], constants=[1, 2]).train()
    x = X.clone().requires_grad_()
    net(x).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().sum()) == 0


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "mean", "deviation"),
    [
        ("RandomNormal", [], {"shape": [50, 40], "mean": 3.0, "scale": 2.0}, 3.0, 2.0),
        ("RandomUniform", [], {"shape": [50, 40], "low": -1.0, "high": 3.0}, 1.0, 4 / 12**0.5),
        ("RandomNormalLike", [X.numpy()], {"dtype": TensorProto.DOUBLE}, 0.0, 1.0),
        ("RandomUniformLike", [X.numpy()], {}, 0.5, 1 / 12**0.5),
        ("Bernoulli", [X.numpy() * 0.3], {"dtype": TensorProto.INT32}, 0.3, 0.21**0.5),
    ],
)
def test_numbers_have_the_distribution_and_a_seed_repeats_them(
    op: str, inputs: list[np.ndarray | None], attributes: dict[str, Any], mean: float, deviation: float
) -> None:
    given = [torch.from_numpy(value) for value in inputs if value is not None]
    net = net_of(one_node(op, inputs, opset=22, seed=11.0, **attributes))
    drawn = net(*given)
    assert tuple(drawn.shape) == (50, 40)
    assert drawn.dtype == {TensorProto.DOUBLE: torch.float64, TensorProto.INT32: torch.int32}.get(
        attributes.get("dtype"), torch.float32
    )
    # 2,000 numbers: means lie within 0.1 standard deviations with a probability of 1 - 1e-5
    assert abs(float(drawn.double().mean()) - mean) < 0.1 * deviation
    assert abs(float(drawn.double().std()) - deviation) < 0.1 * deviation
    assert torch.equal(drawn, net(*given))
    assert not torch.equal(drawn, net.train()(*given))


def test_classes_are_drawn_by_the_logarithms_of_their_probabilities() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3], [1.0, 1e-30, 1e-30]], np.float32))
    net = net_of(
        one_node("Multinomial", [logits], opset=7, kind=TensorProto.INT64, sample_size=2000, seed=1.0, dtype=7)
    )
    drawn = net(torch.from_numpy(logits))
    assert drawn.dtype == torch.int64
    shares = torch.bincount(drawn[0], minlength=3) / 2000
    np.testing.assert_allclose(shares.numpy(), [0.1, 0.6, 0.3], atol=0.05)
    assert drawn[1].tolist() == [0] * 2000
