"""Outliers of a residual stream kept out of 8 bits: its sums and norms in float, or in the target's wider format.

In a transformer a few channels of the residual stream are a hundred times as large as all others (Bondarenko et al.,
"Understanding and Overcoming the Challenges of Efficient Transformer Quantization", 2021). One scale for the whole
tensor leaves the others a handful of steps, and each sum and each norm adds that error anew. Layers can be smoothed;
for what lies between them the remedy is a format that holds both. Which tensors are such, calibration has seen:

    noise(t) = mean of min(x^2, step^2 / 12) / mean of x^2        a value below half a step becomes 0

What reads or makes a tensor with more noise than LEAST_NOISE_DB, and is no layer with weights, takes the wider format
where the target has one, and is left to float where the target computes the operator in float. With `layers`, so are
the few layers whose input has more than LAYER_NOISE_DB, as in front of the second half of a feed-forward part: what
makes it cannot be scaled, and smoothing comes before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxq.calibrate import activation_leaders
from onnxq.graph import Graph
from onnxq.graph.operator_kinds import LAYERS
from onnxq.observers.statistics import HistogramStatistic
from onnxq.ptq.method import Improved, State, Task, improvement
from onnxq.types import Backend, Placement, QuantPlan
from onnxq.types.overrides import Override, QuantizerOverride
from onnxq.types.reason import Reason

LEAST_NOISE_DB = -30.0
"""Noise from which a tensor is one with outliers: 8 bits of normally distributed values come to -40 dB."""

LAYER_NOISE_DB = -25.0
"""Noise of its input from which a layer is worth float: it is what a signal of 8 bits has behind ten such layers."""

MOST_LAYERS = 0.1
"""Part of the layers that may become float, the loudest first: a model of float layers is not what was asked for."""

PRICE_DB = 1.0
"""What conversions and wider operators have to be worth."""


@improvement(
    "outlier_placement",
    "sums and norms with outliers in float, or in the wider format of the target",
    "Bondarenko et al. 2021, Understanding and Overcoming the Challenges of Efficient Transformer Quantization",
    {"layers": False},
)
def outlier_placement(state: State, task: Task, *, layers: bool) -> Improved:
    """Place the model anew: what reads or makes a tensor with outliers in another format, or layers that read it."""
    form = task.backend.outlier_format
    if form is None:
        return Improved(state, declined=(f"{task.backend.name} has neither a wider format nor float operators",))
    if task.plan_again is None:
        return Improved(state)
    if layers and form != "float":
        return Improved(state)  # such a layer reads what has the wider format already
    noise = noise_of_tensors(state, task)
    loud = {tensor: db for tensor, db in noise.items() if db > (LAYER_NOISE_DB if layers else LEAST_NOISE_DB)}
    nodes = loudest_layers(state, loud) if layers else affected(state.graph, state.plan, task.backend, loud)
    if not nodes:
        return Improved(state)
    before = {name: why for name, why in state.plan.left_float.items() if _is_kept(why)}
    plan = task.plan_again(state.graph, state.plan, [_override(node, form) for node in (*before, *nodes)])
    if form == "float":
        why = Reason("outliers", "reads or makes values with outliers, which 8 bits cannot hold beside all others")
        now = {**dict.fromkeys(nodes, why), **before}
        plan = replace(plan, left_float={name: now.get(name, said) for name, said in plan.left_float.items()})
    what = "float" if form == "float" else f"computed in {form}"
    lines = [f"node '{name}': {what}, for '{read}' with {loud[read]:.0f} dB of noise" for name, read in nodes.items()]
    made = State(state.graph, plan, state.qparams)
    return Improved(made, changed=tuple(lines), recalibrate=True, widens=True, price_db=PRICE_DB)


def _is_kept(why: str) -> bool:
    """Whether a step before has left a node float."""
    return isinstance(why, Reason) and why.code in ("outliers", "inserted")


def loudest_layers(state: State, loud: dict[str, float]) -> dict[str, str]:
    """Layer -> its input with outliers, for at most MOST_LAYERS of the quantized layers."""
    graph, plan = state.graph, state.plan
    layers = [name for name in plan.quantized if graph.node(name).op in LAYERS]
    found: dict[str, str] = {}
    for tensor in sorted(loud, key=lambda name: -loud[name]):
        for placement in plan:
            if tensor in (placement.tensor, placement.tie) and not graph.is_constant(placement.tensor):
                readers = [use.node.name for use in graph.consumers(placement.tensor)]
                found.update((name, tensor) for name in readers if name in layers and name not in found)
    most = math.ceil(MOST_LAYERS * len(layers))
    return dict([item for item in found.items() if not _is_forced(plan, item[0])][:most])


def noise_of_tensors(state: State, task: Task) -> dict[str, float]:
    """Activation -> its noise by its power in dB, from histograms of calibration; leaders of shared scales alone."""
    leaders = [item for item in activation_leaders(state.plan) if item.spec.evenly_spaced and item.spec.bits <= 8]
    kept = None if task.statistics is None else task.statistics.on_all(state.graph, leaders)
    if kept is None:
        return {}
    found: dict[str, float] = {}
    for name in (placement.tensor for placement in leaders if placement.tensor in state.qparams):
        seen = kept.statistics.get(name, {}).values()
        histogram = next((statistic for statistic in seen if isinstance(statistic, HistogramStatistic)), None)
        scale = state.qparams[name].scale
        if histogram is not None and scale.size == 1:
            found[name] = _noise(histogram, float(scale.max()))
    return found


def _noise(histogram: HistogramStatistic, step: float) -> float:
    bins = histogram.bins()
    values, counts = np.asarray(bins.middle, np.float64), np.asarray(bins.count, np.float64)
    power = float((counts * values**2).sum())
    rounded = np.where(np.abs(values) < step / 2, values**2, np.minimum(step**2 / 12, values**2))
    lost = float((counts * rounded).sum())
    return 10 * math.log10(lost / power) if power > 0 and lost > 0 else -math.inf


def affected(graph: Graph, plan: QuantPlan, backend: Backend, loud: dict[str, float]) -> dict[str, str]:
    """Node -> the tensor with outliers that it reads or makes, for quantized nodes that are no layers."""
    found: dict[str, str] = {}
    for placement in plan:
        leader = placement.tie or placement.tensor
        if leader not in loud or graph.is_constant(placement.tensor):
            continue
        for name in _around(graph, placement):
            node = graph.node(name)
            free = name in plan.quantized and node.op not in LAYERS and node.op not in backend.fixed_ranges
            if free and not _is_forced(plan, name):
                found.setdefault(name, leader)
    return found


def _is_forced(plan: QuantPlan, node: str) -> bool:
    """Whether the user wants a node quantized whatever it costs."""
    why = plan.quantized[node]
    return isinstance(why, Reason) and why.code == "forced"


def _around(graph: Graph, placement: Placement) -> Sequence[str]:
    """The nodes that read a tensor quantized, and the one that makes it."""
    readers = [edge.node for edge in placement.edges] if placement.edges is not None else []
    readers = readers or [use.node.name for use in graph.consumers(placement.tensor)]
    maker = graph.producer(placement.tensor)
    return list(dict.fromkeys([*readers, *([] if maker is None else [maker.name])]))


def _override(node: str, form: str) -> Override:
    """As a regular expression, which yields to what a user says of a node by its name."""
    said, pattern = "improvement 'outlier_placement'", f"re:^{re.escape(node)}$"
    if form == "float":
        return Override.of_nodes(pattern, {"skip": True}, {("skip",): said})
    wide = QuantizerOverride(dtype=form)
    parts = {"activation": wide, "output": wide}
    return Override.of_nodes(pattern, {}, {(part, "dtype"): said for part in parts}, parts)
