"""--plugin and backends from files: passes, observers and targets of the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxq.targets import BACKENDS

PASS = '''
from onnxq.passes import PASSES, PassResult

@PASSES.register("plugin_note")
def plugin_note(graph):
    """Say how many nodes there are."""
    return PassResult(changed=[f"saw {len(graph.nodes())} nodes"])
'''

BACKEND = """
from onnxq.targets import BACKENDS

BACKENDS.add("plugin_target", BACKENDS.get("tensorrt").replace(name="plugin_target", summary="of the user's own"))
"""


@pytest.fixture(autouse=True)
def _forget_the_target() -> Iterator[None]:
    yield
    BACKENDS.forget("plugin_target")


def test_a_pass_of_a_plugin_is_listed_and_run(run, model: Path, data: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin_passes.py"
    plugin.write_text(PASS)
    entries = {entry["name"]: entry for entry in json.loads(run("list", "passes", "--plugin", plugin, "--json").stdout)}
    assert entries["plugin_note"]["summary"] == "Say how many nodes there are."
    options = ["-d", data, "-o", tmp_path / "out", "--plugin", plugin, "--pass", "plugin_note", "--json"]
    report = json.loads(run("quantize", model, "-b", "onnxruntime", *options).stdout)
    assert report["passes"][-1]["name"] == "plugin_note"
    assert report["passes"][-1]["changed"] == ["saw 17 nodes"]


def test_a_backend_file_serves_as_target_through_all_stages(run, model: Path, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "plugin_target.py"
    target.write_text(BACKEND)
    plan, qparams = tmp_path / "plan.json", tmp_path / "qparams.json"
    placed = run("place", model, "-b", target, "-o", plan)
    assert placed.exit_code == 0, placed.stderr
    assert json.loads(plan.read_text())["backend"] == "plugin_target"
    assert run("calibrate", model, "-b", target, "--plan", plan, "-d", data, "-o", qparams).exit_code == 0
    emitted = run("emit", model, "--plan", plan, "--qparams", qparams, "-b", target, "-o", tmp_path / "out")
    assert emitted.exit_code == 0, emitted.stderr
    assert "plugin_target" in emitted.stdout


def test_the_resolved_configuration_names_the_file_of_a_target(run, model: Path, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "plugin_target.py"
    target.write_text(BACKEND)
    assert run("quantize", model, "-b", target, "-d", data, "-o", tmp_path / "one").exit_code == 0
    assert json.loads((tmp_path / "one" / "config.json").read_text())["backend"] == str(target)
    repeated = ("quantize", model, "-c", tmp_path / "one" / "config.json", "-o", tmp_path / "two")
    refused = run(*repeated)
    assert refused.exit_code == 2
    assert "--allow-code" in refused.stderr
    again = run(*repeated, "--allow-code")
    assert again.exit_code == 0, again.stderr
    assert (tmp_path / "one" / "model.onnx").read_bytes() == (tmp_path / "two" / "model.onnx").read_bytes()


def test_a_file_that_ends_the_program_is_an_error_of_that_file(run, model: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "leaves.py"
    plugin.write_text("import sys\nsys.exit(3)\n")
    result = run("place", model, "-b", "tensorrt", "--plugin", plugin)
    assert result.exit_code == 2
    assert "leaves.py, line 2: SystemExit: 3" in result.stderr
