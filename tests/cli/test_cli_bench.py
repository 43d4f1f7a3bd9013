"""`onnxq bench`: tables, JSON, a page of its own, and latency in the page of a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from onnxq.page.document import read_page

QUICK = ("--rounds", 2, "--warm-up", 1, "--engine", "onnxruntime")


def test_the_page_of_a_run_gets_the_latency_of_its_layers(
    run: Any, model: Path, data: Path, finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    before = read_page(out / "report.html")
    result = run("bench", model, out, "-d", data, *QUICK)
    assert result.exit_code == 0, result.stderr
    assert "of fewer than 6 rounds: all that was measured" in result.stdout
    assert "times as fast" in result.stdout
    assert "QLinearConv" in result.stdout
    assert "stem.conv" in result.stdout
    after = read_page(out / "report.html")
    (engine,) = after["measured"]["latency"]["engines"]
    times = {node: (before, after) for node, before, after, _, inserted in engine["layers"] if not inserted}
    assert min(times["stem.conv"]) >= 0
    assert set(times) <= set(after["model"]["nodes"]["name"]) | {"flatten"}
    assert after["measured"]["layers"] == before["measured"]["layers"]  # what was there is kept
    assert run("report", out).exit_code == 0
    assert read_page(out / "report.html")["measured"]["latency"] == after["measured"]["latency"]


def test_json_and_a_page_of_its_own(run: Any, model: Path, finished: Path, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    file = finished / "model.onnx"
    result = run("bench", model, file, *QUICK, "--batch", 2, "--json", "--html", page)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    (engine,) = document["engines"]
    assert [one["model"] for one in engine["models"]] == [str(model), str(file)]
    assert (document["batch"], document["threads"], engine["clock"]) == (2, 1, "processor")
    quantized = engine["models"][1]
    assert quantized["times_as_fast"]["low"] <= quantized["times_as_fast"]["median"]
    assert {layer["computes"] for layer in quantized["layers"]} >= {"integers", "conversion"}
    assert "QLinearConv" in page.read_text(encoding="utf-8")


def test_one_file_alone_and_several_threads(run: Any, model: Path) -> None:
    result = run("bench", model, *QUICK, "--threads", 2, "--no-layers")
    assert result.exit_code == 0, result.stderr
    assert "2 threads" in result.stdout
    assert "time on the wall" in result.stdout
    assert "random numbers" in result.stderr


def test_bad_input_is_an_error_with_what_to_do(run: Any, model: Path, finished: Path, tmp_path: Path) -> None:
    unknown = run("bench", model, finished, "--engine", "onnxruntme")
    assert unknown.exit_code == 2
    assert "did you mean 'onnxruntime'" in unknown.stderr.lower() or "onnxruntime" in unknown.stderr
    missing = run("bench", model, tmp_path / "gone.onnx", *QUICK)
    assert missing.exit_code == 2
    assert "gone.onnx" in missing.stderr
    both = run("bench", model, "-d", "x.npz", "--shape", "1,1,8,8", *QUICK)
    assert both.exit_code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    folder = run("bench", model, empty, *QUICK)
    assert folder.exit_code == 2
    assert "report.json" in folder.stderr
