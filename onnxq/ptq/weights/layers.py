"""The quantized weights of a model with the layers that read them, and how chosen numbers are written back.

A weight is left alone, with the reason, where its format is none of steps that a scale sets, where somebody reads its
float values as well, or where its numbers are fixed already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxq.graph import Graph, Node
from onnxq.numerics import fake_quantize
from onnxq.ptq.method import State, Task
from onnxq.ptq.weights.matrices import MatrixView, view_of_columns, view_of_conv, view_of_conv_transpose, view_of_rows
from onnxq.ptq.weights.moments import (
    Integers,
    KeptRows,
    Moments,
    Source,
    ThinMoments,
    collect_moments,
    in_batches,
    together,
)
from onnxq.ptq.weights.rows import ConvRows, MatrixRows, Rows
from onnxq.ptq.weights.shrinkage import shrunk
from onnxq.runtime.session import KEEP_PAIRS
from onnxq.types import Placement, QParams

FEW = 8
"""Large samples that second moments of one number for many weights take."""


INPUTS = ("quantized", "float")
"""Whose activations a layer is fitted to: those of the model with its quantizers, or of the float model."""


@dataclass(frozen=True)
class Reader:
    """A layer that multiplies a weight with the input `port` of its node."""

    node: str
    port: int
    view: MatrixView
    rows: Rows


@dataclass(frozen=True)
class Layers:
    """A quantized weight and all layers that read it, which see it as the same matrices."""

    placement: Placement
    readers: tuple[Reader, ...]

    @property
    def tensor(self) -> str:
        return self.placement.tensor

    @property
    def view(self) -> MatrixView:
        return self.readers[0].view


def quantized_weights(state: State) -> tuple[list[Placement], list[str]]:
    """The weights whose scales or numbers may be changed, and a line for each other one with its reason."""
    found, declined = [], []
    for placement in state.plan.active:
        if placement.role != "weight":
            continue
        reason = _why_not(state, placement)
        if reason is None:
            found.append(placement)
        else:
            declined.append(f"{placement.tensor}: {reason}")
    return found, declined


def _why_not(state: State, placement: Placement) -> str | None:
    graph, name, spec = state.graph, placement.tensor, placement.spec
    if not graph.is_constant(name):
        return "it is computed at run time"
    if not spec.has_scale or not spec.format.scales_are_searched:
        return f"{spec.dtype} has no steps of equal size that a scale sets"
    if name in state.qparams.integer_weights:
        return "its integers are fixed"
    values = graph.values(name)
    if values.size == 0 or not np.isfinite(values).all():
        return "it holds no numbers, or some that are not finite"
    if graph.is_output(name):
        return "the model returns it"
    if placement.edges is None:
        return None
    quantized = {(edge.node, edge.port) for edge in placement.edges}
    others = [use.node.name for use in graph.consumers(name) if (use.node.name, use.port) not in quantized]
    return f"'{others[0]}' reads it in float" if others else None


def layers_of(state: State, placements: Sequence[Placement]) -> tuple[list[Layers], list[str]]:
    """Weights as matrices of their layers, and a line for each one that is none."""
    found, declined = [], []
    for placement in placements:
        readers = readers_of(state.graph, placement.tensor)
        if isinstance(readers, str):
            declined.append(f"{placement.tensor}: {readers}")
        else:
            found.append(Layers(placement, readers))
    return found, declined


def readers_of(graph: Graph, tensor: str) -> tuple[Reader, ...] | str:
    """The layers that read a weight, or why it cannot be taken as their matrix."""
    readers = []
    for node, port in graph.consumers(tensor):
        reader = reader_of(graph, node, port)
        if isinstance(reader, str):
            return reader
        readers.append(reader)
    if not readers:
        return "no layer reads it"
    if any(reader.view != readers[0].view for reader in readers):
        return f"'{readers[0].node}' and others read it in different ways"
    return tuple(readers)


def reader_of(graph: Graph, node: Node, port: int) -> Reader | str:
    """A node as a layer that multiplies the constant at `port`, or why it is none."""
    if graph.scope_of(node) is not graph.gs:
        return f"'{node.name}' is inside the body of a node"
    shape = tuple(int(length) for length in graph.values(node.inputs[port]).shape)
    if node.op in ("Conv", "ConvTranspose") and not node.domain and port == 1:
        view, rows = _convolution(node, shape)
        return Reader(node.name, 0, view, rows)
    if node.op == "Gemm" and not node.domain and port == 1:
        view = view_of_rows(shape) if node.attrs.get("transB", 0) else view_of_columns(shape)
        return Reader(node.name, 0, view, MatrixRows(transposed=bool(node.attrs.get("transA", 0))))
    if node.op == "MatMul" and not node.domain and len(shape) >= 2:
        stacked = shape[:-2]
        if port == 1:
            return Reader(node.name, 0, view_of_columns(shape), MatrixRows(stacked))
        return Reader(node.name, 1, view_of_rows(shape), MatrixRows(stacked, transposed=True))
    return f"'{node.name}' ({node.op}) multiplies it with no matrix of inputs"


def _convolution(node: Node, shape: tuple[int, ...]) -> tuple[MatrixView, ConvRows]:
    attrs, axes = node.attrs, len(shape) - 2
    groups = int(attrs.get("group", 1))
    transposed = node.op == "ConvTranspose"

    def numbers(name: str, default: int, count: int = axes) -> tuple[int, ...]:
        return tuple(int(number) for number in attrs.get(name) or [default] * count)

    rows = ConvRows(
        kernel=shape[2:],
        strides=numbers("strides", 1),
        dilations=numbers("dilations", 1),
        pads=numbers("pads", 0, 2 * axes),
        groups=groups,
        auto_pad=str(attrs.get("auto_pad", "NOTSET")),
        transposed=transposed,
        output_padding=numbers("output_padding", 0) if transposed else (),
        output_shape=numbers("output_shape", 0, 0)[-axes:] if transposed else (),
    )
    return (view_of_conv_transpose if transposed else view_of_conv)(shape, groups), rows


def with_moments(
    state: State, task: Task, layers: Sequence[Layers], inputs: str, what: str, *, shrink: bool = False
) -> Iterator[tuple[Layers, np.ndarray | str]]:
    """Each weight with E[x xT] of what it is multiplied with, or with the reason why that is not known.

    The samples are run once, or once for each part of the weights whose matrices fit into the task's memory limit.
    `inputs` is one of INPUTS, `what` names the step in the progress. `shrink` is for steps that choose single weights
    by them (`onnxq.ptq.weights.shrinkage`).
    """
    for layer, seen in _looked_at(state, task, layers, inputs, what, lambda _: 0):
        if isinstance(seen, str):
            yield layer, seen
        else:
            assert isinstance(seen, Moments)
            found, mean = seen.mean(), seen.sums / seen.count
            yield layer, shrunk(found, mean, mean, seen.count) if shrink else found


def with_thin_moments(
    state: State, task: Task, layers: Sequence[Layers], inputs: str, what: str, kept: Callable[[Layers], int]
) -> Iterator[tuple[Layers, np.ndarray | ThinMoments | str]]:
    """The same for steps that choose one number for many weights: a few samples will do for them, and a number of rows
    in the place of the matrix where `kept` says so (0 makes the matrix)."""
    few = replace(task, samples=task.samples.few(FEW))
    for layer, seen in _looked_at(state, few, layers, inputs, what, kept):
        if isinstance(seen, str):
            yield layer, seen
        else:
            yield layer, seen.mean() if isinstance(seen, Moments) else seen.thin()


def _looked_at(
    state: State,
    task: Task,
    layers: Sequence[Layers],
    inputs: str,
    what: str,
    kept: Callable[[Layers], int],
) -> Iterator[tuple[Layers, Moments | KeptRows | str]]:
    """What was seen of each layer's inputs, or why nothing was."""
    graph, config = task.computed(state) if inputs == "quantized" else (state.graph, KEEP_PAIRS)
    needs = [[source_of(graph, reader, kept(each)) for reader in each.readers] for each in layers]
    known = [[source for source in need if isinstance(source, Source)] for need in needs]
    every = dict.fromkeys(source for sources in known for source in sources)
    done = 0
    for batch in in_batches(known, task.memory_limit):
        wanted = dict.fromkeys(source for i in batch for source in known[i])
        moments = {}
        if wanted:
            moments = collect_moments(graph, wanted, task.samples, seed=task.seed, passes_for=every, config=config)
        for i in batch:
            task.progress(what, done, len(layers))
            done += 1
            reasons = [source for source in needs[i] if isinstance(source, str)]
            if reasons:
                yield layers[i], reasons[0]
                continue
            seen = together([moments[source] for source in needs[i] if isinstance(source, Source)])
            yield layers[i], seen if seen.usable() else "its inputs are not finite, or there are none"
    task.progress(what, done, len(layers))


