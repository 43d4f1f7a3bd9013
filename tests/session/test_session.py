"""A session is set up once: what its steps share, what a variant of it makes anew, and what it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxq
from onnxq.config import read_config
from onnxq.demo import load_data, model_path
from onnxq.diagnose.run import Budget, diagnose
from onnxq.errors import DataError
from onnxq.mixed_precision import Subject
from onnxq.ptq.method import Samples
from onnxq.session import session as module
from onnxq.session.session import open_session

BRIEF = Budget(samples=2, rankings=4, looked=2, trials=2)


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    return {"image": load_data().calibration[:8]}


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every time that the settings of inputs and outputs were applied to a model."""
    seen: list[str] = []
    real = module.apply_io_settings

    def counted(graph: onnxq.Graph, config: onnxq.Config) -> None:
        seen.append(config.name)
        real(graph, config)

    monkeypatch.setattr(module, "apply_io_settings", counted)
    monkeypatch.setattr("onnxq.session.prepare.apply_io_settings", counted)
    return seen


def test_a_run_applies_the_settings_of_inputs_and_outputs_once(
    applied: list[str], data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    shape = onnxq.load(model_path()).shape("image") or ()
    config = {"inputs": {"image": {"shape": [1, *shape[1:]]}}, "effort": 0}
    onnxq.quantize(model_path(), backend="tensorrt", data=data, config=config, out=tmp_path)
    assert len(applied) == 1


def test_so_does_a_diagnosis_with_all_of_its_trials(applied: list[str], data: dict[str, np.ndarray]) -> None:
    session = open_session(model_path(), backend="onnxruntime", data=data, config={"weight": {"bits": 4}})
    session.open_data()
    assert diagnose(Subject(session), budget=BRIEF).trials
    assert len(applied) == 1


def test_steps_are_made_when_they_are_asked_for_and_kept(data: dict[str, np.ndarray]) -> None:
    session = open_session(model_path(), backend="tensorrt", data=data)
    assert session.dataset is None
    prepared = session.prepared
    assert session.prepared is prepared
    found = session.calibrated()
    assert found.session is session
    assert found.state.graph is prepared.graph
    assert found.samples == len(data["image"])
    assert list(session.clock.seconds) == ["load", "passes", "place", "calibrate", "refine"]


def test_data_is_opened_once_and_only_where_it_is_needed() -> None:
    with pytest.raises(DataError):
        open_session(model_path(), backend="tensorrt").open_data()
    session = open_session(model_path(), backend="weight_only")
    session.open_data()
    assert session.dataset is None
    with pytest.raises(DataError):
        open_session(model_path(), backend="weight_only").open_data(required=True)


def test_other_settings_share_the_model_and_the_data(data: dict[str, np.ndarray]) -> None:
    session = open_session(model_path(), backend="tensorrt", data=data)
    first = session.calibrated().state
    other = session.with_settings(read_config({"weight": {"bits": 4}}), "academic")
    assert other.original is session.original
    assert other.dataset is session.dataset
    assert other.prepared.backend.name == "academic"
    assert "int4" in {placement.spec.dtype for placement in other.plan() if placement.role == "weight"}
    assert session.prepared.graph is first.graph
    assert session.prepared.backend.name == "tensorrt"


def test_a_new_calibration_sees_the_constants_of_the_state_and_the_samples_that_it_is_given(
    data: dict[str, np.ndarray],
) -> None:
    session = open_session(model_path(), backend="tensorrt", data=data)
    first = session.calibrated().state
    again = session.recalibrated(first)
    assert again.qparams.to_json() == first.qparams.to_json()
    assert session.dataset is not None
    few = session.recalibrated(first, Samples(session.dataset, (0,)))
    assert few.qparams.to_json() != first.qparams.to_json()
