"""Why a step of the search was kept or dropped, as values; `report.json` has their codes beside the sentences."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class StepReason(Enum):
    """What decided about a step; those of the acceptance test are explained in `onnxq.ptq.search.acceptance`."""

    ACCEPTED = "accepted"
    SUPERSEDED = "superseded"  # accepted when it was tried, and not part of the best result
    NEEDED_LATER = "needed_later"  # rejected when it was tried, and part of the best result
    NO_GAIN = "no_gain"
    BELOW_PRICE = "below_price"
    BELOW_CALIBRATION = "below_calibration"
    NOT_CONFIRMED = "not_confirmed"
    WITHIN_STANDARD_ERROR = "within_standard_error"
    MEAN_SAMPLE_WORSE = "mean_sample_worse"
    SINGLE_SAMPLE = "single_sample"
    UNSEEN_RANGES = "unseen_ranges"  # no gain with ranges that the held-out samples had no part in
    NOTHING_TO_CHANGE = "nothing_to_change"
    NOT_POSSIBLE = "not_possible"
    TOO_FEW_SAMPLES = "too_few_samples"
    NO_ROOM = "no_room"  # roundings of weights cost too little for it to be worth its time
    NOT_EVALUATED = "not_evaluated"
    TIME_LIMIT = "time_limit"  # there was no time for it, or it was broken off
    SKIPPED = "skipped"  # the configuration leaves this step out

    @property
    def accepts(self) -> bool:
        return self is StepReason.ACCEPTED


_LEADS = {
    StepReason.NEEDED_LATER: "helps with what follows: ",
    StepReason.BELOW_PRICE: "did not help enough: ",
    **dict.fromkeys(
        (
            StepReason.NO_GAIN,
            StepReason.BELOW_CALIBRATION,
            StepReason.NOT_CONFIRMED,
            StepReason.WITHIN_STANDARD_ERROR,
            StepReason.MEAN_SAMPLE_WORSE,
            StepReason.SINGLE_SAMPLE,
            StepReason.UNSEEN_RANGES,
        ),
        "did not help: ",
    ),
    StepReason.NOT_POSSIBLE: "not possible here: ",
    StepReason.TOO_FEW_SAMPLES: "not tried: ",
    StepReason.NO_ROOM: "not tried: ",
    StepReason.SKIPPED: "not tried: ",
    StepReason.TIME_LIMIT: "no time: ",
}


@dataclass(frozen=True)
class Why:
    """A reason with what it says of one step, such as the scores before and after."""

    reason: StepReason
    detail: str

    def __str__(self) -> str:
        return f"{_LEADS.get(self.reason, '')}{self.detail}"

    def in_the_end(self, *, applied: bool) -> Why:
        """What is told when the best result is known, which the step is part of or not."""
        if self.reason.accepts and not applied:
            return Why(StepReason.SUPERSEDED, f"{self.detail}; something else was better still")
        if applied and not self.reason.accepts:
            return replace(self, reason=StepReason.NEEDED_LATER)
        return self


NOTHING_TO_CHANGE = Why(StepReason.NOTHING_TO_CHANGE, "there was nothing to change")
