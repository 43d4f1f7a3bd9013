"""The names and parameters of other tools."""

import pytest

from onnxq.errors import ConfigError
from onnxq.observers import ALIASES, OBSERVERS, make_observer


@pytest.mark.parametrize("alias", list(ALIASES))
def test_an_alias_is_the_observer_of_our_name(alias):
    observer = make_observer(alias)
    assert observer == make_observer({"name": ALIASES.get(alias).observer, **ALIASES.get(alias).defaults})
    assert observer.name in OBSERVERS
    assert make_observer(str(observer)) == observer
    assert alias not in OBSERVERS
    assert make_observer({"name": alias}) == observer


@pytest.mark.parametrize(
    ("description", "ours"),
    [
        ({"name": "EMAMinMaxObserver", "ema_ratio": 0.95}, "ema_minmax:decay=0.95"),
        ("EMAMinMaxObserver:ema_ratio=0.95", "ema_minmax:decay=0.95"),
        ("EMAMinMaxObserver:0.95", "ema_minmax:decay=0.95"),
        ("EMAMinMaxObserver:decay=0.95", "ema_minmax:decay=0.95"),
        ("EMAQuantileObserver:threshold=0.999,ema_ratio=0.8", "ema_quantile:decay=0.8,threshold=0.999"),
        ("ClipStdObserver:std_scale=3", "clip_std:sigmas=3.0"),
        ("MSEObserver:p=2.0", "mse"),
        ({"name": "EMAMSEObserver", "p": 2, "ema_ratio": 0.5}, "ema_mse:decay=0.5"),
        ("Percentile:99.9", "percentile:percentile=99.9"),
    ],
)
def test_parameters_have_both_names(description, ours):
    observer = make_observer(description)
    assert str(observer) == ours
    assert make_observer(ours) == observer


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("MSEObserver:p=3", "parameter 'p' of observer 'mse' is always 2, got 3: leave it out"),
        ("EMAMinMaxObserver:ema_ratio=0.9,decay=0.8", "parameter 'decay' of observer 'ema_minmax' is given twice"),
        ("EMAQuantileObserver:bins=2048", "no parameter 'bins'. Its parameters: decay, threshold, ema_ratio"),
        ("MinMaxObservr", "Did you mean 'MinMaxObserver'"),
        ("ema_minmax:ema_ratio=0.9", "observer 'ema_minmax' has no parameter 'ema_ratio'"),
    ],
)
def test_what_an_alias_does_not_know_is_said(description, message):
    with pytest.raises(ConfigError) as error:
        make_observer(description)
    assert message in str(error.value)


def test_an_observer_of_a_plugin_comes_before_an_alias():
    kind = OBSERVERS.get("minmax")
    OBSERVERS.add("entropy", kind)
    try:
        assert make_observer("entropy") == kind()
    finally:
        OBSERVERS.forget("entropy")
    assert make_observer("entropy").name == "kl"


@pytest.mark.parametrize("name", ["MinMaxFloorObserver", "EMAMinMaxFloorObserver", "PoTModeObserver"])
def test_mqbench_names_keep_the_limit_of_the_dpu(name):
    assert make_observer(name).max_position == 12
    assert make_observer(f"{name}:max_position=20").max_position == 20
