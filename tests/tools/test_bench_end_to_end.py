"""The benchmark from file to file: its rows, folders with models of one's own, its page and its picture."""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

from tools.bench import end_to_end, onnxq_jobs
from tools.bench.__main__ import main, shown_command
from tools.bench.child import ChildFailed, Outcome, Tool
from tools.bench.end_to_end import Settings, measure
from tools.bench.end_to_end_chart import picture
from tools.bench.models import tiny
from tools.bench.peers.formats import W8A8
from tools.bench.read_page import read_page
from tools.bench.report import PICTURE, write_page
from tools.bench.results import Result, Tables
from tools.bench.samples import read_feeds, samples_for

SVG = "{http://www.w3.org/2000/svg}"
ROWS: Tables = {
    "one": [
        {"tool": "plain inference", "CPU s": 1.0, "x floor": 1.0},
        {"tool": "onnxq", "setting": "effort 0", "CPU s": 2.0, "x floor": 2.0, "SQNR dB": 20.0},
        {"tool": "onnxq", "setting": "effort 1", "CPU s": 9.0, "x floor": 9.0, "SQNR dB": 26.5},
        {"tool": "NNCF", "setting": "default", "CPU s": 12.0, "x floor": 12.0, "SQNR dB": 24.0},
        {"tool": "Quark", "setting": "default", "note": "failed: no such module"},
    ],
    "two": [{"tool": "onnxq", "setting": "effort 0", "CPU s": 2.0, "x floor": 250.0, "SQNR dB": 30.0}],
    "missing": [{"tool": "", "note": "not run: there is no model.onnx"}],
}


def write(self: Tool, form: str, setting: str, model: Path, feeds: Path, result: Path) -> Outcome:
    """Tools in this process: onnxq by its own writer, one that copies the model, one that fails."""
    if self.module.endswith("onnxq_jobs"):
        onnxq_jobs.WRITERS[form][setting](model, read_feeds(feeds), result)
    elif self.module.endswith("nncf"):
        raise ChildFailed("no such module")
    else:
        shutil.copy(model, result)
    return Outcome(3.0, 100.0, 2.0)


def test_every_tool_has_a_row_with_its_time_and_its_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tool, "write", write)
    seen: list[int] = []
    settings = Settings(
        made=["tiny"], efforts=[0], peers={"onnxruntime": "python", "nncf": "python"}, samples=8, unseen=3, repeats=2
    )
    floor, own, copied, failed = measure(settings, lambda tables: seen.append(len(tables)))["tiny"]

    assert seen == [1]
    assert floor["note"].startswith("8 samples to calibrate with, 3 to judge with")
    assert (own["tool"], own["setting"], own["CPU s"], own["wall s"]) == ("onnxq", "effort 0", 2.0, 3.0)
    assert own["x floor"] == pytest.approx(2.0 / floor["CPU s"], rel=1.0)
    assert 20 < own["SQNR dB"] < 70
    assert (copied["SQNR dB"], copied["note"]) == ("equal", "nothing was quantized")
    assert (failed["tool"], failed["note"]) == ("NNCF", "failed: no such module")


def test_a_model_of_ones_own_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tool, "write", write)
    onnx.save(tiny(), str(tmp_path / "model.onnx"))
    for part in ("calibration", "held"):
        (tmp_path / part).mkdir()
        for number, feed in enumerate(samples_for("tiny", 3, seed=len(part))):
            np.savez(tmp_path / part / f"{number}.npz", **feed)
    (tmp_path / "empty").mkdir()
    folders = {"mine": tmp_path, "nothing": tmp_path / "empty"}
    tables = measure(
        Settings(folders=folders, efforts=[], peers={"onnxruntime": "python"}, samples=2, repeats=1), lambda _: None
    )

    assert tables["mine"][0]["note"].startswith("2 samples to calibrate with, 3 to judge with")
    assert tables["nothing"] == [{"tool": "", "note": "not run: there is no model.onnx in the folder of nothing"}]


def test_the_writers_of_onnxq_have_every_effort() -> None:
    assert list(onnxq_jobs.WRITERS[W8A8]) == [f"effort {effort}" for effort in range(4)]


