"""RNN, GRU and LSTM: torch's fused kernels for the usual forms, a loop over time for all others.

Shapes inside, with T steps, N samples, D directions, H hidden values:

    x [T, N, inputs]    y [T, D, N, H]    h, c [D, N, H]    weights [D, gates * H, ...]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onnxq.torchnet.call import Call
from onnxq.torchnet.ops.gate_activations import Activation, activation_names, gate_activations
from onnxq.torchnet.registry import Kernel, op

State = tuple[Tensor, ...]
"""(h,) or, for an LSTM, (h, c)."""

Step = Callable[[Tensor, State], State]
"""One step of one direction: the products of the input with its weights, and the state before."""

_DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True)
class _Weights:
    """Of one direction: input weights, recurrent weights, both biases, peepholes."""

    w: Tensor
    r: Tensor
    w_bias: Tensor | None
    r_bias: Tensor | None
    peepholes: Tensor | None


MakeStep = Callable[[_Weights, list[Activation]], Step]


@dataclass(frozen=True)
class _Fused:
    """torch's kernel, and for each of its gates the number of ONNX's."""

    kernel: Any
    gates: tuple[int, ...]


@op("RNN", since=1)
def rnn(call: Call) -> Kernel:
    names = _names(call, ["Tanh"])
    kernels = {"Tanh": torch._VF.rnn_tanh, "Relu": torch._VF.rnn_relu}
    usual = len(set(names)) == 1 and names[0] in kernels
    return _recurrent(call, names, _rnn_step, _Fused(kernels[names[0]], (0,)) if usual else None)


@op("GRU", since=1)
def gru(call: Call) -> Kernel:
    names = _names(call, ["Sigmoid", "Tanh"])
    late = bool(call.attribute("linear_before_reset", 0))
    usual = late and names[:2] == ["Sigmoid", "Tanh"] and names[2:] in ([], names[:2])
    make = _gru_step_reset_late if late else _gru_step
    return _recurrent(call, names, make, _Fused(torch._VF.gru, (1, 0, 2)) if usual else None)


@op("LSTM", since=1)
def lstm(call: Call) -> Kernel:
    names = _names(call, ["Sigmoid", "Tanh", "Tanh"])
    coupled = bool(call.attribute("input_forget", 0))
    usual = not coupled and set(names[::3]) == {"Sigmoid"} and {*names[1::3], *names[2::3]} == {"Tanh"}
    fused = _Fused(torch._VF.lstm, (0, 2, 3, 1)) if usual else None
    return _recurrent(call, names, lambda weights, functions: _lstm_step(weights, functions, coupled), fused)


def _names(call: Call, defaults: list[str]) -> list[str]:
    direction = call.attribute("direction", "forward")
    if direction not in _DIRECTIONS:
        raise call.unsupported(f"direction '{direction}' is not one of {', '.join(_DIRECTIONS)}")
    return activation_names(call, defaults * (2 if direction == "bidirectional" else 1))


def _recurrent(call: Call, names: list[str], make: MakeStep, fused: _Fused | None) -> Kernel:
    direction = call.attribute("direction", "forward")
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    functions = gate_activations(call, names)
    each = len(functions) // len(backwards)
    batch_first = bool(call.attribute("layout", 0))
    has_cell = call.op == "LSTM"
    if call.has_input(4) or call.has_input(7) or call.attribute("clip", None):
        fused = None  # lengths, peepholes, a clip: torch has none of them

    def run(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        h: Tensor | None = None,
        c: Tensor | None = None,
        p: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        if batch_first:
            x = x.transpose(0, 1)
            h, c = (None if state is None else state.transpose(0, 1) for state in (h, c))
        empty = x.new_zeros((len(backwards), x.shape[1], r.shape[-1]))
        begin = tuple(empty if state is None else state for state in ((h, c) if has_cell else (h,)))
        _check_shapes(x, w, r, b, begin)
        if fused is not None:
            y, ends = _run_fused(fused, x, w, r, b, begin, direction)
        else:
            parts = []
            for d, back in enumerate(backwards):
                weights = _direction(w, r, b, p, d)
                step = make(weights, functions[d * each : (d + 1) * each])
                state = tuple(states[d] for states in begin)
                parts.append(_run_direction(step, x, weights, lengths, state, back))
            y = torch.stack([part[0] for part in parts], dim=1)
            ends = tuple(torch.stack([part[1][i] for part in parts]) for i in range(len(begin)))
        if batch_first:
            return (y.permute(2, 0, 1, 3), *(end.transpose(0, 1) for end in ends))
        return (y, *ends)

    return run


def _direction(w: Tensor, r: Tensor, b: Tensor | None, p: Tensor | None, d: int) -> _Weights:
    w_bias, r_bias = (None, None) if b is None else b[d].chunk(2)
    return _Weights(w[d], r[d], w_bias, r_bias, None if p is None else p[d])


# ---- torch's kernels -------------------------------------------------------------------------------------------------


def _run_fused(
    fused: _Fused, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, begin: State, direction: str
) -> tuple[Tensor, State]:
    flat: list[Tensor] = []
    for d in range(w.shape[0]):
        flat += [_reordered(w[d], fused.gates), _reordered(r[d], fused.gates)]
        if b is not None:
            flat += [_reordered(part, fused.gates) for part in b[d].chunk(2)]
    values = x.flip(0) if direction == "reverse" else x
    state: Any = begin if len(begin) == 2 else begin[0]
    y, *states = fused.kernel(
        values, state, flat, b is not None, 1, 0.0, torch.is_grad_enabled(), direction == "bidirectional", False
    )
    if direction == "reverse":
        y = y.flip(0)
    steps, batch, _ = y.shape
    return y.reshape(steps, batch, w.shape[0], -1).transpose(1, 2), tuple(states)


def _check_shapes(x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, begin: State) -> None:
    """Raise for shapes that do not fit together.

    torch's kernels look at none of them and write beyond their memory; the loop over time would take a state of one
    sample for all.
    """
    directions, rows, hidden = r.shape
    wanted = {"W": (w, (directions, rows, x.shape[2])), **({} if b is None else {"B": (b, (directions, 2 * rows))})}
    for name, state in zip(("initial_h", "initial_c"), begin, strict=False):
        wanted[name] = (state, (directions, x.shape[1], hidden))
    for name, (value, shape) in wanted.items():
        if value.shape != shape:
            raise RuntimeError(f"{name} has shape {tuple(value.shape)} where {shape} is needed for X {tuple(x.shape)}")


def _reordered(weight: Tensor, gates: tuple[int, ...]) -> Tensor:
    if len(gates) == 1:
        return weight
    parts = weight.chunk(len(gates))
    return torch.cat([parts[gate] for gate in gates])


# ---- the loop over time ----------------------------------------------------------------------------------------------


def _run_direction(
    step: Step, x: Tensor, weights: _Weights, lengths: Tensor | None, state: State, backwards: bool
) -> tuple[Tensor, State]:
    """y [T, N, H] and the last state; samples that have ended keep their state and give 0."""
    order = _reversal(x, lengths) if backwards else None
    values = x if order is None else torch.take_along_dim(x, order, dim=0)
    products = _plus(values @ weights.w.T, weights.w_bias)
    results = []
    for t in range(x.shape[0]):
        after = step(products[t], state)
        if lengths is not None:
            running = (t < lengths).unsqueeze(1)
            after = tuple(torch.where(running, new, old) for new, old in zip(after, state, strict=True))
            results.append(torch.where(running, after[0], torch.zeros_like(after[0])))
        else:
            results.append(after[0])
        state = after
    y = torch.stack(results) if results else x.new_zeros((0, *state[0].shape))
    return (y if order is None else torch.take_along_dim(y, order, dim=0)), state


def _reversal(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Time indices [T, N, 1] that turn every sample over within its own length."""
    time = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    if lengths is None:
        return time.flip(0).expand(-1, x.shape[1]).unsqueeze(2)
    ends = lengths.to(time.dtype).unsqueeze(0)
    return torch.where(time < ends, ends - 1 - time, time).unsqueeze(2)


