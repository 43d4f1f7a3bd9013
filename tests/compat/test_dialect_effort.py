"""A configuration of another tool says how to calibrate: weights that nobody asked to change are not changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onnxq
from onnxq.cli.app import app
from onnxq.compat import mqbench
from onnxq.compat.translation import Translation
from onnxq.errors import ConfigError
from onnxq.graph import Graph
from onnxq.targets.amd import dialect as vitis
from onnxq.targets.sophgo import dialect as sophgo
from tests.zoo_graphs.net import Net

OUTLIER = 87.122
"""The largest weight: 127 steps of 0.686, MinMaxObserver's scale."""

MQBENCH = {
    "extra_qconfig_dict": {
        "w_observer": "MinMaxObserver",
        "w_qscheme": {"bit": 8, "symmetry": True, "per_channel": False, "pot_scale": False},
    }
}
SOPHGO = {"quant_dict": {"chip": "BM1688", "quantmode": "weight_activation", "strategy": "CNN"}, **MQBENCH}
VITIS = {"strategy": "fs", "weight_method": "No_OF", "weight_per_channel": False}


def network() -> Graph:
    """Two layers; one weight of the second is far larger than all others, and reads a channel that is nearly silent."""
    generator = np.random.default_rng(0)
    net = Net("outlier")
    x = net.input("x", (1, 8))
    first = generator.normal(0, 1, (8, 8)).astype(np.float32)
    first[:, 3] *= 1e-4
    hidden = net.node("Relu", net.node("Gemm", x, net.floats(first, name="w1")))
    second = generator.normal(0, 1, (8, 4)).astype(np.float32)
    second[3, 0] = OUTLIER
    net.node("Gemm", hidden, net.floats(second, name="w2"), output="y")
    net.output("y", (1, 4))
    return Graph.from_model(net.model())


def samples() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 1, (24, 1, 8)).astype(np.float32)


def translations() -> dict[str, Translation]:
    graph = network()
    return {
        "mqbench": mqbench.translate(MQBENCH, graph, "Tensorrt"),
        "sophgo": sophgo.translate(SOPHGO, graph),
        "vitis": vitis.translate(VITIS, graph),
    }


def weight_scale(result: onnxq.Result) -> float:
    return float(result.qparams["w2"].scale.max())


@pytest.mark.parametrize("dialect", ["mqbench", "sophgo", "vitis"])
def test_the_scale_of_the_given_observer_is_the_one_in_the_files(dialect: str, tmp_path: Path) -> None:
    translation = translations()[dialect]
    feeds = [{"x": sample} for sample in samples()]
    result = onnxq.quantize(network(), data=feeds, config=translation, out=tmp_path / "out")
    assert weight_scale(result) == pytest.approx(OUTLIER / 127, rel=1e-3)
    assert "improvements" not in result.report
    row = next(row for row in result.report["translated"]["keys"] if row["key"] == "effort")
    assert row["value"] == "'left out'"
    assert row["became"].startswith("effort = 0")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["effort"] == 0


@pytest.mark.parametrize("dialect", ["mqbench", "sophgo", "vitis"])
def test_who_asks_for_an_effort_gets_it(dialect: str, tmp_path: Path) -> None:
    asked = onnxq.config.read_config(translations()[dialect], effort=1)
    result = onnxq.quantize(network(), data=[{"x": sample} for sample in samples()], config=asked, out=tmp_path / "out")
    assert result.report["improvements"]["steps"]
    assert weight_scale(result) < 0.5 * OUTLIER / 127


def test_effort_is_a_key_of_every_dialect() -> None:
    graph = network()
    found = [
        mqbench.translate({**MQBENCH, "effort": 2}, graph, "Tensorrt"),
        sophgo.translate({**SOPHGO, "effort": 2}, graph),
        vitis.translate({**VITIS, "effort": 2}, graph),
    ]
    for translation in found:
        assert translation.config["effort"] == 2
        assert [row.became for row in translation.rows if row.key == "effort"] == ["effort = 2"]


@pytest.mark.parametrize("wrong", [True, 4, -1, "2", 1.0])
def test_an_effort_is_a_whole_number_from_0_to_3(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="effort is a whole number from 0 to 3"):
        vitis.translate({**VITIS, "effort": wrong}, network())


def test_convert_deploy_takes_an_effort(tmp_path: Path) -> None:
    prepared = mqbench.prepare_by_platform(network(), "Tensorrt", MQBENCH)
    mqbench.enable_calibration(prepared)
    for sample in samples():
        prepared(sample)
    plain = mqbench.convert_deploy(prepared, "Tensorrt", output_path=tmp_path / "plain")
    assert weight_scale(plain) == pytest.approx(OUTLIER / 127, rel=1e-3)
    tried = mqbench.convert_deploy(prepared, "Tensorrt", output_path=tmp_path / "tried", effort=1)
    assert weight_scale(tried) < 0.5 * OUTLIER / 127
    keys = {row["key"]: row["became"] for row in tried.report["translated"]["keys"]}
    assert keys["convert_deploy.effort"] == "effort = 1"


def test_the_option_of_the_command_line_wins_over_the_key(tmp_path: Path) -> None:
    network().save(tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=samples()[:, 0])
    (tmp_path / "strategy.json").write_text(json.dumps({**VITIS, "effort": 1}))
    start = ["quantize", str(tmp_path / "model.onnx"), "-d", str(tmp_path / "data.npz"), "-q"]
    for options, tried in (([], True), (["--effort", "0"], False)):
        out = tmp_path / f"out{len(options)}"
        ended = CliRunner().invoke(app, [*start, "--vitis", str(tmp_path / "strategy.json"), *options, "-o", str(out)])
        assert ended.exit_code == 0, ended.output
        assert ("improvements" in json.loads((out / "report.json").read_text())) is tried
