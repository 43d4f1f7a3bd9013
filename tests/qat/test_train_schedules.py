"""Learning rates and freezing follow their formulas; settings that make no sense are refused with what is allowed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from onnxq.config.training import TrainSettings, train_settings
from onnxq.errors import ConfigError
from onnxq.qat.schedules import Schedule


def schedule(**given: Any) -> Schedule:
    return Schedule.of(TrainSettings(**{"epochs": 10, **given}), per_epoch=20)


def test_cosine_goes_from_one_to_nearly_zero() -> None:
    found = schedule(schedule="cosine")
    for step in (0, 1, 77, 100, 199):
        assert found.factor(step) == pytest.approx(0.5 * (1 + math.cos(math.pi * step / 200)), rel=1e-12)


def test_steps_of_the_schedule_multiply_by_gamma() -> None:
    found = schedule(schedule="step", step_size=3.0, gamma=0.2)
    assert [found.factor(step) for step in (0, 59, 60, 119, 120)] == pytest.approx([1, 1, 0.2, 0.2, 0.04])


def test_warm_up_rises_in_a_line_and_the_schedule_begins_behind_it() -> None:
    found = schedule(schedule="cosine", warmup=0.1)
    assert [found.factor(step) for step in range(20)] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert found.factor(110) == pytest.approx(0.5)
    assert schedule(schedule="constant", warmup=2.0).factor(39) == 1.0
    assert schedule(schedule="constant", warmup=2.0).factor(38) < 1.0


def test_moments_are_fractions_below_one_and_epochs_from_one_on() -> None:
    found = schedule(observer_freeze=0.25, batch_norm_freeze=3, quantize_from=1)
    assert [found.observing(step) for step in (49, 50)] == [True, False]
    assert [found.live_statistics(step) for step in (59, 60)] == [True, False]
    assert [found.quantizing(step) for step in (19, 20)] == [False, True]
    assert schedule(observer_freeze=None).observing(199)
    assert not schedule(observer_freeze=0).observing(0)


def test_a_limit_of_steps_shortens_the_schedule_too() -> None:
    found = schedule(steps=50, schedule="cosine")
    assert found.steps == 50
    assert found.factor(25) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": 0}, "epochs is a whole number from 1 on"),
        ({"epochs": 1.5}, "epochs is a whole number"),
        ({"lr": 0.0}, "lr is a finite number above 0"),
        ({"lr": float("nan")}, "lr is a finite number"),
        ({"distill": 1.5}, "at most 1"),
        ({"momentum": 1.0}, "below 1"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"optimizer": "lion"}, "Known: adam, adamw, sgd"),
        ({"label_loss": "crossentropy"}, "Did you mean 'cross_entropy'"),
        ({"learning_rate": 1e-3}, "'learning_rate' is no setting of training"),
        ({"warmup": None}, "warmup is a finite number"),
        ({"best_by": "highest"}, "Known: max, min"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        train_settings(given)


def test_scales_learn_slower_than_weights_unless_told_otherwise() -> None:
    assert TrainSettings(lr=0.02).scale_rate == pytest.approx(0.002)
    assert TrainSettings(lr=0.02, scale_lr=0.5).scale_rate == 0.5
