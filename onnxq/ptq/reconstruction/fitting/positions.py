"""Single positions of a layer: patches of its input, and what the layer makes of each of them.

A convolution or matrix product with element-wise nodes behind it computes each position of its output from one patch
of its input. Positions out of all samples say more about the layer than the same number of neighbours in a few images,
and a step takes the same time whatever the size of the images. Which layers can be fitted like this is seen from the
segment, and tried on the float net with positions that were found; others are fitted to whole samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from onnxq.graph import Graph, Node
from onnxq.ptq.reconstruction.blocks import Segment
from onnxq.ptq.reconstruction.fitting.batches import UNFIT, Batch, BlockSamples, agree, same
from onnxq.ptq.reconstruction.fitting.segment_net import SegmentNet
from onnxq.torchnet.ops.windows import Windows, pad
from onnxq.torchnet.values import Value
from onnxq.types import PerTensor, QuantPlan

PER_SAMPLE = 8
"""Positions of a step, for each sample that a step of whole samples would take."""
MOST_POSITIONS, MOST_NUMBERS = 2**14, 2**25
"""Of all samples together, and the numbers that are kept for them (128 MB)."""
TRIED = 64
"""Positions that the float net is tried on."""
AT_ONCE = 1024
"""Positions that run together where nothing is learnt."""


@dataclass(frozen=True)
class PointLayer:
    """A layer that may be fitted position by position; `windows` and `kernel` are those of a convolution.

    port   the place of the layer's input among what the segment reads
    """

    port: int
    windows: Windows | None = None
    kernel: tuple[int, ...] = ()

    def makes(self, x: Tensor, shape: Sequence[int]) -> bool:
        """Whether results of this shape have the positions of what the layer itself makes of `x`."""
        if self.windows is None:
            return x.shape[:-1] == torch.Size(shape[:-1])
        pads = self.windows.pads(x.shape[2:], self.kernel)
        padded = [size + sum(sides) for size, sides in zip(x.shape[2:], pads, strict=True)]
        spans = zip(padded, self.windows.spans(self.kernel), self.windows.strides, strict=True)
        return (x.shape[0], *((size - span) // stride + 1 for size, span, stride in spans)) == (shape[0], *shape[2:])

    def count(self, shape: Sequence[int]) -> int:
        """Positions of a result with this shape."""
        return prod(shape[:-1]) if self.windows is None else shape[0] * prod(shape[2:])

    def patches(self, x: Tensor, places: np.ndarray) -> Tensor:
        """What the layer reads for some positions: [positions, channels, *kernel] or [positions, inputs]."""
        if self.windows is None:
            return x.reshape(-1, x.shape[-1])[torch.from_numpy(places)]
        view = pad(x, self.windows.pads(x.shape[2:], self.kernel))
        for axis, (span, stride) in enumerate(zip(self.windows.spans(self.kernel), self.windows.strides, strict=True)):
            view = view.unfold(2 + axis, span, stride)
        dilated: tuple[Any, ...] = (..., *(slice(None, None, step) for step in self.windows.dilations))
        return _at(view[dilated], places, len(self.kernel))

    def values(self, value: Value, shape: Sequence[int], places: np.ndarray) -> Value:
        """The values at some positions of an output with this shape; None for a value that has other positions."""
        if not _has_rows(value):
            return value
        if value.numel() == 1:
            value = value.reshape((1,) * len(shape)).expand(tuple(shape))
        if self.windows is None:
            return self.patches(value, places) if value.shape == torch.Size(shape) else None
        spatial = len(self.kernel)
        if value.ndim != 2 + spatial or value.shape[0] != shape[0]:
            return None
        if value.shape[2:] == torch.Size((1,) * spatial):  # a gate: one number for each channel of an image
            value = value.expand(*value.shape[:2], *shape[2:])
        if value.shape[2:] != torch.Size(shape[2:]):
            return None
        return _at(value, places, spatial).reshape(len(places), -1, *(1,) * spatial)


def _at(view: Tensor, places: np.ndarray, spatial: int) -> Tensor:
    """[batch, channels, *positions, ...] -> [places, channels, ...]."""
    sizes = (view.shape[0], *view.shape[2 : 2 + spatial])
    batch, *others = (torch.from_numpy(index) for index in np.unravel_index(places, sizes))
    chosen: tuple[Any, ...] = (batch, slice(None), *others)
    return view[chosen]


def point_layer(graph: Graph, segment: Segment, plan: QuantPlan) -> PointLayer | None:
    """The layer of a segment whose results depend on nothing but their own position, as far as nodes tell."""
    if len(segment.layers) != 1 or not segment.makes:
        return None
    node = graph.node(segment.layers[0])
    data = node.inputs[0]
    readers = [use.node.name for use in graph.consumers(data) if use.node.name in segment.nodes]
    if data.name not in segment.reads or readers != [node.name]:
        return None
    if not all(_is_per_tensor(graph, plan, graph.node(name)) for name in segment.nodes):
        return None
    if not graph.is_constant(node.inputs[1]):
        return None
    port, weight = segment.reads.index(data.name), graph.values(node.inputs[1]).shape
    if node.op == "Conv":
        return PointLayer(port, _windows(node, len(weight) - 2), tuple(weight[2:]))
    if node.op == "MatMul" and len(weight) == 2:
        return PointLayer(port)
    if node.op == "Gemm" and not node.attrs.get("transA", 0):
        return PointLayer(port)
    return None


def _is_per_tensor(graph: Graph, plan: QuantPlan, node: Node) -> bool:
    """Whether no quantizer of an activation knows axes: positions have others."""
    moving = [t.name for t in (*node.inputs, *node.outputs) if t.name in plan and not graph.is_constant(t)]
    return all(isinstance(plan[name].spec.granularity, PerTensor) for name in moving)


def _windows(node: Node, spatial: int) -> Windows:
    attributes = node.attrs
    automatic = attributes.get("auto_pad") or "NOTSET"
    pads = (attributes.get("pads") if automatic == "NOTSET" else None) or (0,) * (2 * spatial)
    strides, dilations = (tuple(attributes.get(key) or (1,) * spatial) for key in ("strides", "dilations"))
    explicit = tuple(zip(pads[:spatial], pads[spatial:], strict=True))
    return Windows(None, strides, dilations, explicit, automatic, ceil=False)


class Positions:
    """Positions of all samples of a block; fitting uses them as it uses `BlockSamples`, counted one by one."""

    def __init__(self, held: Sequence[int], fitted: Sequence[int], batch: Batch) -> None:
        self.held = tuple(held)
        self.fitted = tuple(fitted)
        self._all = batch

    def per_step(self, batch: int) -> int:
        return min(PER_SAMPLE * batch, len(self.fitted))

    def size(self, count: int) -> int:
        one = self.batch(self.fitted[:1], float_inputs=False)
        return count * sum(value.numel() for value in (*one.quantized, *one.targets) if isinstance(value, Tensor))

    def groups(self, numbers: Sequence[int], size: int = AT_ONCE) -> list[Sequence[int]]:
        return [numbers[i : i + size] for i in range(0, len(numbers), size)]

    def batch(self, numbers: Sequence[int], *, float_inputs: bool = True) -> Batch:
        rows = torch.as_tensor(numbers)
        targets = [None if target is None else target[rows] for target in self._all.targets]
        exact = _rows(self._all.float, rows) if float_inputs else []
        return Batch(_rows(self._all.quantized, rows), exact, targets)


def _rows(values: Sequence[Value], rows: Tensor) -> list[Value]:
    return [value[rows] if _has_rows(value) else value for value in values]


def _has_rows(value: Value) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point()


def positions(layer: PointLayer, samples: BlockSamples, net: SegmentNet, seed: int) -> Positions | None:
    """Positions at random, the same number of each sample; None where the float `net` shows that they do not do.

    `net` is the float segment that makes one position of one patch.
    """
    random = np.random.default_rng(seed)
    found: list[Batch] = []
    counts: list[int] = []
    for number in range(samples.count):
        part = _of_sample(layer, samples, number, random)
        if part is None:
            return None
        found.append(part)
        counts.append(next(len(target) for target in part.targets if target is not None))
    quantized = _joined([part.quantized for part in found])
    exact, targets = _joined([part.float for part in found]), _joined([part.targets for part in found])
    if quantized is None or exact is None or targets is None:
        return None
    together = Batch(quantized, exact, targets)
    ends = np.cumsum([0, *counts])
    held, fitted = ([i for n in part for i in range(ends[n], ends[n + 1])] for part in (samples.held, samples.fitted))
    made = Positions(held, fitted, together)
    # Twice, because a constant may have as many rows as there are the first time.
    tried = random.permutation(ends[-1])[:TRIED].tolist()
    return made if all(_makes(net, made.batch(rows)) for rows in (tried, tried[1:])) else None


def _makes(net: SegmentNet, tried: Batch) -> bool:
    """Whether a net makes the targets of the float inputs."""
    try:
        with torch.no_grad():
            return all(map(agree, net(tried.float), tried.targets))
    except UNFIT:
        return False


def _of_sample(layer: PointLayer, samples: BlockSamples, number: int, random: np.random.Generator) -> Batch | None:
    whole = samples.batch((number,))
    shapes = {target.shape for target in whole.targets if target is not None}
    data = whole.float[layer.port]
    if len(shapes) != 1 or not isinstance(data, Tensor) or data.ndim < 2:
        return None
    shape = shapes.pop()
    if len(shape) != data.ndim or not layer.makes(data, shape):
        return None
    columns = data.shape[1] * prod(layer.kernel) if layer.windows is not None else data.shape[-1]
    numbers = 2 * columns + len(whole.targets) * shape[1 if layer.windows is not None else -1]
    most = min(MOST_POSITIONS, MOST_NUMBERS // numbers) // samples.count
    places = np.sort(random.permutation(layer.count(shape))[: max(1, most)])

    def taken(values: Sequence[Value]) -> list[Value]:
        return [
            layer.patches(value, places) if port == layer.port else layer.values(value, shape, places)
            for port, value in enumerate(values)
        ]

    quantized, exact = taken(whole.quantized), taken(whole.float)
    targets = [None if target is None else layer.values(target, shape, places) for target in whole.targets]
    lost = any(value is not None and mine is None for value, mine in zip(whole.float, exact, strict=True))
    return None if lost or not len(places) else Batch(quantized, exact, targets)


def _joined(parts: Sequence[Sequence[Value]]) -> list[Any] | None:
    """The values of all samples, one below the other; None where one without rows is not the same in all of them."""
    joined: list[Any] = []
    for values in zip(*parts, strict=True):
        if all(_has_rows(value) for value in values):
            joined.append(torch.cat(values))
        elif same(values):
            joined.append(values[0])
        else:
            return None
    return joined
