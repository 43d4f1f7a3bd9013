"""LSTM and GRU between layers, with the optional inputs and outputs that exporters leave empty."""

from __future__ import annotations

import numpy as np

from tests.zoo_graphs.case import Case, Feeds, register
from tests.zoo_graphs.net import Net

STEPS, BATCH, SIZE, HIDDEN = 6, 2, 16, 12


def sequences(net: Net) -> Feeds:
    return [{"x": net.normal(STEPS, BATCH, SIZE)} for _ in range(4)]


def recurrent_weights(net: Net, directions: int, gates: int) -> tuple[str, str]:
    """W and R: from the input and from the hidden state to all gates."""
    shape = directions, gates * HIDDEN
    return (
        net.weight(*shape, SIZE, fan_in=SIZE, gain=1.0),
        net.weight(*shape, HIDDEN, fan_in=HIDDEN, gain=1.0),
    )


@register
def lstm_between_layers() -> Case:
    net = Net("lstm_between_layers")
    y = net.linear(net.input("x", [STEPS, BATCH, SIZE]), SIZE, SIZE)
    weights = recurrent_weights(net, 1, 4)
    bias = net.floats(net.rng.normal(0, 0.1, (1, 8 * HIDDEN)))
    start = net.floats(np.zeros((1, BATCH, HIDDEN)))
    inputs = [y, *weights, bias, "", start, start]
    _, last, cell = net.many("LSTM", inputs, ("", "last", "cell"), hidden_size=HIDDEN)
    net.output(net.gemm(net.node("Squeeze", last, net.ints(0)), HIDDEN, 4))
    net.output(cell)
    return Case(net.model(), sequences(net), min_quantized=2, notes="no sequence lengths, no sequence output")


@register
def gru_bidirectional() -> Case:
    net = Net("gru_bidirectional")
    y = net.linear(net.input("x", [STEPS, BATCH, SIZE]), SIZE, SIZE)
    weights = recurrent_weights(net, 2, 3)
    y = net.node("GRU", y, *weights, hidden_size=HIDDEN, direction="bidirectional", linear_before_reset=1)
    y = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), net.ints(STEPS, BATCH, 2 * HIDDEN))
    net.output(net.linear(y, 2 * HIDDEN, 4))
    return Case(net.model(), sequences(net), min_quantized=2)
