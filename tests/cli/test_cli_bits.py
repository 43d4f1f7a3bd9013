"""`onnxq sensitivity` and `onnxq search`: tables, files, going on, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxq.demo import load_data

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("test") / "test.npz"
    np.savez(path, image=load_data().test_images[:32], labels=load_data().test_labels[:32])
    return path


@pytest.fixture
def own_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_metric.py").write_text(
        "def margin(outputs, labels):\n"
        "    logits = outputs['logits']\n"
        "    return float((logits[range(len(labels)), labels] - logits.mean(axis=1)).mean())\n"
    )


def test_the_worst_layers_in_a_table(run: Run, model: Path, data: Path) -> None:
    result = run("sensitivity", model, "-b", "onnxruntime", "-d", data, "--worst", 3)
    assert result.exit_code == 0, result.stderr
    title, head, *rows = [line for line in result.stdout.splitlines() if line.strip()]
    assert title == "9 layers, quantized alone, worst first"
    assert head.split() == ["layer", "operator", "formats", "SQNR", "share", "of", "the", "noise"]
    assert len(rows) == 3
    levels = [float(row.split(" dB")[0].split()[-1]) for row in rows]
    assert levels == sorted(levels)
    assert "6 better ones not shown" in result.stderr
    assert "everything quantized:" in result.stderr


def test_everything_but_each_quantizer_by_accuracy(run: Run, model: Path, data: Path, labelled: Path) -> None:
    result = run("sensitivity", model, "-b", "tensorrt", "-d", data, "--eval", labelled, "--metric", "accuracy",
                 "--by", "quantizer", "--only", "weights", "--all-but")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "7 quantizers, everything else quantized, worst first" in result.stdout
    assert "points" in result.stdout
    assert "float model 100.00%" in result.stderr


def test_json_is_the_same_as_the_file_and_as_the_next_run(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    wanted = ("sensitivity", model, "-b", "tensorrt", "-d", data, "--cache", tmp_path / "cache", "--json")
    first = run(*wanted, "-o", tmp_path / "layers.json")
    assert first.exit_code == 0, first.stderr
    document = json.loads(first.stdout)
    assert json.loads((tmp_path / "layers.json").read_text()) == document
    assert document["evaluations"] == {"run": 9, "known": 0}
    again = json.loads(run(*wanted).stdout)
    assert again["evaluations"] == {"run": 0, "known": 9}
    assert again["parts"] == document["parts"]
    assert {"name", "kind", "sqnr_db", "value", "loss", "quantizers"} == set(document["parts"][0])


@pytest.mark.usefixtures("own_metric")
def test_a_search_writes_a_configuration_for_quantize(run: Run, model: Path, data: Path, labelled: Path) -> None:
    result = run("search", model, "-b", "academic", "-d", data, "--bits", "8,4", "--budget", "70%", "--evaluations", 6,
                 "--eval", labelled, "--metric", "own_metric:margin", "-o", "found")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "chosen: best margin within 70% (41,736 bytes)" in result.stdout
    names = ["cache", "config.json", "front.json", "front.svg", "report.html"]
    assert sorted(path.name for path in Path("found").iterdir()) == names
    front = json.loads(Path("found/front.json").read_text())
    assert front["chosen"]["bytes"] <= 41736
    assert len(front["points"]) == 6
    assert f"front: {len(front['front'])} of 6 configurations" in result.stdout
    written = run("quantize", model, "-c", "found/config.json", "-o", "quantized", "--effort", 0, "--quiet")
    assert written.exit_code == 0, written.stderr
    plan = json.loads(Path("quantized/plan.json").read_text())
    for name, bits in front["chosen"]["bits"].items():
        assert plan["tensors"][name]["spec"]["dtype"] == f"int{bits}"


def test_layers_are_restored_until_the_metric_holds(run: Run, model: Path, data: Path, tmp_path: Path) -> None:
    wanted = ("search", model, "-b", "onnxruntime", "-d", data, "--fallback", "float", "--reach", 41, "-o", tmp_path)
    result = run(*wanted)
    assert result.exit_code == 0, result.stderr
    assert "9 layers; sqnr_db at least 41" in result.stdout
    assert "restored to float: " in result.stderr
    held = json.loads((tmp_path / "hold.json").read_text())
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["node"] == {name: {"skip": True} for name in held["chosen"]["restored"]}
    assert held["chosen"]["value"] >= 41
    again = run(*wanted, "--json")
    assert json.loads(again.stdout)["evaluations"]["run"] == 0
    assert json.loads(again.stdout)["steps"] == held["steps"]


def test_an_effort_is_evaluated_shown_and_written(
    run: Run, model: Path, data: Path, tmp_path: Path, labelled: Path
) -> None:
    wanted = ("search", model, "-b", "academic", "-d", data, "--eval", labelled, "--bits", "8,4", "--budget", "60%",
              "--evaluations", 1, "--effort", 1, "-o", tmp_path / "found")  # fmt: skip
    result = run(*wanted)
    assert result.exit_code == 0, result.stderr
    assert "front: 1 of 1 configurations, evaluated after effort 1" in result.stdout
    document = json.loads((tmp_path / "found" / "front.json").read_text())
    assert "bias_correction" in document["improvements"]
    assert document["chosen"]["value"] > document["chosen"]["calibrated_value"]
    assert json.loads((tmp_path / "found" / "config.json").read_text())["effort"] == 1
    again = run(*wanted, "--json")
    assert json.loads(again.stdout)["evaluations"]["run"] == 0
    assert json.loads(again.stdout)["front"] == document["front"]


def test_layers_are_restored_until_the_metric_holds_with_the_effort_of_the_configuration(
    run: Run, model: Path, data: Path, tmp_path: Path
) -> None:
    config = tmp_path / "careful.json"
    config.write_text(json.dumps({"backend": "tensorrt", "improvements": ["weight_scale_search"]}))
    result = run("search", model, "-c", config, "-d", data, "--fallback", "float", "--reach", 30, "-o", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "sqnr_db at least 30, evaluated after improvements" in result.stdout
    assert json.loads((tmp_path / "config.json").read_text())["improvements"] == ["weight_scale_search"]
    assert json.loads((tmp_path / "hold.json").read_text())["improvements"] == ["weight_scale_search"]


def test_random_data_is_warned_of(run: Run, model: Path) -> None:
    result = run("sensitivity", model, "-b", "tensorrt", "--random", 2, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert "calibrated on 2 random samples" in result.stderr


BITS = ("--bits", "8,4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sensitivity", "--by", "node"), "--by is layer or quantizer, got 'node'"),
        (("sensitivity", "--only", "biases"), "--only is weights or activations, got 'biases'"),
        (("sensitivity", "--metric", "acc"), "unknown metric 'acc'"),
        (("sensitivity", "--metric", "accuracy"), "accuracy needs labels"),
        (("sensitivity", "--eval", "missing.npz"), "'missing.npz' does not exist"),
        (("sensitivity", "--best-by", "most"), "--best-by is max or min, got 'most'"),
        (("search",), "give either --bits to choose from, or --fallback"),
        (("search", *BITS, "--fallback", "float"), "give either --bits to choose from, or --fallback"),
        (("search", *BITS), "say what to search for: --budget"),
        (("search", *BITS, "--budget", "half"), "budget 'half' cannot be read. Write 60%"),
        (("search", *BITS, "--budget", "1%"), "the least that these bits need is"),
        (("search", *BITS, "--budget", "60%", "--metric", "acc"), "unknown metric 'acc'"),
        (("search", *BITS, "--budget", "60%", "--metric", "accuracy"), "accuracy needs labels"),
        (("search", *BITS, "--hold", "2", "--metric", "agreement"), "--hold is a fraction of the float model's metric"),
        (("search", "--fallback", "float", "--max-drop", "-1"), "--max-drop is 0 or more, got -1"),
        (("search", "--fallback", "float", "--reach", "200"), "the float model itself has"),
        (("search", *BITS, "--budget", "60%", "--for", "biases"), "--for is weights, activations or both"),
        (("search", "--bits", "8,four", "--budget", "60%"), "--bits is a list of whole numbers"),
        (("search", "--bits", "8,2", "--budget", "60%"), "tensorrt cannot take 2 bits"),
        (("search", "--fallback", "16", "--reach", "40"), "tensorrt cannot put layers back to 16 bits"),
        (("search", "--fallback", "8", "--reach", "40"), "--fallback is 16 or float, got '8'"),
        (("search", *BITS, "--budget", "60%", "--effort", "4"), "'effort': must be 3 or less (got 4)"),
        (("search", "--fallback", "float", "--reach", "40", "--effort", "-1"), "'effort': must be 0 or more (got -1)"),
        (("search", "--fallback", "float"), "say how good the model must be"),
        (("search", "--fallback", "float", "--budget", "60%"), "--budget is for --bits"),
    ],
)
def test_wrong_use_ends_with_two_and_says_why(
    run: Run, model: Path, data: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    command, *rest = arguments
    out = ("-o", tmp_path / "out") if command == "search" else ()
    result = run(command, model, "-b", "tensorrt", "-d", data, *out, *rest)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"improvements": ["no_such"]}, "unknown improvement 'no_such'"),
        ({"improvements": ["gptq"], "skip_improvements": ["gptq"]}, "asked for by name, and to be left out"),
        ({"skip_improvements": ["no_such"], "effort": 1}, "there is no improvement 'no_such'"),
    ],
)
def test_wrong_improvements_leave_nothing_behind(
    run: Run, model: Path, data: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    config = tmp_path / "wrong.json"
    config.write_text(json.dumps({"backend": "tensorrt", **settings}))
    result = run(
        "search", model, "-c", config, "-d", data, "--fallback", "float", "--reach", 30, "-o", tmp_path / "out"
    )
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()
