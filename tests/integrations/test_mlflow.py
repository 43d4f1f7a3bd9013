"""What is logged to MLflow, with a stand-in for the library; the real one is in tests/readers."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.integrations.mlflow import log_run, metrics, parameters


class Refused(Exception):
    """What MLflow raises."""


class Recorder:
    """Keeps what it is told, and refuses names that MLflow refuses."""

    exceptions = SimpleNamespace(MlflowException=Refused)

    MlflowClient = staticmethod(lambda: SimpleNamespace(search_experiments=lambda max_results: []))

    def __init__(self):
        self.params, self.figures, self.tags, self.files = {}, [], {}, []

    def active_run(self):
        return SimpleNamespace(info=SimpleNamespace(run_id="7"))

    def set_tags(self, tags):
        self.tags |= tags

    def log_params(self, values):
        assert all(re.fullmatch(r"[/\w.\- ]+", name) and len(value) <= 500 for name, value in values.items())
        self.params |= values

    def log_metrics(self, values, step=None):
        assert all(re.fullmatch(r"[/\w.\- ]+", name) and np.isfinite(value) for name, value in values.items())
        self.figures.append((step, values))

    def log_artifact(self, path, artifact_path):
        self.files.append(path)


@pytest.fixture
def recorder(monkeypatch):
    made = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", made)
    return made


@pytest.fixture
def run(tmp_path):
    config = {"effort": 0, "activation": {"observer": {"name": "percentile", "percentile": 99.9}}}
    data = {"image": load_data().calibration[:16]}
    return onnxq.quantize(model_path(), backend="onnxruntime", data=data, config=config, out=tmp_path / "out")


def test_settings_figures_and_files_are_logged(recorder, run):
    (run.folder / "training.csv").write_text("step,epoch,loss,metric\n5,1,0.5,\n5,1,,0.9\n")
    assert log_run(run.folder) == "7"
    assert recorder.params["backend"] == "onnxruntime"
    assert recorder.params["activation.observer"] == "percentile:percentile=99.9"
    steps = [(step, values) for step, values in recorder.figures if step is not None]
    assert steps == [
        (5, {"training.epoch": 1.0, "training.loss": 0.5}),
        (5, {"training.epoch": 1.0, "training.metric": 0.9}),
    ]
    (_, figures), *_ = recorder.figures
    assert figures["sqnr_db.logits"] == run.sqnr_db["logits"]
    assert figures["file_bytes"] == run.model.stat().st_size
    assert {str(path) for path in run.files} == set(recorder.files)
    assert recorder.tags["onnxq.versions.onnxq"] == onnxq.__version__


def test_names_that_mlflow_does_not_take_are_changed(run):
    report = dict(run.report) | {"sqnr_db": {"out:0[1]": 3.0, "equal": "inf"}}
    figures = dict(metrics(report, run.folder))
    assert figures["sqnr_db.out_0_1_"] == figures["worst_sqnr_db"] == 3.0
    assert "sqnr_db.equal" not in figures
    report["config"] = {"given": {"skip": ["x" * 900], "backend": "other"}}
    assert dict(parameters(report)) == {"backend": "onnxruntime", "skip": "['" + "x" * 498}


def test_the_command_says_what_to_install_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    arguments = ["quantize", str(model_path()), "-b", "onnxruntime", "--random", "4", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--mlflow"])
    assert result.exit_code == 2
    assert "pip install mlflow" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_store_that_takes_no_runs_is_told_before_anything_runs(recorder, monkeypatch, tmp_path):
    def no_store():
        raise Refused("unsupported URI\x1b[31m 'sqlite:///mlflow.db'")

    monkeypatch.setattr(recorder, "MlflowClient", no_store)
    arguments = ["quantize", str(model_path()), "-b", "onnxruntime", "--random", "4", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--mlflow"])
    assert result.exit_code == 2
    assert "MLflow takes no runs: unsupported URI\\x1b[31m" in " ".join(result.stderr.split())
    assert "MLFLOW_TRACKING_URI" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_store_that_fails_at_the_end_leaves_the_files(recorder, run, monkeypatch):
    def full(values):
        raise Refused("no space")

    monkeypatch.setattr(recorder, "log_params", full)
    with pytest.raises(
        onnxq.ConfigError, match=r"the files of the run are in .*, but MLflow has not taken it: no space"
    ):
        log_run(run.folder)
