"""search: bits for each layer, so that the metric is best within a budget, or the cost least at which the metric holds.

1. Every free quantizer is measured alone at each number of bits, everything else in float.
2. Sums of these predict a frontier of (cost, loss) over all configurations (`onnxq.mixed_precision.propose`): the
   integer program of HAWQ-V3, solved for all budgets at once.
3. Configurations along the frontier are placed, calibrated and evaluated as `onnxq quantize` would have them, the one
   that the goal asks for first.
4. While evaluations remain, neighbours of the best one are tried: bits moved from one quantizer to another.
5. With improvements (`onnxq.mixed_precision.improved`) the points of the front are improved and scored again, and the
   front is made of these. A metric that has to hold, has to hold after improvements: members of the frontier are
   bisected with them first, and what the cheapest one that holds had before is what steps 3 and 4 ask of calibrated
   models.

Every evaluated configuration is a point; the points that no other beats are the front. Counts of costs are exact and
are those of the placed plan. With the same arguments the result is the same, also after a run that was cut off: what
the cache knows counts as an evaluation too, but takes no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Unpack

from onnxq.config import Config
from onnxq.costs import Costs, count, products, weights_of
from onnxq.errors import ConfigError, UnsupportedError
from onnxq.mixed_precision.budget import Budget, Measure, cost_in, cost_text, read_budget
from onnxq.mixed_precision.choices import Bits, Choices, For, Variable, configured, find_choices
from onnxq.mixed_precision.found import Found, Point, front_of, quality
from onnxq.mixed_precision.goals import Demand, read_demand
from onnxq.mixed_precision.improved import check_improvements
from onnxq.mixed_precision.parts import Part, alone
from onnxq.mixed_precision.propose import CostModel, predicted_loss, proposals
from onnxq.mixed_precision.study import Study, noise
from onnxq.mixed_precision.subject import About, Subject, study
from onnxq.types import QuantPlan

EVALUATIONS = 40
"""Configurations that are evaluated, where nothing else is said."""

MOST_STEPS = 24
"""Neighbours are made of the most promising steps to more and to fewer bits."""

CALIBRATED = 1.5
"""What it takes to calibrate and evaluate a configuration, beside an evaluation with parameters that are there."""

ALONG_THE_FRONT = 8
"""Of these, configurations that are spread over all costs, for the front."""


@study("onnxq.search")
def search(
    subject: Subject,
    *,
    bits: Sequence[int] = (8, 4),
    what: For = "weights",
    budget: str | Budget | None = None,
    hold: float | None = None,
    max_drop: float | None = None,
    reach: float | None = None,
    evaluations: int = EVALUATIONS,
    **about: Unpack[About],
) -> Found:
    """The bits of each quantizer, chosen from `bits`; takes a Subject, or a model with the fields of one.

    what         weights, activations or both
    budget       see `onnxq.mixed_precision.budget`; without one, the least cost at which `hold`, `max_drop` or `reach`
                 holds
    evaluations  configurations to evaluate, those that measure single quantizers not counted
    """
    demanded = any(value is not None for value in (hold, max_drop, reach))
    if (budget is None) == (not demanded):
        raise ConfigError("say what to search for: --budget, or one of --hold, --max-drop and --reach")
    if evaluations < 1:
        raise ConfigError(f"a search needs at least 1 evaluation, got {evaluations}")
    limit = budget if budget is None or isinstance(budget, Budget) else read_budget(budget)
    measure: Measure = limit.measure if limit else "bytes" if what == "weights" else "bit_operations"
    if what != "weights" and measure != "bit_operations":
        raise ConfigError("bytes are those of weights, whatever activations have: give a budget such as BOPS:60%")
    studied = Study(subject)
    check_improvements(studied.improvements)
    demand = None
    if demanded:
        demand = read_demand(
            studied.float_score, studied.evaluator.lower_is_better, hold=hold, max_drop=max_drop, reach=reach
        )
    return _Search(studied, tuple(bits), what, measure, limit, demand, evaluations).run()


class _Search:
    def __init__(
        self,
        study: Study,
        bits: tuple[int, ...],
        what: For,
        measure: Measure,
        budget: Budget | None,
        demand: Demand | None,
        evaluations: int,
    ) -> None:
        self._study = study
        self._say = study.session.progress
        self._measure = measure
        self._demand = demand
        self._sought = demand  # of calibrated models
        self._evaluations = evaluations
        self._products = products(study.graph, study.feed)
        self._choices: Choices = find_choices(study, bits, what, self._products)
        self._weights = weights_of(study.graph, study.plan(), self._products)
        self._points: dict[tuple[int, ...], Point] = {}
        self._improved: dict[tuple[int, ...], Point] = {}
        most = self._count(self._study.plan(self._config(self._choices.most())))
        self._model = CostModel(study.graph, self._choices, self._products, measure, most)
        self._limit = None if budget is None else budget.limit(most)
        if budget is not None and self._limit is not None:
            lowest = self._model.cost(self._choices.uniform(min(bits)))
            if lowest > self._limit:
                raise UnsupportedError(
                    f"the budget {budget.text} is {cost_text(measure, self._limit, most)}, and the least that these "
                    f"bits need is {cost_text(measure, lowest, most)}: allow more, or fewer bits with --bits"
                )
        self._goal = (
            f"best {study.evaluator.name} within {budget.text} ({cost_text(measure, self._limit or 0, most)})"
            if budget is not None
            else f"least {measure.replace('_', ' ')} with {demand.text if demand else ''}"
        )

    def run(self) -> Found:
        self._losses = self._measured()
        self._frontier = proposals(self._choices, self._losses, self._model)
        if self._demand is not None and self._study.improvements:
            self._sought = self._before_improvements(self._demand)
        for bits, origin in self._planned():
            if len(self._points) >= self._evaluations:
                break
            self._evaluated(bits, origin)
        self._move_bits()
        final = self._final()
        chosen = self._best(final, self._demand)
        if chosen is None:
            nearest = max(final, key=lambda point: point.score.goodness)
            raise UnsupportedError(
                f"no configuration with these bits reaches {self._demand.text if self._demand else ''}: the best one "
                f"has {nearest.score.value:.6g}. Allow more bits with --bits, or put layers back with --fallback"
            )
        self._say("search", self._evaluations, self._evaluations)
        study = self._study
        return Found(
            self._measure,
            study.evaluator.name,
            self._goal,
            study.float_score,
            chosen,
            self._config(chosen.bits),
            tuple(self._improved.get(key, point) for key, point in self._points.items()),
            tuple(front_of(final, self._measure)),
            self._choices.variables,
            self._losses,
            study.evaluations,
            (*study.notes, *self._choices.notes),
            study.improvements,
        )

    # ---- measuring -----------------------------------------------------------------------------------------------

    def _measured(self) -> dict[str, dict[int, float]]:
        """The loss of every variable alone at each number of bits."""
        variables, study = self._choices.variables, self._study
        states = {bits: study.calibrated(plan) for bits, plan in self._choices.plans.items()}
        # What calibration has left out, such as a branch that no sample took, costs nothing.
        self._choices = replace(self._choices, plans={bits: state.plan for bits, state in states.items()})
        total = sum(len(variable.bits) for variable in variables)
        losses: dict[str, dict[int, float]] = {}
        self._announce(total)
        for variable in variables:
            part = Part(variable.name, variable.kind, dict.fromkeys(variable.members), ())
            for bits in variable.bits:
                self._say("sensitivity", sum(map(len, losses.values())), total)
                state = states[bits]
                score = study.score(replace(state, plan=alone(study.graph, state.plan, part)))
                of_kl = study.evaluator.name == "kl"
                losses.setdefault(variable.name, {})[bits] = max(score.value, 0.0) if of_kl else noise(score)
        self._say("sensitivity", total, total)
        return losses

    def _announce(self, measured: int) -> None:
        """Tell who waits what comes behind the measuring of so many single quantizers."""
        tracker = self._study.session.tracker
        tracker.measure_by("sensitivity")
        tracker.expect("search", CALIBRATED * self._evaluations / max(measured, 1))
        if self._study.improvements:
            tracker.expect("improve the front", None)

    def _evaluated(self, bits: Bits, origin: str) -> Point:
        key = self._key(bits)
        if key not in self._points:
            self._say("search", len(self._points), self._evaluations)
            state = self._study.calibrated(self._study.plan(self._config(bits)))
            self._points[key] = Point(dict(bits), self._count(state.plan), self._study.score(state), origin)
            best = self._best(self._points.values(), self._sought)
            if best is not None and best.score.in_db:
                self._study.session.tracker.scored(best.score.value)
        return self._points[key]

    def _final(self) -> list[Point]:
        """What the front is made of: all points, or those of the calibrated front and others that were improved."""
        if not self._study.improvements:
            return list(self._points.values())
        front = front_of(list(self._points.values()), self._measure)
        for number, point in enumerate(front):
            self._say("improve the front", number, len(front))
            self._with_improvements(point)
        return list(self._improved.values())

    def _with_improvements(self, point: Point) -> Point:
        key, config = self._key(point.bits), self._config(point.bits)
        if key not in self._improved:
            state = self._study.calibrated(self._study.plan(config))
            score = self._study.score_improved(state, config)
            self._improved[key] = replace(point, score=score, calibrated=point.score)
        return self._improved[key]

    def _before_improvements(self, demand: Demand) -> Demand:
        """What to ask of calibrated models: what the cheapest one that holds when it is improved has before."""
        sought, low, high = demand, 0, len(self._frontier) - 1
        while low <= high and len(self._points) < self._evaluations:
            middle = (low + high) // 2
            point = self._with_improvements(self._evaluated(self._frontier.bits(middle), "bisected"))
            if demand.holds(point.score) and point.calibrated is not None:
                sought, high = replace(demand, least=point.calibrated.goodness), middle - 1
            else:
                low = middle + 1
        return sought

    def _config(self, bits: Bits) -> Config:
        return configured(self._study.config, bits, self._choices.variables)

    def _count(self, plan: QuantPlan) -> Costs:
        return count(self._study.graph, plan, self._products, self._weights)

    def _key(self, bits: Bits) -> tuple[int, ...]:
        return tuple(bits[variable.name] for variable in self._choices.variables)

    # ---- what to evaluate -------------------------------------------------------------------------------------------

    def _planned(self) -> Iterator[tuple[dict[str, int], str]]:
        """What the goal asks for by prediction, the same bits everywhere, and others along the frontier."""
        ahead = self._frontier
        if self._limit is not None:
            inside = [number for number in range(len(ahead)) if int(ahead.costs[number]) <= self._limit]
            yield ahead.bits(inside[-1]), "predicted best"
        for number in sorted(self._choices.plans):
            yield self._choices.uniform(number), f"{number} bits everywhere"
        if self._demand is not None:
            yield from self._bisected()
        spread = min(ALONG_THE_FRONT, len(ahead))
        low, high = int(ahead.costs[0]), int(ahead.costs[-1])
        for step in range(spread):
            wanted = low + (high - low) * step // max(1, spread - 1)
            yield ahead.bits(int(abs(ahead.costs - wanted).argmin())), "along the front"

    def _bisected(self) -> Iterator[tuple[dict[str, int], str]]:
        """Members of the frontier around the least cost at which the metric holds, as far as it grows with the cost."""
        low, high = 0, len(self._frontier) - 1
        while low <= high:
            middle = (low + high) // 2
            bits = self._frontier.bits(middle)
            yield bits, "bisected"
            point = self._points.get(self._key(bits))
            if point is not None and self._allowed(point, self._sought):
                high = middle - 1
            else:
                low = middle + 1

    def _move_bits(self) -> None:
        """Try neighbours of the best point, the most promising first; a better one starts again from there."""
        best = self._best(self._points.values(), self._sought)
        while best is not None and len(self._points) < self._evaluations:
            for bits in self._neighbours(best):
                self._evaluated(bits, "neighbour")
                found = self._best(self._points.values(), self._sought)
                if found is not best or len(self._points) >= self._evaluations:
                    break
            else:
                return  # every neighbour is known
            best = self._best(self._points.values(), self._sought)

    def _neighbours(self, point: Point) -> list[dict[str, int]]:
        """Configurations that are a step or two away, not evaluated yet and within the goal, by their predicted loss.

        One variable gets more bits, or another one fewer, or both.
        """
        variables, losses = self._choices.variables, self._losses
        steps = [(v.name, number) for v in variables for number in _beside(v, point.bits[v.name])]
        steps.sort(key=lambda step: (losses[step[0]][step[1]] - losses[step[0]][point.bits[step[0]]], step))
        more = [step for step in steps if step[1] > point.bits[step[0]]][:MOST_STEPS]
        fewer = [step for step in steps if step[1] < point.bits[step[0]]][:MOST_STEPS]
        changes = [dict([up, down]) for up in more for down in fewer if up[0] != down[0]]
        changes += [dict([step]) for step in (*more, *fewer)]
        highest = self._limit if self._limit is not None else cost_in(self._measure, point.costs) - 1
        found = []
        for change in changes:
            bits = {**point.bits, **change}
            if self._key(bits) not in self._points and self._model.cost(bits) <= highest:
                found.append((predicted_loss(losses, bits), self._key(bits), bits))
        return [bits for _, _, bits in sorted(found, key=lambda item: item[:2])]

    # ---- the goal ------------------------------------------------------------------------------------------------

    def _allowed(self, point: Point, demand: Demand | None) -> bool:
        if self._limit is not None and cost_in(self._measure, point.costs) > self._limit:
            return False
        return demand is None or demand.holds(point.score)

    def _best(self, points: Iterable[Point], demand: Demand | None) -> Point | None:
        """The best allowed point; where the metric does not tell points apart, the noise does, then the other cost."""

        def worth(point: Point) -> tuple[float, ...]:
            cost = float(cost_in(self._measure, point.costs))
            return (-cost, *quality(point)) if self._limit is None else (*quality(point), -cost)

        allowed = [point for point in points if self._allowed(point, demand)]
        return max(allowed, key=worth, default=None)


def _beside(variable: Variable, bits: int) -> list[int]:
    """The next more and the next fewer bits."""
    place = variable.bits.index(bits)
    return [variable.bits[other] for other in (place - 1, place + 1) if 0 <= other < len(variable.bits)]
