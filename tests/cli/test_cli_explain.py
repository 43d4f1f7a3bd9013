"""`onnxq explain`: nodes and tensors by name or pattern, with names that passes merged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from onnxq.place.explanation import Decisions
from onnxq.types import Edge, Placement, QParams, QParamsTable, QuantPlan, QuantSpec


def answers(run, *arguments: object) -> dict[str, dict]:
    result = run("explain", *arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return {f"{entry['kind']} {entry['name']}": entry["facts"] for entry in json.loads(result.stdout)}


def test_a_tensor_has_its_format_readers_and_scale(run, finished: Path) -> None:
    facts = answers(run, finished, "residual.relu.out")["tensor residual.relu.out"]
    assert facts["format"] == ["uint8, asymmetric, per tensor"]
    assert facts["quantized for"] == ["every reader"]
    assert facts["shares its scale with"] == ["'pool.out'"]
    scale = json.loads((finished / "qparams.json").read_text())["tensors"]["residual.relu.out"]["scale"]
    assert f"scale {np.float32(scale):.8g}" in facts["parameters"][0]


def test_a_tied_tensor_names_its_leader(run, finished: Path) -> None:
    assert "residual.relu.out" in answers(run, finished / "plan.json", "pool.out")["tensor pool.out"]["tied to"][0]


def test_a_bias_says_where_its_scale_comes_from(run, finished: Path) -> None:
    facts = answers(run, finished, "classifier.bias")["tensor classifier.bias"]
    assert "classifier.weight" in facts["scale"][0]


def test_a_merged_name_is_found_with_the_model(run, finished: Path, model: Path) -> None:
    missing = run("explain", finished, "stem.bn")
    assert missing.exit_code == 2
    assert "--model" in missing.stderr
    facts = answers(run, finished, "stem.bn", "--model", model)["node stem.bn"]
    assert "'stem.conv'" in facts["became"][0]
    assert "'stem.conv.weight'" in facts["input 1"][0]
    assert facts["together with"] == ["'stem.relu'"]


def test_operators_are_those_of_the_users_file(run, finished: Path, model: Path) -> None:
    found = answers(run, finished, "op:BatchNormalization", "--model", model)
    assert len(found) == 6
    assert all("became" in facts for facts in found.values())
    without = run("explain", finished, "op:Conv")
    assert without.exit_code == 2
    assert "--model" in without.stderr


def test_a_misspelled_name_gets_a_suggestion(run, finished: Path) -> None:
    result = run("explain", finished, "stem.cnv")
    assert result.exit_code == 2
    assert "Did you mean 'stem.conv'" in result.stderr


def test_a_glob_explains_all_it_names(run, finished: Path) -> None:
    found = answers(run, finished, "head.*")
    assert {"node head.conv", "node head.relu", "tensor head.conv.weight"} <= set(found)


def test_float_nodes_and_partial_placements_are_told_apart() -> None:
    spec = QuantSpec("int8")
    plan = QuantPlan(
        "some",
        placements={
            "t": Placement("t", spec, "activation", "input of Conv 'a'", edges=(Edge("a", 0),), observe=("t",))
        },
        quantized={"a": "Conv: rule of some"},
        left_float={"b": "some has no rule for Tanh"},
    )
    table = QParamsTable({"t": QParams(spec, np.float32(0.5), np.int32(0))}, origins={"t": ("minmax",)})
    decisions = Decisions(plan, table)
    ((_, reason),) = decisions.about("b")[0].facts
    assert reason == "some has no rule for Tanh"
    assert dict(decisions.about("t")[0].facts)["quantized for"] == "input 0 of 'a'"
    assert "scale 0.5, zero point 0" in dict(decisions.about("a")[0].facts)["input 0"]


def test_a_constant_that_passes_have_folded_is_known_as_such(run, finished: Path, model: Path) -> None:
    facts = answers(run, finished, "stem.bn.weight", "--model", model)["tensor stem.bn.weight"]
    assert "folded" in facts["removed"][0]


def test_every_line_that_decided_something_is_named(run, model: Path, data: Path, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'backend = "tensorrt"\n[weight]\nobserver = "mse"\n[op.Conv.weight]\nbits = 6\n'
        '[node."stem.conv".weight]\nminimum_scale = 0.001\n[tensor.image]\nskip = true\n'
    )
    done = run("quantize", model, "-c", settings, "-d", data, "-o", tmp_path / "out", "--observer", "percentile:99.9")
    assert done.exit_code == 0, done.stderr
    decided = answers(run, tmp_path / "out", "stem.conv.weight")["tensor stem.conv.weight"]["decided by"]
    assert decided == [
        f"{settings}:3: observer",
        f"{settings}:5: bits",
        f"{settings}:7: minimum_scale",
        "backend tensorrt: the rest",
    ]
    assert answers(run, tmp_path / "out", "image")["tensor image"]["float"] == [f"left out by {settings}:9"]
    assert "--observer: observer" in answers(run, tmp_path / "out", "pool.out")["tensor pool.out"]["decided by"]
