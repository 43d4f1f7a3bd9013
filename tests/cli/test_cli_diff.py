"""`onnxq diff`: what changed between two folders, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from onnxq.text_tables import human_bytes

Edit = Callable[[dict[str, Any]], None]


def edited(folder: Path, name: str, edit: Edit) -> None:
    path = folder / name
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def found(run: Any, before: Path, after: Path) -> dict[str, Any]:
    result = run("diff", before, after, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_copy_differs_in_nothing(run: Any, finished: Path, copy: Path) -> None:
    document = found(run, finished, copy)
    assert document["models"] == "same"
    assert all(file["same"] for file in document["files"])
    assert [file["names"] for file in document["files"]] == [["model.onnx", "model.onnx"]]
    assert all(one["before"] == one["after"] for one in document["accuracy"])
    for section in ("settings", "methods", "speed", "versions", "parameters"):
        assert document[section]["changed"] == []
    assert document["parameters"]["equal"] > 0
    assert document["plan"]["nodes"]["changed"] == document["plan"]["tensors"]["changed"] == []
    shown = run("diff", finished, copy).stdout
    assert "changed, 0 equal" not in shown
    assert "before" not in shown, "no table where nothing differs"


def test_another_run_shows_what_was_set(run: Any, model: Path, data: Path, finished: Path, tmp_path: Path) -> None:
    after = tmp_path / "four"
    assigned = ("--set", "name=four", "--set", "weight.dtype=int4", "--skip", "stem.conv")
    words = ("-b", "onnxruntime", "-d", data, "--effort", 0, "-o", after, "--quiet", "--report", "no", *assigned)
    assert run("quantize", model, *words).exit_code == 0
    document = found(run, finished, after)
    settings = {one["name"]: (one["before"], one["after"]) for one in document["settings"]["changed"]}
    assert settings["weight.dtype"] == ("int8", "int4")
    assert settings["name"] == ("model", "four")
    nodes = {one["node"]: one for one in document["plan"]["nodes"]["changed"]}
    assert nodes["stem.conv"]["before"]["state"] == "quantized"
    assert nodes["stem.conv"]["after"]["state"] == "float"
    tensors = {one["tensor"]: one["fields"][0] for one in document["plan"]["tensors"]["changed"]}
    assert tensors["stem.conv.weight"]["name"] == "quantizer"
    assert tensors["stem.conv.weight"]["after"] is None
    others = [one for one in tensors.values() if one["name"] == "format"]
    assert others
    assert all(one["after"].startswith("int4") for one in others)
    assert document["parameters"]["incomparable"], "scales of 4 bits are not those of 8"
    assert document["files"][0]["names"] == ["model.onnx", "four.onnx"]
    lines = {line.split()[0]: line for line in run("diff", finished, after).stdout.splitlines()[1:12]}
    worst = [min(float(one[side]["sqnr_db"]) for one in document["accuracy"]) for side in ("before", "after")]
    assert lines["accuracy"].endswith(f"worst {worst[0]:.1f} dB -> {worst[1]:.1f} dB")
    sizes = [human_bytes(size) for size in document["files"][0]["bytes"]]
    assert lines["files"].endswith(f"; {sizes[0]} -> {sizes[1]}")
    shown = run("diff", finished, after).stdout
    assert "model.onnx -> four.onnx" in shown
    assert "the configuration leaves the node float" in shown
    assert "stem.conv.weight" in run("diff", finished, after, "--all").stdout


def test_the_largest_ratio_of_scales_comes_first(run: Any, finished: Path, copy: Path) -> None:
    entries = json.loads((copy / "qparams.json").read_text())["tensors"]
    plan = json.loads((copy / "plan.json").read_text())["tensors"]
    own = [name for name in entries if "tie" not in plan[name] and "derive" not in plan[name]]
    one, channels = (
        next(name for name in own if isinstance(entries[name]["scale"], list) is several) for several in (False, True)
    )

    def change(table: dict[str, Any]) -> None:
        table["tensors"][one]["scale"] *= 2
        table["tensors"][one]["zero_point"] += 1
        table["tensors"][channels]["scale"][3] /= 4

    edited(copy, "qparams.json", change)
    document = found(run, finished, copy)["parameters"]
    first, second = document["changed"]
    assert (first["tensor"], first["channel"], first["differing"]) == (channels, 3, 1)
    assert first["ratio"] == pytest.approx(0.25)
    assert (second["tensor"], second["ratio"]) == (one, pytest.approx(2))
    assert second["zero_point"][1] == second["zero_point"][0] + 1
    assert "channel" not in second
    result = run("diff", finished, copy, "--rows", 1)
    assert f"{channels} [3]" in result.stdout
    assert one not in result.stdout.split("parameters, largest")[1]
    assert "1 more rows; --all shows every one" in result.stderr


def test_accuracy_of_outputs_and_parts(run: Any, finished: Path, copy: Path) -> None:
    part = {"name": "[:, :4]", "sqnr_db": 30.0}
    for folder, figure in ((finished, 20.0), (copy, "inf")):
        if folder == finished:
            before = copy.parent / "before"
            folder = Path(shutil.copytree(finished, before))

        def change(report: dict[str, Any], figure: object = figure) -> None:
            report["checks"]["outputs"] = [{"name": "y", "sqnr_db": figure, "parts": [part]}]

        edited(folder, "report.json", change)
    document = found(run, before, copy)["accuracy"]
    assert [(one["output"], one.get("part")) for one in document] == [("y", None), ("y", "[:, :4]")]
    assert document[0]["before"]["sqnr_db"] == 20.0
    assert document[0]["after"]["sqnr_db"] == "inf"
    assert "+inf dB" in run("diff", before, copy).stdout


def test_methods_that_nobody_kept_are_no_difference(run: Any, finished: Path, copy: Path) -> None:
    def change(report: dict[str, Any]) -> None:
        report["improvements"] = {"steps": [{"name": "a", "applied": False}, {"name": "b", "applied": True}]}

    edited(copy, "report.json", change)
    document = found(run, finished, copy)["methods"]
    assert document == {"changed": [{"name": "b", "before": None, "after": "kept"}], "equal": 1}


def test_a_run_before_versions_were_told(run: Any, finished: Path, copy: Path) -> None:
    edited(copy, "report.json", lambda report: report.pop("versions"))
    names = [one["name"] for one in found(run, finished, copy)["versions"]["changed"]]
    assert "onnxruntime" in names
    assert "onnxq" not in names, "the page tells it"


def test_folders_that_are_no_runs(run: Any, finished: Path, tmp_path: Path) -> None:
    for folder, said in ((tmp_path, "holds no report.json"), (tmp_path / "gone", "is no folder")):
        result = run("diff", finished, folder)
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stdout == ""
    (tmp_path / "front.json").write_text("{}")
    assert "is the folder of a search" in run("diff", tmp_path, finished).stderr


def test_runs_of_different_models_are_told(run: Any, finished: Path, copy: Path) -> None:
    def rename(plan: dict[str, Any]) -> None:
        plan["model"] = "0" * 64
        plan["nodes"] = {kind: {f"other.{name}": why for name, why in of.items()} for kind, of in plan["nodes"].items()}

    edited(copy, "plan.json", rename)
    result = run("diff", finished, copy, "--json")
    assert result.exit_code == 0
    assert "runs of different models: only 0 nodes" in result.stderr
    assert json.loads(result.stdout)["models"] == "other"


def test_the_page_has_every_row_and_shows_names_as_text(run: Any, finished: Path, copy: Path) -> None:
    name = "<script>alert(1)</script>\x1b[31m\u202e"
    edited(copy, "config.json", lambda config: config.update({name: name}))
    page = copy.parent / "page" / "diff.html"
    result = run("diff", finished, copy, "--html", page)
    assert result.exit_code == 0, result.stderr
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert not {"\x1b", "\u202e"} & set(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202e" in text
    assert "<summary>settings (1)</summary>" in text
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []


class Balanced(HTMLParser):
    """Fails where an element is closed that was not opened last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_of_a_run_is_not_overwritten(run: Any, finished: Path, copy: Path) -> None:
    before = (copy / "report.html").read_bytes()
    result = run("diff", finished, copy, "--html", copy / "report.html")
    assert result.exit_code == 2
    assert "would overwrite the input" in result.stderr
    assert (copy / "report.html").read_bytes() == before
