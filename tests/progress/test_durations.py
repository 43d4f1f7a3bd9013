from __future__ import annotations

import pytest

from onnxq.errors import ConfigError
from onnxq.progress.durations import clock_text, duration_text, read_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(90, 90), (0.5, 0.5), ("90", 90), ("90s", 90), ("2m", 120), ("1h30m", 5400), ("1.5h", 5400), (" 2 M 5 s ", 125)],
)
def test_times_as_people_write_them(text: str | float, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "2x", "m", "2m2m", "1d", "inf", "nan", True, "2 minutes", "1e3"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a time is a number with a unit, such as 90s, 2m or 1h30m, got"):
        read_duration(text)


def test_times_for_people() -> None:
    assert [clock_text(each) for each in (0, 7.4, 59.6, 750, 3723)] == ["0:00", "0:07", "1:00", "12:30", "1:02:03"]
    told = [duration_text(each) for each in (0.42, 9.96, 35.4, 60, 125, 3600, 4800)]
    assert told == ["0.4 s", "10 s", "35 s", "1 min", "2 min 5 s", "1 h", "1 h 20 min"]
