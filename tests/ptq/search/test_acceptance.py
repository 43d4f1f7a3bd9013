"""The acceptance test: its statistics against numbers that are known, and each criterion by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from onnxq.ptq.search.acceptance import DECIDED, FEW, PairedComparison, acceptance, explained, significance
from onnxq.ptq.search.evaluator import Score
from onnxq.ptq.search.reasons import StepReason


def score(*noise: float) -> Score:
    """The score of samples with a signal of 100 each."""
    value = 10 * math.log10(100 * len(noise) / sum(noise))
    return Score("sqnr_db", value, value, {"y": value}, {"y": np.array(noise)})


def compared(new: tuple[float, ...], old: tuple[float, ...]) -> PairedComparison:
    return PairedComparison.of(score(*new), score(*old), len(new))


def test_the_gain_is_the_difference_of_the_sqnr() -> None:
    assert compared((1, 1), (2, 2)).gain == pytest.approx(10 * math.log10(2))


def test_the_standard_error_is_that_of_many_such_comparisons() -> None:
    """Drawn again and again, the gain differs by what a single comparison says."""
    random = np.random.default_rng(0)
    found = [
        compared(tuple(before * random.uniform(0.2, 1.0, 64)), tuple(before))
        for before in random.uniform(0.1, 1.0, (1000, 64))
    ]
    spread = float(np.std([each.gain for each in found]))
    assert float(np.mean([each.standard_error for each in found])) == pytest.approx(spread, rel=0.1)


def test_equal_gains_in_all_samples_have_no_standard_error() -> None:
    assert compared((1, 2, 3), (2, 4, 6)).standard_error == pytest.approx(0.0, abs=1e-12)


def test_the_mean_sample_is_one_that_has_noise() -> None:
    """A classifier is sure of most samples: ten times their noise is still none, and says nothing about the others."""

    def noise(doubtful: float, sure: float) -> tuple[float, ...]:
        return (doubtful,) * 4 + (sure,) * 28

    assert compared(noise(0.5, 1e-7), noise(1.0, 1e-8)).mean_sample_gain > 0.2
    assert compared(noise(2.0, 1e-8), noise(1.0, 1e-7)).mean_sample_gain < -0.2
    assert compared(noise(1.0, 0.4), noise(1.0, 0.8)).mean_sample_gain > 1  # samples that all have noise count alike


def test_what_is_left_of_a_gain_without_its_best_sample() -> None:
    # One bad sample became good, all others a little worse.
    lucky = compared((1.0, 1.2, 1.2, 1.2), (50.0, 1.0, 1.0, 1.0))
    assert lucky.leave_one_out_gain == pytest.approx(-0.79, abs=0.1)
    # All became better.
    assert compared((1.0,) * 4, (2.0,) * 4).leave_one_out_gain == pytest.approx(3.0, abs=0.1)
    # One sample alone has noise, so that nothing is left without it.
    assert abs(compared((1.0, 0.0, 0.0), (4.0, 1e-9, 0.0)).leave_one_out_gain) < 0.1


@pytest.mark.parametrize(
    ("samples", "reason"), [(FEW - 1, StepReason.WITHIN_STANDARD_ERROR), (FEW, StepReason.ACCEPTED)]
)
def test_few_samples_have_to_be_surer(samples: int, reason: StepReason) -> None:
    assert significance(PairedComparison(1.0, 1.0, 0.5, 0.5, samples), 0.05) is reason


def test_a_gain_that_one_sample_makes_is_none() -> None:
    assert significance(PairedComparison(6.0, 1.0, 0.5, -0.1, 32), 0.05) is StepReason.SINGLE_SAMPLE
    held_out = PairedComparison(1.0, 0.1, 0.5, 0.5, 8)
    pooled = held_out.pooled(PairedComparison(2.0, 0.1, 0.5, -1.0, 24))
    assert pooled.leave_one_out_gain == pytest.approx((1.0 * 8 - 1.0 * 24) / 32)
    assert significance(pooled, 0.05) is StepReason.SINGLE_SAMPLE


@pytest.mark.parametrize(
    ("gain", "mean_sample", "margin", "reason"),
    [
        (0.5, 0.5, 1.0, StepReason.NOT_CONFIRMED),
        (1.5, 0.5, 1.0, StepReason.ACCEPTED),
        (0.4, 0.5, 0.05, StepReason.WITHIN_STANDARD_ERROR),
        (1.5, -0.1, 0.05, StepReason.MEAN_SAMPLE_WORSE),
    ],
)
def test_each_criterion_rejects_by_itself(gain: float, mean_sample: float, margin: float, reason: StepReason) -> None:
    assert significance(PairedComparison(gain, 1.0, mean_sample, 0.3, 32), margin) is reason


@pytest.mark.parametrize(
    ("gain", "above", "rounded", "reason"),
    [
        (-1.5, 0.0, False, StepReason.ACCEPTED),  # the held-out samples disagree by less than chance explains
        (-2.5, 0.0, False, StepReason.NO_GAIN),
        (-0.5, 0.0, True, StepReason.NO_GAIN),  # the others were rounded to, so that these decide
        (0.5, -2.6, False, StepReason.BELOW_CALIBRATION),
        (0.5, -2.4, False, StepReason.ACCEPTED),
    ],
)
def test_held_out_samples_decide_first(gain: float, above: float, rounded: bool, reason: StepReason) -> None:
    held_out = PairedComparison(gain, 1.0, 0.0, 0.0, 8)
    sure = PairedComparison(3.0, 1.0, 1.0, 1.0, 32)
    found = acceptance(held_out, 0.05, above_calibration=above, rounded=rounded, surer=False, further=[lambda: sure])
    assert found is reason


def test_the_fitted_samples_are_not_run_where_the_held_out_ones_decide() -> None:
    def pooled() -> PairedComparison:
        raise AssertionError

    held_out = PairedComparison(-2.5, 1.0, 0.0, 0.0, 8)
    assert not acceptance(held_out, 0.05, above_calibration=0.0, rounded=False, surer=False, further=[pooled]).accepts


def test_other_metrics_have_no_margin_and_no_error_of_samples() -> None:
    new, old = (Score("agreement", value, value) for value in (0.75, 0.5))
    assert PairedComparison.of(new, old, 32) == PairedComparison(0.25, 0.0, 0.0, 0.25, 32)
    assert explained(StepReason.NO_GAIN, old, new, 0.0).detail == "agreement 0.75 -> 0.5 on the held samples"


def test_a_gain_below_the_price_of_its_nodes_is_told_so() -> None:
    why = explained(StepReason.NO_GAIN, score(1.0, 1.0), score(1.1, 1.1), 1.0)
    assert why.reason is StepReason.BELOW_PRICE
    assert str(why).startswith("did not help enough: sqnr_db")
    assert str(why).endswith("less than the 1 dB that its nodes must be worth")


def test_samples_that_were_fitted_to_are_not_run_where_there_is_no_doubt() -> None:
    def never() -> PairedComparison:
        raise AssertionError("nobody needs to ask")

    clear = compared((1.0, 1.1, 0.9, 1.0) * 2, (2.0, 2.1, 1.9, 2.0) * 2)
    assert clear.samples == DECIDED
    assert (
        acceptance(clear, 0.05, above_calibration=0.0, rounded=False, surer=False, further=[never])
        is StepReason.ACCEPTED
    )
    few = compared((1.0, 1.1), (2.0, 2.1))
    with pytest.raises(AssertionError, match="nobody"):
        acceptance(few, 0.05, above_calibration=0.0, rounded=False, surer=False, further=[never])
    half = PairedComparison(2.6, 0.5, 2.0, 2.0, DECIDED)
    with pytest.raises(AssertionError, match="nobody"):
        acceptance(half, 0.05, above_calibration=0.0, rounded=False, surer=False, further=[never])
    whole = replace(half, samples=FEW)
    assert acceptance(whole, 0.05, above_calibration=0.0, rounded=False, surer=False, further=[never]).accepts
    doubtful = compared((1.0, 1.1, 0.9, 3.0) * 4, (2.0, 2.1, 1.9, 2.0) * 4)
    with pytest.raises(AssertionError, match="nobody"):
        acceptance(doubtful, 0.05, above_calibration=0.0, rounded=False, surer=False, further=[never])


def test_more_samples_are_asked_only_while_there_is_doubt() -> None:
    held_out = PairedComparison(1.0, 0.5, 0.5, 0.5, 8)
    asked: list[float] = []

    def found(gain: float) -> PairedComparison:
        asked.append(gain)
        return PairedComparison(gain, 0.5, 0.5, 0.5, 8)

    def told(*gains: float) -> StepReason:
        asked.clear()
        parts = [partial(found, gain) for gain in gains]
        return acceptance(held_out, 0.05, above_calibration=0.0, rounded=False, surer=False, further=parts)

    assert told(3.0, 9.0) is StepReason.ACCEPTED
    assert asked == [3.0]
    assert told(-6.0, 9.0) is StepReason.NOT_CONFIRMED
    assert asked == [-6.0]
    assert told(-1.0, 9.0) is StepReason.ACCEPTED
    assert asked == [-1.0, 9.0]


def test_a_gain_that_has_to_be_surer_is_two_standard_errors() -> None:
    held_out = PairedComparison(1.0, 1.0, 0.5, 0.5, 16)
    for surer, reason in ((False, StepReason.ACCEPTED), (True, StepReason.WITHIN_STANDARD_ERROR)):
        found = acceptance(
            held_out, 0.05, above_calibration=0.0, rounded=False, surer=surer, further=[lambda: held_out]
        )
        assert found is reason


@pytest.mark.parametrize(
    ("gain", "error", "reason"),
    [
        (-0.2, 1.0, StepReason.ACCEPTED),  # what is known of the method outweighs a doubtful loss
        (-0.2, 0.2, StepReason.NOT_CONFIRMED),
        (0.1, 0.2, StepReason.ACCEPTED),
    ],
)
def test_a_method_that_gains_on_most_models_is_believed_in_doubt(gain: float, error: float, reason: StepReason) -> None:
    held_out = PairedComparison(gain, error, -0.1, -1.0, 16)
    found = acceptance(
        held_out, 0.05, above_calibration=0.0, rounded=False, surer=False, expected=1.5, further=[lambda: held_out]
    )
    assert found is reason


def test_what_is_expected_asks_no_further_samples_where_the_held_out_ones_agree() -> None:
    asked: list[int] = []

    def more() -> PairedComparison:
        asked.append(8)
        return PairedComparison(0.1, 0.5, 0.1, 0.1, 8)

    def told(gain: float, error: float, samples: int = DECIDED) -> StepReason:
        asked.clear()
        held_out = PairedComparison(gain, error, gain, gain, samples)
        return acceptance(
            held_out, 0.05, above_calibration=0.0, rounded=False, surer=False, expected=1.5, further=[more, more]
        )

    assert told(1.5, 0.5) is StepReason.ACCEPTED
    assert not asked
    assert told(1.5, 1.5) is StepReason.ACCEPTED
    assert asked
    assert told(1.5, 0.5, samples=4) is StepReason.ACCEPTED
    assert asked
