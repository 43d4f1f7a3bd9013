"""Where a bar is shown and where it is not; what a terminal gets."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

import onnxq
from onnxq.demo import model_path
from onnxq.errors import ConfigError
from onnxq.progress import Tracker, bar
from onnxq.progress.bar import watched

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def shown_in_terminal(code: str, *, columns: int = 80, **environment: str) -> str:
    """What a program writes into a terminal of its own."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    wanted = {"TERM": "xterm", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(Path(bar.__file__).parents[2])}
    clean = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "ONNXQ_PROGRESS")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=other, stdout=other, stderr=other, env={**clean, **wanted, **environment}
    )
    os.close(other)
    parts = []
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the program has ended
            break
        if not part:
            break
        parts.append(part)
    os.close(main)
    assert process.wait() == 0
    return b"".join(parts).decode()


RUN = """
from onnxq.progress.bar import watched
with watched(None, "onnxq.quantize") as tracker:
    tracker("[red]a[/red]\\x1b[2J", 1, 2)
    tracker.scored(21.5)
    tracker.finish()
"""


SAID = """
from onnxq.cli.console import print_warning, say
from onnxq.progress.bar import terminal_bar
with terminal_bar("quantize") as tracker:
    tracker("calibrate", 1, 2)
    say("load: 0.22 s")
    print_warning("[low] 3 dB")
    tracker.finish()
"""


def test_what_is_said_stands_above_the_bar() -> None:
    """Each in a line of its own, behind what takes the bar away; what the bar has drawn before is not left behind."""
    raw = shown_in_terminal(SAID)
    for line in ("load: 0.22 s", "[low] 3 dB"):
        before = raw[: raw.index(line)]
        assert "left" not in ESCAPE.sub("", before.rpartition("\x1b[2K")[2])
    lines = [line.strip() for line in ESCAPE.sub("", raw).replace("\r", "\n").splitlines()]
    assert "load: 0.22 s" in lines
    assert "warning: [low] 3 dB" in lines


def test_a_terminal_keeps_the_last_line_of_a_bar() -> None:
    text = shown_in_terminal(RUN)
    assert "\x1b[2J" not in text
    last = ESCAPE.sub("", text).rstrip().split("\n")[-1]
    assert re.search(r"onnxq\.quantize ━{40} 100 % 21\.5 dB \(0:0\d\)$", last.rstrip("\r").rsplit("\r", 1)[-1])


def test_names_do_not_reach_a_terminal_as_commands() -> None:
    code = RUN.replace("    tracker.finish()", "    import rich.live, gc\n    tracker.tell('x')\n    tracker.finish()")
    text = shown_in_terminal(code, columns=40)
    assert "\x1b[2J" not in text


def test_the_bar_of_a_command_leaves_nothing_behind() -> None:
    code = (
        "from onnxq.cli.progress import run_bar\n"
        "with run_bar('quantize') as tracker:\n    tracker('calibrate', 1, 2)\n    tracker.finish()\n"
        "print('after')"
    )
    text = shown_in_terminal(code)
    assert "quantize" in text
    assert text.rstrip().endswith("after")
    # What was drawn is erased: the cursor goes up, and lines are cleared.
    assert "\x1b[2K" in text.rpartition("quantize")[2]


@pytest.mark.parametrize("environment", [{"ONNXQ_PROGRESS": "no"}, {"ONNXQ_PROGRESS": "0"}, {"TERM": "dumb"}])
def test_no_bar_where_the_environment_wants_none(environment: dict[str, str]) -> None:
    assert shown_in_terminal(RUN, **environment) == ""


def test_no_bar_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    with watched(None, "onnxq.quantize") as tracker:
        tracker("calibrate", 1, 2)
    assert capfd.readouterr() == ("", "")


def test_an_argument_decides(capfd: pytest.CaptureFixture[str]) -> None:
    with watched(False, "onnxq.quantize") as tracker:
        tracker("calibrate", 1, 2)
    assert capfd.readouterr() == ("", "")
    seen: list[Any] = []
    with watched(lambda *report: seen.append(report), "onnxq.quantize") as tracker:
        tracker("calibrate", 1, 2)
    assert seen == [("calibrate", 1, 2)]
    own = Tracker()
    with watched(own, "onnxq.quantize") as tracker:
        assert tracker is own
    with watched(True, "onnxq.quantize") as tracker:
        tracker.finish()
    assert "onnxq.quantize" in capfd.readouterr().err


def test_a_notebook_gets_one_output_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the two calls of IPython that are used: every kernel has them, the tests need none."""
    drawn: list[dict[str, str]] = []

    class Handle:
        def update(self, bundle: dict[str, str], *, raw: bool) -> None:
            assert raw
            drawn.append(bundle)

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        drawn.append(bundle)
        return Handle()

    shell = type("Shell", (), {"kernel": object()})()
    ipython = type(sys)("IPython")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    shown = type(sys)("IPython.display")
    shown.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.delenv("ONNXQ_PROGRESS", raising=False)
    monkeypatch.setattr(bar, "NOTEBOOK_SECONDS", 0.0)
    with watched(None, "onnxq.quantize") as tracker:
        tracker("<script>alert(1)</script>", 1, 2)
        tracker.finish()
    assert "&lt;script&gt;" in drawn[1]["text/html"]
    assert all("<script>" not in bundle["text/html"] for bundle in drawn)
    assert "100 %" in drawn[-1]["text/plain"]
    assert "\n" not in drawn[-1]["text/plain"]


def test_functions_that_study_a_model_end_their_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxq.demo import load_data, model_path
    from onnxq.mixed_precision import Subject, sensitivity

    made: list[Tracker] = []
    seen: list[tuple[str, float]] = []

    class Own(Tracker):
        def __call__(self, stage: str, done: int, total: int | None) -> None:
            super().__call__(stage, done, total)
            seen.append((stage, self.share()))

    def terminal(title: str, **_: Any) -> Any:
        from contextlib import nullcontext

        made.append(Own())
        return nullcontext(made[-1])

    monkeypatch.setattr(bar, "shown_bar", terminal)
    subject = Subject(model_path(), "onnxruntime", load_data().calibration[:8], progress=True)
    sensitivity(subject)
    assert made[0].share() == 1.0
    assert {"passes", "calibrate", "sensitivity"} <= {stage for stage, _ in seen}
    shares = [share for _, share in seen]
    assert shares == sorted(shares)


def test_what_is_no_progress_is_refused() -> None:
    with pytest.raises(ConfigError, match="progress is a function, True, False or None, got 'yes'"):
        onnxq.quantize(model_path(), backend="onnxruntime", progress="yes")  # type: ignore[arg-type]
