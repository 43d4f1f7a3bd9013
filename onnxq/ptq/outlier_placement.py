"""Outliers of a residual stream kept out of 8 bits: its sums and norms in float, or in the target's wider format.

In a transformer a few channels of the residual stream are a hundred times as large as all others (Bondarenko et al.,
"Understanding and Overcoming the Challenges of Efficient Transformer Quantization", 2021). One scale for the whole
tensor leaves the others a handful of steps, and each sum and each norm adds that error anew. Layers can be smoothed;
for what lies between them the remedy is a format that holds both. Which tensors are such, calibration has seen:

    noise(t) = mean of min(x^2, step^2 / 12) / mean of x^2        a value below half a step becomes 0,
                                                                  one beyond the range its end

What reads or makes a tensor with more noise than LEAST_NOISE_DB, and is no layer with weights, takes the wider format
where the target has one, and is left to float where the target computes the operator in float. With `layers`, so are
the few layers whose input has more than LAYER_NOISE_DB, as in front of the second half of a feed-forward part: what
makes it cannot be scaled, and smoothing comes before.

With `usable`, a model below USABLE_DB gets what it takes to come there, if it has outliers or had them before earlier
steps. What each tensor adds to the noise of the outputs is measured (`noise_of_parts`), matrices included, which have
one scale each on some targets; then layers and operators leave 8 bits, those that take away most noise for the work
that leaves with them (`cheapest_nodes`), until what is left is little enough. Noise adds up, within a decibel: what was
chosen is measured, and chosen again for what it came to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxq.calibrate import activation_leaders
from onnxq.costs import products
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.graph.operator_kinds import LAYERS
from onnxq.numerics import fake_quantize
from onnxq.observers.statistics import HistogramStatistic
from onnxq.ptq.cheapest_nodes import Remedy, cheapest
from onnxq.ptq.method import Arguments, Improved, State, Task, improvement
from onnxq.ptq.noise_of_parts import noise_of_parts
from onnxq.types import Backend, PerTensor, Placement, QParams, QuantPlan
from onnxq.types.overrides import Override, QuantizerOverride
from onnxq.types.reason import Reason

LEAST_NOISE_DB = -30.0
"""Noise from which a tensor is one with outliers: 8 bits of normally distributed values come to -40 dB."""

LAYER_NOISE_DB = -25.0
"""Noise of its input from which a layer is worth float: it is what a signal of 8 bits has behind ten such layers."""

MOST_LAYERS = 0.1
"""Part of the layers that may become float, the loudest first: a model of float layers is not what was asked for."""

USABLE_DB = 23.0
"""SQNR that a transformer needs: 20 dB keep nine decisions in ten, and other samples have up to 3 dB less."""

AIM_DB = 24.0
"""SQNR that layers leave 8 bits for: at 22 dB one encoder kept 87 % of its decisions, at 24 dB 98 %."""

LOW_DB = 20.0
"""SQNR below which more is done where no outliers are left to be seen: speed is what 8 bits are for."""

TRIES = 4
"""Choices that are measured: the sum of noise is right within a decibel, and each one corrects the next."""

LITTLE = 0.2
"""Part of the noise that may be left whose causes are not measured one by one."""

NO_LAYER = 0.001
"""What a node without multiplications costs that leaves 8 bits, as part of all of them: conversions around it."""

ENOUGH_DB = 40.0
"""Noise below which one choice is as quiet as the next one."""

MOST_FOR_USE = 0.75
"""Part of the layers that may leave 8 bits to make a model usable."""

MATRICES = ("MatMul", "Gemm")
"""Layers whose weights may be what a model with outliers suffers from: the channels of convolutions are equalized."""

PRICE_DB = 1.0
"""What conversions and wider operators have to be worth."""

SAID = "improvement 'outlier_placement'"


def _check(arguments: Arguments) -> None:
    if not 0 < float(arguments["most"]) <= 1:
        raise ConfigError(f"improvement 'outlier_placement': most={arguments['most']} is no part of the layers")
    if arguments["layers"] and arguments["usable"]:
        raise ConfigError("improvement 'outlier_placement' takes layers=yes or usable=yes: usable has layers in it")


@improvement(
    "outlier_placement",
    "sums and norms with outliers in float, or in the wider format of the target",
    "Bondarenko et al. 2021, Understanding and Overcoming the Challenges of Efficient Transformer Quantization",
    {"layers": False, "usable": False, "most": MOST_FOR_USE},
    check=_check,
)
def outlier_placement(state: State, task: Task, *, layers: bool, usable: bool, most: float) -> Improved:
    """Place the model anew: what reads or makes a tensor with outliers in another format, or layers that read it."""
    form = task.backend.outlier_format
    if form is None:
        return Improved(state, declined=(f"{task.backend.name} has neither a wider format nor float operators",))
    if task.plan_again is None or (usable and task.noise is not None and task.noise <= 10 ** (-USABLE_DB / 10)):
        return Improved(state)
    if usable:
        return make_usable(state, task, form, most)
    if layers and form != "float":
        return Improved(state)  # such a layer reads what has the wider format already
    noise = noise_of_tensors(state, task)
    loud = {tensor: db for tensor, db in noise.items() if db > (LAYER_NOISE_DB if layers else LEAST_NOISE_DB)}
    nodes = loudest_layers(state, loud) if layers else affected(state.graph, state.plan, task.backend, loud)
    if not nodes:
        return Improved(state)
    made = placed(state, task, nodes, (), form)
    what = _what(form)
    lines = [f"node '{name}': {what}, for '{of}' with {noise[of]:.0f} dB of noise" for name, of in nodes.items()]
    return Improved(made, changed=tuple(lines), recalibrate=True, widens=True, price_db=PRICE_DB)


def _what(form: str) -> str:
    return "float" if form == "float" else f"computed in {form}"


def placed(state: State, task: Task, nodes: Mapping[str, str], matrices: Iterable[str], form: str) -> State:
    """The state with a plan in which nodes, each with the tensor that it is for, and matrices have left 8 bits."""
    assert task.plan_again is not None  # who calls has asked
    if form == "float":
        nodes = with_fused(nodes, state.plan)
    before = {name: why for name, why in state.plan.left_float.items() if _is_kept(why)}
    overrides = [*_chosen_before(state.plan), *(_of_node(node, "float") for node in before)]
    overrides += [_of_node(node, form) for node in nodes]
    if task.backend.outlier_matrices is not None:
        overrides += [_of_tensor(tensor, task.backend.outlier_matrices) for tensor in matrices]
    plan = task.plan_again(state.graph, state.plan, overrides)
    if form == "float":
        why = Reason("outliers", "reads or makes values with outliers, which 8 bits cannot hold beside all others")
        now = {**dict.fromkeys(nodes, why), **before}
        plan = replace(plan, left_float={name: now.get(name, said) for name, said in plan.left_float.items()})
    return State(state.graph, plan, state.qparams)


def _is_kept(why: str) -> bool:
    """Whether a step before has left a node float."""
    return isinstance(why, Reason) and why.code in ("outliers", "inserted")


def _is_still_low(plan: QuantPlan, measured: float | None) -> bool:
    """Whether earlier steps have found outliers, which are no longer seen, and the model is not what it should be."""
    codes = (why.code for why in plan.left_float.values() if isinstance(why, Reason))
    found = bool(_chosen_before(plan)) or "outliers" in codes
    return found and (measured is None or measured > 10 ** (-LOW_DB / 10))


def _chosen_before(plan: QuantPlan) -> list[Override]:
    """Formats that steps before have chosen, for a plan that is made anew."""
    chosen = (item for item in plan if ("dtype", SAID) in item.set_by)
    return [_of_tensor(item.tensor, _format_of(item)) for item in chosen]


def _format_of(placement: Placement) -> QuantizerOverride:
    if isinstance(placement.spec.granularity, PerTensor):
        return QuantizerOverride(dtype=placement.spec.dtype)
    return QuantizerOverride(dtype=placement.spec.dtype, symmetric=placement.spec.symmetric, per_channel=True)


def loudest_layers(state: State, loud: Mapping[str, float]) -> dict[str, str]:
    """Layer -> its input with outliers, for at most MOST_LAYERS of the quantized layers."""
    graph, plan = state.graph, state.plan
    layers = [name for name in plan.quantized if graph.node(name).op in LAYERS]
    found: dict[str, str] = {}
    for tensor in _in_order(loud):
        for placement in plan:
            if tensor in (placement.tensor, placement.tie) and not graph.is_constant(placement.tensor):
                readers = [use.node.name for use in graph.consumers(placement.tensor)]
                found.update((name, tensor) for name in readers if name in layers and name not in found)
    most = math.ceil(MOST_LAYERS * len(layers))
    return dict([item for item in found.items() if not _is_forced(plan, item[0])][:most])


@dataclass(frozen=True)
class Choice:
    """What leaves 8 bits: node -> the tensor that it does so for, and matrices whose format changes."""

    nodes: Mapping[str, str]
    matrices: tuple[str, ...]
    cost: float


def make_usable(state: State, task: Task, form: str, share: float) -> Improved:
    """Let leave 8 bits what brings the outputs to AIM_DB, for the least work that leaves with it."""
    if task.loss_of is None or task.recalibrated is None:
        return Improved(state)
    own = noise_of_tensors(state, task) | noise_of_weights(state, MATRICES)
    if not any(db > LAYER_NOISE_DB for db in own.values()) and not _is_still_low(state.plan, task.noise):
        return Improved(state)
    before = task.loss_of(state)
    # Where the samples held out are noisier, so they will be afterwards.
    aim = 10 ** (-AIM_DB / 10) * min(1.0, before / (task.noise or before))
    if before <= aim:
        return Improved(state)
    own |= noise_of_weights(state, LAYERS)
    noise = noise_of_parts(state, list(_in_order(own)), task.loss_of, LITTLE * aim, task.progress)
    remedies = remedies_of(state, task.backend, noise)
    costs = _costs(state, task)
    layers = frozenset(name for name in state.plan.quantized if state.graph.node(name).op in LAYERS)
    gone = sum(_is_kept(why) and state.graph.node(name).op in LAYERS for name, why in state.plan.left_float.items())
    most = min(math.ceil(share * (len(layers) + gone)) - gone, len(layers) - 1)
    # What nothing is quantized around stands between others, and is taken to go with them.
    whole, wanted = sum(remedy.noise for remedy in remedies.values()), aim
    best: tuple[bool, float, Choice, State] | None = None
    tried: set[frozenset[str]] = set()
    for _ in range(TRIES):
        tensors = cheapest(remedies, costs, whole - wanted * whole / before, layers, most)
        if not tensors or frozenset(tensors) in tried:
            break
        tried.add(frozenset(tensors))
        choice = _chosen(tensors, remedies, costs)
        if best is not None and best[0] and choice.cost >= best[2].cost:
            break
        made = placed(state, task, choice.nodes, choice.matrices, form)
        after = task.loss_of(task.recalibrated(made))
        if best is None or (after <= aim, -choice.cost if after <= aim else -after) > (best[0], best[1]):
            best = after <= aim, -choice.cost if after <= aim else -after, choice, made
        wanted *= aim / max(after, 10 ** (-ENOUGH_DB / 10))
    if best is None:
        return Improved(state)
    _, _, choice, made = best
    what = _what(form)
    told = {name: f"'{of}', which adds {_level(noise[of])} to the outputs" for name, of in choice.nodes.items()}
    lines = [f"node '{name}': {what}, for {why}" for name, why in told.items()]
    with_one = {name: f"with one it adds {_level(noise[name])}" for name in choice.matrices}
    lines += [f"weight '{name}': a scale for each column, {why}" for name, why in with_one.items()]
    # The choice was made by samples: it is judged as any other step, by others too where those held out leave doubt.
    return Improved(made, changed=tuple(lines), recalibrate=True, price_db=PRICE_DB)


def _level(noise: float) -> str:
    return f"{_decibels(noise, 1.0):.0f} dB of noise"


def remedies_of(state: State, backend: Backend, noise: Mapping[str, float]) -> dict[str, Remedy]:
    """What takes away the noise of each tensor, where something does."""
    graph, plan = state.graph, state.plan
    members: dict[str, list[Placement]] = {}
    for placement in plan:
        members.setdefault(placement.tie or placement.tensor, []).append(placement)
    found: dict[str, Remedy] = {}
    for tensor, power in noise.items():
        if backend.outlier_matrices is not None and graph.is_constant(tensor):
            if state.qparams[tensor].scale.size == 1:
                found[tensor] = Remedy(power, frozenset())
            continue
        near = [name for placement in members[tensor] for name in _around(graph, placement)]
        quantized = {plan.fused.get(name, name) for name in near} & plan.quantized.keys()
        free = frozenset(name for name in quantized if _may_leave(graph, plan, backend, name))
        # A wider format holds for all; what is quantized anyway goes on reading 8 bits beside a float node.
        if free and (backend.outlier_format != "float" or free == quantized):
            found[tensor] = Remedy(power, free)
    return found


def _costs(state: State, task: Task) -> dict[str, float]:
    """Node -> its share of all multiplications; one that has none costs NO_LAYER."""
    macs = {product.node: product.macs for product in products(state.graph, next(iter(task.samples)))}
    whole = max(1, sum(macs.values()))
    return {name: max(NO_LAYER, macs.get(name, 0) / whole) for name in state.plan.quantized}


def _chosen(tensors: Iterable[str], remedies: Mapping[str, Remedy], costs: Mapping[str, float]) -> Choice:
    nodes: dict[str, str] = {}
    for tensor in tensors:
        nodes |= {name: tensor for name in sorted(remedies[tensor].nodes) if name not in nodes}
    matrices = tuple(tensor for tensor in tensors if not remedies[tensor].nodes)
    return Choice(nodes, matrices, sum(costs[name] for name in nodes))


def with_fused(nodes: Mapping[str, str], plan: QuantPlan) -> dict[str, str]:
    """The nodes with what runs inside of them: the bias behind a MatMul would be quantized on its own without it."""
    return {**nodes, **{name: nodes[leader] for name, leader in plan.fused.items() if leader in nodes}}


def _may_leave(graph: Graph, plan: QuantPlan, backend: Backend, node: str) -> bool:
    return node in plan.quantized and graph.node(node).op not in backend.fixed_ranges and not _is_forced(plan, node)


def _in_order(noise: Mapping[str, float]) -> Iterable[str]:
    """The loudest tensor first."""
    return sorted(noise, key=lambda name: -noise[name])


def noise_of_tensors(state: State, task: Task) -> dict[str, float]:
    """Activation -> its noise by its power in dB, from histograms of calibration; leaders of shared scales alone."""
    leaders = [item for item in activation_leaders(state.plan) if _has_eight_bits(item)]
    kept = None if task.statistics is None else task.statistics.on_all(state.graph, leaders)
    if kept is None:
        return {}
    found: dict[str, float] = {}
    for name in (placement.tensor for placement in leaders if placement.tensor in state.qparams):
        seen = kept.statistics.get(name, {}).values()
        histogram = next((statistic for statistic in seen if isinstance(statistic, HistogramStatistic)), None)
        if histogram is not None and state.qparams[name].scale.size == 1:
            found[name] = _noise(histogram, state.qparams[name])
    return found


def _has_eight_bits(placement: Placement) -> bool:
    """Whether noise tells outliers: with fewer bits everything is noisy. Eight, or the seven that OpenVINO takes."""
    return placement.spec.evenly_spaced and 7 <= placement.spec.bits <= 8


def noise_of_weights(state: State, readers_of: Collection[str]) -> dict[str, float]:
    """Weight of some kinds of layers -> its noise by its power in dB, with the scale or scales that it has."""
    found: dict[str, float] = {}
    for placement in state.plan:
        name = placement.tensor
        readers = [use.node.op for use in state.graph.consumers(name)]
        if placement.role != "weight" or name not in state.qparams or not set(readers) <= set(readers_of):
            continue
        if _has_eight_bits(placement):
            values = state.graph.values(name)
            lost = np.square(values - fake_quantize(values, state.qparams[name]), dtype=np.float64).sum()
            found[name] = _decibels(float(lost), float(np.square(values, dtype=np.float64).sum()))
    return found


def _noise(histogram: HistogramStatistic, qparams: QParams) -> float:
    bins = histogram.bins()
    values, counts = np.asarray(bins.middle, np.float64), np.asarray(bins.count, np.float64)
    step, zero_point = float(qparams.scale.max()), int(qparams.zero_point.max())
    low, high = (step * (end - zero_point) for end in (qparams.spec.qmin, qparams.spec.qmax))
    rounded = np.where(np.abs(values) < step / 2, values**2, np.minimum(step**2 / 12, values**2))
    clipped = (values - np.clip(values, low, high)) ** 2
    return _decibels(float((counts * np.maximum(rounded, clipped)).sum()), float((counts * values**2).sum()))


def _decibels(lost: float, power: float) -> float:
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
            if node.op not in LAYERS and _may_leave(graph, plan, backend, name):
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


def _exactly(name: str) -> str:
    """As a regular expression, which yields to what a user says of a node by its name."""
    return f"re:^{re.escape(name)}$"


def _of_node(node: str, form: str) -> Override:
    if form == "float":
        return Override.of_nodes(_exactly(node), {"skip": True}, {("skip",): SAID})
    wide = QuantizerOverride(dtype=form)
    parts = {"activation": wide, "output": wide}
    return Override.of_nodes(_exactly(node), {}, {(part, "dtype"): SAID for part in parts}, parts)


def _of_tensor(tensor: str, wanted: QuantizerOverride) -> Override:
    where: dict[tuple[str, ...], str] = {("tensor", field): SAID for field in wanted.given()}
    return Override("tensor", _exactly(tensor), {"tensor": wanted}, {}, where)
