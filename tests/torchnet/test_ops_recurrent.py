"""RNN, GRU and LSTM in torch: as onnxruntime has them, fused or not, and with right gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from onnxq.errors import UnsupportedError
from tests.torchnet.one_node import assert_gradients, assert_like_onnxruntime, in_torch, net_of, one_node

RNG = np.random.default_rng(13)
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.array([5, 2, 3], np.int32)
DIRECTIONS = ("forward", "reverse", "bidirectional")


def values(*shape: int) -> np.ndarray:
    return (RNG.normal(0, 0.5, shape)).astype(np.float32)


def inputs_of(op: str, direction: str, *, lengths: bool = False, peepholes: bool = False) -> list[np.ndarray | None]:
    ways, rows = 2 if direction == "bidirectional" else 1, GATES[op] * HIDDEN
    given: list[np.ndarray | None] = [
        values(STEPS, BATCH, WIDTH),
        values(ways, rows, WIDTH),
        values(ways, rows, HIDDEN),
        values(ways, 2 * rows),
        LENGTHS if lengths else None,
        values(ways, BATCH, HIDDEN),
    ]
    if op == "LSTM":
        given.append(values(ways, BATCH, HIDDEN))
        given.extend([values(ways, 3 * HIDDEN)] if peepholes else [])
    return given


def outputs_of(op: str) -> int:
    return 3 if op == "LSTM" else 2


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", GATES)
def test_layers_are_those_of_onnxruntime(op: str, direction: str, lengths: bool) -> None:
    how: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction, "outputs": outputs_of(op)}
    given = inputs_of(op, direction, lengths=lengths)
    assert_like_onnxruntime(op, given, opset=14, tolerance=1e-5, **how)
    if op == "GRU":
        assert_like_onnxruntime(op, given, opset=7, tolerance=1e-5, linear_before_reset=1, **how)


@pytest.mark.parametrize(
    ("op", "how"),
    [
        ("RNN", {"activations": ["Relu"]}),
        ("RNN", {"activations": ["HardSigmoid"], "activation_alpha": [0.3], "activation_beta": [0.4]}),
        ("RNN", {"activations": ["LeakyRelu"], "activation_alpha": [0.3], "clip": 0.5}),
        ("GRU", {"activations": ["HardSigmoid", "Softsign"]}),
        ("GRU", {"activations": ["Sigmoid", "ScaledTanh"], "activation_alpha": [1.5], "activation_beta": [0.7]}),
        ("LSTM", {"activations": ["Sigmoid", "Softsign", "Elu"], "activation_alpha": [0.4]}),
        ("LSTM", {"input_forget": 1}),
        ("LSTM", {"clip": 0.6}),
    ],
)
def test_unusual_layers_are_those_of_onnxruntime(op: str, how: dict[str, Any]) -> None:
    given = inputs_of(op, "forward")
    assert_like_onnxruntime(op, given, opset=14, tolerance=1e-5, hidden_size=HIDDEN, outputs=outputs_of(op), **how)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_peepholes_are_those_of_onnxruntime(direction: str) -> None:
    given = inputs_of("LSTM", direction, peepholes=True)
    how = {"hidden_size": HIDDEN, "direction": direction, "outputs": 3}
    assert_like_onnxruntime("LSTM", given, opset=14, tolerance=1e-5, **how)


@pytest.mark.parametrize("op", GATES)
def test_a_layer_without_bias_and_state_starts_at_zero(op: str) -> None:
    given = inputs_of(op, "forward")[:3]
    how = {"hidden_size": HIDDEN, "outputs": outputs_of(op)}
    assert_like_onnxruntime(op, given, opset=14, tolerance=1e-5, **how)


@pytest.mark.parametrize("op", GATES)
def test_a_layout_with_the_batch_first_is_the_same_layer_turned_over(op: str) -> None:
    given = inputs_of(op, "bidirectional")
    how: dict[str, Any] = {"hidden_size": HIDDEN, "direction": "bidirectional", "outputs": outputs_of(op)}
    y, *states = in_torch(one_node(op, given, opset=14, **how), given)
    turned = [value.swapaxes(0, 1) if value is not None and i in (0, 5, 6) else value for i, value in enumerate(given)]
    y_turned, *states_turned = in_torch(one_node(op, turned, opset=14, layout=1, **how), turned)
    np.testing.assert_allclose(y_turned, y.transpose(2, 0, 1, 3), atol=1e-6)
    for state, other in zip(states, states_turned, strict=True):
        np.testing.assert_allclose(other, state.swapaxes(0, 1), atol=1e-6)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("op", "how"), [("RNN", {}), ("GRU", {"linear_before_reset": 1}), ("LSTM", {})])
def test_fused_kernels_and_the_loop_agree(op: str, how: dict[str, Any], direction: str) -> None:
    given = inputs_of(op, direction)
    settings: dict[str, Any] = {"opset": 14, "hidden_size": HIDDEN, "direction": direction, **how}
    loop = one_node(op, given, outputs=outputs_of(op), clip=1e6, **settings)
    fused = one_node(op, given, outputs=outputs_of(op), **settings)
    for ours, theirs in zip(in_torch(fused, given), in_torch(loop, given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("op", GATES)
def test_gradients_of_recurrent_layers(op: str, lengths: bool) -> None:
    rows, how = GATES[op] * 2, {"opset": 14, "hidden_size": 2, "outputs": outputs_of(op)}
    given: list[np.ndarray | None] = [
        RNG.normal(0, 0.5, (3, 2, 2)),
        RNG.normal(0, 0.5, (1, rows, 2)),
        RNG.normal(0, 0.5, (1, rows, 2)),
        RNG.normal(0, 0.5, (1, 2 * rows)),
    ]
    assert_gradients(op, [*given, np.array([3, 2], np.int32)] if lengths else given, **how)


def test_an_unknown_activation_is_refused_with_a_hint() -> None:
    given = inputs_of("RNN", "forward")
    with pytest.raises(UnsupportedError, match="activation 'Tahn' is not known"):
        net_of(one_node("RNN", given, opset=14, hidden_size=HIDDEN, activations=["Tahn"]))


def test_the_weights_of_a_fused_layer_are_trained() -> None:
    given = inputs_of("LSTM", "forward")
    net = net_of(one_node("LSTM", given, opset=14, hidden_size=HIDDEN, constants=[1, 2, 3, 5, 6]))
    net(torch.from_numpy(given[0])).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in net.parameters())


@pytest.mark.parametrize(("port", "name"), [(1, "W"), (3, "B"), (5, "initial_h"), (6, "initial_c")])
def test_shapes_that_do_not_fit_together_are_refused_before_a_kernel_sees_them(port: int, name: str) -> None:
    given = inputs_of("LSTM", "forward")
    model = one_node("LSTM", given, opset=14, hidden_size=HIDDEN, outputs=3)
    wrong = given[port]
    assert wrong is not None
    given[port] = np.concatenate([wrong, wrong], axis=-1) if port in (1, 3) else np.concatenate([wrong, wrong])
    with pytest.raises(RuntimeError, match=f"{name} has shape"):
        in_torch(model, given)
