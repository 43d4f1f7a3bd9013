"""sensitivity: how much each layer or quantizer costs, measured one at a time.

    alone     this part is quantized, everything else is float: what the part costs by itself
    all_but   everything is quantized but this part: what one gains by putting it back

Nothing is calibrated anew: parts have the parameters of the whole plan. Noise of different layers is nearly
independent, so the noise powers of all parts alone add up to about that of the whole (the assumption of HAWQ and of
the mixed-precision search here); interactions, such as a bias that one layer leaves and the next one compensates,
show in `all_but`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Unpack

from onnxq.errors import ConfigError
from onnxq.files import json_number
from onnxq.glance import MOST_ROWS, counted, decibels, notebook_html, quoted, short_name, short_repr
from onnxq.json_file import JsonObject
from onnxq.mixed_precision.parts import By, Only, Part, all_but, alone, parts_of
from onnxq.mixed_precision.study import Study, overall_db
from onnxq.mixed_precision.subject import About, Subject, study
from onnxq.mixed_precision.text import metric_text, sensitivity_columns, sensitivity_row, sensitivity_title
from onnxq.ptq.method import State
from onnxq.ptq.search.evaluator import Score
from onnxq.types import QuantSpec

Mode = Literal["alone", "all_but"]


@dataclass(frozen=True)
class Effect:
    """What one part does.

    sqnr_db  of the outputs against the float model
    loss     alone: by how much the metric is worse than that of the float model; all_but: than that of the model in
             which everything is quantized, so that a negative loss is what is gained. Above 0 is worse for any metric
    """

    name: str
    kind: str
    quantizers: Mapping[str, QuantSpec]
    score: Score
    sqnr_db: float
    loss: float

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind,
            "sqnr_db": json_number(self.sqnr_db),
            "value": json_number(self.score.value),
            "loss": json_number(self.loss),
            "quantizers": {name: str(spec) for name, spec in self.quantizers.items()},
        }

    def __repr__(self) -> str:
        facts = metric_text(self.score.metric, self.score.value), counted(len(self.quantizers), "quantizer")
        return short_repr("Effect", f"of {quoted(self.name)} ({self.kind})", *facts)


@dataclass(frozen=True)
class Sensitivity:
    """The parts of a model, those that matter most first; `of_float` and `quantized` are the whole model."""

    by: By
    mode: Mode
    metric: str
    of_float: Score
    quantized: Score
    effects: tuple[Effect, ...]
    samples: int
    evaluations: Mapping[str, int]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        first = self.effects[0] if self.effects else None
        worst = "" if first is None else f"worst {quoted(first.name)} {decibels(first.sqnr_db)}"
        return short_repr(
            "Sensitivity", f"of {counted(len(self.effects), self.by)}, {self.mode}", *self._facts(), worst
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the parts that matter most, as `onnxq sensitivity` prints them."""
        rows = [sensitivity_row(effect, self) for effect in self.effects[:MOST_ROWS]]
        columns = [column.lstrip(">") for column in sensitivity_columns(self)]
        cut = [[short_name(cell) for cell in row] for row in rows]
        facts = [("everything quantized", ", ".join(self._facts()))]
        return notebook_html(sensitivity_title(self), facts, columns, cut, of=len(self.effects))

    def _facts(self) -> list[str]:
        value = "" if self.metric == "sqnr_db" else metric_text(self.metric, self.quantized.value)
        return [decibels(overall_db(self.quantized)), *([f"{self.metric} {value}"] if value else [])]

    def to_json(self) -> JsonObject:
        return {
            "by": self.by,
            "mode": self.mode,
            "metric": self.metric,
            "float": json_number(self.of_float.value),
            "quantized": json_number(self.quantized.value),
            "quantized_sqnr_db": json_number(overall_db(self.quantized)),
            "runs_of_a_sample": self.samples,
            "evaluations": dict(self.evaluations),
            "notes": list(self.notes),
            "parts": [effect.to_json() for effect in self.effects],
        }


@study("onnxq.sensitivity")
def sensitivity(
    subject: Subject,
    *,
    by: By = "layer",
    mode: Mode = "alone",
    only: Only | None = None,
    **about: Unpack[About],
) -> Sensitivity:
    """Score every part of the model's plan alone, or everything but it; `only` leaves weights or activations out.

    Takes a Subject, or a model with the fields of one: `onnxq.sensitivity("model.onnx", backend="qnn", data="c.npz")`.
    """
    if by not in ("layer", "quantizer") or mode not in ("alone", "all_but") or only not in (None, *_ONLY):
        raise ConfigError(f"by is layer or quantizer, mode alone or all_but, only weights or activations; got {by}, "
                          f"{mode}, {only}")  # fmt: skip
    studied = Study(subject)
    state = studied.calibrated(studied.plan())
    parts = parts_of(studied.graph, state.plan, by, only)
    if not parts:
        what = f"{only} of it" if only else "it"
        raise ConfigError(
            f"nothing in this model is quantized for {studied.prepared.backend.name}, so {what} costs nothing"
        )
    effects, quantized = measure(studied, state, parts, mode)
    return Sensitivity(
        by,
        mode,
        studied.evaluator.name,
        studied.float_score,
        quantized,
        tuple(ranked(effects, mode)),
        studied.evaluator.samples,
        studied.evaluations,
        tuple(studied.notes),
    )


_ONLY = ("weights", "activations")


def measure(study: Study, state: State, parts: list[Part], mode: Mode) -> tuple[list[Effect], Score]:
    """The effect of each part, in the order of the parts, and the score of the whole plan."""
    quantized = study.score(state)
    effects = []
    for number, part in enumerate(parts):
        study.session.progress("sensitivity", number, len(parts))
        if mode == "alone":
            plan, reference = alone(study.graph, state.plan, part), study.float_score
        else:
            plan, reference = all_but(study.graph, state.plan, parts, part), quantized
        score = study.score(State(state.graph, plan, state.qparams))
        loss = reference.goodness - score.goodness
        formats = {name: state.plan[name].spec for name in part.share}
        effects.append(Effect(part.name, part.kind, formats, score, overall_db(score), loss))
    study.session.progress("sensitivity", len(parts), len(parts))
    return effects, quantized


def ranked(effects: Sequence[Effect], mode: Mode) -> list[Effect]:
    """What costs most first, or what gains most; where the metric does not tell parts apart, the noise does."""
    sign = -1.0 if mode == "alone" else 1.0
    return sorted(effects, key=lambda effect: (sign * effect.loss, -sign * effect.sqnr_db, effect.name))
