"""SmoothQuant for layers whose input cannot be divided where it is made: a multiplication in front of them does it.

    W X = (W s) (X / s)        s as in `smoothquant` (Xiao et al. 2022), 1 / s the constant of a Mul

The output of a normalisation behind a residual addition (BERT, and every other transformer with the norm last) is read
by the next addition as well, and what a GELU makes cannot be scaled through it. A Mul with a constant of ones between
such a tensor and the layers gives these a tensor of their own, whose channels `smoothquant` can scale; a Mul that gains
nothing is taken out again. It runs in float, the quantizer moves behind it, and so it is done only where the target
reads the tensor quantized in these layers alone, and not at inputs of the model. Since it adds work, it has to gain
more than other steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxq.graph import Graph
from onnxq.ptq.equalization.flow import Edit
from onnxq.ptq.equalization.scalable_channels import ScalableChannels, touches
from onnxq.ptq.equalization.scaled_ranges import tell_scaled
from onnxq.ptq.equalization.smoothquant import ALPHA, LAYERS, Subject, look_at, movable, removable_noise, smooth
from onnxq.ptq.method import FOR_EACH_CHANNEL, Improved, State, Task, improvement, limits
from onnxq.types import Placement, QuantPlan
from onnxq.types.reason import Reason

PRICE_DB = 1.0
"""What the additional nodes have to be worth."""

LEAST_SHARE = 0.1
"""Part of the noise of the outputs that it has to promise to take away, half of what PRICE_DB asks for: on NudeNet, a
detector of text and a network of MTCNN it promised 0.2 to 4 % and gained nothing, on transformers 50 % and more."""

TOO_LITTLE = f"all layers together would gain less than {LEAST_SHARE:.0%} of the noise of the outputs"

WHY = Reason(
    "inserted",
    "divides channels before they are quantized, for layers that share their input with others; runs in float",
)


@improvement(
    "insert_smoothing",
    "divides outliers of activations in front of layers, by a Mul, where smoothquant cannot",
    "Xiao et al., SmoothQuant, 2022",
    {"alpha": 0.0, "unseen": True},
    check=limits("insert_smoothing", alpha=ALPHA),
    least_samples=FOR_EACH_CHANNEL,
    rescales=True,
)
def insert_smoothing(state: State, task: Task, *, alpha: float, unseen: bool) -> Improved:
    """Smooth the inputs of layers behind a Mul of their own; arguments as for `smoothquant`."""
    own, muls = insert_muls(state, movable(state.copy())[0], LAYERS)
    if not muls:
        return Improved(state, hopeless=True)
    scalable, shares = movable(own)
    layouts = [scalable.layouts[mul.own] for mul in muls]
    groups = tuple(group for group in scalable.groups if any(touches(layout, group) for layout in layouts))
    possible = replace(scalable, groups=groups)
    # Of a graph that nobody scales: another try of the same state looks at it too.
    look = task.findings.of(state, "look", lambda: look_at(own, task, possible))
    subject = Subject(own, task, possible, shares, look)
    promised = None if task.noise is None else task.findings.of(state, "promised", lambda: removable_noise(subject))
    if promised is not None and task.noise is not None and promised < LEAST_SHARE * task.noise:
        return Improved(state, declined=(TOO_LITTLE,), hopeless=True)
    found, scales = smooth(subject, alpha, unseen=unseen)
    if not found.changed:
        return Improved(state, declined=found.declined)
    idle = [mul for mul in muls if (own.graph.values(mul.constant) == 1.0).all()]
    added = [mul for mul in muls if mul not in idle]
    made = remove_muls(found.state, idle)
    tell_scaled(state, made, task, possible, subject.look.ranges, scales, {mul.own: mul.tensor for mul in added})
    details = {**found.details, "added": [mul.node for mul in added]}
    return replace(found, state=made, price_db=PRICE_DB, details=details)


@dataclass(frozen=True)
class InsertedMul:
    """A Mul `node` that reads `tensor` and makes `own`, which only layers read; `constant` holds its factors."""

    node: str
    tensor: str
    own: str
    constant: str


def insert_muls(state: State, scalable: ScalableChannels, ops: Sequence[str]) -> tuple[State, list[InsertedMul]]:
    """A state with a Mul of ones behind every tensor that only layers of `ops` read quantized and that is not free."""
    state, free, muls = state.copy(), scalable.free(), []
    layers = {}
    for edit in scalable.edits:
        node = state.graph.node(edit.node)
        if edit.op in ops and edit.constant == node.inputs[1].name and not node.attrs.get("transA", 0):
            layers[edit.node, node.inputs[0].name] = edit
    shared = _shared(state.plan)
    for placement in list(state.plan):
        edits = [] if placement.tensor in shared else _readers(placement, layers)
        if not edits or any(free[edit.up].any() for edit in edits):
            continue
        graph, name = state.graph, placement.tensor
        shapes = {_channels(graph, edit) for edit in edits}
        if graph.is_constant(name) or name in graph.input_names or len(shapes) > 1:
            continue  # what a model is given is quantized as it comes
        ones = np.ones(shapes.pop(), graph.dtype(name))
        readers = {edit.node for edit in edits}
        uses = [use for use in graph.consumers(name) if use.node.name in readers]
        constant = graph.add_constant(f"{name}_division", ones)
        made = graph.insert_after(name, "Mul", extra_inputs=[constant], uses=uses)
        mul = InsertedMul(made.name, name, made.outputs[0].name, constant.name)
        plan = _renamed(state.plan, name, mul.own)
        state = replace(state, plan=replace(plan, left_float={**plan.left_float, mul.node: WHY}))
        muls.append(mul)
    return state, muls


def remove_muls(state: State, muls: Sequence[InsertedMul]) -> State:
    """A state without some of the multiplications again."""
    for mul in muls:
        graph = state.graph
        graph.redirect(mul.own, mul.tensor)
        graph.remove(graph.node(mul.node))
        kept = {node: why for node, why in state.plan.left_float.items() if node != mul.node}
        state = replace(state, plan=replace(_renamed(state.plan, mul.own, mul.tensor), left_float=kept))
    if muls:
        state.graph.remove_unused_constants()
    return state


def _channels(graph: Graph, edit: Edit) -> tuple[int, ...]:
    """The shape of a constant with one factor for each channel that a layer reads."""
    node = graph.node(edit.node)
    weight = graph.values(edit.constant)
    if "Conv" not in node.op:
        return (edit.up.size,)
    groups = int(node.attrs.get("group", 1)) if node.op == "Conv" else 1
    channels = weight.shape[1] * groups if node.op == "Conv" else weight.shape[0]
    return (channels, *[1] * (weight.ndim - 2))


def _shared(plan: QuantPlan) -> set[str]:
    """Tensors whose ranges or parameters other quantizers use too."""
    tied = {placement.tie for placement in plan if placement.tie is not None}
    return tied | {name for placement in plan for name in placement.observe if name != placement.tensor}


def _readers(placement: Placement, layers: dict[tuple[str, str], Edit]) -> list[Edit]:
    """The layers that read a tensor quantized; none if anything else does, or its range is not its own."""
    name = placement.tensor
    if placement.role != "activation" or placement.edges is None or placement.tie is not None:
        return []
    if placement.observe != (name,):
        return []
    found = [layers.get((edge.node, name)) for edge in placement.edges if edge.port == 0]
    if len(found) != len(placement.edges) or None in found:
        return []
    return [edit for edit in found if edit is not None]


def _renamed(plan: QuantPlan, old: str, new: str) -> QuantPlan:
    """A plan with the quantizer of a tensor moved to another, and the biases that derive from it."""

    def moved(placement: Placement) -> Placement:
        if placement.tensor == old:
            return replace(placement, tensor=new, observe=(new,))
        if placement.derive is not None and placement.derive.input == old:
            return replace(placement, derive=placement.derive._replace(input=new))
        return placement

    return replace(plan, placements={item.tensor: item for item in map(moved, plan)})