def source_of(graph: Graph, reader: Reader, kept: int = 0) -> Source | str:
    """What a layer reads in a graph, which may be the simulated one; or why that is not known."""
    if not graph.has_node(reader.node):
        return f"the target computes '{reader.node}' in its own way"
    tensor = graph.node(reader.node).inputs[reader.port]
    if graph.is_constant(tensor):
        return f"the input of '{reader.node}' is a constant"
    groups, _, columns = reader.view.matrices
    return Source(tensor.name, reader.rows, groups, columns, kept, _integers_of(graph, tensor.name))


def _integers_of(graph: Graph, tensor: str) -> Integers | None:
    """The integers of a tensor with one scale that are computed; None for float tensors."""
    maker = graph.producer(tensor)
    if maker is None or maker.op != "DequantizeLinear" or len(maker.inputs) < 3:
        return None
    numbers, scale, zero_point = maker.inputs[:3]
    if graph.is_constant(numbers) or graph.dtype(scale) != np.float32 or not graph.is_constant(scale):
        return None
    of_scale, of_zero_point = graph.values(scale), graph.values(zero_point)
    if of_scale.size != 1 or of_zero_point.dtype.kind not in "iu":
        return None
    return Integers(numbers.name, float(of_scale.item()), int(of_zero_point.item()))


def write_chosen(graph: Graph, tensor: str, chosen: np.ndarray, qparams: QParams) -> bool:
    """Give a weight the values `chosen`, which lie on the grid of its parameters, so that just these are emitted.

    Returns False, and changes nothing, where the float type of the weight is too coarse to tell neighbours apart.
    Where numbers are rounded down, a value may have to be a bit larger than its number.
    """
    kind = graph.values(tensor).dtype
    values = chosen.astype(kind)
    for _ in range(4):
        wrong = fake_quantize(values.astype(np.float32), qparams) != chosen
        if not wrong.any():
            graph.set_values(tensor, values)
            return True
        values[wrong] = np.nextafter(values[wrong], kind.type(np.inf))
    return False