def _plus(value: Tensor, bias: Tensor | None) -> Tensor:
    return value if bias is None else value + bias


def _rnn_step(weights: _Weights, functions: list[Activation]) -> Step:
    (activation,) = functions

    def step(product: Tensor, state: State) -> State:
        return (activation(product + _plus(state[0] @ weights.r.T, weights.r_bias)),)

    return step


def _gru_step(weights: _Weights, functions: list[Activation]) -> Step:
    f, g = functions
    gates, hidden = weights.r[: 2 * weights.r.shape[1]], weights.r[2 * weights.r.shape[1] :]
    gate_bias, hidden_bias = (None, None)
    if weights.r_bias is not None:
        gate_bias, hidden_bias = weights.r_bias.tensor_split([gates.shape[0]])

    def step(product: Tensor, state: State) -> State:
        (h,) = state
        first, last = product.tensor_split([gates.shape[0]], dim=-1)
        update, reset = f(first + _plus(h @ gates.T, gate_bias)).chunk(2, dim=-1)
        new = g(last + _plus((reset * h) @ hidden.T, hidden_bias))
        return ((1 - update) * new + update * h,)

    return step


def _gru_step_reset_late(weights: _Weights, functions: list[Activation]) -> Step:
    f, g = functions
    size = weights.r.shape[1]

    def step(product: Tensor, state: State) -> State:
        (h,) = state
        recurrent = _plus(h @ weights.r.T, weights.r_bias)
        update, reset = f(product[..., : 2 * size] + recurrent[..., : 2 * size]).chunk(2, dim=-1)
        new = g(product[..., 2 * size :] + reset * recurrent[..., 2 * size :])
        return ((1 - update) * new + update * h,)

    return step


def _lstm_step(weights: _Weights, functions: list[Activation], coupled: bool) -> Step:
    f, g, last = functions
    peep_i, peep_o, peep_f = weights.peepholes.chunk(3) if weights.peepholes is not None else (None, None, None)

    def step(product: Tensor, state: State) -> State:
        h, c = state
        i, o, forget, cell = (product + _plus(h @ weights.r.T, weights.r_bias)).chunk(4, dim=-1)
        i = f(i if peep_i is None else i + peep_i * c)
        forget = 1 - i if coupled else f(forget if peep_f is None else forget + peep_f * c)
        c = forget * c + i * g(cell)
        o = f(o if peep_o is None else o + peep_o * c)
        return o * last(c), c

    return step
