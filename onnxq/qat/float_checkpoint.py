"""Which values of a checkpoint of the original network belong to which constants of a net.

Names decide. Batch norms that the file does not have as layers of their own need more than names: the exporter (or
onnxq, in a net with `folded` batch norms) has multiplied them into the weight in front, so `conv1.weight` of the file
is another number than `conv1.weight` of the checkpoint. Which batch norm belongs to which layer a checkpoint does not
say, the numbers do: where weight times batch norm is what the file holds, the checkpoint is the one that was exported,
and the file's values stay. Where no batch norm explains the file's weight, the layer is not matched. The same holds for
what onnxq's own passes have changed or folded: the checkpoint has to have the values of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from onnxq.errors import ModelError
from onnxq.graph import Graph
from onnxq.qat.module_names import ModuleNames
from onnxq.torchnet.values import to_numpy

EPSILONS = (1e-5, 1e-3, 1e-4, 1e-6, 2e-5)
"""What batch norms add to their variance: torch's own choice first; a checkpoint does not say it."""

_TOLERANCE = 1e-4
_COUNTER = "num_batches_tracked"
_SHOWN = 6

State = Mapping[str, Tensor]


@dataclass
class Matched:
    """What a checkpoint says about a net.

    values      constant -> its new value, in the layout of the net
    confirmed   constants that the checkpoint explains together with a folded batch norm: they stay as the file has them
    missing     names of the net that the checkpoint has nothing for
    unexpected  names of the checkpoint that the net has nothing for
    folded      names of layers that cannot be loaded, because a batch norm is folded into them
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    folded: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.folded)

    def what_is_wrong(self) -> str:
        said = []
        if self.folded:
            said.append(
                f"{_some(self.folded)}: a batch norm of the checkpoint is folded into the file's weight, and the file "
                "holds other numbers than this checkpoint. Export the checkpoint to ONNX anew, or export with batch "
                "norms kept (torch.onnx.export(..., training=torch.onnx.TrainingMode.PRESERVE, "
                "do_constant_folding=False) of a model in eval())"
            )
        if self.missing:
            said.append(f"the checkpoint has nothing for {_some(self.missing)}")
        if self.unexpected:
            said.append(f"the net has nothing for {_some(self.unexpected)}")
        return "; ".join(said)


def match_checkpoint(given: State, names: ModuleNames, graph: Graph, needed: Iterable[str], original: Graph) -> Matched:
    """Find the values of `needed` constants; `graph` is that of the net before training, `original` the file."""
    state = without_wrapper(given, names)
    found, used = Matched(), set[str]()
    for constant in needed:
        key = names.checkpoint_key(constant)
        if key not in state:
            if original.has_tensor(constant):  # else a pass has made it, and no checkpoint can have it
                found.missing.append(names.constants[constant])
            continue
        used.add(key)
        value = state[key].detach().t() if names.is_transposed(constant) else state[key].detach()
        held = graph.values(constant)
        if tuple(value.shape) != held.shape:
            if value.numel() != held.size or value.ndim == held.ndim:
                raise ModelError(
                    f"'{key}' of the checkpoint has the shape {tuple(value.shape)}, that of the net {held.shape}: it "
                    "is a checkpoint of another network"
                )
            value = value.reshape(held.shape)
        in_file = _values_in(original, constant)
        if in_file is not None and not np.array_equal(in_file, held):
            if _same(to_numpy(value), in_file):
                found.confirmed.add(constant)
            else:
                found.folded.append(names.constants[constant])
            continue
        found.values[constant] = value
    for key, constant in names.shared.items():
        if key in state and key not in used:
            _check_shared(state, key, names.checkpoint_key(constant))
            used.add(key)
    _match_folded(state, names, graph, found, used)
    used |= {key for key in state if key not in used and _is_held(original, key, state[key])}
    found.unexpected = [key for key in state if key not in used and not key.endswith(_COUNTER)]
    return found


def _match_folded(state: State, names: ModuleNames, graph: Graph, found: Matched, used: set[str]) -> None:
    """Confirm or take out the layers into which one of the batch norms may be folded that the net does not have."""
    norms = [key.removesuffix(".running_var") for key in state if key.endswith(".running_var") and key not in used]
    for constant, axis in names.channels.items():
        value = found.values.get(constant)
        if value is None:
            continue
        held, weight = graph.values(constant), to_numpy(value)
        bias = names.biases.get(constant)
        needs_bias = bias is not None and names.constants.get(bias) in found.missing
        if np.array_equal(weight, held) and not needs_bias:
            continue
        fitting = [norm for norm in norms if state[f"{norm}.running_var"].numel() == held.shape[axis]]
        layer = Layer(held, axis, weight, *_biases(bias, found, graph))
        norm = next((one for one in fitting if _explains(state, one, layer)), None)
        if norm is None and _same(weight, held):  # asked last: one that was never trained changes next to nothing
            continue
        if norm is None and fitting:
            found.folded.append(names.constants[constant])
        if norm is None and not fitting:
            continue
        del found.values[constant]
        if norm is not None:
            found.confirmed.add(constant)
            used.update(f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var"))
            norms.remove(norm)
        if bias is not None:
            found.values.pop(bias, None)
            name = names.constants.get(bias)
            if name in found.missing:
                found.missing.remove(name)
            if norm is not None:
                found.confirmed.add(bias)


@dataclass(frozen=True)
class Layer:
    """A layer that a batch norm may be folded into: its values in the file, and those of the checkpoint."""

    held: np.ndarray
    axis: int
    weight: np.ndarray
    held_bias: np.ndarray | None
    bias: np.ndarray | None


def _biases(name: str | None, found: Matched, graph: Graph) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The bias of a layer in the file and in the checkpoint, where there is one."""
    own = None if name is None else found.values.get(name)
    return None if name is None else graph.values(name), None if own is None else to_numpy(own)


