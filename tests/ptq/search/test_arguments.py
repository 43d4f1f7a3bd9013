"""Arguments of improvements: what cannot work is refused when it is read, for every improvement that there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.demo import model_path
from onnxq.errors import ConfigError
from onnxq.ptq.method import IMPROVEMENTS, Argument, above, limits, read_improvement, shown
from onnxq.ptq.search.schedule import LEVELS, schedule_of


def wrong_values(default: Argument) -> tuple[str, ...]:
    """Texts that no argument with such a default can be."""
    if isinstance(default, bool):
        return ("maybe", "1")
    if isinstance(default, str):
        return ("zzz", "Quantized")
    return ("-1", "nan", "inf", "many") if isinstance(default, float) else ("-1", "0", "2.5", "nan")


WRONG = [
    (name, key, value)
    for name, method in IMPROVEMENTS.items()
    for key, default in method.arguments.items()
    for value in wrong_values(default)
    if value != str(default)  # 0 where that means: not used
]


@pytest.mark.parametrize(("name", "key", "value"), WRONG)
def test_wrong_values_are_refused_when_they_are_read(name: str, key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_improvement(f"{name}:{key}={value}")
    message = str(caught.value)
    assert key in message
    assert value in message


@pytest.mark.parametrize("name", IMPROVEMENTS.names())
def test_defaults_are_within_the_limits(name: str) -> None:
    arguments = IMPROVEMENTS.get(name).arguments
    given = ",".join(f"{key}={shown(value)}" for key, value in arguments.items())
    assert read_improvement(f"{name}:{given}").arguments == arguments


@pytest.mark.parametrize("level", LEVELS)
def test_what_efforts_try_is_within_the_limits(level: int) -> None:
    for name in schedule_of(level).names():
        read_improvement(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gptq:damp=-1", "damp of improvement 'gptq' must be above 0, got -1"),
        (
            "gptq:inputs=floats",
            "inputs of improvement 'gptq' is quantized or float, got 'floats'. Did you mean 'float'?",
        ),
        ("gptaq:alpha=2", "alpha of improvement 'gptaq' lies between 0 and 1, got 2"),
        ("high_bias_absorption:-1", "sigma of improvement 'high_bias_absorption' must be at least 0, got -1"),
        ("smoothquant:alpha=7", "alpha of improvement 'smoothquant' lies between 0 (search) and 1, got 7"),
        (
            "cross_layer_equalization:relu6=zzz",
            "relu6 of improvement 'cross_layer_equalization' is data or exact, got 'zzz'",
        ),
        ("bias_correction:rounds=0", "rounds of improvement 'bias_correction' must be at least 1, got 0"),
    ],
)
def test_the_message_has_what_was_given_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_improvement(text)
    assert str(caught.value) == message


def test_nothing_is_run_or_written_for_wrong_arguments(tmp_path: Path) -> None:
    stages: list[str] = []

    def progress(stage: str, done: int, total: int | None) -> None:
        stages.append(stage)

    with pytest.raises(ConfigError, match="unknown observer 'zzz'"):
        onnxq.quantize(
            model_path(),
            backend="tensorrt",
            data=[{"image": np.zeros((1, 1, 28, 28), np.float32)}] * 8,
            config={"improvements": ["range_setting:observer=zzz"]},
            out=tmp_path / "out",
            progress=progress,
        )
    assert stages == []
    assert not (tmp_path / "out").exists()


def test_limits_for_an_improvement_of_ones_own() -> None:
    check = limits("narrow_ranges", factor=above(0))
    check({"factor": 0.5})
    with pytest.raises(ConfigError, match="factor of improvement 'narrow_ranges' must be above 0, got 0"):
        check({"factor": 0.0})
