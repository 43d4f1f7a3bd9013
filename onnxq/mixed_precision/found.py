"""What a search has found: the evaluated configurations with their costs, the front of them, the chosen one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onnxq.config import Config
from onnxq.costs import Costs
from onnxq.files import json_number
from onnxq.glance import counted, notebook_html, short_name, short_repr
from onnxq.json_file import JsonObject
from onnxq.mixed_precision.budget import Measure, cost_in
from onnxq.mixed_precision.choices import Bits, Variable
from onnxq.mixed_precision.propose import Losses
from onnxq.mixed_precision.study import noise, overall_db
from onnxq.mixed_precision.text import metric_text
from onnxq.ptq.search.evaluator import Score


@dataclass(frozen=True)
class Point:
    """A configuration that was evaluated; `origin` says how it was found.

    `calibrated` is the score before improvements, where `score` is the one after them.
    """

    bits: Bits
    costs: Costs
    score: Score
    origin: str
    calibrated: Score | None = None

    def to_json(self) -> JsonObject:
        return {
            "value": json_number(self.score.value),
            "sqnr_db": json_number(overall_db(self.score)),
            **({} if self.calibrated is None else {"calibrated_value": json_number(self.calibrated.value)}),
            "bytes": self.costs.bytes,
            "mean_bits": self.costs.mean_bits,
            "bit_operations": self.costs.bit_operations,
            "origin": self.origin,
            "bits": dict(self.bits),
        }

    def __repr__(self) -> str:
        facts = metric_text(self.score.metric, self.score.value), f"{self.costs.bytes:,} bytes of weights"
        return short_repr("Point", short_name(self.origin), *facts, f"{self.costs.mean_bits:.2f} bits in the mean")


@dataclass(frozen=True)
class Found:
    """What a search has found.

    chosen     the point that the goal asks for, `config` its configuration
    points     everything that was evaluated, `front` those that no other one beats in cost and metric, by cost; with
               improvements, only points that were improved are on the front
    losses     what each variable costs alone at each number of bits
    improvements  what was tried for the points of the front
    """

    measure: Measure
    metric: str
    goal: str
    of_float: Score
    chosen: Point
    config: Config
    points: tuple[Point, ...]
    front: tuple[Point, ...]
    variables: tuple[Variable, ...]
    losses: Losses
    evaluations: Mapping[str, int]
    notes: tuple[str, ...]
    improvements: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return short_repr(
            "Found",
            f"for {short_name(self.goal, 80)}",
            f"{self.metric} {metric_text(self.metric, self.chosen.score.value)}",
            f"{self.chosen.costs.bytes:,} bytes of weights",
            f"{self.chosen.costs.mean_bits:.2f} bits in the mean",
            f"front of {len(self.front)} of {counted(len(self.points), 'configuration')}",
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the front, with the chosen point."""
        rows = [
            (
                "chosen" if point is self.chosen else "",
                metric_text(self.metric, point.score.value),
                f"{point.costs.bytes:,}",
                f"{point.costs.mean_bits:.3f}",
            )
            for point in self.front
        ]
        facts = [("float model", metric_text(self.metric, self.of_float.value))]
        return notebook_html(self.goal, facts, ("", self.metric, "bytes of weights", "mean bits"), rows)

    def cost(self, point: Point) -> int:
        return cost_in(self.measure, point.costs)

    def to_json(self) -> JsonObject:
        return {
            "format": "onnxq-bits",
            "version": 1,
            "measure": self.measure,
            "metric": self.metric,
            "goal": self.goal,
            "float": json_number(self.of_float.value),
            "chosen": self.chosen.to_json(),
            "front": [point.to_json() for point in self.front],
            "points": [point.to_json() for point in self.points],
            "macs": self.chosen.costs.macs,
            "variables": [
                {
                    "name": variable.name,
                    "kind": variable.kind,
                    "layers": list(variable.layers),
                    "bits": list(variable.bits),
                    "loss_alone": {str(bits): json_number(self.losses[variable.name][bits]) for bits in variable.bits},
                }
                for variable in self.variables
            ],
            "improvements": list(self.improvements),
            "evaluations": dict(self.evaluations),
            "notes": list(self.notes),
        }


def front_of(points: Sequence[Point], measure: Measure) -> list[Point]:
    """The points that no other one beats, by cost: each costs more than the one before and is better.

    Better is a better metric, or less noise at the same metric: accuracy on few samples has few values.
    """
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (cost_in(measure, p.costs), *(-part for part in quality(p)))):
        if not front or quality(point) > quality(front[-1]):
            front.append(point)
    return front


def quality(point: Point) -> tuple[float, float]:
    return point.score.goodness, -noise(point.score)
