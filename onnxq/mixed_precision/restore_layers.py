"""hold: layers are restored to 16 bits or to float, those that harm most first, until the metric holds.

1. Every layer is measured alone (`onnxq.mixed_precision.sensitivity`), which gives an order.
2. The least number of layers in this order with which the metric holds is bisected: the metric grows with the number,
   apart from what samples and interactions add.
3. Of these layers, the less harmful ones first, each is quantized again if the metric holds without it.

Every step is a configuration that was placed, calibrated and evaluated, and the last one that held is the result. With
improvements (`onnxq.mixed_precision.improved`) each step is improved before it is evaluated; the order is that of
calibrated layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from onnxq.config import Config
from onnxq.config.changes import merged
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.files import json_number
from onnxq.glance import counted, short_repr
from onnxq.json_file import JsonObject
from onnxq.mixed_precision.goals import Demand, read_demand
from onnxq.mixed_precision.improved import check_improvements
from onnxq.mixed_precision.parts import Part, layers
from onnxq.mixed_precision.sensitivity import Effect, measure, ranked
from onnxq.mixed_precision.study import Study, overall_db
from onnxq.mixed_precision.subject import About, Subject, study
from onnxq.mixed_precision.text import metric_text
from onnxq.moved import old_property
from onnxq.place.legal import violations
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import Score
from onnxq.types import QuantPlan

Fallback = Literal["16", "float"]


@dataclass(frozen=True)
class Step:
    """One configuration that was evaluated: the layers that were restored, and whether the metric held."""

    restored: tuple[str, ...]
    score: Score
    holds: bool

    put_back = old_property("Step.put_back", "Step.restored", lambda step: step.restored)

    def to_json(self) -> JsonObject:
        return {
            "restored": list(self.restored),
            "value": json_number(self.score.value),
            "sqnr_db": json_number(overall_db(self.score)),
            "holds": self.holds,
        }


@dataclass(frozen=True)
class Held:
    """The configuration with which the metric holds; `restored` are its layers, the most harmful first.

    layers   how many there are
    order    all layers as they were measured alone, the most harmful first
    steps    everything that was evaluated, in order; the first is the model with nothing restored
    improvements  what was tried in every step before it was evaluated
    """

    metric: str
    demand: str
    fallback: Fallback
    of_float: Score
    chosen: Step
    config: Config
    layers: int
    order: tuple[Effect, ...]
    steps: tuple[Step, ...]
    evaluations: Mapping[str, int]
    notes: tuple[str, ...]
    improvements: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return short_repr(
            "Held",
            f"{self.demand}",
            f"{len(self.restored)} of {counted(self.layers, 'layer')} restored to {self.fallback}",
            f"{self.metric} {metric_text(self.metric, self.chosen.score.value)}",
            counted(len(self.steps), "configuration") + " evaluated",
        )

    @property
    def restored(self) -> tuple[str, ...]:
        return self.chosen.restored

    put_back = old_property("Held.put_back", "Held.restored", lambda held: held.restored)

    def to_json(self) -> JsonObject:
        return {
            "format": "onnxq-hold",
            "version": 1,
            "metric": self.metric,
            "demand": self.demand,
            "fallback": self.fallback,
            "float": json_number(self.of_float.value),
            "quantized": json_number(self.steps[0].score.value),
            "chosen": self.chosen.to_json(),
            "layers": self.layers,
            "order": [effect.to_json() for effect in self.order],
            "steps": [step.to_json() for step in self.steps],
            "improvements": list(self.improvements),
            "evaluations": dict(self.evaluations),
            "notes": list(self.notes),
        }


@study("onnxq.restore_layers")
def restore_layers(
    subject: Subject,
    *,
    hold: float | None = None,
    max_drop: float | None = None,
    reach: float | None = None,
    fallback: Fallback = "float",
    evaluations: int | None = None,
    **about: Unpack[About],
) -> Held:
    """Restore as few layers as it takes for the metric to hold; `onnxq.mixed_precision.goals` says how that is said.

    `evaluations` limits the third step: the configurations that are evaluated in all, as far as it is possible.
    Takes a Subject, or a model with the fields of one.
    """
    if fallback not in ("16", "float"):
        raise ConfigError(f"layers are restored to 16 or float, got '{fallback}'")
    studied = Study(subject)
    check_improvements(studied.improvements)
    demand = read_demand(
        studied.float_score, studied.evaluator.lower_is_better, hold=hold, max_drop=max_drop, reach=reach
    )
    if not demand.holds(studied.float_score):
        raise ConfigError(f"the float model itself has {studied.float_score.value:.6g}: it cannot have {demand.text}")
    return _Loop(studied, demand, fallback, evaluations).run()


class _Loop:
    def __init__(self, study: Study, demand: Demand, fallback: Fallback, evaluations: int | None) -> None:
        self._study = study
        self._demand = demand
        self._fallback = fallback
        self._evaluations = evaluations
        self._steps: dict[frozenset[str], Step] = {}
        self._notes: list[str] = []
        self._plan: QuantPlan = study.plan()
        self._parts = {part.name: part for part in layers(study.graph, self._plan)}
        self._tables = self._legal_tables()  # before anything is calibrated: what is refused leaves no files
        self._whole: State = study.calibrated(self._plan)
        self._plan = self._whole.plan
        self._parts = {part.name: part for part in layers(study.graph, self._plan)}

    def run(self) -> Held:
        order: list[Effect] = []
        chosen = self._evaluated(())
        if not chosen.holds:
            effects, _ = measure(self._study, self._whole, list(self._parts.values()), "alone")
            order = ranked(effects, "alone")
            names = [effect.name for effect in order]
            chosen = self._without_the_needless(self._bisected(names))
        study = self._study
        return Held(
            study.evaluator.name,
            self._demand.text,
            self._fallback,
            study.float_score,
            chosen,
            self._config(chosen.restored),
            len(self._parts),
            tuple(order),
            tuple(self._steps.values()),
            study.evaluations,
            (*study.notes, *self._notes),
            study.improvements,
        )

    def _bisected(self, names: Sequence[str]) -> Step:
        """The metric holds with the first layers of the order: as few of them as bisection finds."""
        best = self._evaluated(names)
        if not best.holds:
            advice = " Restore them to float with --fallback float, or ask for less" if self._fallback == "16" else ""
            raise UnsupportedError(
                f"with all {len(names)} layers restored to {self._fallback} the metric is {best.score.value:.6g}, and "
                f"it must be {self._demand.text}: what else is quantized costs too much.{advice}"
            )
        low, high = 1, len(names)
        while low < high:
            middle = (low + high) // 2
            step = self._evaluated(names[:middle])
            if step.holds:
                best, high = step, middle
            else:
                low = middle + 1
        return best

    def _without_the_needless(self, best: Step) -> Step:
        """Quantize again what the metric holds without; the layers of a step are in the order of their harm."""
        for name in reversed(best.restored):
            if self._evaluations is not None and len(self._steps) >= self._evaluations:
                break
            if len(best.restored) > 1:
                step = self._evaluated([other for other in best.restored if other != name])
                best = step if step.holds else best
        return best

    def _evaluated(self, names: Sequence[str]) -> Step:
        key = frozenset(names)
        if key not in self._steps:
            self._study.session.progress("hold", len(self._steps), self._evaluations)
            config = self._config(names)
            score = self._study.score_improved(self._study.calibrated(self._study.plan(config)), config)
            self._steps[key] = Step(tuple(names), score, self._demand.holds(score))
        return self._steps[key]

    # ---- configurations ------------------------------------------------------------------------------------------

    def _config(self, names: Sequence[str]) -> Config:
        return self._with(names, self._tables)

    def _with(self, names: Sequence[str], tables: Sequence[str]) -> Config:
        changes: dict[tuple[str, ...], Any] = {}
        for name in names:
            if self._fallback == "float":
                changes["node", name, "skip"] = True
            for table in tables:
                if table in self._has(self._parts[name]):
                    changes["node", name, table, "bits"] = 16
        if self._fallback != "float" or not names:
            return merged(self._study.config, changes, "--fallback")
        changes.update({("tensor", name, "skip"): True for name in self._inputs_of(set(names))})
        config = merged(self._study.config, changes, "--fallback")
        # What ran inside of a layer may be quantized by itself as soon as the layer is float.
        quantized = self._study.plan(config, checked=False).quantized
        followers = [node for name in names for node in self._parts[name].nodes[1:] if node in quantized]
        changes.update({("node", node, "skip"): True for node in followers})
        return merged(self._study.config, changes, "--fallback") if followers else config

    def _inputs_of(self, names: set[str]) -> list[str]:
        """Inputs of the model that only restored layers have read quantized: nobody needs their quantizers."""
        graph, plan = self._study.graph, self._plan
        found = []
        for name in graph.input_names:
            if name not in plan:
                continue
            edges = plan[name].edges
            all_readers = {use.node.name for use in graph.consumers(name)} & {*self._parts}
            readers = all_readers if edges is None else {edge.node for edge in edges}
            if readers and readers <= names:
                found.append(name)
        return found

    def _has(self, part: Part) -> set[str]:
        """Which tables of the configuration are about a quantizer of a layer."""
        plan, found = self._plan, set()
        for tensor, uses in part.share.items():
            role = plan[tensor].role
            if role == "weight":
                found.add("weight")
            elif role != "bias":
                found.add("output" if uses is None else "activation")
        return found

    def _legal_tables(self) -> tuple[str, ...]:
        """What can have 16 bits on the target: weights and activations, or activations alone."""
        if self._fallback == "float":
            return ()
        activations = ("activation", "output")
        refused = self._broken((*activations, "weight"))
        if refused is None:
            return (*activations, "weight")
        reads = any(self._has(part) & {*activations} for part in self._parts.values())
        if reads and self._broken(activations) is None:
            self._notes.append(f"weights of restored layers keep their bits: {refused}")
            return activations
        raise UnsupportedError(
            f"{self._study.prepared.backend.name} cannot put layers back to 16 bits: {refused} "
            "Layers can be restored to float: --fallback float"
        )

    def _broken(self, tables: Sequence[str]) -> str | None:
        plan = self._study.plan(self._with(list(self._parts), tables), checked=False)
        return next(violations(plan, self._study.prepared.backend), None)