def _explains(state: State, norm: str, layer: Layer) -> bool:
    """Whether the file's layer is that of the checkpoint with this batch norm folded into it."""
    gamma, beta, mean, variance = (
        to_numpy(state[f"{norm}.{part}"]).astype(np.float64) if f"{norm}.{part}" in state else default
        for part, default in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0))
    )
    shape = [-1 if place == layer.axis else 1 for place in range(layer.held.ndim)]
    for epsilon in EPSILONS:
        factor = gamma / np.sqrt(variance + epsilon)
        bias = beta + ((0.0 if layer.bias is None else layer.bias) - mean) * factor
        same_bias = layer.held_bias is None or _same(bias.reshape(layer.held_bias.shape), layer.held_bias)
        if same_bias and _same(layer.weight * factor.reshape(shape), layer.held):
            return True
    return False


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    room = _TOLERANCE * float(np.abs(second).max(initial=0.0))
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=_TOLERANCE, atol=room))


def _values_in(original: Graph, name: str) -> np.ndarray | None:
    """The values of a constant in the file; None where a pass has made it, such as the result of a Transpose."""
    return original.values(name) if original.has_tensor(name) and original.is_constant(name) else None


def _is_held(graph: Graph, name: str, value: Tensor) -> bool:
    """Whether the file has the very value, as a constant that the net does not train: a pass has folded it."""
    return graph.has_tensor(name) and graph.is_constant(name) and np.array_equal(graph.values(name), to_numpy(value))


def _check_shared(state: State, key: str, primary: str) -> None:
    if primary in state and not bool((state[key] == state[primary]).all()):
        raise ModelError(
            f"'{key}' and '{primary}' have different values in the checkpoint, but the file stores one array for both: "
            "export the network with these values to a file of its own"
        )


def without_wrapper(state: State, names: ModuleNames) -> State:
    """Without the `module.` that DistributedDataParallel puts in front of every name.

    A network may have a module of that name itself: then the names are as they have to be.
    """
    if not state or not all(key.startswith("module.") for key in state):
        return state
    own = {*names.constants.values(), *map(names.checkpoint_key, names.constants), *names.shared}
    return state if any(key in own for key in state) else {key.removeprefix("module."): state[key] for key in state}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in names[:_SHOWN]) + more
