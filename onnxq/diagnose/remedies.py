"""From a cause to what may fix it: nothing here is offered before `onnxq.diagnose.trials` has tried it.

Nothing here knows a target by name: what a target can do more finely is asked of its options and limits (`finer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxq.config import Config
from onnxq.diagnose.causes import (
    Cause,
    Code,
    Costly,
    MaskQuantized,
    OutlierSample,
    TiedRanges,
)
from onnxq.diagnose.evidence import Case
from onnxq.diagnose.finer import finer_options, wide_type
from onnxq.diagnose.remedy import DataChange, Remedy, Setting
from onnxq.match import Matcher
from onnxq.observers.fixed import Fixed
from onnxq.types import Backend

USUAL_BITS = 8
OBSERVERS = ("percentile:99.99", "percentile:99.9", "mse")
MOST_TENSORS = 24
"""Quantizers that a single remedy names; more would be a change of the whole model."""


MOST_OF_ALL, LITTLE = 64, 0.01
"""Where the noise is spread: this many quantizers at most, or all but this part of the noise."""


@dataclass(frozen=True, eq=False)
class Patient:
    """A case with what was wanted for it: the configuration, the target as it was named, and as it is.

    ranking   all quantizers that were evaluated, the costliest first
    """

    case: Case
    ranking: tuple[Costly, ...]
    config: Config
    backend: Backend
    target: str | None

    def rows(self, cause: Cause) -> list[Costly]:
        """The quantizers of a cause, the costliest first."""
        wanted = set(cause.quantizers)
        return [row for row in self.case.costly if row.name in wanted][:MOST_TENSORS]

    def nearly_all(self) -> list[Costly]:
        """The quantizers that make all but a little of the noise."""
        left = 1.0
        for number, row in enumerate(self.ranking):
            if left <= LITTLE or number == MOST_OF_ALL:
                return list(self.ranking[:number])
            left -= row.share
        return list(self.ranking)


Propose = Callable[[Patient, Cause], Iterator[Remedy]]


def proposals(patient: Patient, causes: Sequence[Cause], most: int) -> dict[Remedy, Code]:
    """What may fix the causes, with the cause of each: at most this many.

    A part is kept for what helps against any noise; of the rest the first cause has the first half.
    """
    unknown = Cause("few_bits", (), 0.0, 0.0)
    blamed = next((cause for cause in causes if cause.code not in _NO_NOISE), unknown)
    general = list(dict.fromkeys(_general(patient, blamed)))[: max(1, most // 2)]
    left = most - len(general)
    chosen: dict[Remedy, Code] = {}
    for number, cause in enumerate(causes):
        share = left if number == len(causes) - 1 else -(-left // 2)
        listed = _PARTICULAR.get(cause.code, _nothing)(patient, cause)
        own = [remedy for remedy in dict.fromkeys(listed) if remedy not in chosen and remedy not in general][:share]
        left -= len(own)
        chosen |= dict.fromkeys(own, cause.code)
    return chosen | {remedy: blamed.code for remedy in general if remedy not in chosen}


_NO_NOISE: tuple[Code, ...] = ("wrong_preprocessing", "too_few_samples", "saturating_kernel")
"""Causes that no quantizer is to blame for."""

MAJORITY = 0.5


def _nothing(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    yield from ()


def _general(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    """What helps against any noise: more bits for the quantizers in question, or none at all.

    These are those of the first cause if most of the noise is theirs, otherwise all that cost much.
    """
    rows = patient.rows(cause) if cause.share >= MAJORITY else list(patient.case.costly[:MOST_TENSORS])
    yield from _wide(patient, rows)
    yield from _options(patient)
    yield from _everything_wide(patient)
    yield from _float(patient, rows)
    yield from _float(patient, patient.nearly_all())
    if len(rows) > 1:
        yield from _wide(patient, rows[:1])
        yield from _float(patient, rows[:1])


def _wide(patient: Patient, rows: list[Costly]) -> Iterator[Remedy]:
    """16 bits for activations; the layers of weights then stay float, where there are any.

    Weights with fewer than 8 bits get these first.
    """
    settings = []
    for row in rows:
        if row.role == "weight" and row.node and patient.case.state.plan[row.name].spec.bits < USUAL_BITS:
            settings.append(Setting(("node", row.node, "weight", "bits"), USUAL_BITS))
            continue
        dtype = wide_type(patient.case.state.plan[row.name].spec, patient.backend.limits)
        if dtype is not None and not patient.case.graph.is_constant(row.name):
            settings.append(Setting(("tensor", row.name, "dtype"), dtype))
    if settings:
        yield Remedy(settings=tuple(settings))
        layers = _layers(patient, rows)
        if layers and all(item.path[0] == "tensor" for item in settings):
            yield Remedy(settings=tuple(settings), skip=layers)


def _float(patient: Patient, rows: list[Costly]) -> Iterator[Remedy]:
    """Quantizers of activations left out, layers of weights left float."""
    computed = [row for row in rows if not patient.case.graph.is_constant(row.name)]
    settings = tuple(Setting(("tensor", row.name, "skip"), True) for row in computed)
    layers = _layers(patient, rows)
    if settings or layers:
        yield Remedy(settings=settings, skip=layers)


def _layers(patient: Patient, rows: list[Costly]) -> tuple[str, ...]:
    """The nodes that read the weights among these quantizers, with the Add of their bias."""
    graph = patient.case.graph
    found: dict[str, None] = {}
    for row in rows:
        if graph.is_constant(row.name) and row.node:
            unit = graph.units.of(row.node)
            found.update(dict.fromkeys((row.node,) if unit is None else unit.nodes))
    return tuple(found)


def _everything_wide(patient: Patient) -> Iterator[Remedy]:
    spec = patient.backend.scheme.activation
    dtype = None if spec is None else wide_type(spec, patient.backend.limits)
    if dtype is not None:
        yield Remedy(settings=(Setting(("activation", "dtype"), dtype),))


def _options(patient: Patient) -> Iterator[Remedy]:
    """Options of the target that make its formats finer."""
    for key, value in finer_options(patient.backend, patient.target):
        yield Remedy(options=((key, value),))


def _observers(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    """Ranges that leave outliers out: of the quantizers in question, then of all."""
    everywhere = ("activation", "observer") if patient.config.activation.observer is not None else ("observer",)
    rows = [row for row in patient.rows(cause) if not patient.case.graph.is_constant(row.name)]
    for observer in OBSERVERS:
        yield Remedy(settings=(Setting(everywhere, observer),))
    if len(cause.findings) <= MOST_TENSORS:
        for observer in OBSERVERS:
            yield Remedy(settings=tuple(Setting(("tensor", row.name, "observer"), observer) for row in rows))


def _of_sample(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    findings = [finding for finding in cause.findings if isinstance(finding, OutlierSample)]
    settings = tuple(
        Setting(("tensor", finding.quantizer, "observer"), str(Fixed(_rounded(finding.low), _rounded(finding.high))))
        for finding in findings[:MOST_TENSORS]
        if finding.low < finding.high
    )
    yield Remedy(settings=settings)
    yield Remedy(data=DataChange("leave_out", tuple(sorted({finding.sample for finding in findings}))))
    yield from _observers(patient, cause)


def _rounded(number: float) -> float:
    """A number as people write it; what it lacks is far below a step."""
    return float(f"{number:.6g}")


def _of_mask(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    nodes = [finding.node for finding in cause.findings if isinstance(finding, MaskQuantized) and finding.node]
    yield from _float_nodes(patient, nodes)


def _float_nodes(patient: Patient, nodes: Sequence[str]) -> Iterator[Remedy]:
    """Nodes left float: no longer forced where the configuration forces them, otherwise skipped."""
    named = tuple(dict.fromkeys(nodes))
    forced = tuple(p for p in patient.config.force if any(_names(patient, p, node) for node in named))
    flags = tuple(
        Setting((level, pattern, "force"), None)
        for level in ("op", "node")
        for pattern, settings in getattr(patient.config, level).items()
        if settings.force and any(_names(patient, f"op:{pattern}" if level == "op" else pattern, n) for n in named)
    )
    if forced or flags:
        yield Remedy(settings=flags, unforce=forced)
    if named:
        yield Remedy(settings=flags, skip=named, unforce=forced)


def _names(patient: Patient, pattern: str, node: str) -> bool:
    return Matcher(pattern).matches(node, patient.case.graph.node(node).op)


def _of_tie(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    graph = patient.case.graph
    findings = [finding for finding in cause.findings if isinstance(finding, TiedRanges)]
    shared = {
        Setting(("tensor", member.tensor, "share"), None): None
        for finding in findings
        for member in finding.members
        if (settings := patient.config.tensor.get(member.tensor)) is not None and settings.share is not None
    }
    if shared:
        yield Remedy(settings=tuple(shared))
    nodes = list(dict.fromkeys(finding.node for finding in findings if finding.node is not None))
    tied = tuple(dict.fromkeys(graph.node(name).op for name in nodes if graph.node(name).op in patient.backend.tied))
    if tied:
        wanted = tuple(dict.fromkeys((*patient.config.skip_ties, *tied)))
        yield Remedy(settings=(Setting(("skip_ties",), wanted),))
    yield from _float_nodes(patient, nodes)


def _of_channels(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    """Scales per channel for weights where the target has them, with more bits for what is small behind them too."""
    rows = [row for row in patient.rows(cause) if row.role == "weight" and _has_channels(patient, row.node)]
    if not rows or patient.backend.limits.weights_per_tensor:
        return
    yield from _options(patient)
    settings = tuple(Setting(("node", row.node, "weight", "per_channel"), True) for row in rows)
    yield Remedy(settings=settings)
    computed = [row for row in patient.rows(cause) if row.role != "weight"]
    for wide in _wide(patient, computed):
        yield Remedy(settings=(*settings, *wide.settings))
    yield Remedy(settings=(Setting(("weight", "per_channel"), True),))


def _has_channels(patient: Patient, node: str) -> bool:
    """Whether the target's rule for a node says along which axis its weight may have scales."""
    if not node:
        return False
    rules = patient.backend.rules_for(patient.case.graph.node(node).op)
    return any(rule.weight is not None and rule.weight_axis is not None for rule in rules)


def _of_operators(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    graph = patient.case.graph
    yield from _wide(patient, patient.rows(cause))
    nodes = [str(getattr(finding, "node", "")) for finding in cause.findings]
    kinds = tuple(dict.fromkeys(f"op:{graph.node(name).op}" for name in nodes if name))
    yield Remedy(skip=tuple(dict.fromkeys(name for name in nodes if name)))
    yield Remedy(skip=kinds)


def _of_samples(patient: Patient, cause: Cause) -> Iterator[Remedy]:
    yield Remedy(data=DataChange("more", count=4 * max(getattr(finding, "samples", 0) for finding in cause.findings)))


_PARTICULAR: Mapping[Code, Propose] = {
    "outlier_sample": _of_sample,
    "outlier_values": _observers,
    "mask_quantized": _of_mask,
    "tied_ranges": _of_tie,
    "dead_channels": _of_channels,
    "channels_differ": _of_channels,
    "bias_overflow": _of_channels,
    "softmax_in_few_bits": _of_operators,
    "normalization_in_few_bits": _of_operators,
    "too_few_samples": _of_samples,
}
