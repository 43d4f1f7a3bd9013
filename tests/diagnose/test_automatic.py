"""The diagnosis at the end of a run: in the report, the warnings, the error of a run that fails, and as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import onnxq
from onnxq.cli.termination import Terminated
from onnxq.config import read_config
from onnxq.diagnose import automatic
from onnxq.diagnose.text import finding_text
from onnxq.errors import MachineError, UnsupportedError
from onnxq.verify import ChecksFailed
from tools.illnesses import Patient

IMPROVEMENTS = ("bias_correction",)
"""One step is a run with an effort, and takes no time."""


def _quantized(patient: Patient, folder: Path, **changes: Any) -> onnxq.Result:
    config = {**patient.config, "improvements": IMPROVEMENTS, **changes}
    return onnxq.quantize(patient.model, backend="qnn", data=patient.data, config=config, out=folder)


@pytest.fixture(scope="module")
def low(tied: Patient, tmp_path_factory: pytest.TempPathFactory) -> onnxq.Result:
    """A run whose scores are below 20 dB."""
    return _quantized(tied, tmp_path_factory.mktemp("low"), minimum_sqnr_db=0.0)


def test_a_low_run_ends_with_its_cause_and_a_remedy_that_was_tried(low: onnxq.Result) -> None:
    found = low.report["diagnosis"]

    assert found["causes"][0]["code"] == "tied_ranges"
    assert found["quantizers"][0]["tensors"] == ["boxes", "scores"]
    assert found["combined"]["after_db"] > found["before_db"] + 10
    warnings = low.report["warnings"]
    assert any("output 'scores' has only" in line for line in warnings)
    assert f"cause: {found['causes'][0]['text']}" in warnings
    assert any(line.startswith(f"remedy: {found['combined']['line']}") for line in warnings)


def test_the_report_on_disk_has_the_same_values(low: onnxq.Result) -> None:
    written = json.loads((low.model.parent / "report.json").read_text())

    assert written["diagnosis"] == json.loads(json.dumps(low.report["diagnosis"]))


def test_the_remedy_stands_beside_the_files_and_gives_what_it_promises(
    low: onnxq.Result, tied: Patient, tmp_path: Path
) -> None:
    path = low.model.parent / "model_remedy.toml"
    assert str(path) in low.report["files"]
    settings = read_config(path)
    assert settings.backend == "qnn"
    assert not settings.tensor

    fixed = onnxq.quantize(tied.model, config=path, data=tied.data, out=tmp_path)

    promised = low.report["diagnosis"]["combined"]["after_db"]
    assert min(fixed.report["sqnr_db"].values()) >= promised - 0.5
    assert "diagnosis" not in fixed.report


def test_a_run_that_fails_says_why_and_what_to_do(tied: Patient, tmp_path: Path) -> None:
    with pytest.raises(ChecksFailed) as caught:
        _quantized(tied, tmp_path / "out", minimum_sqnr_db=10.0)

    text = str(caught.value)
    assert "cause: one scale for tensors of unlike ranges" in text
    assert "remedy: take tensor.boxes.share out" in text
    assert not (tmp_path / "out" / "model.onnx").exists()


CALIBRATION_ALONE: dict[str, Any] = {"improvements": None, "effort": 0}


@pytest.mark.parametrize("changes", [{"diagnose": False}, CALIBRATION_ALONE], ids=["off", "effort 0"])
def test_without_a_diagnosis_the_hint_is_the_command(changes: dict[str, Any], tied: Patient, tmp_path: Path) -> None:
    result = _quantized(tied, tmp_path, minimum_sqnr_db=0.0, **changes)

    assert "diagnosis" not in result.report
    assert any("has only" in line and "onnxq diagnose" in line for line in result.report["warnings"])


def test_a_result_that_can_be_used_is_diagnosed_where_somebody_waits_for_it(
    tied: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automatic, "BAD_SQNR_DB", -100.0)
    quick = _quantized(tied, tmp_path / "quick", minimum_sqnr_db=0.0)
    asked = _quantized(tied, tmp_path / "asked", minimum_sqnr_db=0.0, diagnose=True)

    assert "diagnosis" not in quick.report
    assert any("has only" in line and "onnxq diagnose" in line for line in quick.report["warnings"])
    assert asked.report["diagnosis"]["causes"][0]["code"] == "tied_ranges"


def test_effort_0_is_diagnosed_where_somebody_asks_for_it(tied: Patient, tmp_path: Path) -> None:
    result = _quantized(tied, tmp_path, minimum_sqnr_db=0.0, diagnose=True, **CALIBRATION_ALONE)

    assert result.report["diagnosis"]["causes"][0]["code"] == "tied_ranges"


def test_effort_0_that_fails_says_why_and_that_improvements_were_not_tried(tied: Patient, tmp_path: Path) -> None:
    with pytest.raises(ChecksFailed) as caught:
        _quantized(tied, tmp_path / "out", minimum_sqnr_db=10.0, **CALIBRATION_ALONE)

    text = str(caught.value)
    assert "cause: one scale for tensors of unlike ranges" in text
    assert "remedy: take tensor.boxes.share out" in text
    assert automatic.UNTRIED in text


FAILURES = [
    (UnsupportedError("no kernel for this"), "the diagnosis itself failed: no kernel for this"),
    (MachineError("no space left"), "the diagnosis itself failed: no space left"),
    (KeyError("lost"), "the diagnosis itself failed: KeyError: 'lost' ("),
    (KeyboardInterrupt(), "the diagnosis was interrupted, the files are complete"),
]


def _failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(automatic, "diagnose", fail)


@pytest.mark.parametrize(("error", "told"), FAILURES, ids=lambda value: type(value).__name__)
def test_a_diagnosis_that_fails_costs_no_file_and_is_told(
    error: BaseException, told: str, tied: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, error)

    result = _quantized(tied, tmp_path, minimum_sqnr_db=0.0)

    assert result.model.exists()
    assert any(line.startswith(told) for line in result.report["warnings"])
    assert "diagnosis" not in result.report


def test_a_process_that_is_told_to_end_does_so_in_a_diagnosis_too(
    tied: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, Terminated())

    with pytest.raises(Terminated):
        _quantized(tied, tmp_path / "out", minimum_sqnr_db=0.0)


def test_a_diagnosis_that_fails_does_not_hide_why_the_checks_do(
    tied: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failing(monkeypatch, KeyError("lost"))

    with pytest.raises(ChecksFailed, match="the diagnosis itself failed: KeyError"):
        _quantized(tied, tmp_path / "out", minimum_sqnr_db=10.0)


def test_the_time_of_a_diagnosis_is_part_of_the_report(low: onnxq.Result) -> None:
    assert low.report["seconds"]["diagnose"] > 0


def test_a_good_run_is_not_diagnosed(tied: Patient, tmp_path: Path) -> None:
    result = _quantized(tied, tmp_path, tensor={})

    assert "diagnosis" not in result.report
    assert not (tmp_path / "model_remedy.toml").exists()


def test_a_diagnosis_is_the_same_every_time(low: onnxq.Result, tied: Patient, tmp_path: Path) -> None:
    again = _quantized(tied, tmp_path, minimum_sqnr_db=0.0)

    assert again.report["diagnosis"] == low.report["diagnosis"]


def test_every_finding_has_words() -> None:
    from onnxq.diagnose import causes

    kinds = [kind for kind in vars(causes).values() if isinstance(kind, type) and issubclass(kind, causes.Finding)]
    without = [kind for kind in kinds if finding_text.dispatch(kind) is finding_text.dispatch(object)]
    assert without == [causes.Finding]
    assert {kind.code for kind in kinds if kind is not causes.Finding} == set(causes.Code.__args__)  # type: ignore[attr-defined]
