"""Images on the command line: --preprocess reaches every command that takes data, and a plan remembers it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from onnxq.demo import load_data
from onnxq.runtime.sources import holds_images

pillow = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight digits as files, white reaching 255 in each."""
    folder = tmp_path_factory.mktemp("photos")
    for number, digit in enumerate(load_data().calibration[:8]):
        image = pillow.fromarray(np.rint(digit[0] / digit.max() * 255).astype(np.uint8))
        image.save(folder / f"{number}.png")
    return folder


def input_scale(path: Path) -> float:
    return float(json.loads(path.read_text())["tensors"]["image"]["scale"])


def test_quantize_reads_images_as_declared_and_says_what_was_assumed(run, model, photos, tmp_path):
    scales = {}
    for name, options in {"unit": ["--preprocess", "unit,resize=8/8"], "none": []}.items():
        result = run("quantize", model, "-b", "onnxruntime", "-d", photos, "-o", tmp_path / name, *options)
        assert result.exit_code == 0, result.stderr
        report = json.loads((tmp_path / name / "report.json").read_text())
        assumed = [note for note in report["notes"] if note.startswith("pixels were scaled to 0..1")]
        assert len(assumed) == (0 if options else 1)
        scales[name] = input_scale(tmp_path / name / "qparams.json")
    assert scales["unit"] == scales["none"] == pytest.approx(1 / 255, rel=1e-6)


def test_an_option_wins_over_the_file_and_a_plan_remembers_the_file(run, model, photos, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("[preprocess]\nscale = 0.01\n")
    plan = tmp_path / "plan.json"
    assert run("place", model, "-b", "onnxruntime", "-c", config, "-o", plan).exit_code == 0
    given = {
        "option": ["-b", "onnxruntime", "-c", config, "--preprocess", "scale=0.02"],
        "file": ["-b", "onnxruntime", "-c", config],
        "plan": ["--plan", plan],
        "plan and option": ["--plan", plan, "--preprocess", "scale=0.02"],
    }
    scales = {}
    for name, options in given.items():
        target = tmp_path / name / "qparams.json"
        result = run("calibrate", model, "-d", photos, "-o", target, *options)
        assert result.exit_code == 0, result.stderr
        scales[name] = input_scale(target)
    assert scales["file"] == scales["plan"] == pytest.approx(0.01, rel=1e-6)
    assert scales["option"] == scales["plan and option"] == pytest.approx(0.02, rel=1e-6)


def test_a_plan_made_with_images_can_go_on_with_arrays(run, model, data, photos, tmp_path):
    out = tmp_path / "out"
    options = ["-d", photos, "--preprocess", "signed"]
    assert run("quantize", model, "-b", "onnxruntime", "-o", out, *options).exit_code == 0
    emitted = ["emit", model, "--plan", out / "plan.json", "--qparams", out / "qparams.json"]
    for name, source in (("arrays", data), ("images", photos)):
        result = run(*emitted, "-d", source, "-o", tmp_path / name)
        assert result.exit_code == 0, result.stderr
    assert run("compare", model, out, "-d", photos, "--preprocess", "signed", "--json").exit_code == 0


@pytest.mark.parametrize("command", ["quantize", "calibrate", "compare", "emit"])
def test_wrong_settings_are_errors_of_use(run, model, photos, finished, tmp_path, command):
    folder = ["-o", tmp_path / "out"]
    arguments = {
        "quantize": [model, "-b", "tensorrt", *folder],
        "calibrate": [model, "-b", "tensorrt", *folder],
        "compare": [model, finished],
        "emit": [model, "--plan", finished / "plan.json", "--qparams", finished / "qparams.json", *folder],
    }[command]
    result = run(command, *arguments, "-d", photos, "--preprocess", "rezise=8")
    assert result.exit_code == 2
    assert "Did you mean 'resize'" in " ".join(result.stderr.split())


def test_preprocess_with_arrays_is_an_error_and_with_random_numbers_unused(run, model, data, tmp_path):
    start = ["quantize", model, "-b", "onnxruntime", "-o", tmp_path / "out", "--preprocess", "unit"]
    result = run(*start, "-d", data)
    assert result.exit_code == 2
    assert "preprocess is for images" in " ".join(result.stderr.split())
    assert run(*start, "--random", "2").exit_code == 0


def test_what_counts_as_images(photos, data, tmp_path):
    assert holds_images(photos)
    assert holds_images(photos / "0.png")
    assert not holds_images(data)
    assert not holds_images(tmp_path)
    assert not holds_images(tmp_path / "nowhere.png")
