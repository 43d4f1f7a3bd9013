"""Adding a target takes one file: formats, rules, a reason and an emitter of its own, with no change elsewhere.

The file is the one that docs/backends.md shows.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxq
from onnxq.emit import EMITTERS
from onnxq.errors import ConfigError
from onnxq.targets import BACKENDS, get_backend
from tests.examples.runnable import ROOT, Shell, named_blocks, write_model_and_data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model, data and toy.py; what the file registers is forgotten after the test."""
    for registry in (onnxq.BACKENDS, EMITTERS):
        monkeypatch.setattr(registry, "_items", dict(registry.items()))
    write_model_and_data(tmp_path)
    (tmp_path / "toy.py").write_text(named_blocks(ROOT / "docs" / "backends.md", "python")["toy.py"])
    return tmp_path


@pytest.fixture
def result(folder: Path) -> onnxq.Result:
    backend = str(folder / "toy.py")
    return onnxq.quantize(
        folder / "model.onnx", backend=backend, data=folder / "calib.npz", out=folder / "out", config={"effort": 0}
    )


def test_the_plan_follows_the_rules_of_the_file(result: onnxq.Result) -> None:
    plan = result.plan
    assert plan.backend == "toy"
    assert plan.quantized["stem.conv"] == "Conv: rule of toy"
    assert plan.left_float["depthwise.conv"] == "the chip has no grouped convolutions"
    assert plan.left_float["depthwise.conv"].code == "declined_by_target"
    assert plan.left_float["global_pool"] == "toy has no rule for GlobalAveragePool"
    assert plan.leader("pool.out") == "residual.relu.out"
    assert all(placement.spec.power_of_two and placement.spec.dtype == "int8" for placement in plan)
    assert {placement.role for placement in plan} == {"activation", "weight"}


def test_scales_follow_the_scheme_of_the_file(result: onnxq.Result) -> None:
    exponents = [np.log2(result.qparams[tensor].scale) for tensor in result.qparams]
    assert exponents
    assert all(float(exponent).is_integer() for exponent in exponents)


def test_the_emitter_of_the_file_writes_beside_the_model(result: onnxq.Result) -> None:
    table = result.model.with_name("model.shifts.json")
    assert str(table) in result.report["files"]
    shifts = json.loads(table.read_text())
    assert set(shifts) == set(result.plan.placements)
    assert all(2.0**-shift == result.qparams[tensor].scale for tensor, shift in shifts.items())


def test_the_written_model_is_quantized_and_passed_the_checks(result: onnxq.Result) -> None:
    operators = [node.op_type for node in onnx.load(result.model).graph.node]
    assert operators.count("QuantizeLinear") == sum(placement.role == "activation" for placement in result.plan)
    assert result.report["checks"]["passed"]
    assert result.report["sqnr_db"]["logits"] > 20.0


def test_the_command_line_takes_the_file_as_a_target(folder: Path) -> None:
    shell = Shell(folder, folder / "bin")
    report = json.loads(shell.run("onnxq quantize model.onnx -b toy.py -d calib.npz -o out/ --json"))
    assert report["backend"] == "toy"
    assert (folder / "out" / "model.shifts.json").is_file()
    listed = {entry["name"]: entry for entry in json.loads(shell.run("onnxq list backends --plugin toy.py --json"))}
    assert listed["toy"]["activations"] == "int8, symmetric, per tensor, power-of-two scale"


def test_a_backend_file_can_be_loaded_again_after_an_edit(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = (
        "from onnxq.targets import BACKENDS\n"
        "from onnxq.types import Backend, Limits, OpRule, QuantSpec, Scheme\n"
        "scheme = Scheme(QuantSpec('int8'), QuantSpec('int8'))\n"
        "rules = (OpRule(('Conv',), weight=1),)\n"
        "BACKENDS.add('my_chip', Backend('my_chip', 'FIRST', scheme, rules, Limits(('int8',))))\n"
    )
    path.write_text(text)
    assert get_backend(str(path)).summary == "FIRST"
    path.write_text(text.replace("FIRST", "second"))
    assert get_backend(str(path)).summary == "second"
    BACKENDS.forget("my_chip")


def test_a_backend_file_with_an_error_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\nraise ValueError('no such chip')\n")
    with pytest.raises(ConfigError, match=r"broken\.py, line 2: ValueError: no such chip"):
        get_backend(str(path))
