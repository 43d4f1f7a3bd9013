"""What a bar shows fits into every width, and names cannot change how it looks."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from onnxq.progress import Tracker
from onnxq.progress.lines import ASCII, UNICODE, Signs, lines_of
from tests.progress.clock import FakeClock

HOSTILE = ("[red]x[/red]", "\x1b[31mred\x1b[0m", "a\nb\r\tc", "名前" * 40, "x" * 300, "\u202eabc", "")


def run_of(*names: str) -> Tracker:
    clock = FakeClock()
    tracker = Tracker(now=clock)
    for name in names:
        tracker(name, 3, 12)
        tracker.tell("loss 0.1, lr 1e-05, 0.2 s/step")
        clock.pass_by(61)
    tracker.scored(20.34)
    return tracker


@pytest.mark.parametrize("width", [1, 5, 8, 12, 20, 32, 40, 60, 80, 200])
@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_no_line_is_wider_than_the_terminal(width: int, signs: Signs) -> None:
    lines = lines_of(run_of(*HOSTILE).view(), "quantize", width, 30, signs)
    assert len(lines) == 1 + len(HOSTILE)
    for line in lines:
        assert cell_len(line.plain) <= width
        assert line.plain.isprintable() or not line.plain


@pytest.mark.parametrize("height", [1, 2, 3, 5, 40])
def test_no_more_lines_than_the_terminal_has(height: int) -> None:
    lines = lines_of(run_of(*map(str, range(20))).view(), "quantize", 80, height)
    assert len(lines) == max(1, min(height - 1, 9))


def test_what_is_shown() -> None:
    tracker = run_of("calibrate")
    head, stage = (line.plain for line in lines_of(tracker.view(), "quantize", 80, 24))
    assert head == f"quantize {'━' * 10}{'─' * 30}  25 % 20.3 dB 3:03 left (1:01)"
    assert stage.split() == ["⠇", "calibrate", "3/12", "1:01", "loss", "0.1,", "lr", "1e-05,", "0.2", "s/step"]


def test_names_are_text() -> None:
    shown = [line.plain for line in lines_of(run_of(*HOSTILE[:3]).view(), "[b]t[/b]", 100, 24)]
    assert shown[0].startswith("[b]t[/b] ")
    assert "[red]x[/red]" in shown[1]
    assert r"\x1b[31mred\x1b[0m" in shown[2]
    assert r"a\nb\r\tc" in shown[3]


def test_what_matters_most_stays_where_it_is_narrow() -> None:
    view = run_of("calibrate").view()
    shown = {width: lines_of(view, "quantize", width, 5)[0].plain for width in (60, 40, 30, 24, 12, 6)}
    assert "25 %" in shown[6]
    assert "3:03 left" in shown[24]
    assert "20.3 dB" in shown[24]
    assert "━" in shown[40]
    assert "quantize" in shown[60]


def test_the_end_has_no_time_left() -> None:
    tracker = run_of("calibrate")
    tracker.finish()
    line = lines_of(tracker.view(), "quantize", 80, 24)[0].plain
    assert "100 %" in line
    assert "left" not in line
