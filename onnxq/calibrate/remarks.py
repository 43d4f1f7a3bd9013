"""What the user should know about data and weights: too few samples, one that decides alone, NaN, dead channels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxq.calibrate.biases import NEARLY_DEAD, Widened
from onnxq.calibrate.gather import Gathered
from onnxq.graph import Graph
from onnxq.observers import RangeStatistic
from onnxq.types import Placement
from onnxq.types.note import Note

FEW_SAMPLES = 16
"""Below this, ranges of real data still grow noticeably with every further sample."""

ENOUGH_TO_COMPARE = 8
"""With fewer samples than this, one that stands out says little."""

STANDS_OUT = 2.0
"""How many times the next sample's largest magnitude makes a sample an outlier."""


def nonfinite_warnings(graph: Graph, gathered: Gathered, leaders: Sequence[Placement]) -> list[str]:
    """One line about NaN and infinity: where the first sample with them has them first, and how many tensors follow.

    One such value in a sample spreads over nearly every tensor behind it, so the others say nothing new.
    """
    place = _places(graph)
    found = {tensor: held for tensor, held in _observed(gathered, leaders) if held.nonfinite}
    if not found:
        return []
    tensor = min(found, key=lambda name: (found[name].first_nonfinite, place.get(name, len(place))))
    first, sample = found[tensor].nonfinite, found[tensor].first_nonfinite
    values = "1 NaN/inf value" if first == 1 else f"{first} NaN/inf values"
    count = len(found) - 1
    others = f", and {count} other tensor{'s have some' if count > 1 else ' has some'} too" if count else ""
    node = graph.producer(tensor) if graph.has_tensor(tensor) else None
    if node is None:
        what, remedy = f"input '{tensor}'", "Take that sample out of the data, or correct it"
    else:
        what = f"tensor '{tensor}' of node '{node.name}' ({node.op})"
        remedy = "Look at what that node computes there, and at that sample"
    text = f"{what}: {values}, first in sample {sample}{others}; left out of the ranges. {remedy}"
    return [Note("nonfinite", text)]


def _places(graph: Graph) -> dict[str, int]:
    """Tensor -> its place in the order in which the graph computes."""
    made = (tensor.name for node in graph.nodes() for tensor in node.outputs if tensor.name)
    return {name: place for place, name in enumerate((*graph.input_names, *made))}


def widened_notes(graph: Graph, widened: Mapping[str, Widened]) -> list[str]:
    """A line for each weight whose scale was enlarged for its bias; a channel that is nearly dead is named."""
    return [_widened_note(graph, name, found) for name, found in widened.items()]


def _widened_note(graph: Graph, name: str, found: Widened) -> Note:
    text = f"weight '{name}': scale enlarged up to {found.factor:g} times so that its bias fits into int32"
    if found.factor < NEARLY_DEAD or found.channel is None:
        return Note("bias", text)
    users = [use.node.name for use in graph.consumers(name)]
    others = f", and so are {found.dead - 1} more of its channels" if found.dead > 1 else ""
    left = "all its weights become 0" if found.steps < 0.5 else f"its weights have {found.steps:.0f} steps left"
    skip = f" with --skip '{users[0]}'" if users else ""
    return Note(
        "dead_channel",
        f"{text}. Channel {found.channel} is nearly dead{others}: its largest weight is {found.weight:.3g}, beside a "
        f"bias of {found.bias:.3g}. It adds hardly more than its bias, and now {left}, which as a rule costs nothing. "
        f"To be rid of it, take such channels out of the model (pruning), or keep the layer float{skip}",
    )


def data_remarks(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[str]:
    """Notes about the samples for the report."""
    if leaders and gathered.samples < FEW_SAMPLES:
        many = "sample" if gathered.samples == 1 else "samples"
        yield (
            f"calibrated on {gathered.samples} {many}: ranges may be too narrow for other data; "
            "give some dozens to hundreds of typical samples"
        )
    if gathered.samples >= ENOUGH_TO_COMPARE:
        yield from _lonely_samples(gathered, leaders)


def _lonely_samples(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[str]:
    """One line for each sample that alone sets the range of some tensors."""
    by_sample: dict[int, list[tuple[float, str, float, float]]] = {}
    for tensor, statistic in _observed(gathered, leaders):
        if len(statistic.peaks) < 2:
            continue
        (largest, sample), (second, _) = statistic.peaks
        if second > 0 and largest > STANDS_OUT * second:
            by_sample.setdefault(sample, []).append((largest / second, tensor, largest, second))
    for sample, found in sorted(by_sample.items()):
        _, tensor, largest, second = max(found)
        rest = f" and of {len(found) - 1} more" if len(found) > 1 else ""
        yield Note(
            "lone_sample",
            f"sample {sample} alone sets the range of tensor '{tensor}'{rest} ({largest:.4g}, the next sample has "
            f"{second:.4g}): check that sample, or use an observer that clips, such as percentile or mse",
        )


def _observed(gathered: Gathered, leaders: Sequence[Placement]) -> Iterator[tuple[str, RangeStatistic]]:
    """Each tensor that sets a range, with one of its statistics: all of them hold what is asked here."""
    for tensor in dict.fromkeys(tensor for placement in leaders for tensor in placement.observe):
        statistic = next(iter(gathered.statistics.get(tensor, {}).values()), None)
        if statistic is not None:
            yield tensor, statistic
