"""`onnxq qat --vitis` obeys the switches of a strategy: batch norms in training, when they freeze, steps before it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from onnxq.cli.app import app
from onnxq.config.training import TrainSettings, train_settings
from onnxq.graph import Graph
from onnxq.qat.net import QatNet
from onnxq.qat.prepare import prepare
from onnxq.qat.schedules import Schedule
from onnxq.targets.amd.dialect import translate
from tests.targets.amd.test_vitis_improvements import samples as uneven_samples
from tests.targets.amd.test_vitis_improvements import uneven_network
from tests.targets.amd.vitis_runs import became, translated
from tests.zoo_graphs.net import Net

STRATEGIES = ["pof2s", "tqt", "fs"]


@cache
def network() -> Graph:
    """Two layers with batch norms, and one behind a pooling, which nothing folds."""
    net = Net("normalized")
    x = net.relu(net.batch_norm(net.conv(net.input("x", ("n", 3, 8, 8)), 3, 6), 6))
    pooled = net.batch_norm(net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 6)
    last = net.relu(net.batch_norm(net.conv(net.relu(pooled), 6, 6), 6))
    net.output(net.classifier(last, 6, 3))
    return Graph.from_model(net.model())


def images(count: int = 16) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (count, 3, 8, 8)).astype(np.float32)


def prepared(**strategy: Any) -> QatNet:
    graph = network()
    return prepare(graph, data={"x": images()}, config=translate(strategy, graph))


def apart(net: QatNet) -> int:
    return len(net.unfolded.graph.nodes("ConvBatchNorm"))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batch_norms_are_trained_apart_or_folded_before(strategy: str) -> None:
    live = prepared(strategy=strategy, train_with_bn=True)
    assert live.batch_norms == "live"
    assert apart(live) == 2
    assert live.mode.live_statistics
    folded = prepared(strategy=strategy, train_with_bn=False)
    assert folded.batch_norms == "folded"
    assert apart(folded) == 0


@pytest.mark.parametrize("fold", [True, False])
def test_the_files_have_batch_norms_folded_that_are_trained(fold: bool) -> None:
    given = {"train_with_bn": True, "fold_conv_bn": fold, "convert_bn_to_dwconv": False}
    net = prepared(**given)
    assert apart(net) == 2
    assert len(net.to_graph().nodes("BatchNormalization")) == 1  # the one that nothing folds
    row = became(translate(given, network()), "fold_conv_bn")
    assert row.startswith("pass fold_batchnorm" if fold else "no effect: train_with_bn")


def test_an_argument_wins_over_the_strategy() -> None:
    graph = network()
    config = translate({"train_with_bn": True}, graph)
    net = prepare(graph, data={"x": images()}, config=config, batch_norms="folded")
    assert net.batch_norms == "folded"


@pytest.mark.parametrize(("delay", "live"), [(-1, 100), (0, 0), (7, 7)])
def test_statistics_freeze_after_so_many_steps(delay: int, live: int) -> None:
    made = translated({"train_with_bn": True, "freeze_bn_delay": delay})
    schedule = Schedule.of(train_settings({"epochs": 10}, made.training), per_epoch=10)
    assert sum(schedule.live_statistics(step) for step in range(100)) == live
    assert became(made, "freeze_bn_delay").startswith("batch_norm_")


def test_nothing_is_frozen_where_nothing_is_trained() -> None:
    made = translated({"freeze_bn_delay": 100})
    assert became(made, "freeze_bn_delay").startswith("no effect: train_with_bn is not true")
    assert made.training == {}


def test_settings_that_somebody_gives_win_over_those_of_a_strategy() -> None:
    beneath = {"batch_norms": "live", "batch_norm_steps": 7}
    assert train_settings(None, beneath).batch_norm_steps == 7
    assert train_settings({"batch_norm_steps": 3}, beneath).batch_norm_steps == 3
    assert train_settings(TrainSettings(batch_norm_steps=3), beneath).batch_norm_steps == 3
    for own in ({"batch_norm_freeze": 0.25}, TrainSettings(batch_norm_freeze=0.25)):
        assert train_settings(own, beneath) == TrainSettings(batch_norm_freeze=0.25)
    assert train_settings(TrainSettings(lr=0.1), beneath) == TrainSettings(lr=0.1, batch_norm_steps=7)


def test_training_starts_from_layers_that_were_equalized() -> None:
    graph = uneven_network()
    plain = prepare(graph, data=uneven_samples(), config=translate({}, graph))
    even = prepare(graph, data=uneven_samples(), config=translate({"include_cle": True}, graph))
    assert any(note.startswith("before training, cross_layer_equalization") for note in even.notes)
    weight = graph.nodes("Conv")[1].inputs[1].name
    spread = [np.ptp(np.log(np.abs(net.value(weight).detach().numpy()).max((1, 2, 3)))) for net in (plain, even)]
    assert spread[1] < 0.5 * spread[0]
    kept = prepare(graph, data=uneven_samples(), config=translate({"include_cle": False}, graph))
    np.testing.assert_array_equal(kept.value(weight).detach().numpy(), plain.value(weight).detach().numpy())


def qat(folder: Path, strategy: dict[str, Any], *options: str) -> dict[str, Any]:
    network().save(folder / "model.onnx")
    labels = np.random.default_rng(1).integers(0, 3, 64)
    np.savez(folder / "train.npz", x=images(64), labels=labels)
    (folder / "strategy.json").write_text(json.dumps(strategy))
    given = ["qat", str(folder / "model.onnx"), "--vitis", str(folder / "strategy.json"), "-o", str(folder / "out")]
    given += ["--train", str(folder / "train.npz"), "--steps", "3", "--min-sqnr=-50", "-q", *options]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 0, ended.output
    return dict(json.loads((folder / "out" / "report.json").read_text()))


def test_the_command_line_trains_as_the_strategy_says(tmp_path: Path) -> None:
    report = qat(tmp_path, {"strategy": "tqt", "train_with_bn": True, "freeze_bn_delay": 2})
    assert report["training"]["settings"]["batch_norm_steps"] == 2
    keys = {row["key"]: row["became"] for row in report["translated"]["keys"]}
    assert keys["train_with_bn"].startswith("batch_norms = live")
    assert not any("batch_norm_steps" in note for note in report["notes"])


def test_an_option_wins_over_the_strategy(tmp_path: Path) -> None:
    given = {"strategy": "tqt", "train_with_bn": True, "freeze_bn_delay": 2}
    report = qat(tmp_path, given, "--batch-norms", "folded")
    assert any("batch_norm_steps = 2 has no effect: batch norms are folded" in note for note in report["notes"])
