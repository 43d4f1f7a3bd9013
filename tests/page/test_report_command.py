"""`onnxq report`: pages for runs that are there already."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.page.document import read_page
from tests.golden_graphs import GOLDEN


def report(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its data, and a run without a page."""
    folder = tmp_path_factory.mktemp("report")
    golden = GOLDEN["residual"]()
    onnx.save(golden.model, folder / "net.onnx")
    (name,) = golden.samples[0]
    np.savez(folder / "data.npz", **{name: np.concatenate([one[name] for one in golden.samples])})
    config = {"effort": 0, "report": "no"}
    onnxq.quantize(folder / "net.onnx", backend="onnxruntime", data=golden.samples, out=folder / "run", config=config)
    return folder


@pytest.fixture
def run(here: Path, tmp_path: Path) -> Path:
    shutil.copytree(here / "run", tmp_path / "run")
    return tmp_path / "run"


def test_a_page_from_the_files_alone(run: Path) -> None:
    document = json.loads((run / "report.json").read_text())
    del document["model"]  # as earlier versions wrote it
    (run / "report.json").write_text(json.dumps(document))
    assert report(run).exit_code == 0
    data = read_page(run / "report.html")
    plan = json.loads((run / "plan.json").read_text())
    assert set(data["model"]["nodes"]["name"]) >= set(plan["nodes"]["quantized"])
    weights = {name for name, one in plan["tensors"].items() if one["role"] == "weight"}
    assert set(data["model"]["weights"]) == weights
    assert data["measured"]["layers"] is None


def test_data_measures_layers_and_a_second_page_keeps_them(here: Path, run: Path) -> None:
    done = report(run, "-d", here / "data.npz", "--samples", 4)
    assert done.exit_code == 0, done.output
    first = (run / "report.html").read_bytes()
    measured = read_page(run / "report.html")["measured"]
    assert measured["layers"]["samples"] == [0, 1]
    assert measured["layers"]["against"] == "the float model"
    assert all("histogram" in one for one in measured["observed"].values())
    assert report(run, "-q").exit_code == 0
    assert (run / "report.html").read_bytes() == first
    table = json.loads((run / "qparams.json").read_text())
    name = next(name for name, one in table["tensors"].items() if isinstance(one["scale"], float))
    table["tensors"][name]["scale"] *= 2
    (run / "qparams.json").write_text(json.dumps(table))
    assert report(run, "-q").exit_code == 0
    assert read_page(run / "report.html")["measured"]["layers"] is None  # of other parameters


def test_bad_input_is_told_and_leaves_everything(here: Path, run: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    assert report(tmp_path / "nothing").exit_code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds neither report.json nor front.json" in " ".join(report(empty).output.split())
    assert list(empty.iterdir()) == []
    assert report(run, "--float", here / "data.npz").exit_code == 2
    assert report(run, "-d", tmp_path / "no.npz").exit_code == 2
    for wrong in ({"checks": {"outputs": [{"name": 3}]}}, {"kinds": {"never heard of": []}}, {"files": "all"}):
        document = {**json.loads(before["report.json"]), **wrong}
        (run / "report.json").write_text(json.dumps(document))
        done = report(run)
        assert done.exit_code == 2, done.output
        assert next(iter(wrong)) in done.output
    (run / "report.json").write_bytes(before["report.json"])
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_the_page_of_a_search_from_its_files_alone(tmp_path: Path) -> None:
    out, data = tmp_path / "searched", tmp_path / "x.npz"
    np.savez(data, image=load_data().calibration[:8])
    words = ["search", model_path(), "-b", "academic", "-d", data, "--bits", "8,4", "--budget", "70%", "-o", out, "-q"]
    assert CliRunner().invoke(app, [str(word) for word in words]).exit_code == 0
    page = out / "report.html"
    first = page.read_text()
    page.unlink()
    assert CliRunner().invoke(app, ["report", str(out), "-q"]).exit_code == 0
    assert page.read_text() == first
    found = read_page(page)
    assert found["front"]["against_float"] is True
    assert {one["name"]: one["bytes"] for one in found["files"]} == {
        name: (out / name).stat().st_size for name in ("config.json", "front.json", "front.svg")
    }
