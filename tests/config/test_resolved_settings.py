"""config.json beside the files: what a run used, spelt out; running it again gives the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxq
from onnxq.config import read_config, resolved_settings
from onnxq.graph import Graph
from onnxq.pipeline.artifacts import REMEDY
from onnxq.session.prepare import make_plan, prepare
from onnxq.targets import BACKENDS
from tests.golden_graphs import GOLDEN
from tests.networks.exported import exported, samples

NLP = ("tensorrt_nlp", "academic_nlp")
VARIED: dict[str, Any] = {
    "observer": "percentile:99.9",
    "weight": {"observer": "mse", "fake_quantizer": "lsq"},
    "op": {"Conv": {"activation": {"minimum_scale": 0.001}}},
    "skip": ["op:Gemm"],
    "name": "net",
    "verify_samples": 2,
    "minimum_sqnr_db": 0.0,
}


def decisions(path: Path) -> dict[str, Any]:
    """A plan without what says who decided."""
    plan: dict[str, Any] = json.loads(path.read_text())
    del plan["config"]
    for placement in plan["tensors"].values():
        placement.pop("set_by", None)
    reasons = plan["nodes"]["float"]
    plan["nodes"]["float"] = {node: re.sub(r"(excluded by '.*') \(.*\)", r"\1", why) for node, why in reasons.items()}
    return plan


def resolved(path: Path) -> dict[str, Any]:
    """Every setting that a configuration comes to."""
    prepared = prepare(Graph.load(exported("resnet_torchscript")), None, read_config(path))
    return resolved_settings(prepared.backend, prepared.config)


def run(out: Path, data: Path, **settings: Any) -> onnxq.Result:
    return onnxq.quantize(exported("resnet_torchscript"), data=data, out=out, **settings)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "calib.npz"
    np.savez(path, **samples("resnet_torchscript", 4))
    return path


@pytest.mark.parametrize("effort", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", ["tensorrt", "onnxruntime", "vitis", "sophgo_bm1684x", "openvino", "nnie"])
@pytest.mark.parametrize("given", [{}, VARIED], ids=["defaults", "changed"])
def test_the_resolved_configuration_gives_the_same_files(
    backend: str, given: dict[str, Any], effort: int, data: Path, tmp_path: Path
) -> None:
    given = {**given, "minimum_sqnr_db": -100.0, "verify_samples": 2, "effort": effort}
    first = run(tmp_path / "first", data, backend=backend, config=given)
    again = run(tmp_path / "again", data, config=tmp_path / "first" / "config.json")
    names = {path.name for path in (tmp_path / "first").iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    spelt = {name for name in names if name.endswith(REMEDY)}  # what each run was given, and the remedy
    for name in names - spelt - {"plan.json", "report.json", "report.html"}:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    for name in spelt:
        assert resolved(tmp_path / "first" / name) == resolved(tmp_path / "again" / name)
    assert [p.spec for p in first.plan] == [p.spec for p in again.plan]
    one, two = (decisions(tmp_path / name / "plan.json") for name in ("first", "again"))
    assert one == two


@pytest.mark.parametrize("backend", sorted(BACKENDS.names()))
def test_every_target_spells_out_its_choices_and_makes_the_same_plan_of_them(backend: str) -> None:
    golden = GOLDEN["transformer" if backend in NLP else "residual"]()
    prepared = prepare(Graph.from_model(golden.model), backend)
    spelt = resolved_settings(prepared.backend, prepared.config)
    assert spelt["backend"] == backend
    assert "residual" in spelt
    again = prepare(Graph.from_model(golden.model), None, read_config(json.loads(json.dumps(spelt))))
    one, two = make_plan(prepared), make_plan(again)
    assert [(p.tensor, p.spec, p.observer, p.edges, p.tie) for p in one] == [
        (p.tensor, p.spec, p.observer, p.edges, p.tie) for p in two
    ]


def test_options_of_a_target_are_part_of_its_name(data: Path, tmp_path: Path) -> None:
    run(tmp_path / "out", data, backend="vitis:strategy=fs", config={"minimum_sqnr_db": -100.0, "effort": 0})
    spelt = json.loads((tmp_path / "out" / "config.json").read_text())
    assert spelt["backend"].startswith("vitis:strategy=fs")
    assert spelt["weight"]["per_channel"] is True


@pytest.mark.parametrize(
    "given",
    [
        {"activation": {"fake_quantizer": "fixed"}},
        {"weight": {"observe_only": True, "power_of_two": True}},
        {"bias": {"skip": False}, "weight": {"minimum_scale": 0.01}},
    ],
)
def test_the_configuration_of_a_repetition_is_that_of_the_run(given: dict[str, Any]) -> None:
    first = prepare(Graph.from_model(GOLDEN["residual"]().model), "openvino:weights=int8", given)
    written = resolved_settings(first.backend, first.config)
    again = prepare(Graph.from_model(GOLDEN["residual"]().model), None, written)
    assert json.dumps(resolved_settings(again.backend, again.config)) == json.dumps(written)
