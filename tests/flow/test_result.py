"""What `quantize` gives back: attributes, one line, text, the page, and warnings that are Python's."""

from __future__ import annotations

import math
import sys
import types
import warnings
import webbrowser
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.pipeline.show import ShownPage
from tests.hostile_names import hostile_model, hostile_samples
from tests.test_glance import Seen, is_line, is_text

QUICK = {"effort": 0}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> onnxq.Result:
    data = load_data().calibration[:16]
    return onnxq.quantize(
        model_path(), backend="onnxruntime", data=data, config=QUICK, out=tmp_path_factory.mktemp("out"), progress=False
    )


@pytest.fixture
def in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    return iter(())


def test_attributes_say_what_the_report_says(result: onnxq.Result) -> None:
    report = result.report
    assert result.sqnr_db == {"logits": report["sqnr_db"]["logits"]}
    assert result.worst_sqnr_db == pytest.approx(min(result.sqnr_db.values()))
    assert list(result.warnings) == report["warnings"]
    assert list(result.notes) == report["notes"]
    assert result.coverage.to_json() == report["coverage"]
    assert result.coverage.quantized + result.coverage.fused + len(result.coverage.float_nodes) == result.coverage.nodes
    assert result.folder == result.model.parent
    assert all(path.is_file() for path in result.files)
    assert result.page == result.folder / "report.html"
    assert result.seconds["calibrate"] > 0


def test_equal_outputs_are_infinite(result: onnxq.Result) -> None:
    equal = onnxq.Result(result.model, result.plan, result.qparams, {**result.report, "sqnr_db": {"logits": "inf"}})
    assert math.isinf(equal.sqnr_db["logits"])


def test_a_result_is_a_line(result: onnxq.Result) -> None:
    """It was everything that the run knows, 192,203 characters for a detector."""
    line = is_line(result)
    assert line.startswith("<Result model.onnx for onnxruntime: ")
    assert f"worst {result.worst_sqnr_db:.1f} dB on 'logits'" in line
    shown = is_text(result._repr_html_()).text
    assert f"{result.worst_sqnr_db:.1f} dB" in shown
    assert "good" in shown


def test_the_summary_is_what_the_command_prints(tmp_path: Path) -> None:
    out, model = tmp_path / "out", str(model_path())
    np.save(tmp_path / "calib.npy", load_data().calibration[:8])
    arguments = ["quantize", model, "-b", "onnxruntime", "-d", str(tmp_path / "calib.npy"), "-o", str(out)]
    printed = CliRunner().invoke(app, [*arguments, "--effort", "0"])
    assert printed.exit_code == 0, printed.output
    found = onnxq.quantize(
        model, backend="onnxruntime", data=tmp_path / "calib.npy", config=QUICK, out=tmp_path / "out", progress=False
    )
    assert without_clock(found.summary()) == without_clock(printed.stdout)
    assert len(found.summary().splitlines()) > 10


def without_clock(text: str) -> list[str]:
    """The lines of a summary that two runs have in common."""
    measured = ("seconds", "speed")
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return [line for line in lines if not line.lstrip().startswith(measured) and not line.startswith("next:")]


def test_the_summary_of_a_model_from_memory(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", onnxq.OnnxqWarning)
        found = onnxq.quantize(
            hostile_model(), backend="onnxruntime", data=hostile_samples(), config=QUICK, out=tmp_path, progress=False
        )
    text = found.summary()
    assert "\x1b" not in text
    assert str(tmp_path / "model.onnx") in text
    is_line(found)
    assert "<script>" in is_text(found._repr_html_()).text


def test_without_data_accuracy_is_not_measured(tmp_path: Path) -> None:
    found = onnxq.quantize(hostile_model(), backend="weight_only", out=tmp_path, progress=False)
    assert found.sqnr_db == {}
    assert found.worst_sqnr_db is None
    assert "accuracy not measured" in is_line(found)
    is_text(found._repr_html_())


def test_the_page_opens_in_a_browser_where_there_is_a_screen(
    result: onnxq.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    assert result.show() == result.page
    assert opened == []  # a browser of the terminal would take it away from Python
    monkeypatch.setenv("DISPLAY", ":0")
    assert result.show() == result.page
    assert opened == [(result.folder / "report.html").resolve().as_uri()]


@pytest.mark.usefixtures("in_a_notebook")
def test_a_notebook_shows_the_page_in_a_frame_of_its_own(result: onnxq.Result) -> None:
    shown = result.show()
    assert isinstance(shown, ShownPage)
    frame = Frames(shown._repr_html_())
    assert frame.tags == {"iframe"}
    (attributes,) = frame.frames
    assert attributes["sandbox"] == "allow-scripts"
    assert '<base href="about:srcdoc">' in attributes["srcdoc"]
    assert attributes["srcdoc"].replace('<base href="about:srcdoc">', "") == shown.path.read_text(encoding="utf-8")


class Frames(Seen):
    def __init__(self, markup: str) -> None:
        self.frames: list[dict[str, Any]] = []
        super().__init__(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        self.frames.append(dict(attrs))


def test_a_run_without_a_page_says_how_to_get_one(tmp_path: Path) -> None:
    found = onnxq.quantize(
        hostile_model(), backend="weight_only", config={"report": "no"}, out=tmp_path, progress=False
    )
    assert found.page is None
    with pytest.raises(onnxq.ConfigError, match=r"'onnxq report .*' draws it"):
        found.show()


def test_warnings_are_those_of_python_at_the_line_of_the_call(tmp_path: Path) -> None:
    with pytest.warns(onnxq.OnnxqWarning, match="made up") as said:
        found = onnxq.quantize(
            model_path(), backend="weight_only", warnings=["the data is made up\x1b[31m"], out=tmp_path, progress=False
        )
    assert said[0].filename == __file__
    assert "\x1b" not in str(said[0].message)
    assert found.warnings == ("the data is made up\x1b[31m",)


def test_type_checkers_take_the_annotations() -> None:
    assert (files("onnxq") / "py.typed").is_file()
