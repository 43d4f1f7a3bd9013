"""A user's own vendor is one folder given with -b: table and read-back, constraint, simulation and lint rule in it."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.cli.planned import backend_of
from onnxq.config import read_config
from onnxq.emit import EMITTERS, file_names, read_back
from onnxq.emit.simulate import simulate
from onnxq.emit.simulations import SIMULATIONS
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.lint import LINTS, lint
from onnxq.refine import REFINEMENTS
from onnxq.session.prepare import prepare
from onnxq.targets import BACKENDS, file_of_backend, get_backend
from onnxq.types import QuantPlan
from tests.golden_graphs import GOLDEN

TOY = Path(__file__).parent / "toy_vendor"


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, copied; what it registers is forgotten after the test."""
    for registry in (BACKENDS, EMITTERS, LINTS, REFINEMENTS, SIMULATIONS):
        monkeypatch.setattr(registry, "_items", dict(registry.items()))  # type: ignore[attr-defined]
    return Path(shutil.copytree(TOY, tmp_path / "toy_vendor", ignore=shutil.ignore_patterns("__pycache__")))


def test_everything_in_the_folder_holds(vendor: Path, tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    result = onnxq.quantize(
        golden.model, backend=f"{vendor}/", data=golden.samples, out=tmp_path / "out", config={"effort": 0}
    )
    assert result.plan.backend == "shifty"
    assert any("the most that the chip has" in note for note in result.report["notes"])  # the constraint
    assert all(result.qparams[tensor].scale >= 2.0**-7 for tensor in result.plan.placements)
    shifts = json.loads((tmp_path / "out" / "model.shifts.json").read_text())  # the table
    assert set(shifts) == set(result.plan.placements)
    prepared = prepare(golden.model, f"{vendor}/")
    assert file_names(prepared.backend, "model") == ["model.onnx", "model.shifts.json"]
    (tmp_path / "out" / "model.shifts.json").write_text(json.dumps({**shifts, next(iter(shifts)): 77}))
    arguments = (prepared.graph, result.plan, result.qparams, prepared.backend, tmp_path / "out", "model")
    assert read_back(*arguments) == [f"model.shifts.json: tensor '{next(iter(shifts))}' has shift 77"]
    _, notes = simulate(prepared.graph, result.plan, result.qparams, prepared.backend)  # the simulation
    assert any("becomes" in note and "/256" in note for note in notes)
    model = onnx.load(result.model)
    assert lint(Graph.from_model(model), prepared.backend) == []
    scale = next(item for item in model.graph.initializer if item.name.endswith("scale"))
    scale.CopyFrom(onnx.numpy_helper.from_array(np.float32(2.0**-12).reshape(tuple(scale.dims)), scale.name))
    assert {finding.rule for finding in lint(Graph.from_model(model), prepared.backend)} == {"shift"}  # the lint rule
    assert not list(vendor.rglob("*.pyc"))


@pytest.mark.parametrize("ending", ["/", "", "/__init__.py"])
def test_a_folder_is_named_in_any_way(vendor: Path, ending: str) -> None:
    assert get_backend(f"{vendor}{ending}").name == "shifty"
    assert get_backend(f"{vendor}{ending}:average=exact").name == "shifty:average=exact"
    assert get_backend(f"{vendor}{ending}:average=exact").simulations == ()
    assert file_of_backend(f"{vendor}{ending}:average=exact") == vendor


def test_a_folder_is_run_again_after_an_edit(vendor: Path) -> None:
    get_backend(str(vendor))
    for file, old, new in (
        ("backend.py", "a vendor's chip", "another chip"),
        ("shifts.py", "LONGEST = 7", "LONGEST = 3"),
    ):
        text = (vendor / file).read_text()
        (vendor / file).write_text(text.replace(old, new))
    assert get_backend(str(vendor)).summary.startswith("another chip")
    assert sys.modules["onnxq_backend_toy_vendor.limit"].LONGEST == 3


def test_an_error_is_named_with_its_file_and_line(vendor: Path) -> None:
    (vendor / "shifts.py").write_text("x = 1\nraise ValueError('no such chip')\n")
    with pytest.raises(ConfigError, match=r"shifts\.py, line 2: ValueError: no such chip"):
        get_backend(str(vendor))


def test_the_command_line_takes_the_folder(vendor: Path) -> None:
    printed = CliRunner().invoke(app, ["list", "backends", "--plugin", str(vendor), "--json"]).stdout
    assert "shifty" in {entry["name"] for entry in json.loads(printed)}


def test_a_configuration_or_a_plan_does_not_run_a_folder(vendor: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"backend": f"{vendor}"}))
    with pytest.raises(ConfigError, match="is Python code, which a configuration file does not run by itself"):
        read_config(file)
    assert read_config(file, allow_code=True).backend == f"{vendor}"
    with pytest.raises(ConfigError, match="a plan never runs code"):
        backend_of(QuantPlan(f"{vendor}/"), None)


def test_the_settings_of_a_run_name_the_folder(vendor: Path, tmp_path: Path) -> None:
    golden = GOLDEN["residual"]()
    onnxq.quantize(golden.model, backend=f"{vendor}/", data=golden.samples, out=tmp_path / "out", config={"effort": 0})
    assert json.loads((tmp_path / "out" / "config.json").read_text())["backend"] == f"{vendor}/"


def test_a_folder_with_the_name_of_a_target_is_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ncnn").mkdir()
    (tmp_path / "ncnn" / "backend.py").write_text("raise ValueError('was run')")
    monkeypatch.chdir(tmp_path)
    assert get_backend("ncnn").name == "ncnn"
    with pytest.raises(ConfigError, match="was run"):
        get_backend("ncnn/")
