"""What a search is after: the best metric within a budget, or the least cost at which the metric holds.

hold      the metric is at least this fraction of the float model's
max_drop  the metric is worse than the float model's by at most this much
reach     the metric is at least this (at most, where lower is better)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnxq.errors import ConfigError
from onnxq.ptq.search.evaluator import Score


@dataclass(frozen=True)
class Demand:
    """The least goodness that is enough, and how a user would say it."""

    least: float
    text: str

    def holds(self, score: Score) -> bool:
        return score.goodness >= self.least - 1e-12 * max(1.0, abs(self.least))


def read_demand(
    of_float: Score,
    lower_is_better: bool,
    *,
    hold: float | None = None,
    max_drop: float | None = None,
    reach: float | None = None,
) -> Demand:
    """The demand that was given; exactly one of the three is."""
    given = [value for value in (hold, max_drop, reach) if value is not None]
    if len(given) != 1 or not math.isfinite(given[0]):
        raise ConfigError("say how good the model must be with one of --hold, --max-drop and --reach")
    sign, words = (-1.0, "at most") if lower_is_better else (1.0, "at least")
    if reach is not None:
        return Demand(sign * reach, f"{of_float.metric} {words} {reach:g}")
    if max_drop is not None:
        if max_drop < 0:
            raise ConfigError(f"--max-drop is 0 or more, got {max_drop:g}")
        least = of_float.goodness - max_drop
        return Demand(least, f"{of_float.metric} {words} {sign * least:g}, {max_drop:g} from the float model's")
    assert hold is not None
    if not 0 < hold <= 1:
        raise ConfigError(f"--hold is a fraction of the float model's metric, above 0 and at most 1, got {hold:g}")
    if of_float.value <= 0 or lower_is_better or of_float.metric == "sqnr_db":
        raise ConfigError(
            f"a fraction of {of_float.metric} = {of_float.value:g} says nothing: give --reach, such as 30 for dB, or "
            "--max-drop"
        )
    return Demand(hold * of_float.goodness, f"{of_float.metric} at least {hold * of_float.value:g}, {hold:g} of float")
