"""`effort` from the outside: files, report, repeatability, and what users can say about it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.demo import load_data, model_path
from onnxq.errors import ConfigError
from onnxq.runtime.session import make_session

BEFORE = hashlib.sha256(model_path().read_bytes()).hexdigest()
"""The model before any test has run it."""

BITS = {"activation": {"bits": 4}, "weight": {"bits": 4}, "minimum_sqnr_db": -10.0}


def quantized(out: Path, effort: int | None, samples: int = 32, **config: object) -> onnxq.Result:
    given = {**BITS, **config} if effort is None else {**BITS, "effort": effort, **config}
    data = {"image": load_data().calibration[:samples]}
    return onnxq.quantize(model_path(), backend="academic", data=data, config=given, out=out)


@pytest.fixture(scope="module")
def improved(tmp_path_factory: pytest.TempPathFactory) -> onnxq.Result:
    """A run with the default effort, which several tests look at."""
    return quantized(tmp_path_factory.mktemp("improved"), None)


def accuracy(model: Path) -> float:
    data = load_data()
    logits = make_session(model, optimize="none").run(None, {"image": data.test_images})[0]
    return float((logits.argmax(1) == data.test_labels).mean())


def test_effort_1_is_the_default_and_is_not_below_effort_0_on_the_held_samples(
    improved: onnxq.Result, tmp_path: Path
) -> None:
    plain = quantized(tmp_path, 0)
    assert json.loads((improved.model.parent / "config.json").read_text())["effort"] == 1
    assert "improvements" not in plain.report
    told = improved.report["improvements"]
    assert told["after"] > told["before"] + 1  # 4 bits leave much to gain
    assert told["evaluated_on"] == 8
    assert told["fitted_to"] == 24
    assert any(step["applied"] for step in told["steps"])
    for step in told["steps"]:
        assert step["seconds"] >= 0
        assert step["peak_memory"] > 0
        assert step["why"]
    assert accuracy(improved.model) >= accuracy(plain.model) - 0.005


def test_the_float_model_beside_the_files_belongs_to_plan_and_parameters(
    improved: onnxq.Result, tmp_path: Path
) -> None:
    written = improved.model.parent
    command = ["emit", str(written / "model_float.onnx"), "--plan", str(written), "--qparams", str(written)]
    again = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "again"), "--quiet"])
    assert again.exit_code == 0, again.output
    feed = {"image": load_data().test_images[:16]}
    one, other = (
        make_session(p, optimize="none").run(None, feed)[0] for p in (improved.model, tmp_path / "again/model.onnx")
    )
    assert np.array_equal(one, other)
    float_one = make_session(written / "model_float.onnx").run(None, feed)[0]
    np.testing.assert_allclose(float_one, make_session(model_path()).run(None, feed)[0], rtol=0.2, atol=1.0)


def test_a_run_is_repeated_by_its_resolved_configuration(improved: onnxq.Result, tmp_path: Path) -> None:
    data = {"image": load_data().calibration[:32]}
    again = onnxq.quantize(model_path(), data=data, config=improved.model.parent / "config.json", out=tmp_path)
    assert again.model.read_bytes() == improved.model.read_bytes()


def test_an_observer_that_was_asked_for_is_kept(tmp_path: Path) -> None:
    others = ["smoothquant", "awq", "cross_layer_equalization", "weight_scale_search"]  # take most of the time
    result = quantized(tmp_path, 1, samples=16, observer="minmax", skip_improvements=others)
    (ranges,) = {s["why"] for s in result.report["improvements"]["steps"] if s["name"].startswith("range_setting")}
    assert ranges == "there was nothing to change"
    assert all(p.observer == "minmax" for p in result.plan if p.role == "activation")
    weights = quantized(tmp_path, 1, samples=16, weight_observer="mse", skip_improvements=others[:-1])
    assert all(weights.qparams.provenance[p.tensor] == "mse" for p in weights.plan if p.role == "weight")


def test_three_samples_are_not_enough_and_the_report_says_so(tmp_path: Path) -> None:
    result = quantized(tmp_path, 1, samples=3)
    assert "improvements" not in result.report
    assert any("that takes 4 samples or more" in note for note in result.report["notes"])


def test_improvements_by_name_take_the_place_of_the_effort(tmp_path: Path) -> None:
    result = quantized(tmp_path, None, improvements=["range_setting:mse"])
    assert [step["name"] for step in result.report["improvements"]["steps"]] == ["range_setting:observer=mse"]


def test_improvements_can_be_left_out(tmp_path: Path) -> None:
    result = quantized(tmp_path, 1, samples=16, skip_improvements=["ranges"])
    assert not any(step["name"].startswith("range_setting") for step in result.report["improvements"]["steps"])
    with pytest.raises(ConfigError, match=r"no improvement 'range_seting'\. Did you mean 'range_setting'"):
        quantized(tmp_path, 1, skip_improvements=["range_seting"])


def test_the_input_file_and_folder_stay_clean(improved: onnxq.Result) -> None:
    assert hashlib.sha256(model_path().read_bytes()).hexdigest() == BEFORE
    assert sorted(path.name for path in improved.model.parent.iterdir()) == [
        "config.json",
        "model.onnx",
        "model_float.onnx",
        "plan.json",
        "qparams.json",
        "report.html",
        "report.json",
    ]
    onnx.checker.check_model(str(improved.model.with_name("model_float.onnx")))


@pytest.mark.parametrize(
    "given", [["--effort", "4"], ["--effort", "-1"], ["--improve", "gptqq"], ["--improve", "range_setting:x=1"]]
)
def test_wrong_wishes_exit_with_2_and_write_nothing(given: list[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:8])
    command = ["quantize", str(model_path()), "-b", "tensorrt", "-d", str(tmp_path / "calib.npz")]
    run = CliRunner().invoke(app, [*command, "-o", str(tmp_path / "out"), *given])
    assert run.exit_code == 2, run.output
    assert not (tmp_path / "out").exists()


def test_the_summary_tells_what_was_tried(tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", image=load_data().calibration[:16])
    command = ["quantize", str(model_path()), "-b", "tensorrt", "-d", str(tmp_path / "calib.npz"), "-o", str(tmp_path)]
    run = CliRunner().invoke(app, command)
    assert run.exit_code == 0, run.output
    assert "on 4 samples that nothing was fitted to" in " ".join(run.output.split())
