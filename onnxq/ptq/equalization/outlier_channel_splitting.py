"""Outlier channel splitting: a column of a weight that is larger than all others becomes two of half its size.

For y = W relu(x), channel i of x is made twice, by the same row of the layer in front, and

    W_i x_i = u x_i + v x_i,      u = (W_i - d / 2) / 2,      v = (W_i + d / 2) / 2

with d the step of the quantized weight, so that u and v round to what W_i would have rounded to with that step (Zhao et
al., "Improving Neural Network Quantization without Retraining using Outlier Channel Splitting", 2019). The column with
the largest value is split again and again, `ratio` times the number of channels. The largest value of the weight, and
with it the step of all its values, becomes smaller; the model becomes larger by the channels that are added.

Only weights with one scale gain. Splits are made where one layer feeds another through operators on single values or
pools, both without groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxq.graph import Constant, Graph, Node
from onnxq.observers import make_observer, observe_constant
from onnxq.ptq.equalization.flow import Stop, has_input, own_values
from onnxq.ptq.equalization.layers import BIAS, DATA, WEIGHT
from onnxq.ptq.equalization.precision import is_coarse
from onnxq.ptq.method import Improved, Limit, State, Task, improvement, limits
from onnxq.types import PerChannel, PerTensor, QParams, QParamsTable, QuantPlan
from onnxq.types.granularity import resolve_axis

LAYERS = ("Conv", "Gemm", "MatMul")
BETWEEN = (
    *("Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Gelu", "Mish"),
    *("Identity", "Dropout", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
)
WORTH_WHILE = 0.95
"""The largest value has to fall below this part of what it was."""


@dataclass(frozen=True)
class Pair:
    """Two layers; constants are (name, axis of the channels between them).

    made      weight and biases in front, whose channels are copied
    weight    the weight behind, whose columns are split
    tensors   the activations between them, with their channel axis
    """

    node: str
    made: tuple[tuple[str, int], ...]
    weight: tuple[str, int]
    tensors: tuple[tuple[str, int], ...]


@improvement(
    "outlier_channel_splitting",
    "splits the columns of weights that are larger than all others, at the price of more channels",
    "Zhao et al., Improving Neural Network Quantization without Retraining using Outlier Channel Splitting, 2019",
    {"ratio": 0.02},
    check=limits("outlier_channel_splitting", ratio=Limit("lies above 0 and up to 1", lambda value: 0 < value <= 1)),
    aliases=("split_channels",),
    rescales=True,
)
def outlier_channel_splitting(state: State, task: Task, *, ratio: float) -> Improved:
    """Split columns until a model has `ratio` more channels in front of each weight that gains."""
    own = state.copy()
    own.graph.sort()
    changed, declined = [], []
    added: dict[str, int] = {}
    for node in own.graph.gs.nodes:
        if node.domain or node.op not in LAYERS or node.inputs[WEIGHT].name not in own.plan:
            continue
        try:
            pair = _pair(own.graph, own.plan, node)
            index, before, after = _split(own, pair, ratio)
        except Stop as stop:
            declined.append(f"'{node.name}' ({node.op}): it {stop}")
            continue
        count = len(index) - len(np.unique(index))
        changed.append(f"'{node.name}' ({node.op}): {count} channels added, largest weight {before:.3g} -> {after:.3g}")
        added[node.name] = count
    if not changed:
        return Improved(state, declined=tuple(declined))
    return Improved(own, tuple(changed), tuple(declined), recalibrate=True, details={"channels_added": added})


def _pair(graph: Graph, plan: QuantPlan, node: Node) -> Pair:
    """The layer in front of a node, with what lies between; Stop says why there is none."""
    spec = plan[node.inputs[WEIGHT].name].spec
    if not is_coarse(spec) or not isinstance(spec.granularity, PerTensor):
        raise Stop("has no weight with a single scale of few bits")
    columns = own_values(graph, node, WEIGHT)
    if node.op != "Conv" and columns.ndim != 2:
        raise Stop("has a weight that is no matrix")
    if int(node.attrs.get("group", 1)) != 1 or node.attrs.get("transA", 0):
        raise Stop("has groups, or reads its input transposed")
    axis = 1 if node.op == "Conv" or node.attrs.get("transB", 0) else 0
    biases: list[tuple[str, int]] = []
    tensors: list[Any] = []
    tensor = node.inputs[DATA]
    while True:
        maker = graph.producer(tensor)
        if maker is None or maker.domain or graph.scope_of(maker) is not graph.gs:
            raise Stop("reads no other layer")
        if len(graph.consumers(tensor)) > 1 or graph.is_output(tensor):
            raise Stop(f"reads '{tensor.name}', which others read too")
        tensors.append(tensor)
        if maker.op in LAYERS:
            break
        if any(graph.is_output(other) or graph.consumers(other) for other in maker.outputs[1:] if other.name):
            raise Stop(f"reads '{maker.name}' ({maker.op}), which tells more than values about its channels")
        if node.op == "MatMul" and "Pool" in maker.op:
            raise Stop(f"reads '{maker.name}' ({maker.op}), which pools its channels")
        tensor = maker.inputs[_through(graph, maker, biases)]
    made = ((maker.inputs[WEIGHT].name, _made_along(graph, maker, node)), *biases, *_bias_of(graph, maker))
    weight = (node.inputs[WEIGHT].name, axis)
    for name, along in (*made, weight):
        if not isinstance(graph.tensor(name), Constant):
            raise Stop(f"depends on '{name}', a constant that is no initializer")
        if graph.values(name).shape[along] != columns.shape[axis]:
            raise Stop(f"depends on '{name}', which has no value for each of {columns.shape[axis]} channels")
    return Pair(node.name, made, weight, tuple((item.name, -1 if maker.op == "MatMul" else 1) for item in tensors))


def _through(graph: Graph, node: Node, biases: list[tuple[str, int]]) -> int:
    """The port by which an operator between the layers is read; a bias that is added is noted."""
    shape = graph.shape(node.inputs[0])
    if node.op in BETWEEN:
        return 0
    if node.op == "Flatten" and shape is not None and all(length == 1 for length in shape[2:]):
        return 0
    if node.op == "Add":
        port = 0 if graph.is_constant(node.inputs[0]) else 1
        bias = own_values(graph, node, port)
        maker = graph.producer(node.inputs[1 - port])
        if maker is not None and maker.op == "MatMul" and bias.size == bias.shape[-1] > 1:
            biases.append((node.inputs[port].name, bias.ndim - 1))
            return 1 - port
    raise Stop(f"reads another layer through '{node.name}' ({node.op})")


def _made_along(graph: Graph, maker: Node, reader: Node) -> int:
    """The axis of the channels in the weight of the layer in front."""
    weight = own_values(graph, maker, WEIGHT)
    if int(maker.attrs.get("group", 1)) != 1:
        raise Stop(f"reads '{maker.name}' ({maker.op}), which has groups")
    if (maker.op == "MatMul") != (reader.op == "MatMul") and len(graph.shape(maker.outputs[0]) or ()) != 2:
        raise Stop(f"reads '{maker.name}' ({maker.op}), which has its channels along another axis")
    if weight.ndim != 2 and maker.op != "Conv":
        raise Stop(f"reads '{maker.name}' ({maker.op}), whose weight is no matrix")
    return 0 if maker.op == "Conv" or maker.attrs.get("transB", 0) else 1


def _bias_of(graph: Graph, maker: Node) -> list[tuple[str, int]]:
    if maker.op == "MatMul" or not has_input(maker, BIAS):
        return []
    bias = own_values(graph, maker, BIAS)
    if bias.ndim == 0 or bias.size == 1:
        raise Stop(f"reads '{maker.name}' ({maker.op}), whose bias has no value for each channel")
    return [(maker.inputs[BIAS].name, bias.ndim - 1)]


def _split(state: State, pair: Pair, ratio: float) -> tuple[np.ndarray, float, float]:
    """Split a pair in place; the channel that each new one copies, and the largest weight before and after."""
    name, axis = pair.weight
    weight = state.graph.values(name)
    index, halvings = _chosen(np.abs(weight).max(axis=tuple(set(range(weight.ndim)) - {axis})), ratio)
    parts = (weight.take(index, axis) * _on(halvings, axis, weight)).astype(np.float32)
    before, after = float(np.abs(weight).max()), float(np.abs(parts).max())
    if after > WORTH_WHILE * before:
        raise Stop("has no few columns that are larger than all others")
    step = observe_constant(parts, make_observer("minmax"), state.plan[name].spec).scale
    shifts = _shifts(index) * float(step) / 4
    _replace(state.graph, name, (parts + _on(shifts, axis, weight)).astype(np.float32))
    for constant, along in pair.made:
        _replace(state.graph, constant, state.graph.values(constant).take(index, along))
        _copy_parameters(state.qparams, constant, along, index, state.graph.values(constant).ndim)
    for tensor, along in pair.tensors:
        variable = state.graph.tensor(tensor)
        if variable.shape is not None:
            shape = list(variable.shape)
            shape[along] = len(index)
            variable.shape = shape
    return index, before, after


def _chosen(largest: np.ndarray, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """For each new channel the one that it copies, and the part of the column that it gets."""
    index, parts = list(range(len(largest))), [1.0] * len(largest)
    for _ in range(int(np.ceil(ratio * len(largest)))):
        worst = max(range(len(index)), key=lambda item: largest[index[item]] * parts[item])
        parts[worst] /= 2
        index.append(index[worst])
        parts.append(parts[worst])
    return np.array(index), np.array(parts)


def _shifts(index: np.ndarray) -> np.ndarray:
    """-1 and 1 for the two copies of a channel, 0 for what was not split or split more than once."""
    copies = np.bincount(index)
    first = np.zeros(len(index))
    for channel in np.flatnonzero(copies == 2):
        first[np.flatnonzero(index == channel)] = (-1.0, 1.0)
    return first


def _on(vector: np.ndarray, axis: int, weight: np.ndarray) -> np.ndarray:
    return vector.reshape([-1 if position == axis else 1 for position in range(weight.ndim)])


def _replace(graph: Graph, name: str, values: np.ndarray) -> None:
    """Other values, of another shape, for an initializer."""
    graph.tensor(name).values = values


def _copy_parameters(table: QParamsTable, name: str, axis: int, index: np.ndarray, rank: int) -> None:
    """Parameters per channel follow the channels; calibration will find them anew."""
    held = table.entries.get(name)
    if held is None or not isinstance(held.spec.granularity, PerChannel):
        return
    if resolve_axis(held.spec.granularity.axis, rank) == axis:
        table.entries[name] = QParams(held.spec, held.scale[index], held.zero_point[index])