def test_the_page_has_the_picture_and_is_read_back(tmp_path: Path) -> None:
    result = Result("e2e", "python -m tools.bench e2e", {"processor": "one"}, ROWS)
    write_page([result], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")

    assert f"({PICTURE})" in text
    assert (tmp_path / PICTURE).read_text(encoding="utf-8") == picture(ROWS)
    write_page(read_page(tmp_path / "page.md"), tmp_path / "again.md")
    assert (tmp_path / "again.md").read_text(encoding="utf-8") == text.replace("docs/page.md", "docs/again.md")
    assert (tmp_path / PICTURE).read_text(encoding="utf-8") == picture(ROWS)


def test_the_picture_has_a_point_for_each_file_and_a_legend() -> None:
    root = ElementTree.fromstring(picture(ROWS))
    dots = root.findall(f"{SVG}circle")
    titles = [title.text for dot in dots if (title := dot.find(f"{SVG}title")) is not None]

    assert titles == [
        "onnxq effort 1: 26.5 dB, 9 times inference",
        "NNCF: 24 dB, 12 times inference",
        "onnxq effort 0: 20 dB, 2 times inference",
        "onnxq effort 0: 30 dB, 250 times inference",
    ]
    assert len(dots) == len(titles) + 2  # the legend
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < float(dot.attrib["cx"]) < width and 0 < float(dot.attrib["cy"]) < height for dot in dots)


def test_labels_of_near_points_hide_neither_dots_nor_one_another() -> None:
    times = {"onnxq": (2.0, 2.2, 2.3, 90.0), "NNCF": (2.6,), "Quark": (80.0,)}
    accuracy = {"onnxq": (20.0, 20.1, 20.2, 20.3), "NNCF": (20.0,), "Quark": (20.28,)}
    rows = [
        {
            "tool": tool,
            "setting": f"effort {number}" if tool == "onnxq" else "default",
            "x floor": times[tool][number],
            "SQNR dB": accuracy[tool][number],
        }
        for tool in times
        for number in range(len(times[tool]))
    ]
    root = ElementTree.fromstring(picture({"one": rows}))
    dots = [dot for dot in root.findall(f"{SVG}circle") if dot.find(f"{SVG}title") is not None]
    labels = [text for text in root.findall(f"{SVG}text") if (text.text or "").startswith("effort")]

    taken = [(float(dot.attrib["cx"]), float(dot.attrib["cy"]), 5.5, 5.5) for dot in dots]
    half = 0.5 * 5.5 * len("effort 0")  # letters are 5.5 wide at least
    for label in labels:
        x = float(label.attrib["x"]) + half * {"start": 1, "middle": 0, "end": -1}[label.attrib["text-anchor"]]
        taken.append((x, float(label.attrib["y"]) - 3, half, 5))
    assert (len(dots), len(labels)) == (6, 4)
    for label in range(len(dots), len(taken)):
        x, y, wide, high = taken[label]
        for other_x, other_y, other_wide, other_high in taken[:label]:
            assert abs(x - other_x) >= wide + other_wide or abs(y - other_y) >= high + other_high
        assert wide <= x <= float(root.attrib["width"]) - wide


def test_the_shown_command_has_no_paths(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["e2e", "--folder", "mine=/home/me/model", "--peer-python=nncf=/opt/python", "--json", "/tmp/x"]
    assert shown_command(given) == "python -m tools.bench e2e --folder mine=FOLDER --peer-python nncf=PYTHON"
    with pytest.raises(SystemExit):
        main(["e2e", "--folder", "mine=/no/such/folder"])
    assert "write NAME=FOLDER" in capsys.readouterr().err


def test_a_short_floor_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of processor time has steps of ten milliseconds on some systems."""
    monkeypatch.setattr(end_to_end, "LEAST_FLOOR", 0.05)
    settings = Settings(made=["tiny"], efforts=[], samples=2, unseen=1, repeats=1)
    (floor,) = measure(settings, lambda _: None)["tiny"]
    assert 0 <= floor["CPU s"] < 0.05
