"""The acceptance test of the search: is a new model better than an old one by more than chance explains?

Both run on the same samples, so the comparison is paired. Of each output, a_i is the squared error of the new model in
sample i = 1 .. n, b_i that of the old one, and A, B are their sums. What is compared, as means over the outputs:

    gain               d = 10 log10(B / A)                 difference of the SQNR in dB, each within its limits
    standard error     e = 10 / ln(10) sqrt(n / (n - 1) sum_i (a_i / A - b_i / B)^2)
                                                           of that difference: delta method for a ratio of two sums
    mean sample gain   m = mean_i 10 log10((b_i + f) / (a_i + f)),    f = 0.1 max(A, B) / n
                                                           each sample has the same weight, errors below f are alike
    leave-one-out      l = min_i 10 log10((B - b_i + g) / (A - a_i + g)),    g = 0.001 max(A, B)
                                                           the gain without the sample that contributes most to it

They are found on the held-out samples (index h), which no method was fitted to, and pooled over these and samples that
methods were fitted to (index p), weighted by the number of samples. The new model is accepted where all of these hold:

    NO_GAIN                  d_h > margin    if the new model alone has weights that were rounded by the fitted samples
                             d_h > -2.5 e_h  otherwise: few samples may disagree by chance
    BELOW_CALIBRATION        its score is not below that of the model after calibration alone, by 2.5 e_h or more
    NOT_CONFIRMED            d_p > margin
    WITHIN_STANDARD_ERROR    d_p > k e_p,    k = 0.5, or 2 with fewer than 16 samples, of which e is uncertain itself,
                                             where channels were scaled by what was seen of each, and in the
                                             place of another range that was accepted
    MEAN_SAMPLE_WORSE        m_p >= 0
    SINGLE_SAMPLE            l_p > 0

Samples are pooled as far as there is doubt. Where the held-out samples alone leave none (DECIDED of them or more,
d_h > margin + 4 e_h, or 6 e_h with fewer than 16, m_h > 0, l_h > margin), the fitted ones are not run; where as many
of these leave little (|d_p - margin| > 2.5 e_p), the rest is not.

A method that is known to gain g on most models is believed as a measurement of g +- g is. In the place of the last four
criteria it has to keep a gain with that:

    NOT_CONFIRMED            (d_p / e_p^2 + 1 / g) / (1 / e_p^2 + 1 / g^2) > margin

and no further samples are asked from where that is 2.5 of its standard errors above the margin.

The margin is 0.05 dB, or what the nodes that were added have to be worth (BELOW_PRICE: d_h is between the two).
Without fitted samples to ask, and where formats became wider and nothing else did, the first two decide with
d_h > margin. A metric other than the SQNR has no error of single samples: e = m = 0, l = d, and the margin is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from onnxq.ptq.search.evaluator import Score
from onnxq.ptq.search.reasons import StepReason, Why
from onnxq.verify.results import standard_error

MARGIN_DB = 0.05
"""A gain smaller than this is noise of the few samples that measure it."""

STANDARD_ERRORS, STANDARD_ERRORS_OF_FEW, FEW = 0.5, 2.0, 16
"""Standard errors that a gain must exceed, with FEW samples and more and with fewer. The latter also where channels are
scaled by what was seen of each (of seven such gains below it on ten models, four were losses on other samples), and
where one alternative is to replace another that was accepted: the better of two by chance alone looks better."""

DECIDED, CLEAR_STANDARD_ERRORS, CLEAR_STANDARD_ERRORS_OF_FEW = 8, 4.0, 6.0
"""Held-out samples that decide alone, and the standard errors by which a gain must be above the margin for that: with
FEW of them and more, and with fewer. With eight, six of their own standard errors are chance once in 3,000 times."""

LOSS = 1.5
"""Standard errors by which held-out samples may lose where they had a part in one of two ranges."""

LITTLE_DOUBT = 2.5
"""Standard errors between the pooled gain and the margin from which no further samples are asked."""

CHANCE = 2.5
"""Standard errors by which held-out samples may disagree with a gain on all samples. Of eight of them the error itself
is uncertain: in 60 trials on ten models they disagreed by 1.5 to 2.5 in five, with 64 others in two."""

NEGLIGIBLE = 0.1
"""Part of the mean noise below which samples are not told apart: where a classifier is sure there is next to none,
whether that becomes ten times as much or a tenth."""

NOTHING = 1e-3
"""What a sample leaves behind may be nothing, of which a tenth or ten times is nothing as well."""


@dataclass(frozen=True)
class PairedComparison:
    """Gain of one model over another on the same samples, and how much of it may be chance; see the module."""

    gain: float
    standard_error: float
    mean_sample_gain: float
    leave_one_out_gain: float
    samples: int

    @classmethod
    def of(cls, new: Score, old: Score, samples: int) -> PairedComparison:
        gain = new.goodness - old.goodness
        if not new.in_db:
            return cls(gain, 0.0, 0.0, gain, samples)
        pairs = [(after, old.noise[name]) for name, after in new.noise.items()]
        return cls(gain, standard_error_db(pairs), mean_sample_gain_db(pairs), leave_one_out_db(pairs, gain), samples)

    def pooled(self, other: PairedComparison) -> PairedComparison:
        """The comparison on the samples of both."""
        own, others, total = self.samples, other.samples, self.samples + other.samples
        return PairedComparison(
            (self.gain * own + other.gain * others) / total,
            math.hypot(self.standard_error * own, other.standard_error * others) / total,
            (self.mean_sample_gain * own + other.mean_sample_gain * others) / total,
            min(
                (self.leave_one_out_gain * own + other.gain * others) / total,
                (self.gain * own + other.leave_one_out_gain * others) / total,
            ),
            total,
        )


Pairs = list[tuple[np.ndarray, np.ndarray]]
"""Squared errors of each sample, after and before, of each output."""


def standard_error_db(outputs: Pairs) -> float:
    """The standard error of the difference of two SQNRs."""
    found = []
    for after, before in outputs:
        if _comparable(after, before):
            deviations = (after / after.sum() - before / before.sum()).tolist()
            found.append(10 / math.log(10) * standard_error(deviations))
    return float(np.mean(found)) if found else 0.0


def mean_sample_gain_db(outputs: Pairs) -> float:
    """The mean of the gains of single samples: the noise of all together can be that of a few."""
    found = []
    for after, before in outputs:
        floor = NEGLIGIBLE * max(float(before.mean()), float(after.mean()))
        if 0 < floor < math.inf:
            found.append(float(10 * np.log10((before + floor) / (after + floor)).mean()))
    return float(np.mean(found)) if found else 0.0


def leave_one_out_db(outputs: Pairs, gain: float) -> float:
    """The least gain that is left without one of the samples; `gain` where there is nothing to leave out."""
    found = []
    for after, before in outputs:
        if _comparable(after, before):
            floor = NOTHING * max(float(before.sum()), float(after.sum()))
            left = 10 * np.log10((before.sum() - before + floor) / (after.sum() - after + floor))
            found.append(float(left.min()))
    return float(np.mean(found)) if found else gain


def _comparable(after: np.ndarray, before: np.ndarray) -> bool:
    return len(after) > 1 and 0 < before.sum() < math.inf and 0 < after.sum() < math.inf


def margin_of(score: Score, price_db: float = 0.0) -> float:
    """What a gain has to exceed in the metric of a score."""
    return max(MARGIN_DB, price_db) if score.in_db else 0.0


def acceptance(
    held_out: PairedComparison,
    margin: float,
    *,
    above_calibration: float,
    rounded: bool,
    surer: bool,
    expected: float = 0.0,
    further: Sequence[Callable[[], PairedComparison]],
) -> StepReason:
    """The criterion of the module that rejects the new model, or ACCEPTED.

    `above_calibration` is how much its score is above that of calibration alone. `rounded` says that it alone has
    weights rounded by the fitted samples, `surer` that the gain has to be as sure as one of few samples. `further` run
    both models on these, one part after the other, and are called only as far as there is doubt. `expected` is the
    gain of the method on most models in dB, 0 where it depends on the model.
    """
    chance = CHANCE * held_out.standard_error if further else 0.0
    if held_out.gain <= (-chance if further and not rounded else margin):
        return StepReason.NO_GAIN
    if above_calibration < -chance:
        return StepReason.BELOW_CALIBRATION
    if not further or is_clear(held_out, margin):
        return StepReason.ACCEPTED
    pooled = held_out
    for compare in further:
        if expected > 0 and _is_believed(pooled, expected, margin):
            break
        pooled = pooled.pooled(compare())
        if abs(pooled.gain - margin) > LITTLE_DOUBT * pooled.standard_error:
            break
    if expected > 0 and not math.isnan(pooled.gain):
        believed, _ = _with_expectation(pooled, expected)
        return StepReason.ACCEPTED if believed > margin else StepReason.NOT_CONFIRMED
    return significance(pooled, margin, STANDARD_ERRORS_OF_FEW if surer else STANDARD_ERRORS)


def _with_expectation(found: PairedComparison, expected: float) -> tuple[float, float]:
    """The gain that was found and the expected one, weighted by their precision, and the standard error of that."""
    precision = 1 / max(found.standard_error, 1e-6) ** 2
    both = precision + 1 / expected**2
    return (found.gain * precision + 1 / expected) / both, both**-0.5


def _is_believed(found: PairedComparison, expected: float, margin: float) -> bool:
    """Whether what was found and what is expected together leave little doubt that a model is better."""
    if found.samples < DECIDED or math.isnan(found.gain):
        return False
    believed, error = _with_expectation(found, expected)
    return found.gain > margin and believed - margin > LITTLE_DOUBT * error


def is_clear(found: PairedComparison, margin: float) -> bool:
    """Whether the held-out samples leave no doubt that a model is better."""
    errors = CLEAR_STANDARD_ERRORS if found.samples >= FEW else CLEAR_STANDARD_ERRORS_OF_FEW
    return (
        found.samples >= DECIDED
        and found.gain > margin + errors * found.standard_error
        and found.mean_sample_gain > 0
        and found.leave_one_out_gain > margin
    )


def significance(found: PairedComparison, margin: float, standard_errors: float = STANDARD_ERRORS) -> StepReason:
    """The criteria for a gain on all samples: the first that does not hold, or ACCEPTED."""
    least = standard_errors if found.samples >= FEW else STANDARD_ERRORS_OF_FEW
    if found.gain <= margin:
        return StepReason.NOT_CONFIRMED
    if found.gain <= least * found.standard_error:
        return StepReason.WITHIN_STANDARD_ERROR
    if found.mean_sample_gain < 0:
        return StepReason.MEAN_SAMPLE_WORSE
    return StepReason.SINGLE_SAMPLE if found.leave_one_out_gain <= 0 else StepReason.ACCEPTED


def explained(reason: StepReason, new: Score, old: Score, margin: float) -> Why:
    """The result of the test in words."""
    gain, figures = new.goodness - old.goodness, figures_of(new, old)
    if reason.accepts:
        return Why(reason, figures if gain > 0 else f"{figures}, which is chance: with the other samples it helps")
    if gain > margin:
        return Why(reason, f"{figures}, which chance can explain or the samples that it was fitted to do not confirm")
    if gain > MARGIN_DB:
        return Why(StepReason.BELOW_PRICE, f"{figures}, less than the {margin:g} dB that its nodes must be worth")
    return Why(reason, figures)


def figures_of(new: Score, old: Score) -> str:
    unit = " dB" if new.in_db else ""
    return f"{new.metric} {old.value:.4g}{unit} -> {new.value:.4g}{unit} on the held samples"
